"""What must arrive: its order, and what becomes of a send whose fate is unknown."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.chat import FakeChat
from untether.clock import ManualClock
from untether.conversation import cards
from untether.conversation.hub import Hub
from untether.conversation.outbox import Outbox
from untether.store import deliveries
from untether.store.database import Database
from untether.store.migrate import load_migrations
from untether.transport import Card, ChatRef, Priority, SendFailed

pytestmark = pytest.mark.anyio
CHAT = ChatRef("fake", "1")


class World:
    def __init__(self, db: Database, chat: FakeChat, clock: ManualClock) -> None:
        self.db = db
        self.chat = chat
        self.clock = clock
        self.outbox = Outbox(db, {"fake": chat}, clock, Hub())

    async def add(self, *texts: str, role: deliveries.Role = "notice", chat: ChatRef = CHAT) -> list[int]:
        parts = [cards.notice(text) for text in texts]
        ids = await self.db.write(lambda conn: deliveries.add_send(conn, chat, parts, role, self.clock.now()))
        self.outbox.kick()
        return ids

    def state(self, delivery_id: int) -> str:
        row = self.db.read(lambda conn: deliveries.get(conn, delivery_id))
        assert row is not None
        return row.state

    @property
    def texts(self) -> list[str]:
        return [shown.text for shown in self.chat.messages]


@asynccontextmanager
async def world(folder: Path, *, running: bool = True) -> AsyncIterator[World]:
    async with Database(folder / "untether.db", migrations=load_migrations()) as db:
        made = World(db, FakeChat(), ManualClock())
        async with anyio.create_task_group() as tasks:
            if running:
                tasks.start_soon(made.outbox.run)
            yield made
            tasks.cancel_scope.cancel()


async def test_parts_leave_in_order_and_ids_are_kept(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        ids = await w.add("one", "two", "three")
        assert await w.outbox.message_id(ids[2]) == "3"
        assert w.texts == ["one", "two", "three"]


async def test_what_needs_a_person_goes_first_but_never_inside_a_group(tmp_path: Path) -> None:
    async with world(tmp_path, running=False) as w:
        await w.add("answer 1", "answer 2", role="answer")
        await w.add("notice")
        await w.add("request 1", "request 2", role="interaction")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.outbox.run)
            await w.chat.until(lambda: len(w.chat.messages) == 5)
            tasks.cancel_scope.cancel()
        assert w.texts == ["request 1", "request 2", "answer 1", "answer 2", "notice"]


async def test_an_edit_waits_for_its_message_and_the_newest_wins(tmp_path: Path) -> None:
    async with world(tmp_path, running=False) as w:
        (sent,) = await w.add("question")

        def edits(conn: object) -> None:
            for text in ("first", "second"):
                deliveries.add_edit(conn, sent, cards.notice(text), 0.0, priority=Priority.INTERACTION)  # type: ignore[arg-type]

        await w.db.write(edits)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.outbox.run)
            await w.chat.until(lambda: w.chat.messages and w.chat.messages[0].edits)
            tasks.cancel_scope.cancel()
        assert w.texts == ["second"]
        assert w.chat.messages[0].edits == 1


async def test_later_obeys_the_pause_and_loses_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("later", "too many requests", 35.0)]
        (sent,) = await w.add("answer")
        await w.clock.wait_for_sleepers()
        await w.clock.advance(34.0)
        assert w.texts == []
        await w.clock.advance(1.0)
        await w.outbox.message_id(sent)
        assert w.texts == ["answer"]


async def test_an_unknown_fate_is_repeated_once_and_never_more(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("unknown", "connection lost"), SendFailed("unknown", "connection lost")]
        (sent,) = await w.add("answer")
        for pause in (1.0, 2.0):
            await w.clock.wait_for_sleepers()
            await w.clock.advance(pause)
        assert await w.outbox.message_id(sent) is None
        assert w.state(sent) == "unknown"
        assert w.texts == []


async def test_a_crash_while_sending_counts_as_an_unknown_fate(tmp_path: Path) -> None:
    async with world(tmp_path, running=False) as w:
        (sent,) = await w.add("answer")
        assert await w.db.write(lambda conn: deliveries.sending(conn, sent))  # and the power goes
    async with world(tmp_path) as w:
        assert await w.outbox.message_id(sent) is not None
        assert w.texts == ["answer"]


async def test_what_is_refused_does_not_stop_what_follows(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("refused", "message is too strange")]
        (bad,) = await w.add("bad")
        (good,) = await w.add("good")
        assert await w.outbox.message_id(good) is not None
        assert w.state(bad) == "failed"
        assert w.texts == ["good"]


async def test_chats_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("later", "too many requests", 900.0)]
        await w.add("slow")
        await w.clock.wait_for_sleepers()
        (other,) = await w.add("quick", chat=ChatRef("fake", "2"))
        assert await w.outbox.message_id(other) is not None
        assert w.texts == ["quick"]


async def test_a_deletion_of_what_never_left_drops_it(tmp_path: Path) -> None:
    async with world(tmp_path, running=False) as w:
        (sent,) = await w.add("⏳ queued")
        await w.db.write(lambda conn: deliveries.add_delete(conn, sent, 0.0))
        assert w.state(sent) == "failed"
        assert w.db.read(deliveries.chats_with_pending) == []


def test_cards_survive_the_store() -> None:
    import msgspec

    card = cards.failure(3, "It broke.", "Try again.", details=True, so_far="half an *answer*")
    assert msgspec.json.decode(msgspec.json.encode(card), type=Card) == card


async def test_an_edit_that_is_replaced_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that is about to leave is gone when its turn comes: the newer one leaves, and nothing breaks."""
    async with world(tmp_path, running=False) as w:
        write, count = w.db.write, 0

        async def edit(text: str) -> None:
            await write(lambda conn: deliveries.add_edit(conn, sent, cards.notice(text), 0.0, priority=2))

        async def replace_it(job: Callable[[sqlite3.Connection], Any]) -> Any:
            nonlocal count
            count += 1
            if count == 3:  # after the two of the message itself
                await edit("second")
            return await write(job)

        (sent,) = await w.add("question")
        await edit("first")
        monkeypatch.setattr(w.db, "write", replace_it)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.outbox.run)
            await w.chat.until(lambda: w.texts == ["second"])
            (other,) = await w.add("still serving")
            assert await w.outbox.message_id(other) is not None
            tasks.cancel_scope.cancel()


async def test_what_is_dropped_at_the_last_moment_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, running=False) as w:
        write, dropped = w.db.write, False

        async def drop_it(job: Callable[[sqlite3.Connection], Any]) -> Any:
            nonlocal dropped
            if not dropped:
                dropped = True
                await write(lambda conn: deliveries.add_delete(conn, sent, 0.0))
            return await write(job)

        (sent,) = await w.add("⏳ queued, 1st")
        (other,) = await w.add("what follows")
        monkeypatch.setattr(w.db, "write", drop_it)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.outbox.run)
            assert await w.outbox.message_id(sent) is None
            assert await w.outbox.message_id(other) is not None
            tasks.cancel_scope.cancel()
        assert w.texts == ["what follows"]


async def test_a_deletion_of_unknown_fate_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as w:
        (sent,) = await w.add("▸ status")
        await w.outbox.message_id(sent)
        delete, left = w.chat.delete, 4

        async def unsure(chat: ChatRef, message_id: str) -> None:
            nonlocal left
            if left := left - 1:
                raise SendFailed("unknown", "connection lost")
            await delete(chat, message_id)

        monkeypatch.setattr(w.chat, "delete", unsure)
        await w.db.write(lambda conn: deliveries.add_delete(conn, sent, 0.0))
        w.outbox.kick()
        for pause in (1.0, 2.0, 4.0):  # to the second: a longer step could wake it twice
            await w.clock.wait_for_sleepers()
            await w.clock.advance(pause)
        await w.chat.until(lambda: w.chat.messages[0].deleted)


async def test_what_must_be_seen_is_sent_when_its_message_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as w:
        (sent,) = await w.add("▸ status", role="status")
        await w.outbox.message_id(sent)

        async def gone(*_: object) -> None:
            raise SendFailed("gone", "message to edit not found")

        monkeypatch.setattr(w.chat, "edit", gone)
        await w.db.write(lambda conn: deliveries.add_edit(conn, sent, cards.interrupted(1, "fix it"), 0.0, priority=2))
        w.outbox.kick()
        await w.chat.shown("■ Interrupted", "fix it", button="Resume")
