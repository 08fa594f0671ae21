"""What the pages show, and that nothing that an agent or a person wrote becomes markup."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest

from tests.unit.web.conftest import Console
from tests.unit.web.shown import (
    DIFF,
    NOW,
    allowed,
    asked,
    denied,
    message,
    pending,
    run,
    shown,
    step,
    thread,
    tracker,
)
from untether.conversation.views import Page, RunView
from untether.model import ActionEvent, Content, Wait
from untether.transport import ChatRef

pytestmark = pytest.mark.anyio

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def page(*runs: RunView, **values: object) -> Page:
    return Page(thread(), "shop @fix-cart", runs, values.get("queued", ()))  # type: ignore[arg-type]


async def words(console: Console, path: str = "/run/1") -> str:
    """The text of a page as a person reads it, with single spaces."""
    answer = await console.get(path)
    assert answer.status_code == 200
    body = answer.text.split("<main", 1)[1].split("</main>")[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


async def test_the_lists(console: Console) -> None:
    one = pending("k1", Content("command", "git push"), run_id=1)
    console.show(
        page(shown(run(1, "running", title="Push it"), asked=(one,))),
        page(shown(run(2, "running", title="Write the changelog"))),
        page(shown(run(3, "done", title="Fix the total", answer="It **works** now."))),
        page(shown(run(4, "failed", title="Deploy", error="The provider refused the key."))),
    )
    text = (await console.get("/")).text
    lists = {part.split("</h2>")[0]: part for part in text.split("<nav")[1].split("</nav>")[0].split("<h2>")[1:]}
    assert list(lists) == ["Needs you", "Running", "Recent"]
    assert 'href="/run/1#end"' in lists["Needs you"]
    assert "⏸" in lists["Needs you"]
    assert "▸" in lists["Running"]
    assert "Write the changelog" in lists["Running"]
    for expected in (
        "✓",
        "It works now.",
        "✗",
        "The provider refused the key.",
        "3 min ago",
        "shop @fix-cart · claude",
    ):
        assert expected in lists["Recent"]
    assert "<title>⏸ 1 · Untether</title>" in text


async def test_an_empty_console_shows_the_box(console: Console) -> None:
    text = (await console.get("/")).text
    assert "No runs yet." in text
    assert 'action="/send"' in text
    assert [name for name in ("claude", "demo", "shop", "docs") if f">{name}</option>" in text] == [
        "claude", "demo", "shop", "docs",
    ]  # fmt: skip


async def test_a_finished_run(console: Console) -> None:
    edit = pending("k1", Content("diff", DIFF, "src/cart.py", added=1, removed=1), act="Edit a file?")
    push = pending("k2", Content("command", "git push --force"))
    usage = {"cost_usd": 0.42, "input_tokens": 61_000, "output_tokens": 4_000}
    done = tracker(
        step("a", "Read src/cart.py"),
        step("b", "src/cart.py", kind="file_change", verb="Edit", path="src/cart.py", added=12, removed=3),
        step("c", "pytest -q", kind="command", ok=False, message="1 failed", description="Run the tests"),
    )
    row = run(1, answer="All **good**.", steps=3, model="claude-opus-5-5", usage=usage)
    console.show(page(shown(row, done=done, asked=(allowed(edit), denied(push, "not on a Friday")))))
    text = await words(console)
    for expected in (
        "Fix the total of the cart Ann · ",
        "3 steps",
        "✓ Read src/cart.py",
        "✓ Edit src/cart.py  +12 −3".replace("  ", " "),
        "✗ pytest -q Why Run the tests Output 1 failed",
        "✓ Approved by Ann",
        "✗ Denied by Ann",
        "Reason: not on a Friday",
        "All good .",
        "✓ 3m 41s · 3 steps · opus 5.5 · $0.42 · 61 k in / 4 k out",
    ):
        assert expected in text
    html = (await console.get("/run/1")).text
    assert "<strong>good</strong>" in html
    assert '<span class="del">-    return sum(cart)\n</span>' in html
    assert '<span class="add">+    return sum(item.price' in html
    assert "Approve</button>" not in html
    assert "Stop</button>" not in html


async def test_a_running_run(console: Console) -> None:
    done = tracker(*[step(f"s{i}", f"Read {i}.py") for i in range(8)], step("c", "pytest -q", kind="command", ok=None))
    waits = (Wait("background", NOW - 70, label="check the API docs"),)
    console.show(page(shown(run(1, "running"), done=done, waits=waits)))
    text = await words(console)
    assert "▸ claude · shop @fix-cart · opus 5.5 · 2m 14s · step 9" in text
    assert '⏳ 1 task in the background: "check the API docs" · 1m 10s' in text
    assert "▸ pytest -q · 2m 5s" in text
    html = (await console.get("/run/1")).text
    folded = html.split('id="steps-1"')[1].split("Read 4.py")[0]
    assert "Earlier steps" in folded
    assert "Read 3.py" in folded  # the last five stay in view
    assert 'value="stop:1"' in html


async def test_a_run_that_stops_has_no_stop_button(console: Console) -> None:
    console.show(page(shown(run(1, "running"), stopping=True)))
    assert "■ stopping…" in await words(console)
    assert "stop:1" not in (await console.get("/run/1")).text


async def test_an_open_request_shows_everything_before_its_buttons(console: Console) -> None:
    command = "\n".join(f"echo {number}" for number in range(500))
    one = pending("k1", Content("command", command), Content("json", '{"a": 1}', "Input"), note="Push the branch")
    console.show(page(shown(run(1, "running"), done=tracker(asked(one)), asked=(one,))))
    html = (await console.get("/run/1")).text
    card = html.split('<article class="ask"')[1].split("</article>")[0]
    assert command in unescape(card)
    assert card.index("echo 499") < card.index("Push the branch") < card.index("Approve</button>")
    assert card.index("asked by the main agent") < card.index("Approve</button>")
    assert 'value="i:k1:a"' in card
    assert 'value="i:k1:d"' in card
    # Enter in the reason submits its own form, which denies.
    deny = card.split('class="deny"')[1].split("</form>")[0]
    assert 'name="text"' in deny
    assert "i:k1:a" not in deny
    assert "⏸ waiting for you: permission" in await words(console)


async def test_the_request_of_an_agent_that_has_ended_has_no_buttons(console: Console) -> None:
    console.show(page(shown(run(1, "interrupted"), asked=(pending("k1", Content("command", "ls")),))))
    assert "■ The agent that asked has ended" in await words(console)
    assert "i:k1" not in (await console.get("/run/1")).text


async def test_a_failed_run_says_what_to_do(console: Console) -> None:
    console.show(page(shown(run(1, "failed", error="The provider refused the key.", raw_error='{"error": 401}'))))
    assert '✗ The provider refused the key. Details {"error": 401} Try again' in await words(console)
    assert 'value="again:1"' in (await console.get("/run/1")).text


async def test_stopped_and_interrupted_runs(console: Console) -> None:
    console.show(
        page(shown(run(1, "stopped", answer="I began with `a.py`."))),
        page(shown(run(2, "interrupted", error="Untether was stopped while this ran."))),
    )
    assert "What was written so far: I began with a.py . ■ Stopped after 3m 41s" in await words(console)
    assert "■ Interrupted: Untether was stopped while this ran. Resume" in await words(console, "/run/2")


async def test_only_the_last_run_is_repeated(console: Console) -> None:
    console.show(page(shown(run(1, "failed", error="No.")), shown(run(2, "done", answer="Yes."))))
    assert "again:1" not in (await console.get("/run/1")).text


async def test_a_run_without_a_word_says_so(console: Console) -> None:
    console.show(page(shown(run(1, "done"))))
    assert "The agent ended its work without a word." in await words(console)


async def test_queued_messages(console: Console) -> None:
    console.show(page(shown(run(1, "running")), queued=(message(2, "And the docs"), message(3, "And push"))))
    text = await words(console)
    assert "And the docs Ann" in text
    assert "⏳ queued, 1st" in text
    assert "⏳ queued, 2nd" in text


async def test_steps_of_a_sub_agent_are_inside_its_step(console: Console) -> None:
    done = tracker(step("t", "check the docs", kind="subagent"), step("u", "https://example.org", parent="t"))
    console.show(page(shown(run(1), done=done)))
    html = (await console.get("/run/1")).text
    assert re.search(r'id="r1-s0">.*check the docs.*<div class="inside">.*example\.org', html, re.DOTALL)


async def test_long_runs_show_their_last_steps_until_asked(console: Console) -> None:
    done = tracker(*[step(f"s{number}", f"Read file-{number}.py") for number in range(250)])
    console.show(page(shown(run(1), done=done)))
    html = (await console.get("/run/1")).text
    assert "Show 50 earlier steps" in html
    assert "file-49.py" not in html
    assert "file-50.py" in html
    whole = (await console.get("/run/1?all=1")).text
    assert "file-0.py" in whole
    assert 'hx-get="/run/1?all=1"' in whole  # stays whole when it is looked at again


async def test_long_conversations_show_their_last_runs_until_asked(console: Console) -> None:
    console.show(page(*[shown(run(number, title=f"task {number}", answer="Done.")) for number in range(1, 26)]))
    html = (await console.get("/run/25")).text
    assert "Show 5 earlier runs" in html
    assert 'id="run-5"' not in html
    assert 'id="run-6"' in html
    assert 'id="run-3"' in (await console.get("/run/3")).text  # the one that was asked for is there
    assert 'id="run-1"' in (await console.get("/run/25?all=1")).text


async def test_an_ended_run_shows_what_became_of_its_requests_later(console: Console) -> None:
    one = pending("k1", Content("command", "ls"))
    console.show(page(shown(run(1, "stopped"), asked=(one,))))
    assert "The agent that asked has ended" in await words(console)
    console.show(page(shown(run(1, "stopped"), asked=(allowed(one),))))
    assert "✓ Approved by Ann" in await words(console)


async def test_a_very_long_message_is_sent_when_asked_for(console: Console) -> None:
    text = "word " * 20_000
    console.show(page(shown(run(1), text=text)))
    answer = await console.get("/run/1")
    assert len(answer.content) < 30_000
    assert "Read all 100,000 characters" in answer.text
    whole = await console.get("/run/1/message")
    assert whole.text == text
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_turn_that_nobody_asked_for(console: Console) -> None:
    view = msgspec.structs.replace(shown(run(1, title="background task", answer="Done.")), message=None)
    console.show(page(view))
    assert "background task" in await words(console)


async def test_unknown_addresses(console: Console) -> None:
    for path in ("/run/99", "/nothing", "/chat/A-B", "/run/x"):
        assert (await console.get(path)).status_code == 404


# ------------------------------------------------------------------------------------------------- no markup


async def test_nothing_that_was_written_becomes_markup(console: Console) -> None:
    body = (
        Content("command", EVIL),
        Content("diff", f"+{EVIL}\n-{EVIL}\n@@{EVIL}", EVIL),
        Content("markdown", EVIL + "\n\n[x](javascript:alert(1))\n\n![i](https://evil.example/x.png)"),
        Content("text", EVIL),
        Content("code", EVIL, EVIL, language=EVIL),
    )
    one = pending("k1", *body, act=EVIL, note=EVIL)
    child = step("u", EVIL, message=EVIL, parent="t", ok=False)
    evil_steps: list[ActionEvent] = [step("t", EVIL, message=EVIL, command=EVIL, path=EVIL, verb=EVIL), child]
    running = shown(
        run(2, "running", title=EVIL), done=tracker(*evil_steps, asked(one)), asked=(one, denied(one, EVIL))
    )
    ended = [
        shown(run(3 + index, state, title=EVIL, answer=EVIL, error=EVIL, raw_error=EVIL + "!", model=EVIL), text=EVIL)
        for index, state in enumerate(("done", "failed", "stopped", "interrupted"))
    ]
    evil_thread = msgspec.structs.replace(thread(), engine=EVIL, chat=ChatRef(EVIL, "1"))
    queued = (message(9, EVIL, sender=EVIL),)
    console.show(Page(evil_thread, EVIL, (*ended, running), queued))
    for path in ("/", "/run/2"):
        html = (await console.get(path)).text
        assert html.count("<script") == 3  # our own three files
        assert "<img" not in html
        assert "alert(1)" in html
        assert "javascript:" not in re.sub(r">[^<]*<", "><", html)
        for attribute in re.findall(r"\son\w+\s*=", re.sub(r'="[^"]*"', '=""', html)):
            before = html[: html.index(attribute)]
            assert before.rfind("<") < before.rfind(">"), "an event handler inside a tag"


async def test_characters_that_reorder_text_are_shown(console: Console) -> None:
    one = pending("k1", Content("command", "rm \u202egpj.exe"))
    console.show(page(shown(run(1, "running"), asked=(one,), text="a\u2066b")))
    html = (await console.get("/run/1")).text
    assert "\u202e" not in html
    assert "\u2066" not in html
    assert "rm \ufffdgpj.exe" in html
