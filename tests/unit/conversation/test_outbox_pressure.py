"""The outbox under pressure: chats that are gone or moved, pauses, files, late answers, and twins."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.chat import FakeChat
from untether.clock import ManualClock
from untether.conversation import cards, moves, twins
from untether.conversation import outbox as outbox_module
from untether.conversation.hub import Hub
from untether.conversation.outbox import Outbox
from untether.store import deliveries, outfiles, runs, threads
from untether.store.database import Database
from untether.store.migrate import load_migrations
from untether.text.blocks import Line
from untether.transport import Button, Card, ChatRef, FileOut, Priority, ReplyTo, Sender, SendFailed, TapIn

pytestmark = pytest.mark.anyio
CHAT = ChatRef("fake", "1")
HOUR = 3600.0


class World:
    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.chat = FakeChat()
        self.clock = ManualClock(time.mktime((2026, 11, 30, 14, 2, 0, 0, 0, -1)))
        self.copies = folder / "outbox"
        self.outbox = Outbox(db, {"fake": self.chat}, self.clock, Hub(), files=self.copies)

    async def add(self, *texts: str, role: deliveries.Role = "notice", chat: ChatRef = CHAT) -> list[int]:
        parts = [cards.notice(text) for text in texts]
        return await self.add_parts(parts, role, chat=chat)

    async def add_parts(
        self, parts: Sequence[Card], role: deliveries.Role, *, chat: ChatRef = CHAT, run_id: int | None = None
    ) -> list[int]:
        now = self.clock.now()
        ids = await self.db.write(lambda conn: deliveries.add_send(conn, chat, parts, role, now, run_id=run_id))
        self.outbox.kick()
        return ids

    async def run_of(self, asked: float, started: float, state: str = "running") -> int:
        """A run whose message was written and which began at these times."""

        def job(conn: object) -> int:
            thread = threads.add_thread(
                conn,  # type: ignore[arg-type]
                CHAT,
                engine="demo",
                cwd="/shop",
                project=None,
                branch=None,
                session=None,
                now=asked,
            )
            message = threads.add_message(
                conn,  # type: ignore[arg-type]
                thread_id=thread.id,
                chat=CHAT,
                update_id=None,
                prompt_id=f"p{asked}-{started}",
                message_id="7",
                sender="Ann",
                text="fix it",
                now=asked,
                options={},
            )
            run_id = runs.add_run(
                conn,  # type: ignore[arg-type]
                thread_id=thread.id,
                process_id=None,
                message_id=message.id,
                title="fix it",
                now=started,
            )
            if state != "running":
                runs.end_run(conn, run_id, state, started)  # type: ignore[arg-type]
            return run_id

        return await self.db.write(job)

    def row(self, delivery_id: int) -> deliveries.Delivery:
        row = self.db.read(lambda conn: deliveries.get(conn, delivery_id))
        assert row is not None
        return row

    @property
    def texts(self) -> list[str]:
        return [shown.text for shown in self.chat.messages if not shown.deleted]


@asynccontextmanager
async def world(folder: Path, *, running: bool = True) -> AsyncIterator[World]:
    async with Database(folder / "untether.db", migrations=load_migrations()) as db:
        made = World(db, folder)
        async with anyio.create_task_group() as tasks:
            if running:
                tasks.start_soon(made.outbox.run)
            yield made
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def sending(w: World) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(w.outbox.run)
        yield
        tasks.cancel_scope.cancel()


# ---------------------------------------------------------------------------------------- pauses and chats gone


async def test_every_pause_is_obeyed_to_the_second_however_often_it_comes(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("later", "too many requests", 5.0)] * 6
        (sent,) = await w.add("answer")
        for _ in range(6):
            await w.clock.wait_for_sleepers()
            await w.clock.advance(5.0)
        await w.outbox.message_id(sent)
        assert w.clock.monotonic() == 30.0


async def test_a_chat_that_is_gone_costs_one_attempt_and_one_line_in_the_log(tmp_path: Path) -> None:
    async with world(tmp_path, running=False) as w:
        lost = await w.add("one", "two") + await w.add("request", role="interaction")
        (other,) = await w.add("for Bob", chat=ChatRef("fake", "2"))
        attempts = 0
        send = w.chat.send

        async def blocked(chat: ChatRef, card: Card, priority: int) -> str:
            nonlocal attempts
            if chat.chat == "1":
                attempts += 1
                raise SendFailed("no_chat", "bot was blocked by the user")
            return await send(chat, card, priority)

        w.chat.send = blocked  # type: ignore[method-assign]
        with capture_logs() as logs:
            async with sending(w):
                assert await w.outbox.message_id(lost[-1]) is None
                assert await w.outbox.message_id(lost[0]) is None
                assert await w.outbox.message_id(other) is not None
        assert attempts == 1
        assert [w.row(one).state for one in lost] == ["failed"] * 3
        assert [entry["given_up"] for entry in logs if entry["event"] == "outbox.chat_gone"] == [3]


async def test_a_flush_waits_neither_for_a_long_pause_nor_for_what_is_switched_off(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("later", "too many requests", 900.0)]
        await w.add("paused")
        await w.add("for the console that is off", chat=ChatRef("web", "1"))
        await w.clock.wait_for_sleepers()
        before = w.clock.monotonic()
        await w.outbox.flush(5.0)
        assert w.clock.monotonic() == before


async def test_a_flush_waits_for_what_can_leave_in_time(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("later", "too many requests", 2.0)]
        await w.add("soon")
        await w.clock.wait_for_sleepers()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.outbox.flush, 5.0)
            await w.clock.wait_for_sleepers(2)
            for _ in range(50):
                await w.clock.advance(0.05)
                await anyio.lowlevel.checkpoint()
            await w.chat.until(lambda: w.texts == ["soon"])
            await w.clock.advance(5.0)


# ------------------------------------------------------------------------------------------------- chats moved


async def test_what_waits_follows_a_chat_to_its_new_id(tmp_path: Path) -> None:
    async with world(tmp_path, running=False) as w:
        asked = Card((Line("Run?"),), reply_to="55")
        (shown,) = await w.add_parts([asked], "interaction")
        send = w.chat.send

        async def moved(chat: ChatRef, card: Card, priority: int) -> str:
            if chat.chat == "1":
                raise SendFailed("moved", "upgraded to a supergroup", moved_to="-1002")
            return await send(chat, card, priority)

        w.chat.send = moved  # type: ignore[method-assign]
        async with sending(w):
            await w.chat.until(lambda: len(w.chat.messages) == 2)
            # An agent that began before the move goes on with the chat as it knew it.
            await w.add_parts([Card((Line("✓ answer"),), reply_to="55")], "answer")
            await w.chat.until(lambda: len(w.chat.messages) == 3)
        assert {one.chat.chat for one in w.chat.messages} == {"-1002"}
        request, said, answer = w.chat.messages
        assert (request.text, answer.text) == ("Run?", "✓ answer")
        assert request.card.reply_to == answer.card.reply_to == "1/55"
        assert "-1002 instead of 1" in said.text
        assert "chat_id" in said.text
        assert w.row(shown).attempts == 1


async def test_what_is_kept_for_a_chat_goes_on_under_its_new_id(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        new = ChatRef("fake", "-1002")
        run_id = await w.run_of(1.0, 1.0)
        (answer,) = await w.add_parts([cards.notice("✓ answer")], "answer", run_id=run_id)
        message_id = await w.outbox.message_id(answer)

        def job(conn: object) -> None:
            found = threads.of_message(conn, CHAT, message_id or "")  # type: ignore[arg-type]
            assert found is not None
            threads.set_chat(conn, CHAT, current=found.id, project="shop")  # type: ignore[arg-type]
            for _ in range(2):  # it is said in both chats, and may be told again after a crash
                moves.chat_moved(conn, "fake", "1", "-1002", 0.0)  # type: ignore[arg-type]

        await w.db.write(job)
        w.outbox.kick()
        for known in (f"1/{message_id}", "1/7"):  # the answer, and the message of a person
            thread = w.db.read(lambda conn, known=known: threads.of_message(conn, new, known))  # type: ignore[misc]
            assert thread is not None
            assert thread.chat == new
        assert w.db.read(lambda conn: threads.of_message(conn, new, "7")) is None  # ids begin anew there
        kept = w.db.read(lambda conn: threads.chat(conn, new))
        assert thread is not None
        assert (kept.current, kept.project) == (thread.id, "shop")
        await w.chat.shown("-1002 instead of 1")
        assert len(w.chat.messages) == 2  # said once


# ------------------------------------------------------------------------------------- edits that must be seen


async def test_an_outcome_becomes_a_message_when_its_request_is_gone_and_a_choice_does_not(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        (request,) = await w.add("⏸ Run?", role="interaction")
        await w.outbox.message_id(request)

        async def gone(chat: ChatRef, message_id: str, card: Card, priority: int) -> None:
            raise SendFailed("gone", "message to edit not found")

        w.chat.edit = gone  # type: ignore[method-assign]
        for text, buttons in (("☑ SQLite", ((Button("Done", "i:k:d"),),)), ("✓ Approved by Ann", ())):
            card = Card((Line(text),), buttons=buttons)
            edit = await w.db.write(
                lambda conn, card=card: deliveries.add_edit(conn, request, card, 0.0, priority=Priority.NOTICE)  # type: ignore[misc]
            )
            w.outbox.kick()
            assert edit is not None
            assert await w.outbox.message_id(edit) is None
        shown = await w.chat.shown("✓ Approved by Ann")
        assert shown.card.silent
        assert w.texts == ["⏸ Run?", "✓ Approved by Ann"]


# ------------------------------------------------------------------------------------------------------- files


async def test_a_file_leaves_from_its_copy_before_its_buttons_and_the_copy_goes(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        source = tmp_path / "report.csv"
        source.write_text("a;b")
        kept = outfiles.keep(source, w.copies)
        source.write_text("changed meanwhile")
        assert outfiles.read(kept) == b"a;b"
        below = Card((Line("Keep it?"),), buttons=((Button("Yes", "y:1"),),))
        ids = await w.db.write(lambda conn: deliveries.add_file(conn, CHAT, kept, "answer", 0.0, below=[below]))
        w.outbox.kick()
        assert await w.outbox.message_id(ids[-1]) == "2"
        file, buttons = w.chat.messages
        assert (file.card.file, file.card.silent) == (kept, True)
        assert buttons.labels == ["Yes"]
        assert list(w.copies.iterdir()) == []


async def test_copies_that_no_row_needs_are_removed_at_the_start(tmp_path: Path) -> None:
    async with world(tmp_path, running=False) as w:
        source = tmp_path / "a.txt"
        source.write_text("x")
        wanted, orphan = outfiles.keep(source, w.copies), outfiles.keep(source, w.copies)
        w.clock.jump(time.time() + 2 * HOUR - w.clock.now())
        fresh = outfiles.keep(source, w.copies)  # its row may be about to be committed
        now = w.clock.now()
        for kept, age in ((wanted, 2 * HOUR), (orphan, 2 * HOUR), (fresh, 60.0)):
            _set_age(kept, now - age)
        w.chat.failures = [SendFailed("later", "too many requests", 900.0)]
        await w.db.write(lambda conn: deliveries.add_file(conn, CHAT, wanted, "answer", now))
        async with sending(w):
            await w.clock.wait_for_sleepers()
        assert {str(path) for path in w.copies.iterdir()} == {wanted.path, fresh.path}


def _set_age(file: FileOut, at: float) -> None:
    import os

    os.utime(file.path, (at, at))


# ------------------------------------------------------------------------------------------------------- dates


async def test_an_answer_that_leaves_late_says_when_it_was_given(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        run_id = await w.run_of(w.clock.now(), w.clock.now())
        w.chat.failures = [SendFailed("later", "network down", 12 * HOUR)]
        ids = await w.add_parts([cards.notice("It is"), cards.notice("fixed.")], "answer", run_id=run_id)
        await w.clock.wait_for_sleepers()
        await w.clock.advance(12 * HOUR)
        await w.outbox.message_id(ids[-1])
        assert w.texts == ["It is", "fixed.\nanswered 14:02 on 30 Nov"]


async def test_an_answer_says_when_it_was_asked_for_if_that_waited(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        now = w.clock.now()
        waited, at_once, long_run = (
            await w.run_of(now - 5 * HOUR, now - 60),
            await w.run_of(now - 60, now - 59),
            await w.run_of(now - 5 * HOUR, now - 5 * HOUR),
        )
        for run_id in (waited, at_once, long_run):
            (sent,) = await w.add_parts([cards.notice("Fixed.")], "answer", run_id=run_id)
            await w.outbox.message_id(sent)
        assert w.texts == ["Fixed.\nasked 09:02", "Fixed.", "Fixed."]


async def test_a_date_without_room_comes_after_the_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.parts = lambda card: [card] * len(card.blocks)  # type: ignore[method-assign]
        run_id = await w.run_of(w.clock.now() - 2 * HOUR, w.clock.now())
        await w.add_parts([cards.notice("A full message.")], "answer", run_id=run_id)
        await w.chat.until(lambda: len(w.texts) == 2)
        assert w.texts == ["A full message.", "asked 12:02"]


# ------------------------------------------------------------------------------------------------------- twins


STATUS = Card((Line("▸ demo · shop · 4s"),), buttons=((Button("Stop", "stop:1"), Button("Details", "verbose:1")),))


async def sent_twice(w: World, card: Card, role: deliveries.Role, run_id: int) -> int:
    """A part whose first copy arrived unseen as message 99, and whose repeat arrived as message 1."""
    w.chat.failures = [SendFailed("unknown", "connection lost")]
    (sent,) = await w.add_parts([card], role, run_id=run_id)
    await w.clock.wait_for_sleepers()
    await w.clock.advance(1.0)
    await w.outbox.message_id(sent)
    w.chat.messages.append(msgspec.structs.replace(w.chat.messages[-1], message_id="99"))
    return sent


async def test_a_second_status_message_goes_as_soon_as_it_is_tapped(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await sent_twice(w, STATUS, "status", await w.run_of(1.0, 1.0))
        tap = TapIn(CHAT, Sender("7"), "99", "stop:1")
        for _ in range(2):
            await w.db.write(lambda conn: twins.tapped(conn, tap, 0.0))
        w.outbox.kick()
        await w.chat.until(lambda: w.chat.messages[1].deleted)
        assert not w.chat.messages[0].deleted


async def test_a_status_message_that_arrived_unseen_goes_when_its_run_has_ended(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.chat.failures = [SendFailed("unknown", "connection lost")] * 2
        (sent,) = await w.add_parts([STATUS], "status", run_id=await w.run_of(1.0, 1.0, "done"))
        for pause in (1.0, 2.0):
            await w.clock.wait_for_sleepers()
            await w.clock.advance(pause)
        assert await w.outbox.message_id(sent) is None
        w.chat.failures = []
        await w.chat.send(CHAT, STATUS, 0)  # what the chat has shown all the time
        message_id = w.chat.messages[0].message_id
        reply = ReplyTo(message_id, "▸ demo · shop · 4s", ours=True)
        await w.db.write(lambda conn: twins.answered(conn, CHAT, reply, 0.0))
        w.outbox.kick()
        await w.chat.until(lambda: w.chat.messages[0].deleted)


async def test_all_copies_of_a_status_message_go_with_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        sent = await sent_twice(w, STATUS, "status", await w.run_of(1.0, 1.0))
        await w.db.write(lambda conn: deliveries.adopt(conn, sent, "99", 0.0))
        await w.db.write(lambda conn: deliveries.add_delete(conn, sent, 0.0))
        w.outbox.kick()
        await w.chat.until(lambda: all(shown.deleted for shown in w.chat.messages))


async def test_a_reply_to_a_second_copy_of_an_answer_goes_on_with_its_thread(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        run_id = await w.run_of(1.0, 1.0, "done")
        await sent_twice(w, cards.notice("It is fixed in cart.py.", "✓ 3s"), "answer", run_id)
        for text, found in (("Something else", False), ("It is fixed in cart.py.\n✓ 3s", True)):
            reply = ReplyTo("99", text, ours=True)
            await w.db.write(lambda conn, reply=reply: twins.answered(conn, CHAT, reply, 0.0))  # type: ignore[misc]
            assert (w.db.read(lambda conn: threads.of_message(conn, CHAT, "99")) is not None) is found
        assert w.texts == ["It is fixed in cart.py.\n✓ 3s"] * 2  # an answer stays


# ---------------------------------------------------------------------------------------------- crash points


async def test_the_points_at_which_a_crash_is_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marked before the request, not stored after it, and between parts neither."""
    async with world(tmp_path) as w:
        seen: list[tuple[str, list[str], int]] = []

        def point(name: str) -> None:
            rows = w.db.read(lambda conn: conn.execute("SELECT state FROM deliveries ORDER BY id").fetchall())
            seen.append((name, [row[0] for row in rows], len(w.chat.messages)))

        monkeypatch.setattr(outbox_module, "point", point)
        ids = await w.add("one", "two")
        await w.outbox.message_id(ids[-1])
        assert seen == [
            ("outbox.marked", ["sending", "pending"], 0),
            ("outbox.requested", ["sending", "pending"], 1),
            ("outbox.between_parts", ["sent", "pending"], 1),
            ("outbox.marked", ["sent", "sending"], 1),
            ("outbox.requested", ["sent", "sending"], 2),
        ]
