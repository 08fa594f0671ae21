"""What is old goes, what anything still needs stays, and a reply to an old message finds its thread."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog.testing

from untether.clock import ManualClock
from untether.model import Allow, Interaction
from untether.store import deliveries, interactions, runs, threads, updates
from untether.store.database import Database, StoreError
from untether.store.migrate import load_migrations
from untether.store.retention import DAY_S, Policy, Pruned, Retention
from untether.text.blocks import Markdown
from untether.transport import Card, ChatRef

pytestmark = pytest.mark.anyio

CHAT = ChatRef("telegram", "1")
POLICY = Policy(journals=30 * DAY_S, journal_bytes=10_000, messages=30 * DAY_S, runs=365 * DAY_S)
CARD = Card((Markdown("some words"),))


class World:
    """A store whose clock can be put back, so that rows are as old as a test likes."""

    def __init__(self, db: Database, state: Path) -> None:
        self.db, self.folder, self.clock = db, state / "processes", ManualClock()
        self.retention = Retention(db, self.folder, POLICY, self.clock)
        self._count = 0

    def ago(self, days: float) -> float:
        return self.clock.now() - days * DAY_S

    def one(self, query: str, *values: Any) -> Any:
        return self.db.read(lambda conn: conn.execute(query, values).fetchone())[0]

    async def thread(self) -> int:
        def job(conn: sqlite3.Connection) -> int:
            made = threads.add_thread(
                conn, CHAT, engine="demo", cwd="/", project=None, branch=None, session="s", now=0.0
            )
            return made.id

        return await self.db.write(job)

    async def run(
        self, thread_id: int, days: float, *, state: str = "done", size: int = 100, ended: bool = True
    ) -> tuple[int, str]:
        """A run of so many days ago, from its update to its sent answer, and its process. Their ids."""
        self._count += 1
        number, then = self._count, self.ago(days)
        process_id = f"process-{number}"

        def job(conn: sqlite3.Connection) -> int:
            updates.store(conn, "telegram", [(str(number), b"raw")], then)
            (update,) = conn.execute("SELECT MAX(id) FROM updates").fetchone()
            message = threads.add_message(
                conn,
                thread_id=thread_id,
                chat=CHAT,
                update_id=update,
                prompt_id=f"prompt-{number}",
                message_id=str(1000 + number),
                sender="Ann",
                text="do it",
                now=then,
                options={"a": 1},
            )
            updates.done(conn, update)
            runs.add_process(conn, process_id, thread_id, b"{}", then)
            for _ in range(3):
                runs.add_input(conn, process_id, 0, then, b"{}")
            run_id = runs.add_run(
                conn, thread_id=thread_id, process_id=process_id, message_id=message.id, title="do it", now=then
            )
            if ended:
                runs.end_run(conn, run_id, state, then, answer="the answer", raw_error="trace")
                runs.end_process(conn, process_id, b"{}", then)
                threads.set_message(conn, message.id, "answered")
            (status,) = deliveries.add_send(conn, CHAT, [CARD], "status", then, run_id=run_id)
            (answer,) = deliveries.add_send(conn, CHAT, [CARD], "answer", then, run_id=run_id)
            for part, message_id in ((status, 2000 + number), (answer, 3000 + number)):
                deliveries.sent(conn, part, str(message_id), then)
            deletion = deliveries.add_delete(conn, status, then)
            assert deletion is not None
            deliveries.sent(conn, deletion, None, then)
            return run_id

        run_id = await self.db.write(job)
        folder = self.folder / process_id
        folder.mkdir(parents=True)
        folder.joinpath("out.jsonl").write_bytes(b"x" * size)
        os.utime(folder / "out.jsonl", (then, then))
        return run_id, process_id

    def journals(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Database(tmp_path / "untether.db", migrations=load_migrations()) as db:
        yield World(db, tmp_path)


async def test_journals_go_by_age_with_their_inputs_and_that_of_the_last_run_stays(world: World) -> None:
    thread = await world.thread()
    _, old = await world.run(thread, 31)
    _, newer = await world.run(thread, 29)
    _, last = await world.run(await world.thread(), 200)
    pruned = await world.retention.prune()
    assert world.journals() == {newer, last}
    assert (pruned.folders, pruned.freed) == (1, 100)
    assert world.one("SELECT COUNT(*) FROM inputs WHERE process_id = ?", old) == 0
    assert world.one("SELECT COUNT(*) FROM inputs WHERE process_id = ?", newer) == 3
    assert (await world.retention.prune()) == Pruned()


async def test_the_journal_of_the_last_run_goes_when_its_texts_would(world: World) -> None:
    await world.run(await world.thread(), 366)
    await world.retention.prune()
    assert world.journals() == set()


async def test_too_many_bytes_cost_the_oldest_first_and_last_runs_last(world: World) -> None:
    thread = await world.thread()
    _, last_of_other = await world.run(await world.thread(), 20, size=4000)
    _, oldest = await world.run(thread, 9, size=4000)
    _, middle = await world.run(thread, 8, size=4000)
    _, last = await world.run(thread, 7, size=1000)
    await world.retention.prune()
    assert world.journals() == {last_of_other, middle, last}
    _, huge = await world.run(thread, 0.1, size=9500)
    await world.retention.prune()
    assert oldest not in world.journals()
    assert world.journals() == {huge}


async def test_an_open_process_keeps_everything_whatever_its_age_and_size(world: World) -> None:
    thread = await world.thread()
    run_id, process_id = await world.run(thread, 400, size=50_000, ended=False)
    await world.run(thread, 0.5)
    await world.retention.prune()
    assert process_id in world.journals()
    assert world.one("SELECT COUNT(*) FROM inputs WHERE process_id = ?", process_id) == 3
    assert world.one("SELECT text FROM messages WHERE prompt_id = 'prompt-1'") == "do it"
    assert world.one("SELECT COUNT(*) FROM updates WHERE key = '1'") == 1
    assert world.one("SELECT state FROM runs WHERE id = ?", run_id) == "running"


@pytest.mark.parametrize("what", ["request", "delivery"])
async def test_what_is_open_keeps_the_journal_and_the_texts(world: World, what: str) -> None:
    thread = await world.thread()
    run_id, process_id = await world.run(thread, 400)
    await world.run(thread, 1)

    def job(conn: sqlite3.Connection) -> None:
        if what == "request":
            record = Interaction(id="r1", kind="permission", act="Run?")
            interactions.open_(conn, "key", process_id, run_id, record, world.ago(400))
        else:
            deliveries.add_send(conn, CHAT, [CARD], "answer", world.ago(400), run_id=run_id)

    await world.db.write(job)
    await world.retention.prune()
    assert process_id in world.journals()
    assert world.one("SELECT COUNT(*) FROM inputs WHERE process_id = ?", process_id) == 3
    if what == "delivery":
        assert world.one("SELECT answer FROM runs WHERE id = ?", run_id) == "the answer"
        assert world.one("SELECT COUNT(*) FROM deliveries WHERE state = 'pending' AND card IS NOT NULL") == 1


async def test_a_journal_in_which_a_keeper_is_at_work_stays(world: World) -> None:
    thread = await world.thread()
    _, process_id = await world.run(thread, 40)
    await world.run(thread, 1)
    with (world.folder / process_id / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        await world.retention.prune()
        assert process_id in world.journals()
    await world.retention.prune()
    assert process_id not in world.journals()


async def test_a_folder_that_the_database_does_not_know_goes_by_its_age_and_a_link_never(
    world: World, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.joinpath("precious").write_text("x")
    for name, days in (("stranger", 31), ("new-stranger", 1)):
        folder = world.folder / name
        folder.mkdir(parents=True)
        folder.joinpath("out.jsonl").touch()
        os.utime(folder / "out.jsonl", (world.ago(days), world.ago(days)))
    world.folder.joinpath("link").symlink_to(elsewhere)
    await world.retention.prune()
    assert world.journals() == {"new-stranger", "link"}
    assert elsewhere.joinpath("precious").exists()


async def test_a_reply_to_a_message_of_any_age_finds_its_thread(world: World) -> None:
    first, second = await world.thread(), await world.thread()
    await world.run(first, 2000)
    await world.run(first, 1999)
    await world.run(second, 1998)
    await world.retention.prune()
    for number, thread_id in ((1, first), (2, first), (3, second)):
        for message_id in (1000 + number, 2000 + number, 3000 + number):  # the person's, the status, the answer
            found = world.db.read(partial(threads.of_message, ref=CHAT, message_id=str(message_id)))
            assert found is not None
            assert (found.id, found.session) == (thread_id, "s")
    answer = world.db.read(lambda conn: deliveries.of_message(conn, CHAT, "3001"))
    assert answer is not None
    assert (answer.card, answer.run_id, answer.state) == (None, 1, "sent")


async def test_files_that_came_with_messages_go_by_age_unless_their_message_is_open(world: World) -> None:
    thread = await world.thread()
    incoming = world.folder.with_name("incoming")
    paths = [incoming / name / "photo.jpg" for name in ("1", "2", "3")]
    for path, days in zip(paths, (40, 40, 1), strict=True):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"12345")
        os.utime(path.parent, (world.ago(days), world.ago(days)))

    def queue(conn: sqlite3.Connection) -> None:
        threads.add_message(
            conn,
            thread_id=thread,
            chat=CHAT,
            update_id=None,
            prompt_id="waiting",
            message_id="1",
            sender="Ann",
            text="look",
            now=world.ago(40),
            options={},
            attachments=[threads.File(str(paths[1]), "photo.jpg")],
        )

    await world.db.write(queue)
    pruned = await world.retention.prune()
    assert [path.exists() for path in paths] == [False, True, True]
    assert pruned.freed == 5


async def test_old_rows_lose_their_bulk(world: World) -> None:
    thread = await world.thread()
    await world.run(thread, 400)
    await world.run(thread, 40)
    await world.run(thread, 1)
    await world.retention.prune()
    texts = world.db.read(lambda conn: conn.execute("SELECT text, options FROM messages ORDER BY id").fetchall())
    assert [tuple(row) for row in texts] == [("", "{}"), ("do it", '{"a":1}'), ("do it", '{"a":1}')]
    answers = world.db.read(lambda conn: conn.execute("SELECT answer, raw_error FROM runs ORDER BY id").fetchall())
    assert [tuple(row) for row in answers] == [("", ""), ("the answer", "trace"), ("the answer", "trace")]
    assert world.one("SELECT group_concat(key) FROM updates") == "3"
    assert world.one("SELECT COUNT(*) FROM deliveries WHERE act = 'delete'") == 1
    assert world.one("SELECT COUNT(*) FROM deliveries WHERE card IS NOT NULL") == 2
    assert world.one("SELECT COUNT(*) FROM pragma_foreign_key_check") == 0


@pytest.mark.parametrize("state", ["failed", "interrupted"])
async def test_the_last_run_of_a_thread_can_be_tried_again_after_years(world: World, state: str) -> None:
    run_id, _ = await world.run(await world.thread(), 3000, state=state)
    await world.retention.prune()
    assert world.one("SELECT text FROM messages") == "do it"
    assert world.one("SELECT raw_error FROM runs WHERE id = ?", run_id) == "trace"
    assert world.one("SELECT COUNT(*) FROM deliveries WHERE card IS NOT NULL AND act = 'send'") == 2


async def test_a_decision_that_was_shown_is_not_shown_again(world: World) -> None:
    thread = await world.thread()
    run_id, process_id = await world.run(thread, 40)

    def job(conn: sqlite3.Connection) -> None:
        then = world.ago(40)
        record = Interaction(id="r1", kind="permission", act="Run?")
        interactions.open_(conn, "key", process_id, run_id, record, then)
        (asked,) = deliveries.add_send(conn, CHAT, [CARD], "interaction", then, run_id=run_id, interaction="key")
        interactions.set_delivery(conn, "key", asked)
        deliveries.sent(conn, asked, "5", then)
        interactions.claim(conn, "key", Allow(), "Ann", then)
        edit = deliveries.add_edit(conn, asked, CARD, then, priority=1)
        assert edit is not None
        deliveries.sent(conn, edit, None, then)

    await world.db.write(job)
    await world.retention.prune()
    assert world.one("SELECT COUNT(*) FROM deliveries WHERE interaction = 'key' AND card IS NOT NULL") == 0
    assert world.db.read(partial(interactions.decided_unshown, process_id=process_id)) == []


async def test_a_group_that_still_goes_on_is_whole(world: World) -> None:
    def job(conn: sqlite3.Connection) -> None:
        first, _ = deliveries.add_send(conn, CHAT, [CARD, CARD], "answer", world.ago(40))
        deliveries.sent(conn, first, "7", world.ago(40))

    await world.db.write(job)
    await world.retention.prune()
    assert world.one("SELECT COUNT(*) FROM deliveries WHERE card IS NOT NULL") == 2


async def test_many_rows_go_in_transactions_of_bounded_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [(str(number), b"raw") for number in range(1001)]
    await world.db.write(lambda conn: updates.store(conn, "telegram", old, world.ago(31)))
    await world.db.write(lambda conn: conn.execute("UPDATE updates SET state = 'done'"))
    sizes: list[int] = []
    write = world.db.write

    async def watched(job: Any) -> Any:
        before = world.one("SELECT COUNT(*) FROM updates")
        result = await write(job)
        sizes.append(before - world.one("SELECT COUNT(*) FROM updates"))
        return result

    monkeypatch.setattr(world.db, "write", watched)
    assert (await world.retention.prune()).rows == 1001
    assert sizes == [200, 200, 200, 200, 200, 1]


async def test_a_full_store_frees_the_journals_first_and_tries_the_rows_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = await world.thread()
    _, old = await world.run(thread, 31)
    await world.run(thread, 1)
    write = world.db.write
    full = True

    async def sometimes(job: Any) -> Any:
        if full:
            raise StoreError("full", "database or disk is full")
        return await write(job)

    monkeypatch.setattr(world.db, "write", sometimes)
    with structlog.testing.capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.retention.run)
            await world.clock.wait_for_sleepers()
            await world.clock.advance(5)
            with anyio.fail_after(10):
                await world.clock.wait_for_sleepers()
            assert old not in world.journals()
            assert world.one("SELECT COUNT(*) FROM inputs WHERE process_id = ?", old) == 3
            full = False
            await world.clock.advance(600)
            with anyio.fail_after(10):
                await world.clock.wait_for_sleepers()
            assert world.one("SELECT COUNT(*) FROM inputs WHERE process_id = ?", old) == 0
            tasks.cancel_scope.cancel()
    assert [entry["event"] for entry in logs] == ["retention.waits", "retention.pruned"]


async def test_it_looks_again_every_six_hours(world: World) -> None:
    thread = await world.thread()
    _, old = await world.run(thread, 29.9)
    await world.run(thread, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.retention.run)
        await world.clock.wait_for_sleepers()
        await world.clock.advance(5)
        with anyio.fail_after(10):
            await world.clock.wait_for_sleepers()
        assert old in world.journals()
        await world.clock.advance(6 * 3600)
        with anyio.fail_after(10):
            await world.clock.wait_for_sleepers()
        assert old not in world.journals()
        tasks.cancel_scope.cancel()
