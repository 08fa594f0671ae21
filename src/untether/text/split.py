"""Cuts a long formatted text into messages that a chat accepts and a person can read.

A cut falls between paragraphs if it can, else between lines, else between words. A code block, a code span or a link
that fits into one message stays whole; what has to be cut is opened again in the next part, a code block with its
language. Every part is trimmed as the chat would do, so lengths and entities are what the chat will see. Time is
linear: each part looks only at the text it could hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from wcwidth import grapheme_boundary_before

from .rich import MONOSPACED, Entity, RichText, clip, utf16_offsets

MAX_LENGTH = 4096  # UTF-16 units of a Telegram message, counted after trimming
MAX_ENTITIES = 100  # Telegram ignores further ones

# A cut at a good place must leave a part at least this full; only when there is none, a smaller part is made.
_FILL = 4


def split(rich: RichText, limit: int = MAX_LENGTH, max_entities: int = MAX_ENTITIES) -> list[RichText]:
    """`rich` in parts of at most `limit` UTF-16 units and `max_entities` entities; blank text gives no part.

    Together the parts are the text; only white space at the cuts is gone. ValueError if `limit` is under 2 (one emoji)
    or `max_entities` under 1.
    """
    if limit < 2 or max_entities < 1:
        raise ValueError("A part must hold at least 2 UTF-16 units and 1 entity")
    return list(_Splitter(rich, limit, max_entities).parts())


class _Splitter:
    def __init__(self, rich: RichText, limit: int, max_entities: int) -> None:
        self._text = rich.text
        self._end = len(rich.text.rstrip())
        self._limit = limit
        self._cap = max_entities
        self._units = utf16_offsets(rich.text)
        self._upcoming = sorted(rich.entities, key=lambda e: (e.start, -e.end))
        self._upcoming.reverse()  # a stack, the next one last
        self._open: list[Entity] = []  # began in an earlier part and go on
        self._whole = self._unbroken(rich.entities)
        self._whole_starts = [start for start, _ in self._whole]

    def parts(self) -> Iterator[RichText]:
        start = self._skip_blank(0)
        while start < self._end:
            self._open_until(start)
            stop = self._reach(start)
            cut = stop if stop >= self._end else self._cut(start, stop)
            end = start + len(self._text[start:cut].rstrip())
            touching = [*self._open, *self._starting_before(end)]
            yield RichText(self._text[start:end], clip(self._text, touching, start, end)[: self._cap])
            self._open = [e for e in touching if e.end > cut]
            start = self._skip_blank(cut)

    # ----------------------------------------------------------------------------------------- entities

    def _open_until(self, start: int) -> None:
        """Take entities that begin in the white space before `start`, and forget those that end there."""
        while self._upcoming and self._upcoming[-1].start <= start:
            self._open.append(self._upcoming.pop())
        self._open = [e for e in self._open if e.end > start]

    def _starting_before(self, end: int) -> Iterator[Entity]:
        while self._upcoming and self._upcoming[-1].start < end:
            yield self._upcoming.pop()

    def _unbroken(self, entities: tuple[Entity, ...]) -> list[tuple[int, int]]:
        """The stretches, in order and apart, that fit into one part and should not be cut."""
        stretches: list[tuple[int, int]] = []
        for e in sorted(entities, key=lambda e: (e.start, -e.end)):
            fits = self._units[e.end] - self._units[e.start] <= self._limit
            apart = not stretches or e.start >= stretches[-1][1]
            if fits and apart and (e.kind in MONOSPACED or e.kind == "link"):
                stretches.append((e.start, e.end))
        return stretches

    # --------------------------------------------------------------------------------------------- cuts

    def _reach(self, start: int) -> int:
        """How far a part from `start` may go by its length and its number of entities."""
        stop = bisect_right(self._units, self._units[start] + self._limit) - 1
        room = self._cap - len(self._open)
        if 0 <= room < len(self._upcoming):
            stop = min(stop, self._upcoming[-1 - room].start)
        return stop

    def _cut(self, start: int, stop: int) -> int:
        """The best place in `start < place <= stop` to end a part."""
        for low in (start + (stop - start) // _FILL, start):
            for separator, flush in (("\n\n", True), ("\n", True), ("\n", False), (" ", False)):
                place = self._last(separator, low, stop, flush)
                if place > start:
                    return place
        before = self._whole_around(stop)
        if before is not None and before > start:
            return before
        inside = grapheme_boundary_before(self._text[start : stop + 1], stop + 1 - start)
        return start + inside if inside > 0 else stop

    def _last(self, separator: str, low: int, stop: int, flush: bool) -> int:
        """The last `separator` in reach that cuts nothing which should stay whole, or -1.

        `flush` asks for a following line without indentation: a chat trims it at the start of a message, which
        would break code and lists.
        """
        while True:
            place = self._text.rfind(separator, low, stop + len(separator))
            if place < 0:
                return -1
            whole = self._whole_around(place)
            if whole is not None:
                stop = whole
            elif flush and self._text[place + len(separator) : place + len(separator) + 1] in (" ", "\t"):
                stop = place - 1
            else:
                return place
            if stop < low:
                return -1

    def _whole_around(self, place: int) -> int | None:
        """Where the stretch begins that a cut at `place` would break."""
        index = bisect_right(self._whole_starts, place) - 1
        if index < 0:
            return None
        start, end = self._whole[index]
        return start if start < place < end else None

    def _skip_blank(self, place: int) -> int:
        while place < self._end and self._text[place].isspace():
            place += 1
        return place
