"""The database: shared commits, failures that stay with whom they concern, reads, and the end."""

from __future__ import annotations

import functools
import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
import structlog.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from untether import faults
from untether.store.database import Database, StoreError
from untether.store.migrate import Migration

pytestmark = pytest.mark.anyio

SCHEMA = [
    Migration(
        1,
        "notes",
        """
        CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
        CREATE TABLE marks (note INTEGER NOT NULL REFERENCES notes (id)) STRICT;
        CREATE TABLE plain (text TEXT NOT NULL) STRICT;
        """,
    )
]


def add(text: str, connection: sqlite3.Connection) -> int:
    return int(connection.execute("INSERT INTO notes (text) VALUES (?) RETURNING id", (text,)).fetchone()[0])


def adding(text: str) -> Callable[[sqlite3.Connection], int]:
    return functools.partial(add, text)


def texts(connection: sqlite3.Connection) -> list[str]:
    return [row["text"] for row in connection.execute("SELECT text FROM notes ORDER BY id")]


def stored(path: Path) -> list[str]:
    """What another program finds in the file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return texts(connection)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "untether.db"


@pytest.fixture
async def db(path: Path) -> AsyncIterator[Database]:
    async with Database(path, migrations=SCHEMA, busy_timeout=0.05) as database:
        yield database


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with every commit of a database."""
    passed: list[str] = []
    monkeypatch.setattr(faults, "point", passed.append)
    return passed


class Gate:
    """A job that holds the writer until it is opened, so that a test can gather a group behind it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.reached.set()
        assert self.opened.wait(10)


async def write_together(db: Database, jobs: list[Callable[[sqlite3.Connection], object]]) -> list[object]:
    """Have all jobs in one commit. Their results or exceptions, in order."""
    outcomes: list[object] = [None] * len(jobs)

    async def write(index: int) -> None:
        try:
            outcomes[index] = await db.write(jobs[index])
        except Exception as exc:
            outcomes[index] = exc

    gate = Gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(db.write, gate)
        await anyio.to_thread.run_sync(gate.reached.wait, 10)
        for index in range(len(jobs)):
            tasks.start_soon(write, index)
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()
    return outcomes


async def test_a_write_gives_its_result_and_is_read_back(db: Database, path: Path) -> None:
    assert await db.write(adding("one")) == 1
    assert await db.write(adding("two")) == 2

    assert db.read(texts) == ["one", "two"]
    assert await db.read_in_thread(texts) == ["one", "two"]
    assert stored(path) == ["one", "two"]


async def test_writes_survive_a_power_cut_by_the_book(db: Database) -> None:
    def settings(connection: sqlite3.Connection) -> tuple[str, int]:
        return (
            connection.execute("PRAGMA journal_mode").fetchone()[0],
            connection.execute("PRAGMA synchronous").fetchone()[0],
        )

    assert await db.write(settings) == ("wal", 2)


async def test_only_the_owner_may_read_the_files(db: Database, path: Path) -> None:
    await db.write(adding("secret"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"untether.db": 0o600, "untether.db-wal": 0o600, "untether.db-shm": 0o600}


async def test_waiting_writes_share_one_commit(db: Database, commits: list[str]) -> None:
    outcomes = await write_together(db, [adding(f"note {number}") for number in range(100)])

    assert outcomes == list(range(1, 101))
    assert len(commits) == 2  # the gate, and all others


async def test_a_job_that_raises_takes_back_only_its_own_work(db: Database, commits: list[str]) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        add("half of it", connection)
        raise LookupError("no such chat")

    outcomes = await write_together(db, [adding("before"), fails, adding("before"), adding("after")])

    assert outcomes[0] == 1
    assert isinstance(outcomes[1], LookupError)
    assert isinstance(outcomes[2], sqlite3.IntegrityError)  # a broken rule is the caller's affair, not a StoreError
    assert db.read(texts) == ["before", "after"]
    assert len(commits) == 2


async def test_foreign_keys_are_enforced(db: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        await db.write(lambda connection: connection.execute("INSERT INTO marks VALUES (7)"))


async def test_a_cancelled_caller_does_not_cancel_the_write(db: Database) -> None:
    gate = Gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(db.write, gate)
        await anyio.to_thread.run_sync(gate.reached.wait, 10)
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(db.write, adding("still wanted"))
            await anyio.wait_all_tasks_blocked()
            impatient.cancel_scope.cancel()
        gate.opened.set()

    await db.write(adding("next"))
    assert db.read(texts) == ["still wanted", "next"]


async def test_the_failure_of_a_write_that_nobody_waits_for_is_logged(db: Database) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        raise LookupError("no such chat")

    with structlog.testing.capture_logs() as logs:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await db.write(fails)
        await db.write(adding("next"))  # may be of the same group, which is told in no order
        await db.write(adding("one later"))
    assert [(entry["event"], entry["error"]) for entry in logs] == [
        ("store.cancelled_write_failed", "LookupError('no such chat')")
    ]


async def test_a_job_that_commits_by_itself_is_refused(db: Database) -> None:
    def commits_early(connection: sqlite3.Connection) -> None:
        with connection:
            connection.execute("SELECT 1")

    with pytest.raises(RuntimeError, match="ended the transaction"):
        await db.write(commits_early)
    assert await db.write(adding("goes on")) == 1


class TestACommitThatFails:
    async def test_fails_all_that_share_it_and_stores_nothing(
        self, db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        passed: list[str] = []

        def fail_second(name: str) -> None:
            passed.append(name)
            if len(passed) == 2:
                raise sqlite3.OperationalError("made up")

        monkeypatch.setattr(faults, "point", fail_second)
        outcomes = await write_together(db, [adding("one"), adding("two")])

        assert [str(outcome) for outcome in outcomes] == ["made up", "made up"]
        assert stored(path) == []
        assert await db.write(adding("three")) == 1

    @pytest.mark.parametrize(
        ("code", "kind"), [(sqlite3.SQLITE_IOERR_FSYNC, "io"), (sqlite3.SQLITE_CORRUPT, "corrupt")]
    )
    async def test_because_of_the_disk_is_tried_anew_on_a_fresh_connection(
        self, db: Database, monkeypatch: pytest.MonkeyPatch, code: int, kind: str
    ) -> None:
        def breaks(name: str) -> None:
            error = sqlite3.OperationalError("made up")
            error.sqlite_errorcode = code
            raise error

        first = await db.write(lambda connection: connection)
        with monkeypatch.context() as patch:
            patch.setattr(faults, "point", breaks)
            with pytest.raises(StoreError, match="made up") as caught:
                await db.write(adding("one"))
        assert caught.value.kind == kind
        assert await db.write(lambda connection: connection) is not first
        assert await db.write(adding("two")) == 1

    async def test_because_another_program_holds_the_lock(self, db: Database, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as caught:
                await db.write(adding("one"))
            assert caught.value.kind == "locked"
            assert db.read(texts) == []  # reading goes on meanwhile
            other.execute("ROLLBACK")

        assert await db.write(adding("two")) == 1

    async def test_because_sqlite_gave_up_in_the_middle_of_it(self, db: Database) -> None:
        def limit(pages: int) -> Callable[[sqlite3.Connection], object]:
            return lambda connection: connection.execute(f"PRAGMA max_page_count={pages}").fetchone()

        def large(connection: sqlite3.Connection) -> None:  # "full" in such a plain statement ends the transaction
            connection.execute("INSERT INTO plain VALUES (?)", ("large" * 10_000,))

        await db.write(limit(1))  # SQLite makes it the size that the file has
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                outcomes = await write_together(db, [adding("before"), large, adding("after")])
                assert [getattr(outcome, "kind", None) for outcome in outcomes] == ["full", "full", "full"]
                assert str(outcomes[0]).startswith("The disk is full: ")
                assert db.read(texts) == []
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["store.write_failed"] * 2

        await db.write(limit(1_000_000))
        await db.write(large)
        assert await db.write(adding("again")) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_stores_nothing_and_writing_goes_on_when_there_is_space(small_disk: Path) -> None:
    path = small_disk / "untether.db"
    async with Database(path, migrations=SCHEMA) as db:
        await db.write(adding("kept"))
        filler = small_disk / "filler"
        with filler.open("wb") as file:
            space = os.statvfs(small_disk)
            file.write(b"x" * (space.f_bavail * space.f_frsize - 8192))

        for _ in range(2):
            outcomes = await write_together(db, [adding("small"), adding("large" * 10_000)])
            assert [getattr(outcome, "kind", None) for outcome in outcomes] == ["full", "full"]
            assert db.read(texts) == ["kept"]

        filler.unlink()
        await db.write(adding("again"))
        assert db.read(texts) == ["kept", "again"]
    assert stored(path) == ["kept", "again"]


class TestReading:
    async def test_a_job_sees_one_snapshot(self, db: Database, path: Path) -> None:
        def twice(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
            before = texts(connection)
            with closing(sqlite3.connect(path)) as other, other:
                add("meanwhile", other)
            return before, texts(connection)

        assert db.read(twice) == ([], [])
        assert db.read(texts) == ["meanwhile"]

    async def test_a_job_cannot_write(self, db: Database) -> None:
        with pytest.raises(StoreError, match="readonly"):
            db.read(adding("one"))
        assert db.read(texts) == []

    async def test_what_a_job_raises_is_raised(self, db: Database) -> None:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            db.read(lambda connection: connection.execute("SELECT * FROM nowhere"))
        with pytest.raises(ZeroDivisionError):
            db.read(lambda connection: 1 // 0)
        assert db.read(texts) == []

    async def test_a_read_inside_a_read(self, db: Database) -> None:
        await db.write(adding("one"))
        assert db.read(lambda connection: db.read(texts) + texts(connection)) == ["one", "one"]


async def test_a_copy_is_whole_while_writing_goes_on(db: Database, tmp_path: Path) -> None:
    await db.write(adding("one"))
    await db.backup(tmp_path / "copy.db")
    await db.write(adding("two"))

    async with Database(tmp_path / "copy.db", migrations=SCHEMA) as copy:
        assert copy.read(texts) == ["one"]
    with pytest.raises(StoreError):
        await db.backup(tmp_path / "missing" / "copy.db")


class TestClosing:
    async def test_finishes_what_was_asked_for(self, path: Path) -> None:
        db = Database(path, migrations=SCHEMA)
        gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(db.write, gate)
            await anyio.to_thread.run_sync(gate.reached.wait, 10)
            for number in range(600):  # more than fit in a group
                tasks.start_soon(db.write, adding(f"note {number}"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(db.close)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()

        assert stored(path) == [f"note {number}" for number in range(600)]

    async def test_leaves_one_file(self, path: Path) -> None:
        async with Database(path, migrations=SCHEMA) as db:
            await db.write(adding("one"))
            db.read(texts)
        assert [file.name for file in path.parent.iterdir()] == ["untether.db"]

    async def test_refuses_what_comes_later(self, path: Path) -> None:
        db = Database(path, migrations=SCHEMA)
        await db.close()
        await db.close()
        with pytest.raises(RuntimeError, match="closed"):
            await db.write(adding("one"))
        with pytest.raises(RuntimeError, match="closed"):
            db.read(texts)


@pytest.mark.parametrize("anyio_backend", [None])  # hypothesis runs a loop for each example
@given(fails=st.lists(st.booleans(), max_size=30))
@settings(max_examples=25, deadline=None)
def test_exactly_the_writes_that_returned_are_stored_in_order(
    fails: list[bool], anyio_backend: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "untether.db"

    def job(number: int, fail: bool) -> Callable[[sqlite3.Connection], str]:
        def body(connection: sqlite3.Connection) -> str:
            add(f"note {number}", connection)
            if fail:
                raise LookupError
            return f"note {number}"

        return body

    async def run() -> list[object]:
        async with Database(path, migrations=SCHEMA) as db:
            return await write_together(db, [job(number, fail) for number, fail in enumerate(fails)])

    outcomes = anyio.run(run)
    assert stored(path) == [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert [isinstance(outcome, LookupError) for outcome in outcomes] == fails
