"""Replaying the recordings of Claude Code through the real session, and what every replay must keep to."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from untether.model import (
    ActionEvent,
    CompletedEvent,
    InteractionEvent,
    PromptEvent,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
)
from untether.process.recording import Replayed, Row, read_rows, replay_recording, replay_steps
from untether.runners.claude.recording import ClaudeDialect
from untether.runners.claude.session import ClaudeSession
from untether.session import Begin, Say

TRANSCRIPTS = Path(__file__).resolve().parents[1] / "transcripts"
FOLDERS = ("claude", "claude-2.1.332")


def recordings() -> list[str]:
    """All recordings of both versions, such as "claude/text_answer"."""
    return [f"{folder}/{path.stem}" for folder in FOLDERS for path in sorted((TRANSCRIPTS / folder).glob("*.jsonl"))]


def rows_of(name: str) -> list[Row]:
    with (TRANSCRIPTS / f"{name}.jsonl").open("rb") as file:
        return list(read_rows(file))


class Replay(NamedTuple):
    """A recording that went through a session."""

    rows: list[Row]
    session: ClaudeSession
    steps: list[Replayed]

    @property
    def events(self) -> list[UntetherEvent]:
        return [event for replayed in self.steps for event in replayed.step.events]

    @property
    def writes(self) -> list[dict[str, Any]]:
        """The lines that the session wrote in control mode, decoded. Each must be one line of JSON."""
        if not self.session.capabilities.interactive_permissions:
            return []
        lines = [line for replayed in self.steps for line in replayed.step.writes]
        assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines)
        return [msgspec.json.decode(line) for line in lines]

    @property
    def answers(self) -> dict[str, dict[str, Any]]:
        """The responses that the session wrote, by request id. None is answered twice."""
        responses = [frame["response"] for frame in self.writes if frame["type"] == "control_response"]
        found = {response["request_id"]: response for response in responses}
        assert len(found) == len(responses)
        return found

    @property
    def completed(self) -> CompletedEvent:
        (event,) = (event for event in self.events if isinstance(event, CompletedEvent))
        return event

    @property
    def turns(self) -> list[TurnEvent]:
        """The later turns, as they ended."""
        return [event for event in self.events if isinstance(event, TurnEvent) and event.phase == "completed"]

    def actions(self, *kinds: str) -> list[tuple[str, str, bool | None]]:
        """Phase, title and outcome of the steps of these kinds."""
        found = [event for event in self.events if isinstance(event, ActionEvent)]
        return [(event.phase, event.action.title, event.ok) for event in found if event.action.kind in kinds]

    @property
    def opened(self) -> list[InteractionEvent]:
        return [event for event in self.events if isinstance(event, InteractionEvent) and event.phase == "opened"]

    @property
    def prompts(self) -> list[str]:
        """The ids of the messages that were handed over, in order."""
        handed = [replayed.cause for replayed in self.steps if isinstance(replayed.cause, Begin | Say)]
        return [item.prompt.id for item in handed]


def replay(name: str) -> Replay:
    rows, session = rows_of(name), ClaudeSession()
    return Replay(rows, session, list(replay_steps(session, rows, ClaudeDialect())))


def check_contract(replayed: Replay) -> None:
    """The run contract, for any replay."""
    events = replayed.events
    _check_order(events)
    _check_steps(events)
    _check_interactions(events)
    _check_answered(replayed)
    _check_prompts(replayed)
    assert replayed.session.waits == ()


def _check_order(events: list[UntetherEvent]) -> None:
    """Started first; one completed; then turns one after another, with every step inside one of them."""
    open_, started, completed = True, False, False
    for event in events:
        match event:
            case StartedEvent():
                started = True
            case CompletedEvent():
                assert not completed
                completed, open_ = True, False
                assert started or not event.ok
            case TurnEvent(phase="started"):
                assert completed
                assert not open_
                open_ = True
            case TurnEvent():
                assert completed
                assert open_
                open_ = False
            case ActionEvent():
                assert open_
                assert started or event.action.kind == "warning"
            case SessionChangedEvent() | InteractionEvent():
                assert started
    assert completed
    assert not open_


def _check_steps(events: list[UntetherEvent]) -> None:
    """Whatever started is completed before its run or turn is; what completes alone did not start."""
    running: set[str] = set()
    for event in events:
        if isinstance(event, ActionEvent):
            id = event.action.id
            if event.phase == "started":
                assert id not in running
                running.add(id)
            elif event.phase == "completed":
                running.discard(id)
        elif isinstance(event, CompletedEvent | TurnEvent):
            assert not running


def _check_interactions(events: list[UntetherEvent]) -> None:
    """Each opens once and closes once."""
    phases: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, InteractionEvent):
            phases.setdefault(event.interaction.id, []).append(event.phase)
            assert event.interaction.body
    assert all(seen in (["opened", "resolved"], ["opened", "withdrawn"]) for seen in phases.values())


def _check_answered(replayed: Replay) -> None:
    """The CLI never waits for an answer that will not come."""
    asked = {row.frame["request_id"] for row in _out_frames(replayed, "control_request")}
    withdrawn = {
        event.interaction.id
        for event in replayed.events
        if isinstance(event, InteractionEvent) and event.phase == "withdrawn"
    }
    answers = set(replayed.answers)
    assert not answers & withdrawn
    assert asked <= answers | withdrawn


def _check_prompts(replayed: Replay) -> None:
    """Each message ends in exactly one way: answered by a run or turn, handed back, or withdrawn."""
    ends: list[CompletedEvent | TurnEvent] = [replayed.completed, *replayed.turns]
    answered = [id for event in ends for id in event.prompts]
    returned = [e.prompt_id for e in replayed.events if isinstance(e, PromptEvent) and e.state != "taken"]
    assert sorted([*answered, *returned]) == sorted(replayed.prompts)


def _out_frames(replayed: Replay, kind: str) -> Iterator[Row]:
    return (row for row in replayed.rows if row.dir == "out" and row.frame and row.frame.get("type") == kind)


def digests() -> Iterator[str]:
    """One line for each recording: its name and a digest of all that came of it."""
    for name in recordings():
        records = replay_recording(lambda start: ClaudeSession(), rows_of(name), ClaudeDialect())
        digest = hashlib.sha256()
        for record in records:
            digest.update(msgspec.json.encode(record))
        yield f"{name} {digest.hexdigest()}"


if __name__ == "__main__":
    sys.stdout.writelines(line + "\n" for line in digests())
