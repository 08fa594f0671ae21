"""The bridge's ends of an agent's pipes: output read at full speed, lines for stdin written in order with receipts.

The pipes are our own and not asyncio's, which waits for end of file before it tells that a child has ended, and which
counts a line as written when it lies in a buffer of this process.
"""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import blake2b

import anyio

from ..session import Place
from .host import WriteFailed

GRACE = 0.5  # seconds without output after which an ended agent's pipe counts as read, though others may hold it
DRAIN = 2.0  # seconds after the agent's end at which a pipe that others keep busy is let go
_READ = 256 * 1024
_PIPE_SIZE = 256 * 1024


class OutputPipe:
    """The agent's stdout or stderr."""

    def __init__(self) -> None:
        self._fd, self.child_end = os.pipe()
        os.set_blocking(self._fd, False)
        if sys.platform == "linux":
            # Claude Code exits without waiting for its output to be read (claude-protocol §1): a wider pipe bridges
            # the moments in which our event loop is busy. Not wider, as the kernel counts pipe pages per user.
            with suppress(OSError):  # over the user's allowance: the default size does
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self._scope = anyio.CancelScope()
        self._ended_at: float | None = None
        self._owed = 0  # bytes in the pipe when the agent ended: all of its own are among them

    async def chunks(self) -> AsyncIterator[bytes]:
        """Every read, until end of file, or until the agent has ended and what it printed is read."""
        while await self._readable():
            try:
                chunk = os.read(self._fd, _READ)
            except BlockingIOError:
                continue
            if not chunk:
                return
            self._owed -= len(chunk)
            yield chunk

    def agent_ended(self) -> None:
        """From now on wait for output only as long as another holder of the pipe may be given."""
        self._owed = _bytes_in(self._fd)
        self._ended_at = anyio.current_time()
        self._scope.deadline = self._ended_at + GRACE

    def close_child_end(self) -> None:
        self.child_end = _close(self.child_end)

    def close(self) -> None:
        self.close_child_end()
        self._fd = _close(self._fd)

    async def _readable(self) -> bool:
        deadline = float("inf")
        if self._ended_at is not None:
            now = anyio.current_time()
            if now > self._ended_at + DRAIN and self._owed <= 0:
                return False
            deadline = now + GRACE
        with anyio.CancelScope(deadline=deadline) as self._scope:
            await anyio.wait_readable(self._fd)
        return not self._scope.cancelled_caught


class LineReceipt:
    """A line that was accepted; see `host.Receipt`."""

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self._settled = anyio.Event()
        self._failure = ""

    async def written(self) -> None:
        await self._settled.wait()
        if self._failure:
            raise WriteFailed(self._failure)

    def settle(self, failure: str = "") -> None:
        self._failure = failure
        self._settled.set()


class InputPipe:
    """The agent's stdin. `run()` writes what `write()` accepts."""

    def __init__(self) -> None:
        self.child_end, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._receipts: dict[Place, LineReceipt] = {}
        self._queue: deque[tuple[Place, bytes, LineReceipt]] = deque()
        self.written: Place | None = None  # of the last line that is in the pipe
        self._news = anyio.Event()
        self._scope = anyio.CancelScope()
        self._refusal = ""  # why lines are no longer accepted
        self.closed = anyio.Event()

    def write(self, place: Place, data: bytes) -> LineReceipt:
        """Accept a line; see `host.AgentProcess.write`. Another line for a place that was taken fails."""
        digest = blake2b(data, digest_size=16).digest()
        known = self._receipts.get(place)
        if known is not None and known.digest == digest:
            return known
        receipt = LineReceipt(digest)
        if known is not None:
            receipt.settle("another line was accepted for this place")
            return receipt
        self._receipts[place] = receipt
        if self._refusal:
            receipt.settle(self._refusal)
        else:
            self._queue.append((place, data, receipt))
            self._news.set()
        return receipt

    def end(self, within: float, reason: str = "stdin is closed") -> None:
        """Accept no more and close after the accepted lines, or after `within` seconds without the rest of them."""
        self._refusal = self._refusal or reason
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + within)
        self._news.set()

    async def run(self) -> None:
        """Write until `end()` or until the agent does not read any more; then close the pipe."""
        failure = ""
        try:
            with self._scope:
                await self._write_accepted()
        except OSError:
            failure = "the agent has closed its stdin"
        finally:
            self._refusal = self._refusal or failure or "stdin is closed"
            while self._queue:
                self._queue.popleft()[2].settle(failure or self._refusal)
            self.close()
            self.closed.set()

    def close_child_end(self) -> None:
        self.child_end = _close(self.child_end)

    def close(self) -> None:
        self.close_child_end()
        self._fd = _close(self._fd)

    async def _write_accepted(self) -> None:
        while True:
            while self._queue:
                place, data, receipt = self._queue[0]
                await self._send(data)
                self._queue.popleft()
                self.written = place
                receipt.settle()
            if self._refusal:
                return
            await self._news.wait()
            self._news = anyio.Event()

    async def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._fd)


def _close(fd: int) -> int:
    """Close `fd` if it is open, and return what stands for a closed one."""
    if fd >= 0:
        os.close(fd)
    return -1


def _bytes_in(fd: int) -> int:
    count = fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0")
    return int.from_bytes(count, sys.byteorder)
