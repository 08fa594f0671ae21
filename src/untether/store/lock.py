"""One bridge per state folder: a lock that the kernel holds, and a note that says where the holder's console is.

The lock alone decides. It goes with the process, however that ends, so no pid is ever asked whether it is alive. The
note is a courtesy to a second start; one that was left behind beside a free lock means nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import filelock
import msgspec
import structlog

from .migrate import storage_errors

log = structlog.get_logger(__name__)


class LockNote(msgspec.Struct, frozen=True):
    """What the holder says of itself: its process id, when it started (Unix time), and the link to its console."""

    pid: int
    started: float
    console_url: str | None = None


class AlreadyRunning(Exception):
    """Another bridge holds this state folder. `note` is None when it has not said anything readable."""

    def __init__(self, note: LockNote | None) -> None:
        super().__init__(note)
        self.note = note

    def __str__(self) -> str:
        process = f" (process {self.note.pid})" if self.note else ""
        if self.note and self.note.console_url:
            return f"Untether is already running here{process}. Its console: {self.note.console_url}"
        return f"Untether is already running here{process}. Use that one, or stop it first."


class StateLock:
    """The lock on a state folder, held from `acquire` to `release` or the end of the process.

    The folder is made if missing, for its owner only. The file of the lock stays in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._note_path = folder / "untether.lock.json"
        self._started = 0.0
        # A lock by the existence of a file, which filelock falls back to, would have to judge by pids.
        self._lock = filelock.FileLock(
            folder / "untether.lock", timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False
        )

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock, without waiting.

        :raises AlreadyRunning: another process, or another `StateLock`, holds it
        :raises StoreError: the folder or the lock cannot be made
        """
        with storage_errors(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except filelock.Timeout:
                raise AlreadyRunning(self._read_note()) from None
        self._started = time.time()
        self.note()

    def note(self, *, console_url: str | None = None) -> None:
        """Tell a second start where this one's console is. A note that cannot be written is only logged."""
        content = msgspec.json.encode(LockNote(os.getpid(), self._started, console_url))
        part = self._note_path.with_suffix(".part")
        try:
            with open(part, "wb", opener=_private) as file:  # the link may let its reader in
                file.write(content)
            part.replace(self._note_path)
        except OSError as exc:
            log.warning("lock.note_not_written", path=str(self._note_path), error=str(exc))

    def release(self) -> None:
        """Remove the note and give the lock back; nothing happens when it is not held."""
        if not self._lock.is_locked:
            return
        try:
            self._note_path.unlink(missing_ok=True)
        except OSError as exc:
            log.warning("lock.note_not_removed", path=str(self._note_path), error=str(exc))
        self._lock.release()

    def _read_note(self) -> LockNote | None:
        try:
            return msgspec.json.decode(self._note_path.read_bytes(), type=LockNote)
        except (OSError, msgspec.DecodeError):  # none yet, or not one of ours
            return None


def holder(folder: Path) -> LockNote | None:
    """What the bridge that holds a state folder says of itself; None when none does."""
    lock = StateLock(folder)
    try:
        lock.acquire()
    except AlreadyRunning as running:
        return running.note
    lock.release()
    return None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
