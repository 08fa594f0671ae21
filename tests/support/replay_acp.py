"""Replaying the recordings of ACP agents through the real session."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from untether.model import UntetherEvent
from untether.process.recording import Replayed, Row, read_rows, replay_steps
from untether.runners.acp.recording import AcpDialect
from untether.runners.acp.session import AcpSession

FOLDER = Path(__file__).resolve().parents[1] / "transcripts" / "acp"


def recordings() -> list[str]:
    return [path.stem for path in sorted(FOLDER.glob("*.jsonl"))]


def rows_of(name: str) -> list[Row]:
    with (FOLDER / f"{name}.jsonl").open("rb") as file:
        return list(read_rows(file))


class Replay(NamedTuple):
    """A recording that went through a session."""

    rows: list[Row]
    session: AcpSession
    steps: list[Replayed]

    @property
    def events(self) -> list[UntetherEvent]:
        return [event for replayed in self.steps for event in replayed.step.events]

    @property
    def writes(self) -> list[dict[str, Any]]:
        """The lines that the session wrote, decoded. Each must be one line of JSON."""
        lines = [line for replayed in self.steps for line in replayed.step.writes]
        assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines)
        return [msgspec.json.decode(line) for line in lines]

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [frame["params"] for frame in self.writes if frame.get("method") == method]


def replay(name: str) -> Replay:
    rows = rows_of(name)
    session = AcpSession("acp", "The agent")
    return Replay(rows, session, list(replay_steps(session, rows, AcpDialect("acp"))))
