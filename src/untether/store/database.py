"""The open database: writes that share commits, reads beside them.

All writes go to one thread. It takes whatever jobs are waiting, runs each in a savepoint of its own inside one shared
transaction, commits once and wakes the waiters; so a lone write costs one fsync, and a thousand waiting ones cost one
as well. Reads use other connections and see what was committed before they began.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast

import anyio
import structlog
from anyio import from_thread, to_thread
from anyio.lowlevel import EventLoopToken, current_token

from .. import faults
from . import migrate
from .migrate import Migration, StoreError, StoreErrorKind, store_error

__all__ = ["Database", "StoreError", "StoreErrorKind"]

log = structlog.get_logger(__name__)

T = TypeVar("T")

_GROUP: Final = 256  # jobs in one commit: the first of a burst does not wait for the last


class Database:
    """One SQLite file, for one event loop. Take the `StateLock` of its folder first.

    Making it opens the file, brings it to the schema of `migrations` and starts the writer thread; that blocks, so it
    belongs before anything is served. `busy_timeout` is how long, in seconds, a write waits for a foreign lock.

    A job is a function of a connection, whose rows are `sqlite3.Row`s. It runs in another thread, touches nothing but
    the connection, and never begins or ends a transaction (no `with connection:`, no `executescript`). Constraints
    must not be deferred to the commit: there they would fail the jobs of others.

    :raises StoreError: when the file cannot be opened, is damaged, or has a newer schema
    """

    def __init__(self, path: Path, *, migrations: Sequence[Migration], busy_timeout: float = 5.0) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = migrate.open_migrated(path, migrations, busy_timeout=busy_timeout)
        self._idle: deque[sqlite3.Connection] = deque()  # reading connections that nobody uses now
        self._queue: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._failing = False
        self._closed = False
        self._writer = threading.Thread(target=self._write_groups, name="store-writer", daemon=True)
        self._writer.start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in the writer thread; return its result once it is committed, that is, safe on the disk.

        Jobs run in the order of the calls. One that raises is rolled back alone, and its exception is raised here.
        The job is queued before the first await: a caller that is cancelled has only given up hearing of it.

        :raises StoreError: the job is not stored, nor, mostly, those that shared its commit; later ones are tried anew
        :raises RuntimeError: after `close`
        """
        self._refuse_when_closed()
        pending = _Job(job, current_token())
        self._queue.put(pending)
        try:
            await pending.done.wait()
        except anyio.get_cancelled_exc_class():
            pending.awaited = False
            if pending.done.is_set():  # cancelled in the very moment in which it was told
                _log_unheard(pending)
            raise
        if pending.error is not None:
            raise pending.error
        return cast(T, pending.result)

    def read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a small read here and now; the job sees one snapshot, with everything that was committed before.

        :raises StoreError: when the file cannot be read
        :raises RuntimeError: after `close`
        """
        self._refuse_when_closed()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect_reader()
        broken = False
        try:
            return _read(connection, job)
        except sqlite3.Error as exc:
            if (error := store_error(exc)) is None:
                raise
            broken = True
            raise error from exc
        finally:
            if broken or self._closed:
                connection.close()
            else:
                self._idle.append(connection)

    async def read_in_thread(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """As `read`, for reads that would hold up the event loop."""
        return await to_thread.run_sync(self.read, job)

    async def backup(self, path_to: Path) -> None:
        """Copy the database to a file, consistent, while it is used. An older file there is replaced.

        :raises StoreError: no file is left half-written then
        """
        await to_thread.run_sync(migrate.backup, self.path, path_to)

    async def close(self) -> None:
        """Finish all writes that were asked for, then close the file. No read may be under way."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._finish)

    def _finish(self) -> None:
        self._writer.join()
        while self._idle:
            self._idle.pop().close()
        if self._connection is not None:  # last, because the last one to close clears the write-ahead log away
            self._connection.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the database is closed")

    # Reading

    def _connect_reader(self) -> sqlite3.Connection:
        with migrate.storage_errors(self.path):
            return migrate.connect(self.path, read_only=True, busy_timeout=self._busy_timeout)

    # Writing: all below runs in the writer thread

    def _write_groups(self) -> None:
        while group := self._next_group():
            self._commit(group)
            # Blocks for one turn of the loop, which costs nothing: the loop is who queues the next jobs.
            # RuntimeError: the loop has ended, with nobody left to tell.
            with suppress(RuntimeError):
                from_thread.run_sync(_wake, group, token=group[0].token)

    def _next_group(self) -> list[_Job[Any]]:
        """Wait for a job and take those behind it; empty when the database is being closed and all is done."""
        group: list[_Job[Any]] = []
        job = self._queue.get()
        while job is not None:
            group.append(job)
            if len(group) == _GROUP or self._queue.empty():
                return group
            job = self._queue.get()
        if group:
            self._queue.put(None)  # for the next call
        return group

    def _commit(self, group: list[_Job[Any]]) -> None:
        try:
            if self._connection is None:
                self._connection = migrate.reopen(self.path, busy_timeout=self._busy_timeout)
            self._connection.execute("BEGIN IMMEDIATE")
            for job in group:
                job.run(self._connection)
            faults.point("store.commit")
            self._connection.execute("COMMIT")
        except Exception as exc:  # whatever it is, each waiter must hear of it, and the writer must go on
            for job in group:
                job.error = job.error or store_error(exc) or exc
            self._reset(exc)
            self._log_change(exc)
        else:
            self._log_change(None)

    def _reset(self, exc: Exception) -> None:
        """Roll back. Let go of a connection that has had an I/O error: the next group opens another one."""
        connection = self._connection
        if connection is None:
            return
        error = store_error(exc)
        broken = error is not None and error.kind in ("io", "corrupt")
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            broken = True
        if broken:
            self._connection = None
            with suppress(sqlite3.Error):
                connection.close()

    def _log_change(self, exc: Exception | None) -> None:
        """Log the first of a row of failed commits, and its end."""
        failing = exc is not None
        if failing == self._failing:
            return
        self._failing = failing
        with suppress(OSError):  # the log may be a file on the same full disk
            if exc is not None:
                log.error("store.write_failed", error=str(store_error(exc) or repr(exc)))
            else:
                log.info("store.writes_again")


class _Job(Generic[T]):
    """A write that was asked for: what to run, whom to wake, and what came of it."""

    __slots__ = ("awaited", "body", "done", "error", "result", "token")

    def __init__(self, body: Callable[[sqlite3.Connection], T], token: EventLoopToken) -> None:
        self.body = body
        self.token = token
        self.done = anyio.Event()
        self.awaited = True
        self.result: T | None = None
        self.error: Exception | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Run inside the shared transaction.

        :raises Exception: when that transaction is lost, and with it the whole group
        """
        connection.execute("SAVEPOINT job")
        try:
            self.result = self.body(connection)
        except Exception as exc:  # it is the waiter's, raised in `write`
            if not connection.in_transaction:  # SQLite gives all up at once on a full disk or an I/O error
                raise
            connection.execute("ROLLBACK TO job")
            self.error = (isinstance(exc, sqlite3.Error) and store_error(exc)) or exc
        if not connection.in_transaction:
            raise RuntimeError("a job ended the transaction that it shares with others")
        connection.execute("RELEASE job")


def _wake(group: list[_Job[Any]]) -> None:
    """In the event loop: tell the waiters of a group, and the log of errors that nobody waits for any more."""
    for job in group:
        job.done.set()
    for job in group:
        if not job.awaited:
            _log_unheard(job)


def _log_unheard(job: _Job[Any]) -> None:
    """Log the failure of a write whose caller no longer waits."""
    if job.error is not None:
        with suppress(OSError):  # the log may be a file on the same full disk
            log.warning("store.cancelled_write_failed", error=repr(job.error))


def _read(connection: sqlite3.Connection, job: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN")
    try:
        return job(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
