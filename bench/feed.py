"""Lines of Claude Code through the real session and the progress fold, against a bare decode of the same lines.

A bare decode is what no bridge can do without: `msgspec.json.decode` of each line into plain objects. The share is its
time by ours, in one process and round by round, so that a busy machine slows both; times are of the processor.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from untether.conversation.progress import ProgressTracker
from untether.model import UntetherEvent
from untether.runner_context import RunOptions
from untether.runners.claude import BACKEND
from untether.schemas.claude import decode
from untether.session import EngineSession, Prompt, StartFacts

from . import recorded
from .figures import Figure, median

_ROUNDS = 15
_ONE_READ = 256 * 1024  # bytes that the bridge reads at once from an agent that prints faster than it is read
_NOW = 1_700_000_000.0

Batches = Sequence[Sequence[bytes]]


def conversation(rounds: int = _ROUNDS) -> list[Figure]:
    return _measure("feed: a conversation", recorded.conversation(), rounds, "≥ 50 %")


def partials(rounds: int = _ROUNDS) -> list[Figure]:
    return _measure("partials: pieces of an answer", recorded.partial_messages(), rounds, "")


def _measure(group: str, lines: list[bytes], rounds: int, target: str) -> list[Figure]:
    batches = _batches(lines)
    events = _events(batches)
    names = ("bare decode", "all of ours", "decode into structs", "feed", "progress fold")
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        works = (
            partial(_bare, batches),
            partial(_ours, batches, _session(), ProgressTracker(_NOW)),
            partial(_structs, batches),
            partial(_feed, batches, _session()),
            partial(_fold, events, ProgressTracker(_NOW)),
        )
        for name, work in zip(names, works, strict=True):
            took = _time_of(work)
            if number:  # the first round warms up
                times[name].append(took)
    pairs = zip(times["bare decode"], times["all of ours"], strict=True)
    share = median([bare / ours for bare, ours in pairs])
    size = sum(map(len, lines)) / len(lines)
    head = f"{group}; {len(lines):,} lines of {size:.0f} bytes, {len(events):,} events, {rounds} rounds"
    figures = [Figure(head, "bare decode ÷ all of ours", 100 * share, "%", target)]
    for name in names:
        figures.append(Figure(head, f"{name}, a line", median(times[name]) / len(lines) * 1e6, "µs"))
    return figures


def _batches(lines: list[bytes]) -> Batches:
    batches: list[list[bytes]] = [[]]
    size = 0
    for line in lines:
        if size > _ONE_READ:
            batches.append([])
            size = 0
        batches[-1].append(line)
        size += len(line) + 1
    return batches


def _session() -> EngineSession:
    """A session in control mode that has been handed its first message."""
    runner = BACKEND.build({}, Path("untether.toml"))
    start = StartFacts("bench", BACKEND.id, "/repo", settings=runner.start_settings(RunOptions()))
    session = runner.session(start)
    session.begin(start, Prompt("00000000-0000-4000-8000-000000000000", "Do it."), _NOW)
    return session


def _events(batches: Batches) -> list[UntetherEvent]:
    session = _session()
    return [event for batch in batches for line in batch for event in session.feed(line, _NOW).events]


def _time_of(work: Callable[[], None]) -> float:
    gc.collect()
    before = time.process_time()
    work()
    return time.process_time() - before


# ------------------------------------------------------------------------------------------------- what is measured


def _bare(batches: Batches) -> None:
    for batch in batches:
        for line in batch:
            msgspec.json.decode(line)


def _ours(batches: Batches, session: EngineSession, tracker: ProgressTracker) -> None:
    """As driver and bridge do it: every line, every event, and once a batch what the run waits for."""
    for batch in batches:
        for line in batch:
            step = session.feed(line, _NOW)
            for event in step.events:
                tracker.note_event(event, _NOW)
        assert session.waits is not None


def _structs(batches: Batches) -> None:
    for batch in batches:
        for line in batch:
            decode(line)


def _feed(batches: Batches, session: EngineSession) -> None:
    for batch in batches:
        for line in batch:
            session.feed(line, _NOW)


def _fold(events: Sequence[UntetherEvent], tracker: ProgressTracker) -> None:
    for event in events:
        tracker.note_event(event, _NOW)
