"""The pipes and signals of the demo agent: lines in, frames out, and one place to wait.

There is one thread. Whatever waits (for an answer, a delay, a command) waits in `Wire.wait`, which returns as soon
as stdin has something, a signal came, or the time is up; so an interrupt is noticed at once, wherever the agent is.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections import deque

TYPE_CHECKING = False  # `typing` itself is not imported: it would cost a tenth of the start-up time
if TYPE_CHECKING:
    from typing import Any

STDIN, STDOUT = 0, 1
READ_SIZE = 1 << 18


class Terminated(Exception):
    """SIGTERM came: leave at once, without a result."""


class FatalInput(Exception):
    """A stdin line that ends the program, as it ends Claude Code; the text goes to stderr."""


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: "not permitted" for a group of zombies
        os.killpg(pid, signal.SIGKILL)


class Wire:
    """Line-wise stdin and stdout with signals. With `listen=False` stdin counts as already ended."""

    def __init__(self, listen: bool = True) -> None:
        self.eof = not listen
        self.signal = 0  # the last of SIGINT and SIGTERM that came
        self.child = 0  # the process group to kill when we have to leave at once
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._writing = False
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        os.set_blocking(STDOUT, True)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.signal = number
        if number == signal.SIGTERM and self._writing:
            # The write may wait for ever for a reader that is gone, so nobody would come to look at `signal`.
            if self.child:
                kill_group(self.child)
            os._exit(128 + signal.SIGTERM)

    # Reading

    def next_line(self) -> bytes | None:
        """The next stdin line without its newline; None when there is none yet. A last line may lack its newline."""
        if self._lines:
            return self._lines.popleft()
        if self.eof and self._partial:
            last = b"".join(self._partial)
            self._partial.clear()
            return last
        return None

    def wait(self, timeout: float | None, fd: int = -1) -> bool:
        """Wait for stdin, a signal, `fd` or `timeout` seconds (None: no limit); True when `fd` has something to read.

        Raises `Terminated` after a SIGTERM.
        """
        if self._lines:
            timeout = 0
        watched = [self._wake]
        if not self.eof:
            watched.append(STDIN)
        if fd >= 0:
            watched.append(fd)
        ready = select.select(watched, [], [], timeout)[0]
        if self._wake in ready:
            os.read(self._wake, 512)
        if self.signal == signal.SIGTERM:
            raise Terminated
        if STDIN in ready:
            self._read()
        return fd in ready

    def _read(self) -> None:
        data = os.read(STDIN, READ_SIZE)
        if not data:
            self.eof = True
            return
        first, newline, rest = data.partition(b"\n")
        self._partial.append(first)
        if not newline:
            return
        lines = rest.split(b"\n")
        self._lines.append(b"".join(self._partial))
        self._partial = [lines.pop()]
        self._lines.extend(lines)

    # Writing

    def send(self, frame: dict[str, Any]) -> None:
        """Write one frame as one line of UTF-8. U+2028 and the like stay raw, as in Claude Code's own lines."""
        try:
            line = json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:  # a lone surrogate in an echoed prompt
            line = json.dumps(frame, separators=(",", ":")).encode()
        self.write(line + b"\n")

    def write(self, data: bytes) -> None:
        """Write all of `data` to stdout, waiting for the reader when the pipe is full."""
        self._writing = True
        try:
            if self.signal == signal.SIGTERM and not self._takes(data):
                raise Terminated  # it came before `_writing` was set, and this could wait for ever
            view = memoryview(data)
            while view:
                view = view[os.write(STDOUT, view) :]
        finally:
            self._writing = False

    def _takes(self, data: bytes) -> bool:
        """Whether stdout takes `data` without waiting."""
        return len(data) <= select.PIPE_BUF and bool(select.select([], [STDOUT], [], 0)[1])


def complain(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
