"""Replaying the recordings of Pi through the real sessions, and what every replay must keep to."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.contract.rules import assert_contract
from untether.model import (
    ActionEvent,
    CompletedEvent,
    InteractionEvent,
    PromptEvent,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
)
from untether.process.recording import Replayed, Row, read_rows, replay_recording, replay_steps
from untether.runners.pi import PiRunner
from untether.session import Begin, EngineSession, Say, StartFacts

TRANSCRIPTS = Path(__file__).resolve().parents[1] / "transcripts" / "pi"


def recordings() -> list[str]:
    return [path.stem for path in sorted(TRANSCRIPTS.glob("*.jsonl"))]


def rows_of(name: str) -> list[Row]:
    with (TRANSCRIPTS / f"{name}.jsonl").open("rb") as file:
        return list(read_rows(file))


class Replay(NamedTuple):
    """A recording that went through a session."""

    rows: list[Row]
    session: EngineSession
    steps: list[Replayed]

    @property
    def events(self) -> list[UntetherEvent]:
        return [event for replayed in self.steps for event in replayed.step.events]

    @property
    def writes(self) -> list[dict[str, Any]]:
        """The lines that the session wrote, decoded."""
        lines = [line for replayed in self.steps for line in replayed.step.writes]
        assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines if line.startswith(b"{"))
        return [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]

    @property
    def replies(self) -> dict[str, Any]:
        """What the dialogs of extensions were answered, by their ids. None is answered twice, except by a cancel."""
        found: dict[str, Any] = {}
        for frame in self.writes:
            if frame["type"] == "extension_ui_response":
                assert frame["id"] not in found
                found[frame["id"]] = {name: value for name, value in frame.items() if name not in ("type", "id")}
        return found

    @property
    def commands(self) -> list[str]:
        """The commands that the session sent, in order, besides its first questions."""
        kinds = [frame["type"] for frame in self.writes if frame["type"] != "extension_ui_response"]
        return kinds[2:]

    @property
    def started(self) -> StartedEvent:
        return next(event for event in self.events if isinstance(event, StartedEvent))

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

    def last(self, title: str) -> ActionEvent:
        """How the step with this title ended."""
        return [event for event in self.events if isinstance(event, ActionEvent) and event.action.title == title][-1]

    @property
    def asked(self) -> list[InteractionEvent]:
        return [event for event in self.events if isinstance(event, InteractionEvent) and event.phase == "opened"]

    @property
    def closed(self) -> list[tuple[str, str]]:
        """Phase and reason of the requests that were closed, in order."""
        found = [event for event in self.events if isinstance(event, InteractionEvent)]
        return [(event.phase, event.reason) for event in found if event.phase != "opened"]

    @property
    def prompts(self) -> list[str]:
        """The ids of the messages that were handed over, in order."""
        dialect = PiRunner({}).dialect()
        said = [dialect.begin(self.rows), *(dialect.input(row) for row in self.rows if row.dir == "in")]
        return [item.prompt.id for item in said if isinstance(item, Begin | Say)]


def replay(name: str) -> Replay:
    rows, runner = rows_of(name), PiRunner({})
    dialect = runner.dialect()
    session = runner.session(dialect.begin(rows).start)
    return Replay(rows, session, list(replay_steps(session, rows, runner.dialect())))


def check(replayed: Replay) -> None:
    """The run contract; every request of Pi is answered or withdrawn; every message ends in one way."""
    events = replayed.events
    assert_contract(events, started=any(isinstance(event, StartedEvent) for event in events))
    phases: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, InteractionEvent):
            phases.setdefault(event.interaction.id, []).append(event.phase)
            assert event.interaction.body
    assert all(seen in (["opened", "resolved"], ["opened", "withdrawn"]) for seen in phases.values())
    ends: list[CompletedEvent | TurnEvent] = [replayed.completed, *replayed.turns]
    answered = [id for event in ends for id in event.prompts]
    returned = [e.prompt_id for e in events if isinstance(e, PromptEvent) and e.state == "handed_back"]
    assert sorted([*answered, *returned]) == sorted(replayed.prompts)
    assert replayed.session.waits == ()


def digests() -> Iterator[str]:
    """One line for each recording: its name and a digest of all that came of it."""
    for name in recordings():
        runner = PiRunner({})

        def session(start: StartFacts, runner: PiRunner = runner) -> EngineSession:
            return runner.session(start)

        digest = hashlib.sha256()
        for record in replay_recording(session, rows_of(name), runner.dialect()):
            digest.update(msgspec.json.encode(record))
        yield f"{name} {digest.hexdigest()}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(digests()) + "\n")
