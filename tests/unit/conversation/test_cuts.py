"""The bridge dies after each of its commits in turn, and starts again: every message is answered or told, once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
import pytest

from tests.support.chat import ANN, FakeChat, office_with
from untether.conversation.office import Office
from untether.store import deliveries, runs, threads, updates
from untether.store.database import Database
from untether.store.migrate import load_migrations
from untether.transport import ChatRef, MessageIn

pytestmark = pytest.mark.anyio
T = TypeVar("T")


class PowerCut(BaseException):
    """Ends everything at once, as SIGKILL does; no handler of errors may catch it."""


class Writes:
    """Counts the writes of a database; after `last` of them the power goes."""

    def __init__(self, db: Database, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.left = last
        self._write = db.write
        monkeypatch.setattr(db, "write", self.write)

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self.left <= 0:
            raise PowerCut
        self.left -= 1
        return await self._write(job)


def settled(office: Office) -> bool:
    """Nothing is under way any more."""
    db = office.services.db
    idle = not db.read(updates.waiting) and not db.read(threads.threads_with_queued)
    return idle and not db.read(runs.running) and not db.read(deliveries.chats_with_pending)


def answers(office: Office, role: str = "answer") -> int:
    def count(conn: sqlite3.Connection) -> int:
        sql = "SELECT COUNT(*) FROM deliveries WHERE role = ? AND act = 'send'"
        return int(conn.execute(sql, (role,)).fetchone()[0])

    return office.services.db.read(count)


async def stored(folder: Path, chat: FakeChat, *texts: str) -> None:
    """Messages of Ann's that came in while nobody was there."""
    items = []
    for text in texts:
        number = next(chat.numbers)
        message = MessageIn(ChatRef(chat.name, "1"), ANN, f"u{number}", text, 0.0)
        items.append((f"c{number}", msgspec.json.encode(message)))
    async with Database(folder / "untether.db", migrations=load_migrations()) as db:
        await db.write(lambda conn: updates.store(conn, chat.name, items, 0.0))


async def cut(folder: Path, chat: FakeChat, monkeypatch: pytest.MonkeyPatch, last: int, *texts: str) -> None:
    """Run an office on messages until `last` writes are done, from its start on, or all is settled."""
    await stored(folder, chat, *texts)
    left = last
    write = Database.write

    async def counted(self: Database, job: Callable[[sqlite3.Connection], T]) -> T:
        nonlocal left
        if left <= 0:
            raise PowerCut
        left -= 1
        return await write(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", counted)
        try:
            async with office_with(folder, chat) as office:
                await chat.until(lambda: settled(office))
        except BaseExceptionGroup as group:
            _, others = group.split(PowerCut)
            if others is not None:
                raise others from None


@pytest.mark.parametrize("last", range(12))
async def test_a_message_is_answered_or_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    chat = FakeChat()
    await cut(tmp_path, chat, monkeypatch, last, "hello there")
    async with office_with(tmp_path, chat) as office:
        await chat.until(lambda: settled(office))
        told = [shown for shown in chat.messages if not shown.deleted and "Resume" in shown.labels]
        assert len(told) + answers(office) == 1
        if told:
            await chat.tap(told[0], "Resume")
            await chat.until(lambda: answers(office) == 1 and settled(office))
        rows = office.services.db.read(
            lambda conn: conn.execute("SELECT DISTINCT state FROM messages WHERE message_id <> ''").fetchall()
        )
        assert {row[0] for row in rows} <= {"answered", "taken", "handed"}
        known = office.services.db.read(lambda conn: conn.execute("SELECT message_id FROM deliveries").fetchall())
        for shown in chat.messages:  # a copy of which the power cut took the id may stay
            assert shown.deleted or "Stop" not in shown.labels or shown.message_id not in {row[0] for row in known}


@pytest.mark.parametrize("last", range(5))
async def test_a_text_in_two_parts_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    chat = FakeChat()
    await cut(tmp_path, chat, monkeypatch, last, "a" * 4096, "b" * 10)
    async with office_with(tmp_path, chat) as office:
        with anyio.fail_after(10):
            await chat.until(lambda: settled(office))
        rows = office.services.db.read(lambda conn: conn.execute("SELECT text FROM messages ORDER BY id").fetchall())
        assert "".join(row[0] for row in rows) == "a" * 4096 + "b" * 10


async def test_a_reason_is_never_sent_as_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply was claimed, and the power goes before its update is marked: it must not be routed again."""
    chat = FakeChat()
    try:
        async with office_with(tmp_path, chat) as office:
            await chat.say("permission please")
            asked = await chat.shown("⏸ Run a command?", button="Approve")
            await chat.until(lambda: not office.services.db.read(updates.waiting))
            await chat.say("that is not wanted", reply_to=asked)
            Writes(office.services.db, monkeypatch, 2)  # the routing begins, the claim
            await anyio.sleep_forever()
    except BaseExceptionGroup:
        monkeypatch.undo()
    async with office_with(tmp_path, chat) as office:
        await chat.shown("✗ Denied by Ann", "Reason: that is not wanted")
        await chat.until(lambda: settled(office))
        assert asked.labels == []
        assert [run.title for run in office.services.db.read(lambda conn: runs.recent(conn, 9))] == [
            "permission please"
        ]


async def test_an_update_that_cut_us_down_three_times_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = FakeChat()
    await cut(tmp_path, chat, monkeypatch, 1, "poison")
    for _ in range(2):
        await cut(tmp_path, chat, monkeypatch, 1)
    await cut(tmp_path, chat, monkeypatch, 1)  # the power goes just when it would be told
    async with office_with(tmp_path, chat):
        await chat.shown("✗ A message could not be handled, three times over: poison")


async def test_a_stop_with_a_queue_ends_at_once(tmp_path: Path) -> None:
    chat = FakeChat()
    with anyio.fail_after(10):
        async with office_with(tmp_path, chat) as office:
            await chat.say("permission please")
            await chat.shown(button="Approve")
            await chat.say("behind it")
            await chat.shown("⏳ queued, 1st")
        async with office_with(tmp_path, chat) as office:
            await chat.shown("■ Interrupted")
            await chat.shown("behind it", "✓")
            await chat.until(lambda: settled(office))


async def test_an_interrupted_run_without_a_status_message_is_told_all_the_same(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("permission please")
        await chat.shown(button="Approve")
        status = next(shown for shown in chat.messages if "Stop" in shown.labels)
        await office.services.db.write(
            lambda conn: conn.execute("UPDATE deliveries SET state = 'failed' WHERE role = 'status'")
        )
    async with office_with(tmp_path, chat):
        told = await chat.shown("■ Interrupted", button="Resume")
        assert told.message_id != status.message_id
