"""Folding a stored process again: the lines it printed and the inputs it got, in their order, into a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..model import Record
from ..session import EngineSession, Input, Place, Step, apply
from .host import Line


class StoredInput(Record, frozen=True):
    """One row of `inputs`: what went in, after how much output, and when (epoch seconds)."""

    ordinal: int
    offset: int
    time: float
    item: Input


class Folded(NamedTuple):
    """A step that a fold came by, where, and at what time."""

    step: Step
    place: Place
    now: float
    cause: Line | StoredInput


def fold(session: EngineSession, lines: Iterable[Line], inputs: Iterable[StoredInput]) -> Iterator[Folded]:
    """Yield every step in order. An input applies after all lines that end at or before its offset.

    Deadlines do not fire: a tick that did something is among the inputs.
    """
    now = 0.0
    offset = ordinal = 0
    pending = iter(inputs)
    following = next(pending, None)

    def due(end: float) -> Iterator[Folded]:
        nonlocal following, now, ordinal
        while following is not None and following.offset < end:
            now = max(now, following.time)
            ordinal = following.ordinal
            yield Folded(apply(session, following.item, now), Place(offset, ordinal), now, following)
            following = next(pending, None)

    for line in lines:
        yield from due(line.end)
        now = max(now, line.time)
        offset = line.end
        step = session.skipped(line.skipped, now) if line.skipped else session.feed(line.data, now)
        yield Folded(step, Place(offset, ordinal), now, line)
    yield from due(float("inf"))
