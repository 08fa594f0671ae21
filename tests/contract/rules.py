"""The run contract as assertions on the events of one process, for any engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from untether.model import ActionEvent, CompletedEvent, StartedEvent, TurnEvent, UntetherEvent


def assert_contract(events: Sequence[UntetherEvent], *, started: bool = True) -> None:
    """``events`` are all that one process gave, its end included; ``started`` whether its session became known."""
    assert_started(events, started)
    assert_completed(events)
    assert_actions(events)


def assert_started(events: Sequence[UntetherEvent], started: bool) -> None:
    told = [event for event in events if isinstance(event, StartedEvent | ActionEvent | CompletedEvent | TurnEvent)]
    starts = [event for event in told if isinstance(event, StartedEvent)]
    if not started:
        assert not starts
        return
    assert starts, "no started event"
    assert told[0] is starts[0], "the started event is not the first"
    assert all(event.meta for event in starts[1:]), "a second started event without meta"
    assert len({event.resume for event in starts}) == 1, "two sessions were started"


def assert_completed(events: Sequence[UntetherEvent]) -> None:
    ends = [index for index, event in enumerate(events) if isinstance(event, CompletedEvent)]
    assert len(ends) == 1, f"{len(ends)} completed events"
    turns = [event.phase for event in events if isinstance(event, TurnEvent)]
    assert turns == ["started", "completed"] * (len(turns) // 2), "a turn does not begin or does not end"
    assert not any(isinstance(event, TurnEvent) for event in events[: ends[0]]), "a turn before the completed event"
    if not turns:
        assert not any(isinstance(event, ActionEvent) for event in events[ends[0] :]), "an action after the end"


def assert_actions(events: Sequence[UntetherEvent]) -> None:
    phases: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, ActionEvent):
            assert event.action.id, "an action without an id"
            phases[event.action.id].append(event.phase)
    for id, seen in phases.items():
        assert "started" not in seen[1:], f"{id} was started late or twice: {seen}"
        if seen[0] == "started":
            assert seen.count("completed") == 1, f"{id} was completed {seen.count('completed')} times"
            assert seen[-1] == "completed", f"{id} changed after its end"
