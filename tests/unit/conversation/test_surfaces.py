"""A conversation that goes on from another chat: who asks is answered there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat import FakeChat, Shown, engines_for, office_with
from untether.store import runs

pytestmark = pytest.mark.anyio


def in_chat(chat: FakeChat, name: str) -> list[Shown]:
    return [shown for shown in chat.messages if shown.chat.chat == name and not shown.deleted]


async def test_a_session_resumed_from_another_chat_is_answered_there(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, stateless=frozenset({"fake"})) as office:
        await chat.say("my word is teal")
        first = await chat.shown("teal", "✓")
        line = next(line for line in first.text.splitlines() if "--resume" in line)
        asking = await chat.say(f"{line.lstrip('↩ ')}\nwhat did I say?", chat="2")
        await chat.until(lambda: any("teal" in shown.text for shown in in_chat(chat, "2")))
        answer = in_chat(chat, "2")[-1]
        assert answer.card.reply_to == asking
        assert len(in_chat(chat, "1")) == 1
        assert {run.thread_id for run in office.services.db.read(lambda conn: runs.recent(conn, 9))} == {1}


async def test_what_such_a_run_asks_is_asked_and_decided_there(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, stateless=frozenset({"fake"})) as office:
        await chat.say("my word is teal")
        first = await chat.shown("teal", "✓")
        line = next(line for line in first.text.splitlines() if "--resume" in line)
        await chat.say(f"{line.lstrip('↩ ')}\npermission please", chat="2")
        asked = await chat.shown("⏸ Run a command?", button="Approve")
        assert asked.chat.chat == "2"
        await chat.tap(asked, "Approve", chat="2")
        await chat.until(lambda: not office.services.db.read(runs.running))
        assert list((tmp_path / "home").glob("untether-demo*"))


@pytest.mark.parametrize("live", [True, False])
async def test_a_run_of_a_chat_goes_on_from_where_all_is_shown(tmp_path: Path, live: bool) -> None:
    """As the console does: by `run:ID`. The chat that began it hears neither the answer nor an error."""
    chat, console = FakeChat(), FakeChat("all", shows_all=True)
    idle = 60.0 if live else 0.0
    async with office_with(tmp_path, chat, others=[console], idle_close_s=idle) as office:
        await chat.say("my word is teal")
        await chat.shown("teal", "✓")
        if not live:
            await chat.until(lambda: not office.scheduler.processes())
        await chat.until(lambda: len(in_chat(chat, "1")) == 1)
        run = Shown("run:1", chat.messages[0].chat, chat.messages[0].card)
        asking = await console.say("what did I say?", reply_to=run, chat="console")
        answer = await console.shown("teal", "✓")
        assert answer.card.reply_to == asking
        assert len(in_chat(chat, "1")) == 1
        await chat.say("what did I say?")  # and back again
        await chat.until(lambda: sum("✓" in shown.text for shown in in_chat(chat, "1")) == 2)
        assert {run.thread_id for run in office.services.db.read(lambda conn: runs.recent(conn, 9))} == {1}


async def test_cancel_stops_what_this_chat_asked_of_another_chats_thread(tmp_path: Path) -> None:
    chat = FakeChat()
    slow = engines_for({"env": {}})
    async with office_with(tmp_path, chat, engines=slow, stateless=frozenset({"fake"})) as office:
        await chat.say("my word is teal")
        first = await chat.shown("teal", "✓")
        line = next(line for line in first.text.splitlines() if "--resume" in line)
        await chat.say(f"{line.lstrip('↩ ')}\nslow 30", chat="2")
        await chat.until(lambda: office.services.db.read(runs.running) and in_chat(chat, "2"))
        await chat.say("/cancel", chat="2")
        stopped = await chat.shown("■ Stopped after")
        assert stopped.chat.chat == "2"
