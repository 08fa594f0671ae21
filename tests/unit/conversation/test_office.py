"""The conversation from end to end with the demo agent: messages, requests, answers, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat import STRANGER, FakeChat, engines_for, office_with
from untether.conversation import asked_cards
from untether.conversation.context import Project
from untether.model import Allow, Content, Interaction
from untether.store import runs
from untether.store.interactions import Pending
from untether.text.blocks import to_plain
from untether.transport import FileIn

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_the_status_goes_away(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        sent = await chat.say("hello there")
        answer = await chat.shown("hello there")
        assert answer.card.reply_to == sent
        assert "✓" in answer.text.splitlines()[-1]
        await chat.until(lambda: chat.messages[0].deleted)
        assert chat.messages[0].text.startswith("▸ demo · home")


async def test_the_next_message_continues_the_session(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("my favourite colour is teal")
        await chat.shown("teal")
        before = len(chat.messages)
        await chat.say("what did I say?")
        await chat.shown("favourite colour", after=before)
        assert len({run.process_id for run in office.services.db.read(lambda c: runs.recent(c, 9))}) == 1


async def test_a_session_is_resumed_after_its_process_has_gone(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, idle_close_s=0.0) as office:
        await chat.say("my favourite colour is teal")
        await chat.shown("teal")
        await chat.until(lambda: not office.scheduler.processes())
        before = len(chat.messages)
        await chat.say("what did I say?")
        await chat.shown("favourite colour", after=before)
        assert len({run.process_id for run in office.services.db.read(lambda c: runs.recent(c, 9))}) == 2


async def test_approve_runs_it(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("permission please")
        asked = await chat.shown("⏸ Run a command?", button="Approve")
        assert "home · asked by the main agent" in asked.text
        await chat.tap(asked, "Approve")
        await chat.shown("✓ Approved by Ann")
        assert chat.toasts == ["Approved"]
        await chat.until(lambda: not office.services.db.read(runs.running))
        assert list((tmp_path / "home").glob("untether-demo*"))


async def test_deny_does_not(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("permission please")
        asked = await chat.shown(button="Approve")
        await chat.tap(asked, "Deny")
        await chat.shown("✗ Denied by Ann")
        await chat.until(lambda: not office.services.db.read(runs.running))
        assert not list((tmp_path / "home").glob("untether-demo*"))


async def test_a_reply_to_a_request_is_the_reason_of_a_deny(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown(button="Deny and say why")
        await chat.tap(asked, "Deny and say why")
        await chat.until(lambda: chat.toasts)
        assert chat.toasts == ["Send it as your next message"]
        await chat.say("/new files are not wanted here", reply_to=asked)  # never a command
        await chat.shown("✗ Denied by Ann", "Reason: /new files are not wanted here")
        await chat.shown("The answer was: /new files are not wanted here")


async def test_a_late_tap_is_told_what_was_decided(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown(button="Approve")
        buttons = asked.card
        await chat.tap(asked, "Deny")
        await chat.shown("✗ Denied")
        asked.card = buttons  # a phone that has not repainted yet
        await chat.tap(asked, "Approve")
        await chat.until(lambda: len(chat.toasts) == 2)
        assert chat.toasts[1].startswith("Already denied ")


async def test_a_tap_in_another_chat_decides_nothing(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown(button="Approve")
        await chat.tap(asked, "Approve", chat="2")
        await chat.until(lambda: chat.toasts)
        assert chat.toasts == ["This request is not known any more"]
        assert "Approve" in asked.labels


async def test_strangers_get_silence(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("hello", by=STRANGER)
        await chat.say("hi from Ann")
        await chat.shown("hi from Ann")
        assert all("hello" not in shown.text for shown in chat.messages)


async def test_the_same_update_twice_is_answered_once(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("once", key="77")
        await chat.say("once", key="77")
        await chat.say("after it")
        await chat.shown("after it")
        assert len(office.services.db.read(lambda c: runs.recent(c, 9))) == 2


async def test_cancel_stops_the_run_and_withdraws_the_queue(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for({"env": {}})) as office:
        await chat.say("slow 30")
        await chat.until(lambda: office.services.db.read(runs.running))
        await chat.say("never to be answered")
        await chat.shown("⏳ queued, 1st")
        await chat.say("/cancel")
        await chat.shown("■ Stopped after")
        await chat.shown("■ 1 message withdrawn.")
        assert [run.state for run in office.services.db.read(lambda c: runs.recent(c, 9))] == ["stopped"]


async def test_queued_messages_run_one_after_the_other(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("slow 1")
        await chat.say("first in line")
        await chat.say("second in line")
        await chat.until(lambda: sum("in line" in m.text and "✓" in m.text for m in chat.messages) == 2)
        order = [m.text for m in chat.messages if "in line" in m.text and "✓" in m.text]
        assert "first" in order[0]
        assert "second" in order[1]
        await chat.until(lambda: all(m.deleted for m in chat.messages if "queued" in m.text))


async def test_new_starts_another_session(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("elf")
        await chat.shown("elf", "✓")
        await chat.say("/new")
        await chat.shown("The next message starts a new session")
        await chat.say("zwölf")
        await chat.shown("zwölf", "✓")
        assert len({run.thread_id for run in office.services.db.read(lambda c: runs.recent(c, 9))}) == 2


async def test_stateless_chats_continue_by_reply_only(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, stateless=frozenset({"fake"})) as office:
        await chat.say("my word is teal")
        first = await chat.shown("teal", "untether-demo --resume", button="Copy resume command")
        await chat.say("what did I say?", reply_to=first)
        await chat.shown("teal", after=chat.messages.index(first) + 1)
        await chat.say("something else")
        await chat.shown("something else")
        threads = [run.thread_id for run in office.services.db.read(lambda c: runs.recent(c, 9))]
        assert sorted(threads) == [1, 1, 2]


async def test_a_resume_line_finds_its_session(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, stateless=frozenset({"fake"})) as office:
        await chat.say("my word is teal")
        first = await chat.shown("teal")
        line = next(line for line in first.text.splitlines() if "--resume" in line)
        await chat.say(f"{line.lstrip('↩ ')}\nwhat did I say?", chat="2")
        await chat.until(lambda: len(office.services.db.read(lambda c: runs.recent(c, 9))) == 2)
        assert {run.thread_id for run in office.services.db.read(lambda c: runs.recent(c, 9))} == {1}


async def test_an_error_says_what_to_do_and_can_be_tried_again(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("error")
        failed = await chat.shown("✗", button="Try again")
        buttons = failed.card
        await chat.tap(failed, "Try again")
        await chat.until(lambda: sum(m.text.startswith("✗") for m in chat.messages) == 2)
        await chat.until(lambda: "Try again" not in failed.labels)
        failed.card = buttons  # a phone that has not repainted yet
        await chat.tap(failed, "Try again")
        await chat.until(lambda: "Already sent again" in chat.toasts)


async def test_a_crash_of_the_agent_is_told(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("crash")
        failed = await chat.shown("✗", button="Try again")
        assert "demo" in failed.text.lower()
        await chat.say("still there?")
        await chat.shown("still there?", "✓")


async def test_what_was_sent_while_down_is_answered_after_the_start(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        store = office.inbox.store
    import msgspec

    from tests.support.chat import ANN
    from untether.store import updates
    from untether.store.database import Database
    from untether.store.migrate import load_migrations
    from untether.transport import ChatRef, MessageIn

    assert store is not None
    raw = msgspec.json.encode(MessageIn(ChatRef("fake", "1"), ANN, "u900", "while you were away"))
    async with Database(tmp_path / "untether.db", migrations=load_migrations()) as db:
        await db.write(lambda conn: updates.store(conn, "fake", [("900", raw)], 0.0))
    async with office_with(tmp_path, chat):
        await chat.shown("while you were away", "✓")


async def test_a_run_cut_by_a_stop_is_told_and_resumed_by_a_tap(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for({"env": {}})) as office:
        await chat.say("slow 30")
        status = await chat.shown("▸ demo")
        await chat.until(lambda: "Bash" in status.text or "sleep" in status.text or "step 1" in status.text)
        assert office.services.db.read(runs.running)
    async with office_with(tmp_path, chat, engines=engines_for({"env": {}})) as office:
        told = await chat.shown("■ Interrupted", button="Resume")
        assert "seq 30" in told.text  # what it had done
        await chat.until(lambda: status.deleted)
        assert office.services.db.read(runs.running) == []
        await chat.tap(told, "Resume")
        await chat.until(lambda: "Resuming" in chat.toasts)
        await chat.until(lambda: len(office.services.db.read(lambda c: runs.recent(c, 9))) == 2)


async def test_a_request_that_was_open_at_a_stop_is_withdrawn(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown(button="Approve")
    async with office_with(tmp_path, chat):
        await chat.until(lambda: "■ No longer needed" in asked.text)
        assert asked.labels == []


async def test_odd_prompts_get_an_answer_or_a_refusal(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("   ")
        await chat.shown("✗ There is no text in this message")
        await chat.say("-rf is not an option")
        await chat.shown("-rf is not an option", "✓")
        await chat.say("a\0b")
        await chat.shown("ab", "✓")
        long = "word " * 20_000
        await chat.say(long)
        await chat.until(lambda: sum("✓" in m.text for m in chat.messages if not m.deleted) == 3)


async def test_a_text_file_is_part_of_the_prompt(tmp_path: Path) -> None:
    chat = FakeChat()
    chat.files["f1"] = b"from the file"
    async with office_with(tmp_path, chat):
        await chat.say("read this", files=(FileIn("f1", "note.txt", "text/plain", 13),))
        await chat.shown("from the file", "✓")
        await chat.say("and this", files=(FileIn("f2", "song.mp3", "audio/mpeg", 13),))
        await chat.shown("✗ song.mp3 was not taken")


async def test_a_text_that_was_cut_is_joined(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("a" * 4096)
        await chat.say("b" * 10)
        await chat.until(lambda: len(office.services.db.read(lambda c: runs.recent(c, 9))) == 1)
        await chat.say("after it")
        await chat.shown("after it", "✓")
        assert len(office.services.db.read(lambda c: runs.recent(c, 9))) == 2


async def test_projects_and_ctx(tmp_path: Path) -> None:
    chat = FakeChat()
    shop = tmp_path / "shop"
    shop.mkdir()
    projects = {"shop": Project("shop", str(shop))}
    async with office_with(tmp_path, chat, projects=projects):
        await chat.say("/shop hello")
        await chat.until(lambda: any(m.text.startswith("▸ demo · shop") for m in chat.messages))
        await chat.say("/ctx set shop")
        await chat.shown("✓ This chat works in shop")
        await chat.say("/ctx set nowhere")
        await chat.shown("✗ There is no project nowhere. Known: shop.")
        await chat.say("/shop @feature hello")
        await chat.shown("✗ shop is not a git repository")
        await chat.say("/ctx clear")
        await chat.shown("no longer bound")


async def test_commands_of_later_versions_are_named_as_such(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("/export")
        await chat.shown("/export is not available in this version.")
        await chat.say("/help")
        await chat.shown("/status", "/cancel", "/new")
        await chat.say("/status")
        await chat.shown("Nothing runs and nothing waits.", "today:")


async def test_status_lists_who_waits(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        await chat.shown(button="Approve")
        await chat.say("/status")
        await chat.shown("⏸ Run a command?", "▸", "today:")


async def test_stop_and_details_buttons(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for({"env": {}})):
        await chat.say("slow 30")
        status = await chat.shown("▸ demo", button="Stop")
        await chat.tap(status, "Details")
        await chat.until(lambda: "Less" in status.labels)
        await chat.tap(status, "Stop")
        await chat.shown("■ Stopped after")
        assert "Stopping…" in chat.toasts


async def test_a_question_is_answered_by_a_reply(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("choice please")
        asked = await chat.shown("⏸ Which database?", button="Skip")
        assert "Approve" not in asked.labels
        await chat.say("whatever is simplest", reply_to=asked)
        await chat.shown("✓ Answered: “whatever is simplest”", "Ann")
        await chat.shown("whatever is simplest", "demo-1", after=chat.messages.index(asked) + 1)


async def test_a_question_may_be_skipped(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("choice please")
        asked = await chat.shown(button="Skip")
        await chat.tap(asked, "Skip")
        await chat.shown("✗ Skipped by Ann")
        assert chat.toasts == ["Skipped"]


async def test_three_questions_are_answered_by_tapping(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("question please")
        await chat.tap(await chat.shown("⏸ Which database? (1 of 3)"), "Postgres")
        second = await chat.shown("⏸ Which extras? (2 of 3)", button="☐ Docs")
        await chat.tap(second, "☐ Docs")
        await chat.until(lambda: "☑ Docs" in second.labels)
        await chat.tap(second, "Done")
        await chat.tap(await chat.shown("⏸ Which layout? (3 of 3)", "src/app.py"), "Nested")
        await chat.tap(await chat.shown("Send these answers?"), "Send")
        await chat.shown("✓ Answered: Postgres · Docs · Nested")
        await chat.shown("Thank you. You answered:", "Which extras? Docs", "Which layout? Nested")


async def test_the_model_is_named_in_every_run_of_a_process(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        for text in ("eins", "zwei", "drei"):
            await chat.say(text)
            answer = await chat.shown(text, "✓")
            assert "demo-1" in answer.text.splitlines()[-1]


async def test_a_file_at_the_start_is_for_the_agent(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        (tmp_path / "home" / "notes.md").write_text("x")
        await chat.say("@notes.md summarize this")
        await chat.shown("@notes.md summarize this", "✓")


async def test_a_project_cannot_hide_a_command(tmp_path: Path) -> None:
    chat = FakeChat()
    projects = {"status": Project("status", str(tmp_path))}
    async with office_with(tmp_path, chat, projects=projects):
        await chat.say("/status")
        await chat.shown("Nothing runs and nothing waits.")


async def test_a_button_that_did_its_work_goes(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("error")
        failed = await chat.shown("✗", button="Try again")
        before = failed.text
        await chat.tap(failed, "Try again")
        await chat.until(lambda: "Try again" not in failed.labels)
        assert failed.text == before


def test_the_whole_content_stays_after_the_tap() -> None:
    command = "x" * 3600
    asked = Interaction("r", "permission", "Run a command?", (Content("command", command),))
    pending = Pending("k", "p", 1, asked, "decided", None, Allow(), "Ann", 1.0, 0.0)
    assert to_plain(asked_cards.outcome(pending, "Ann", 1.0).blocks).endswith(command)


async def test_an_unknown_word_of_help_is_named(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("/help nope")
        await chat.shown("There is no command /nope.", "/status")
