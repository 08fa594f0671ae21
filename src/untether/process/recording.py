"""Recordings: folding what an agent once printed, and what it was told, into a session of ours.

A recording is a file of lines. Either each is a row `{"t": seconds, "dir": "in" | "out" | "err" | "meta", …}` as the
drivers in `tests/fakes` write them (`frame` is the decoded line, `raw` one that was not JSON; `meta` rows have an
`event` such as `spawn` or `exit`), or each is a plain line of the agent's stdout. A bug report is such a file, and so
is a test.

What the host of that time sent is told to the session as inputs, as far as the engine's `Dialect` can tell what it was;
ids of requests are mapped to those that the session gives.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from ..model import Record
from ..session import Begin, End, EngineSession, Input, ProcessExit, Prompt, StartFacts, Step, apply

_PROCESS_ID = "recording"
_PLAIN_PROMPT = Prompt("00000000-0000-4000-8000-000000000000", "(the prompt is not in the recording)")
_DIRECTIONS = ("in", "out", "err", "meta")
_STDERR_LINES = 20


class Row(Record, frozen=True):
    """One row. `data` is the line of an `in`, `out` or `err` row, `frame` the same decoded, `facts` the whole row."""

    t: float
    dir: Literal["in", "out", "err", "meta"]
    data: bytes = b""
    frame: Any = None
    facts: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def event(self) -> str:
        """The name of a `meta` row."""
        return str(self.facts.get("event", ""))


class Dialect(Protocol):
    """How to read one recording of an engine; made anew for each."""

    def begin(self, rows: Sequence[Row]) -> Begin:
        """What the process was started with."""

    def input(self, row: Row) -> Input | None:
        """What an `in` row told the agent; None for what a session of ours answers by itself or never sends."""

    def line(self, row: Row) -> bytes:
        """An `out` row as the session is to read it."""

    def wrote(self, line: bytes) -> None:
        """The session wrote this line."""


@runtime_checkable
class Greeted(Protocol):
    """A dialect of an agent that answers questions at its start which the host of that time did not ask."""

    def greeting(self) -> Sequence[bytes]:
        """The lines that answer what the session has written so far."""


class PlainDialect:
    """For engines that take one prompt and are told nothing more."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def begin(self, rows: Sequence[Row]) -> Begin:
        return Begin(StartFacts(_PROCESS_ID, self._engine, "/"), _PLAIN_PROMPT)

    def input(self, row: Row) -> Input | None:
        return None

    def line(self, row: Row) -> bytes:
        return row.data

    def wrote(self, line: bytes) -> None:
        return


class Replayed(NamedTuple):
    """One step of a replay, at the recording's time `t` (seconds), and what brought it about."""

    t: float
    cause: Row | Input
    step: Step


def read_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """The rows of a recording file. Plain lines of stdout get their number as time."""
    for number, line in enumerate(lines):
        data = line.rstrip(b"\r\n")
        if not data.strip():
            continue
        facts = _object(data)
        if facts.get("dir") not in _DIRECTIONS or not isinstance(facts.get("t"), int | float):
            yield Row(float(number), "out", data, facts or None)
            continue
        frame, raw = facts.get("frame"), facts.get("raw", "")
        body = msgspec.json.encode(frame) if frame is not None else str(raw).encode("utf-8", "replace")
        yield Row(float(facts["t"]), facts["dir"], body, frame, facts)


def replay_steps(session: EngineSession, rows: Sequence[Row], dialect: Dialect) -> Iterator[Replayed]:
    """Every step that is not empty, in order; the last one is the end of the process."""
    now = 0.0

    def did(cause: Row | Input, step: Step) -> Iterator[Replayed]:
        for line in step.writes:
            dialect.wrote(line)
        if not step.empty:
            yield Replayed(now, cause, step)

    begin = dialect.begin(rows)
    yield from did(begin, apply(session, begin, now))
    for line in dialect.greeting() if isinstance(dialect, Greeted) else ():
        yield from did(begin, session.feed(line, now))
    for row in rows:
        now = max(now, row.t)
        if row.dir == "out":
            yield from did(row, session.feed(dialect.line(row), now))
        elif row.dir == "in" and (item := dialect.input(row)) is not None:
            yield from did(item, apply(session, item, now))
    end = End(process_exit(rows))
    yield from did(end, apply(session, end, now))


def replay_recording(
    session_factory: Callable[[StartFacts], EngineSession], rows: Iterable[Row], dialect: Dialect
) -> Iterator[dict[str, Any]]:
    """The events of a recording and the lines that the session writes, as JSON objects in their order.

    Each has the time `t` and one of `event`, `write` (a decoded line, or its text), `close_stdin`, `stop`.
    """
    all_rows = list(rows)
    session = session_factory(dialect.begin(all_rows).start)
    for t, _, step in replay_steps(session, all_rows, dialect):
        for event in step.events:
            yield {"t": t, "event": msgspec.to_builtins(event)}
        for line in step.writes:
            yield {"t": t, "write": _object(line) or line.decode("utf-8", "replace")}
        if step.close_stdin:
            yield {"t": t, "close_stdin": True}
        if step.stop:
            yield {"t": t, "stop": True}


def process_exit(rows: Sequence[Row]) -> ProcessExit:
    """How the recorded agent ended. One that got a signal from its driver was stopped."""
    errors = [row.data.decode("utf-8", "replace") for row in rows if row.dir == "err"]
    exits = [row.facts.get("code", row.facts.get("rc")) for row in rows if row.dir == "meta" and row.event == "exit"]
    code = exits[-1] if exits and isinstance(exits[-1], int) else None
    ended_by = signal.Signals(-code).name if code is not None and code < 0 else ""
    return ProcessExit(
        code=None if ended_by else code,
        signal=ended_by,
        stderr_tail="\n".join(errors[-_STDERR_LINES:]),
        stopped=any(row.dir == "meta" and row.event == "signal" for row in rows),
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
