"""What people do with requests: scopes, plans, questions, typed words, and that one answer never lands on another."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.chat import ANN, FakeChat, Shown, office_with
from tests.support.scripted import ScriptedRunner, scripted
from untether.conversation import asked_cards
from untether.conversation.commands import Commands
from untether.conversation.desk import Desk
from untether.conversation.office import Office
from untether.conversation.router import Router
from untether.model import Allow, Answers, Choice, Content, Decision, Deny, Interaction, Question
from untether.store import grants
from untether.text.blocks import Quote
from untether.transport import Sender
from untether.transports.telegram.render import parts as telegram_parts

pytestmark = pytest.mark.anyio

RULE = "Bash(git push --force origin fix-cart --with-a-long-tail-of-options)"
PUSH = Interaction(
    "push",
    "permission",
    "Run a command?",
    (Content("command", "git push --force"), Content("text", "Push the branch")),
    choices=(
        Choice("session:0", f"This session: {RULE}", RULE),
        Choice("always:0", f"Always here: {RULE}", RULE),
        Choice("mode:1", "Accept edits this session"),
        Choice("dir:2", "Also allow /srv"),
    ),
    editable="command",
)
PLAN = Interaction(
    "plan",
    "plan",
    "Leave plan mode?",
    (Content("markdown", "# Do it"),),
    choices=(
        Choice("accept_edits", "Approve, accept edits", style="success"),
        Choice("revise", "Revise…", decides="deny", wants_text=True),
        Choice("outline", "Outline first", decides="deny"),
        Choice("wait", "Approve, but wait", decides="deny"),
    ),
    note="Plan mode resumes when this reply ends.",
)
DATABASE = Question(
    "Which database?",
    "Database",
    (Choice("1", "SQLite", "One file"), Choice("2", "Postgres", "A server", preview="FROM postgres")),
)
EXTRAS = Question("Which extras?", "", (Choice("1", "Docs"), Choice("2", "CI"), Choice("3", "Tests")), multiple=True)
NOTE = Question("Anything else?", options=(Choice("1", "No"), Choice("2", "Yes")))
THREE = Interaction("ask", "question", "Answer 3 questions?", questions=(DATABASE, EXTRAS, NOTE))


def one(question: Question) -> Interaction:
    return Interaction("ask", "question", "Answer a question?", questions=(question,))


async def asked_for(chat: FakeChat, *words: str) -> Shown:
    await chat.say("go")
    return await chat.shown(*words)


async def decided(chat: FakeChat, runner: ScriptedRunner, count: int = 1) -> None:
    await chat.until(lambda: len(runner.decisions) == count)


@pytest.mark.parametrize(
    ("asked", "label", "typed", "decision"),
    [
        (PUSH, "Edit…", "git push", Allow(updated_input={"command": "git push"})),
        (PUSH, "Deny", "not now", Deny("not now")),
        (PLAN, "Revise…", "add tests", Deny("add tests", choice="revise")),
        (one(DATABASE), "Other…", "DuckDB", Answers({"Which database?": "DuckDB"})),
    ],
)
async def test_words_may_come_with_the_tap(
    tmp_path: Path, asked: Interaction, label: str, typed: str, decision: Decision
) -> None:
    """As on the console, which has a box beside the button. The chat where it was asked shows what was decided."""
    chat, console = FakeChat(), FakeChat("all", shows_all=True)
    engines, runner = scripted(asked)
    async with office_with(tmp_path, chat, engines=engines, others=[console]):
        await chat.say("go")
        shown = await chat.shown("⏸", button=label)
        (button,) = (button for row in shown.card.buttons for button in row if button.label == label)
        if label != "Deny":
            await console.tap(shown, label)
            await console.until(lambda: console.toasts == ["Type it beside the button first"])
        changed = msgspec.structs.replace(button, data=f"{button.data}:{typed}")
        beside = Shown("x", shown.chat, msgspec.structs.replace(shown.card, buttons=((changed,),)))
        await console.tap(beside, label)
        await decided(chat, runner)
        assert runner.decisions == [decision]
        await chat.until(lambda: shown.labels == [])


# ----------------------------------------------------------------------------------------------------- permissions


async def test_scopes_say_their_whole_effect(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Run a command?")
        rows = [[button.label for button in row] for row in asked.card.buttons]
        assert rows[0] == ["Approve", "Deny"]
        assert rows[-1] == ["Deny and say why", "Edit…", "Deny and stop"]
        assert ["Also allow /srv"] in rows
        (cut,) = (label for row in rows for label in row if label.startswith("This session"))
        assert cut.endswith("…")
        assert f"Always here: {RULE}" in asked.text.splitlines()
        assert all(len(button.data.encode()) <= 64 for row in asked.card.buttons for button in row)


async def test_a_scope_returns_its_id(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Run a command?")
        await chat.tap(asked, "Accept edits this session")
        await decided(chat, runner)
        assert runner.decisions == [Allow(scope="mode:1")]
        await chat.shown("✓ Approved · Accept edits this session by Ann")


async def test_always_is_kept_for_the_project_and_sent_at_every_start(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines, idle_close_s=0.0) as office:
        asked = await asked_for(chat, "Run a command?")
        assert "grants" not in runner.starts[0].settings
        await chat.tap(asked, next(label for label in asked.labels if label.startswith("Always here")))
        await decided(chat, runner)
        (grant,) = office.services.db.read(grants.all_)
        assert (grant.rule, grant.granted_by, grant.place, grant.engine) == (RULE, "Ann", "home", "scripted")
        await chat.until(lambda: not office.scheduler.processes())
        await chat.say("again")
        await chat.until(lambda: len(runner.starts) == 2)
        assert runner.starts[1].settings["grants"] == [RULE]
        assert runner.starts[1].resume is not None


async def test_a_denied_request_grants_nothing(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines) as office:
        asked = await asked_for(chat, "Run a command?")
        buttons = asked.card
        await chat.tap(asked, "Deny")
        await decided(chat, runner)
        await chat.shown("✗ Denied by Ann")
        asked.card = buttons  # a phone that has not repainted yet
        await chat.tap(asked, next(label for label in asked.labels if label.startswith("Always here")))
        await chat.until(lambda: len(chat.toasts) == 2)
        assert chat.toasts[1].startswith("Already denied")
        assert office.services.db.read(grants.all_) == []


async def test_revoking_ends_the_agent_that_holds_it(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines) as office:
        asked = await asked_for(chat, "Run a command?")
        await chat.tap(asked, next(label for label in asked.labels if label.startswith("Always here")))
        await chat.shown("All decided.")
        assert len(office.scheduler.processes()) == 1
        await chat.say("/grants")
        listed = await chat.shown("Allowed for good:", "home · scripted", f"1 {RULE} · Ann")
        await chat.tap(listed, "Revoke 1")
        await chat.shown("✓ Revoked in home", "goes on without it")
        await chat.until(lambda: not office.scheduler.processes())
        await chat.until(lambda: "Nothing is allowed for good" in listed.text)
        await chat.say("again")
        await chat.until(lambda: len(runner.starts) == 2)
        assert "grants" not in runner.starts[1].settings
        assert runner.starts[1].resume is not None


async def test_deny_and_stop(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines):
        await chat.tap(await asked_for(chat, "Run a command?"), "Deny and stop")
        await decided(chat, runner)
        assert runner.decisions == [Deny(interrupt=True)]
        assert chat.toasts == ["Denied and stopped"]


async def test_the_next_message_of_the_same_person_is_the_reason(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines):
        await chat.tap(await asked_for(chat, "Run a command?"), "Deny and say why")
        prompt = await chat.shown("Your next message is the reason", button="Back")
        await chat.say("/cancel is not what I mean")
        await decided(chat, runner)
        assert runner.decisions == [Deny("/cancel is not what I mean")]
        await chat.until(lambda: prompt.deleted)


async def test_back_gives_the_words_up(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Run a command?")
        await chat.tap(asked, "Deny and say why")
        prompt = await chat.shown(button="Back")
        await chat.tap(prompt, "Back")
        await chat.until(lambda: prompt.deleted)
        await chat.say("an ordinary message")
        await chat.shown("⏳ queued, 1st")
        assert runner.decisions == []
        assert "Approve" in asked.labels


def made_anew(office: Office) -> None:
    """Desk, commands and router as after a start: what was asked for must be in rows."""
    desk = Desk(office.services, office.scheduler)
    router = Router(office.services, office.scheduler, Commands(office.services, office.scheduler, desk))
    office.inbox._route, office.inbox._is_urgent = router.route, router.is_urgent


async def test_what_waits_for_words_is_a_row(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.tap(await asked_for(chat, "Run a command?"), "Edit…")
        await chat.shown("Send the new text", "git push --force", button="Back")
        made_anew(office)
        await chat.say("git push")
        shown = await chat.shown("With this text instead:", "git push", button="Run this")
        assert runner.decisions == []
        await chat.tap(shown, "Run this")
        await decided(chat, runner)


async def test_an_edit_runs_only_after_it_was_shown_whole(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Run a command?")
        await chat.tap(asked, "Edit…")
        await chat.shown("Send the new text", button="Back")
        await chat.say("git push\n  --dry-run")
        first = await chat.shown("git push\n  --dry-run", button="Run this")
        old = first.card
        await chat.say("git push --dry-run", reply_to=first)
        second = await chat.shown("git push --dry-run", button="Run this", after=chat.messages.index(first) + 1)
        first.card = old
        await chat.tap(first, "Run this")
        await chat.until(lambda: "This text was changed or given up meanwhile" in chat.toasts)
        assert runner.decisions == []
        await chat.tap(second, "Run this")
        await decided(chat, runner)
        assert runner.decisions == [Allow(updated_input={"command": "git push --dry-run"})]
        done = await chat.shown("✓ Approved as edited by Ann")
        assert "git push --dry-run" in done.text
        assert "Asked for was:" in done.text


async def test_words_of_somebody_else_stay_a_message(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    chat.may_act = lambda inbound: True  # type: ignore[method-assign]
    async with office_with(tmp_path, chat, engines=engines):
        await chat.tap(await asked_for(chat, "Run a command?"), "Deny and say why")
        await chat.shown("Your next message is the reason")
        await chat.say("what is going on?", by=Sender("8", "Bob"))
        await chat.shown("⏳ queued, 1st")
        await chat.say("elsewhere", chat="2")
        await chat.until(lambda: len(runner.starts) == 2)
        assert runner.decisions == []
        await chat.say("too risky", by=ANN)
        await decided(chat, runner)
        assert runner.decisions == [Deny("too risky")]


async def test_only_what_the_engine_can_take_is_offered(tmp_path: Path) -> None:
    only = Interaction("r", "permission", "Go on?", offers=("allow",))
    chat, (engines, _) = FakeChat(), scripted(only)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Go on?")
        assert asked.labels == ["Approve"]


async def test_several_requests_at_once_are_decided_each_by_itself(tmp_path: Path) -> None:
    other = Interaction("tests", "permission", "Run a command?", (Content("command", "make test"),))
    chat, (engines, runner) = FakeChat(), scripted(PUSH, other)
    async with office_with(tmp_path, chat, engines=engines):
        push = await asked_for(chat, "git push --force")
        tests = await chat.shown("make test", button="Approve")
        await chat.say("not now", reply_to=push)
        await chat.tap(tests, "Approve")
        await decided(chat, runner, 2)
        await chat.shown("✗ Denied by Ann", "git push --force")
        await chat.shown("✓ Approved by Ann", "make test")
        assert set(map(type, runner.decisions)) == {Deny, Allow}


async def test_a_long_diff_is_folded_and_whole(tmp_path: Path) -> None:
    diff = "@@ edit 1 of 1 @@\n" + "\n".join(f"+line {number}" for number in range(60))
    edit = Interaction("r", "permission", "Edit a file?", (Content("diff", diff, "src/cart.py", added=60, removed=0),))
    chat, (engines, _) = FakeChat(), scripted(edit)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Edit a file?", "src/cart.py  +60 −0")
        (quote,) = (block for block in asked.card.blocks if isinstance(block, Quote))
        assert (quote.text, quote.expandable) == (diff, True)
        assert (asked.card.whole, asked.card.file_name) == ("attach", "change.diff")


def test_a_diff_too_long_for_a_message_comes_before_the_buttons() -> None:
    diff = "@@ edit 1 of 1 @@\n" + "\n".join(f"+line {number}" for number in range(2000))
    edit = Interaction(
        "r", "permission", "Edit a file?", (Content("diff", diff, "src/cart.py", added=2000, removed=0),)
    )
    file, buttons = telegram_parts(asked_cards.asked("k", edit, "shop"))
    assert file.file is not None
    assert (file.file.name, file.file.text.rstrip("\n"), file.buttons) == ("change.diff", diff, ())
    assert buttons.buttons[0][0].label == "Approve"


# ------------------------------------------------------------------------------------------------------------ plans


async def test_the_buttons_of_a_plan(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), scripted(PLAN)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Leave plan mode?", "Do it")
        rows = [[button.label for button in row] for row in asked.card.buttons]
        assert rows == [
            ["Approve", "Approve, accept edits"],
            ["Revise…", "Outline first"],
            ["Approve, but wait", "Deny"],
        ]
        assert "Plan mode resumes when this reply ends." in asked.text
        assert asked.card.whole == "split"
        assert asked.card.file_name == "plan.md"


@pytest.mark.parametrize(
    ("label", "decision", "toast"),
    [
        ("Approve, accept edits", Allow(scope="accept_edits"), "Approved, accepting edits"),
        ("Outline first", Deny(choice="outline"), "Outlining plan…"),
        ("Approve, but wait", Deny(choice="wait"), "Approved, but to wait"),
        ("Deny", Deny(), "Denied"),
    ],
)
async def test_what_a_plan_is_answered_with(tmp_path: Path, label: str, decision: Allow | Deny, toast: str) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PLAN)
    async with office_with(tmp_path, chat, engines=engines):
        await chat.tap(await asked_for(chat, "Leave plan mode?"), label)
        await decided(chat, runner)
        assert runner.decisions == [decision]
        assert chat.toasts == [toast]


@pytest.mark.parametrize("by_reply", [True, False])
async def test_a_plan_is_revised_by_words(tmp_path: Path, by_reply: bool) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PLAN)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Leave plan mode?")
        if not by_reply:
            await chat.tap(asked, "Revise…")
            await chat.shown("Your next message is the text for “Revise”", button="Back")
        await chat.say("add tests", reply_to=asked if by_reply else None)
        await decided(chat, runner)
        assert runner.decisions == [Deny("add tests", choice="revise")]
        await chat.shown("↻ Sent back to be revised by Ann", "Reason: add tests")


async def test_after_an_outline(tmp_path: Path) -> None:
    discuss = (Choice("discuss", "Let's discuss", decides="deny"),)
    outline = Interaction("o", "plan", "Approve the outline?", (Content("markdown", "1. One"),), choices=discuss)
    chat, (engines, runner) = FakeChat(), scripted(outline)
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Approve the outline?")
        assert [button.label for button in asked.card.buttons[0]] == ["Approve", "Deny", "Let's discuss"]
        await chat.tap(asked, "Let's discuss")
        await decided(chat, runner)
        assert runner.decisions == [Deny(choice="discuss")]


# -------------------------------------------------------------------------------------------------------- questions


async def test_one_question_is_sent_at_the_tap(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(one(DATABASE))
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "⏸ Which database?", "1 SQLite: One file", "FROM postgres")
        assert asked.labels == ["SQLite", "Postgres", "Other…", "Skip"]
        await chat.tap(asked, "SQLite")
        await decided(chat, runner)
        assert runner.decisions == [Answers({"Which database?": "SQLite"})]
        await chat.until(lambda: asked.text.startswith("✓ Answered: SQLite\nAnn "))
        assert asked.labels == []


async def test_several_questions_end_in_a_summary(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(THREE)
    async with office_with(tmp_path, chat, engines=engines):
        first = await asked_for(chat, "⏸ Which database? (1 of 3)")
        await chat.tap(first, "SQLite")
        second = await chat.shown("⏸ Which extras? (2 of 3)", button="☐ Docs")
        assert first.text == "Which database? (1 of 3) SQLite"
        await chat.tap(second, "Done")
        await chat.until(lambda: "Tick at least one, or use Other…" in chat.toasts)
        await chat.tap(second, "☐ Docs")
        await chat.until(lambda: "☑ Docs" in second.labels)
        await chat.tap(second, "☐ Tests")
        await chat.until(lambda: "☑ Tests" in second.labels)
        await chat.tap(second, "☐ CI")
        await chat.until(lambda: "☑ CI" in second.labels)
        await chat.tap(second, "☑ Tests")
        await chat.until(lambda: "☐ Tests" in second.labels)
        await chat.tap(second, "Done")
        third = await chat.shown("⏸ Anything else? (3 of 3)")
        await chat.say("no telemetry", reply_to=third)
        summary = await chat.shown("Send these answers?", "Which extras? Docs, CI", "no telemetry", button="Send")
        assert runner.decisions == []
        await chat.tap(summary, "Send")
        await decided(chat, runner)
        assert runner.decisions == [
            Answers({"Which database?": "SQLite", "Which extras?": "Docs, CI", "Anything else?": "no telemetry"})
        ]
        await chat.until(lambda: summary.text.startswith("✓ Answered: SQLite · Docs, CI · “no telemetry”"))


async def test_back_asks_the_question_before_again(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(THREE)
    async with office_with(tmp_path, chat, engines=engines):
        first = await asked_for(chat, "(1 of 3)")
        old = first.card
        await chat.tap(first, "SQLite")
        second = await chat.shown("(2 of 3)", button="Back")
        first.card = old  # a phone that has not repainted yet
        await chat.tap(first, "Postgres")
        await chat.until(lambda: "Already answered: SQLite. Back changes it" in chat.toasts)
        await chat.tap(second, "Back")
        await chat.until(lambda: second.deleted and "Postgres" in first.labels)
        await chat.tap(first, "Postgres")
        second = await chat.shown("(2 of 3)", button="☐ CI")
        assert first.text == "Which database? (1 of 3) Postgres"
        assert runner.decisions == []


async def test_questions_go_on_where_they_were(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(THREE)
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.tap(await asked_for(chat, "(1 of 3)"), "SQLite")
        second = await chat.shown("(2 of 3)", button="☐ CI")
        await chat.tap(second, "☐ CI")
        await chat.until(lambda: "☑ CI" in second.labels)
        made_anew(office)
        await chat.tap(second, "Done")
        await chat.tap(await chat.shown("(3 of 3)"), "No")
        await chat.tap(await chat.shown(button="Send"), "Send")
        await decided(chat, runner)
        assert runner.decisions == [
            Answers({"Which database?": "SQLite", "Which extras?": "CI", "Anything else?": "No"})
        ]


async def test_another_message_is_no_answer(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(one(DATABASE))
    async with office_with(tmp_path, chat, engines=engines):
        asked = await asked_for(chat, "Which database?")
        await chat.tap(asked, "Other…")
        prompt = await chat.shown("Reply to this message with your answer", button="Back")
        await chat.say("by the way")
        await chat.shown("⏳ queued, 1st")
        assert runner.decisions == []
        await chat.say("DuckDB", reply_to=prompt)
        await decided(chat, runner)
        assert runner.decisions == [Answers({"Which database?": "DuckDB"})]


async def test_a_reply_to_an_answered_question_is_told(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(THREE)
    async with office_with(tmp_path, chat, engines=engines):
        first = await asked_for(chat, "(1 of 3)")
        await chat.tap(first, "SQLite")
        await chat.shown("(2 of 3)")
        await chat.say("no, DuckDB", reply_to=first)
        await chat.shown("✗ Already answered: SQLite. Back changes it.")
        assert runner.decisions == []


async def test_skip_sends_no_answer(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(THREE)
    async with office_with(tmp_path, chat, engines=engines):
        await chat.tap(await asked_for(chat, "(1 of 3)"), "Skip all")
        await decided(chat, runner)
        assert runner.decisions == [Deny()]
        await chat.shown("✗ Skipped by Ann")


async def test_withdrawn_in_the_middle(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(THREE)
    async with office_with(tmp_path, chat, engines=engines):
        await chat.tap(await asked_for(chat, "(1 of 3)"), "SQLite")
        second = await chat.shown("(2 of 3)", button="Done")
        old = second.card
        await chat.say("/cancel")
        await chat.until(lambda: second.text.startswith("■ No longer needed"))
        second.card = old
        await chat.tap(second, "☐ CI")
        await chat.until(lambda: "No longer needed" in chat.toasts)
        assert runner.decisions == []
