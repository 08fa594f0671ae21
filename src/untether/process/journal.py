"""The journal of a process: the files in its folder, how they are written and how they are read again.

- `out.jsonl`: every byte that the agent printed.
- `out.times`: one record for each read, 16 bytes: the offset after it and the time, so that a fold later sees the
  same times as the run did.
- `err.log`: head and tail of stderr.
- `started`: whose it is; an agent was, or is about to be, started here.
- `state.json`: how it ended; there is none before.

The folder is 0700 and its files 0600: they hold whatever the agent read.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ..model import Record
from ..session import ProcessExit
from .host import Line
from .lines import LINE_LIMIT, LineReader

OUT, TIMES, ERRORS, STATE, STARTED = "out.jsonl", "out.times", "err.log", "state.json", "started"

_STAMP = struct.Struct("<Qd")
_BLOCK = 1024 * 1024
_SLICE = 1024 * 1024  # bytes that are worked off in one go
_STAMPS = 4096  # records of `out.times` that are read at once
_HEAD = 8 * 1024
_TAIL = 16 * 1024


class ProcessState(Record, frozen=True):
    """What `state.json` says: the end, its time (epoch seconds), bytes printed, and stored (fewer on a full disk).

    `written` is the place (offset, ordinal, index) of the last line that went into the agent's stdin.
    """

    exit: ProcessExit
    time: float
    printed: int
    stored: int
    written: tuple[int, int, int] | None = None


class JournalWriter:
    """Writes the files of one process. Every method may raise OSError, such as for a full disk."""

    def __init__(self, folder: Path, process_id: str = "") -> None:
        """Make the folder and its files. Raises FileExistsError when it holds the output of an earlier start."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._folder = folder
        self.stored = 0
        self._files: list[int] = []
        try:
            self._out, self._times, self._errors = (self._open(name) for name in (OUT, TIMES, ERRORS))
            if os.fstat(self._out).st_size:
                raise FileExistsError(f"{folder} already holds a journal")
            self._write_whole(STARTED, msgspec.json.encode({"process": process_id}))
        except OSError:
            self.close()
            raise

    def append(self, data: bytes, time: float) -> None:
        """Add one read of stdout. What fails is taken back, so that the journal stays a beginning of the output."""
        try:
            _write_all(self._out, data)
            _write_all(self._times, _STAMP.pack(self.stored + len(data), time))
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._out, self.stored)
                os.ftruncate(self._times, os.fstat(self._times).st_size // _STAMP.size * _STAMP.size)
            raise
        self.stored += len(data)

    def append_errors(self, data: bytes) -> None:
        """Add to `err.log`."""
        _write_all(self._errors, data)

    def write_state(self, state: ProcessState) -> None:
        """Write `state.json`, whole or not at all."""
        self._write_whole(STATE, msgspec.json.encode(state))

    def _write_whole(self, name: str, data: bytes) -> None:
        new = self._folder / (name + ".new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        new.replace(self._folder / name)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def _open(self, name: str) -> int:
        fd = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._files.append(fd)
        return fd


class JournalReader:
    """Reads the files of one process, also while they grow and after a crash cut them short."""

    def __init__(self, folder: Path, line_limit: int = LINE_LIMIT) -> None:
        """`line_limit` must be the one that the run had, or a fold differs from it."""
        self._folder = folder
        self._limit = line_limit

    def lines(self, from_offset: int = 0, *, last: bool = True) -> Iterator[Line]:
        """Lines from `from_offset` (the end of a line) with the times at which they were read.

        `last` False keeps back a last line without a newline, which an agent at work may still be printing.
        """
        try:
            out = open(self._folder / OUT, "rb")  # noqa: SIM115 (closed below)
        except FileNotFoundError:
            return
        with out:
            reader = LineReader(self._limit, from_offset)
            time = 0.0
            out.seek(from_offset)
            at = from_offset
            for end, time in self._reads():
                while at < end and (chunk := out.read(min(end - at, _BLOCK))):
                    at += len(chunk)
                    yield from reader.feed(chunk, time)
            # Output whose record of time is missing: the crash came between the two.
            while chunk := out.read(_BLOCK):
                yield from reader.feed(chunk, time)
            if last:
                yield from reader.finish(time)

    def errors(self) -> str:
        """What was kept of stderr."""
        try:
            return (self._folder / ERRORS).read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def state(self) -> ProcessState | None:
        """How the process ended; None when it has not, or nobody saw it."""
        try:
            return msgspec.json.decode((self._folder / STATE).read_bytes(), type=ProcessState)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _reads(self) -> Iterator[tuple[int, float]]:
        try:
            records = (self._folder / TIMES).read_bytes()
        except FileNotFoundError:
            return
        whole = len(records) // _STAMP.size * _STAMP.size
        yield from _STAMP.iter_unpack(records[:whole])


class JournalTail:
    """Reads the output of one process while it grows. What has no time yet does not count, or a fold would differ."""

    def __init__(self, folder: Path, from_offset: int, line_limit: int) -> None:
        self._folder = folder
        self._lines = LineReader(line_limit, from_offset)
        self._at = from_offset  # in out.jsonl
        self._record: int | None = None  # the next one in out.times
        self._time = 0.0
        self._out = self._times = -1

    def read(self) -> list[Line] | None:
        """The next lines, of about a megabyte of output; none of them when it is a part of a line. None at its end."""
        if not self._opened():
            return None
        lines: list[Line] = []
        began = self._at
        for end, time in self._stamps():
            chunk = os.pread(self._out, max(0, end - self._at), self._at)
            self._at += len(chunk)
            self._time = time
            lines += self._lines.feed(chunk, time)
            self._record = (self._record or 0) + 1
            if self._at - began >= _SLICE:
                break
        return None if self._at == began else lines

    def finish(self) -> list[Line]:
        """The process is over: what a crash left without its time, and a last line without its newline."""
        lines: list[Line] = []
        while self._out >= 0 and (chunk := os.pread(self._out, _SLICE, self._at)):
            self._at += len(chunk)
            lines += self._lines.feed(chunk, self._time)
        return lines + self._lines.finish(self._time)

    def close(self) -> None:
        for fd in (self._out, self._times):
            if fd >= 0:
                os.close(fd)
        self._out = self._times = -1

    def _opened(self) -> bool:
        if self._times < 0:
            try:
                self._out = os.open(self._folder / OUT, os.O_RDONLY)
                self._times = os.open(self._folder / TIMES, os.O_RDONLY)
            except FileNotFoundError:
                self.close()
                return False
        return True

    def _stamps(self) -> list[tuple[int, float]]:
        if self._record is None:
            self._record = self._first_record()
        data = os.pread(self._times, _STAMPS * _STAMP.size, self._record * _STAMP.size)
        return list(_STAMP.iter_unpack(data[: len(data) // _STAMP.size * _STAMP.size]))

    def _first_record(self) -> int:
        """The first that tells of output after our offset. Offsets only grow in the file."""
        count = os.fstat(self._times).st_size // _STAMP.size

        def stamp(index: int) -> tuple[int, float]:
            end, time = _STAMP.unpack(os.pread(self._times, _STAMP.size, index * _STAMP.size))
            return end, time

        first = bisect.bisect_right(range(count), self._at, key=lambda index: stamp(index)[0])
        if first:
            self._time = stamp(first - 1)[1]
        return first


class Excerpt:
    """Head and tail of a stream of any length, in bounded memory."""

    def __init__(self, head: int = _HEAD, tail: int = _TAIL) -> None:
        self._head = head
        self._tail_size = tail
        self._tail = b""
        self._total = 0

    def add(self, chunk: bytes) -> bytes:
        """Take a chunk and return what of it belongs to the head."""
        first = chunk[: max(0, self._head - self._total)]
        self._total += len(chunk)
        self._tail = (self._tail + chunk[-self._tail_size :])[-self._tail_size :]
        return first

    @property
    def tail(self) -> bytes:
        """The last bytes, of the head too when the stream is short."""
        return self._tail

    def rest(self) -> bytes:
        """What follows the head: the tail, with a word on what was left out before it."""
        after_head = max(0, self._total - self._head)
        if after_head <= len(self._tail):
            return self._tail[len(self._tail) - after_head :]
        return b"\n[%d bytes left out]\n" % (after_head - len(self._tail)) + self._tail


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
