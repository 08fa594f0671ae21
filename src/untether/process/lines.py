"""The line reader: bytes of an agent's stdout become lines with exact offsets, without I/O.

Lines end at a newline byte and nowhere else: JSON strings may hold U+2028 and other characters that `str.splitlines`
takes for line ends. Blank lines come out too, so that every byte belongs to a line; sessions pass over them.
"""

from __future__ import annotations

import re

from .host import Line

LINE_LIMIT = 64 * 1024 * 1024  # bytes
_BOM = b"\xef\xbb\xbf"
_OBJECT = re.compile(rb'\{\s*"')


class LineReader:
    """Collects chunks into lines. The same bytes give the same lines and offsets in whatever chunks they come."""

    def __init__(self, limit: int = LINE_LIMIT, offset: int = 0) -> None:
        """`limit` is the longest line kept, in bytes; `offset` is where in the stream the first chunk starts."""
        self._limit = limit
        self._start = offset  # of the unfinished line
        self._length = 0  # of the unfinished line, also when its bytes are not kept
        self._held = bytearray()

    def feed(self, chunk: bytes, time: float) -> list[Line]:
        """Take what was read at `time` and return the lines that it ended."""
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            # The usual line lies whole in one chunk: it is not copied again.
            if self._length:
                self._hold(piece)
                piece = bytes(self._held)
            else:
                self._length = len(piece)
            lines.append(self._line(piece, self._start + self._length + 1, time))
        self._hold(rest)
        return lines

    def finish(self, time: float) -> list[Line]:
        """The stream has ended: the last line counts without a newline."""
        if not self._length:
            return []
        return [self._line(bytes(self._held), self._start + self._length, time)]

    def _hold(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._limit:
            self._held = bytearray()
        else:
            self._held += piece

    def _line(self, data: bytes, end: int, time: float) -> Line:
        length, start = self._length, self._start
        self._start, self._length = end, 0
        if self._held:
            self._held = bytearray()
        if length > self._limit:
            return Line(end, time, skipped=length)
        if start == 0:
            data = data.removeprefix(_BOM)
        return Line(end, time, data.removesuffix(b"\r"))


def json_part(line: bytes) -> bytes:
    """What of `line` may be a JSON object, for when the whole does not decode: from the first brace that opens a key.

    So a frame survives NUL bytes around it and text that another writer put before it on the same line. Empty when
    there is no such brace.
    """
    found = _OBJECT.search(line)
    return line[found.start() :].rstrip(b"\0 \t\r") if found else b""
