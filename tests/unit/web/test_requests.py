"""Requests in the console: the same choices and questions as in a chat, with words typed beside the buttons."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest

from tests.unit.web.conftest import Console
from tests.unit.web.shown import NOW, pending, run, shown, thread
from untether.conversation.views import Page
from untether.model import Answers, Choice, Content, Interaction, Question, Record
from untether.store.interactions import Given, Pending
from untether.transport import TapIn

pytestmark = pytest.mark.anyio

RULE = "Bash(git push --force origin fix-cart --with-a-long-tail-of-options)"
QUESTIONS = (
    Question("Which <database>?", "DB", (Choice("1", "SQLite", "One file"), Choice("2", "Postgres", preview="<pg>"))),
    Question("Which extras?", "", (Choice("1", "Docs"), Choice("2", "CI")), multiple=True),
)


def of(interaction: Interaction, *answers: Given) -> Pending:
    return Pending("k1", "p1", 1, interaction, "open", None, None, "", None, NOW - 5, answers)


async def card(console: Console, one: Pending, state: str = "running", *, alive: bool = False) -> str:
    """The card of the only request on the page of its run."""
    console.show(Page(thread(), "shop", (shown(run(1, state), asked=(one,), alive=alive),), ()))
    html = (await console.get("/run/1")).text
    return html.split('<article class="ask"')[1].split("</article>")[0]


def labels(html: str) -> list[str]:
    found = re.findall(r"<(?:button|summary)[^>]*>(.*?)</(?:button|summary)>", html, re.DOTALL)
    return [unescape(label.strip()) for label in found]


async def test_scopes_are_whole_and_come_after_the_plain_answers(console: Console) -> None:
    choices = (Choice("always:0", f"Always here: {RULE}", RULE), Choice("mode:1", "Accept edits this session"))
    asked = Interaction(
        "r", "permission", "Run a command?", (Content("command", "git push"),), choices, editable="command"
    )
    html = await card(console, of(asked))
    assert labels(html) == [
        "Approve", "Deny", f"Always here: {RULE}", "Accept edits this session", "Edit…", "Run this", "Deny and stop",
    ]  # fmt: skip
    assert 'value="i:k1:c:0"' in html
    edit = html.split('id="words-')[1].split("</details>")[0]
    assert 'value="i:k1:e"' in edit
    assert re.search(r"<textarea[^>]*>\s*git push</textarea>", edit)


async def test_only_what_the_engine_can_take_is_offered(console: Console) -> None:
    asked = Interaction("r", "permission", "Go on?", (Content("text", "x"),), offers=("deny",))
    assert labels(await card(console, of(asked))) == ["Deny", "Deny and stop"]


async def test_a_plan(console: Console) -> None:
    choices = (
        Choice("accept_edits", "Approve, accept edits"),
        Choice("revise", "Revise…", decides="deny", wants_text=True),
        Choice("wait", "Approve, but wait", decides="deny"),
    )
    asked = Interaction("r", "plan", "Leave plan mode?", (Content("markdown", "# Do **it**"),), choices, "It resumes.")
    html = await card(console, of(asked))
    assert labels(html) == ["Approve", "Deny", "Approve, accept edits", "Revise…", "Send", "Approve, but wait"]
    assert html.index("<strong>it</strong>") < html.index("It resumes.") < html.index("Approve</button>")
    revise = html.split('id="words-')[1].split("</details>")[0]
    assert 'value="i:k1:c:1"' in revise


async def test_the_question_that_is_to_be_answered_now(console: Console) -> None:
    asked = Interaction("r", "question", "Answer 2 questions?", questions=QUESTIONS)
    html = await card(console, of(asked))
    assert "Which &lt;database&gt;? (1 of 2)" in html
    assert "&lt;pg&gt;" in html
    assert labels(html) == ["SQLite", "Postgres", "Other…", "Send", "Skip all"]
    assert 'class="approve"' not in html  # keys decide plain answers only
    html = await card(console, of(asked, Given((0,), done=True), Given((1,))))
    assert "Which extras? (2 of 2)" in html
    assert labels(html) == ["☐ Docs", "☑ CI", "Done", "Other…", "Send", "Back", "Skip all"]
    html = await card(console, of(asked, Given((0,), done=True), Given((0, 1), done=True)))
    assert "Which extras? Docs, CI" in html
    assert labels(html) == ["Send", "Back"]


async def test_a_background_agent_may_ask_after_its_run(console: Console) -> None:
    html = await card(console, pending("k1", Content("command", "make")), "done", alive=True)
    assert labels(html) == ["Approve", "Deny", "Deny and stop"]


@pytest.mark.parametrize(
    ("data", "typed", "stored"),
    [
        ("i:k1:d", " not today \r\n", "i:k1:d:not today"),
        ("i:k1:c:1", "add tests", "i:k1:c:1:add tests"),
        ("i:k1:o:0", "DuckDB", "i:k1:o:0:DuckDB"),
        ("i:k1:e", "git push\r\n  --dry-run\r\n", "i:k1:e:git push\n  --dry-run\n"),
        ("i:k1:e", "x" * 20_000, "i:k1:e:" + "x" * 20_000),
        ("i:k1:q:0:1", "words", "i:k1:q:0:1"),
        ("i:k1:s", "words", "i:k1:s"),
    ],
)
async def test_words_go_with_the_buttons_that_take_them(console: Console, data: str, typed: str, stored: str) -> None:
    async def answer(inbound: Record) -> bool:
        assert isinstance(inbound, TapIn)
        return await console.transport.toast(inbound, "")

    console.inbox.on_store = answer
    await console.post("/tap", data=data, text=typed)
    (tap,) = console.inbox.stored
    assert isinstance(tap, TapIn)
    assert tap.data == stored


async def test_how_a_request_ended_is_one_line(console: Console) -> None:
    asked = Interaction("r", "question", "Answer 2 questions?", questions=QUESTIONS)
    answers = Answers({"Which <database>?": "SQLite", "Which extras?": "something else"})
    done = msgspec.structs.replace(of(asked), state="decided", decision=answers, decided_by="Ann", decided=NOW)
    console.show(Page(thread(), "shop", (shown(run(1, "running"), asked=(done,)),), ()))
    assert "Answered: SQLite · “something else”" in (await console.get("/run/1")).text
