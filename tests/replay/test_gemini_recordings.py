"""Recordings of Gemini CLI's one-shot form through its engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.rules import assert_contract
from untether.model import ActionEvent, CompletedEvent, EngineId, ResumeToken, StartedEvent, UntetherEvent
from untether.process.recording import process_exit, read_rows
from untether.runners.gemini import BACKEND
from untether.session import Prompt, StartFacts

FOLDER = Path(__file__).resolve().parents[1] / "transcripts" / "gemini"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def played(name: str, resume: str = "") -> list[UntetherEvent]:
    with (FOLDER / f"{name}.jsonl").open("rb") as file:
        rows = list(read_rows(file))
    runner = BACKEND.build({}, Path("untether.toml"))
    token = ResumeToken(EngineId("gemini"), resume) if resume else None
    start = StartFacts("p", "gemini", "/repo", resume=token)
    session = runner.session(start)
    steps = [session.begin(start, Prompt("m", "do it"), 0.0)]
    steps += [session.feed(row.data, row.t) for row in rows if row.dir == "out"]
    steps.append(session.end(process_exit(rows), 100.0))
    return [event for step in steps for event in step.events]


def completed(events: list[UntetherEvent]) -> CompletedEvent:
    [found] = [event for event in events if isinstance(event, CompletedEvent)]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_keeps_the_contract(name: str) -> None:
    assert_contract(played(name), started=name != "bad_resume")


def test_an_answer() -> None:
    events = played("text")
    [started] = [event for event in events if isinstance(event, StartedEvent)]
    done = completed(events)
    assert started.title == "gemini-2.5-flash"
    assert (done.ok, done.answer, done.resume) == (True, "Hello there.", started.resume)
    usage = done.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (1200, 34, 200)  # type: ignore[union-attr]


def test_tools() -> None:
    steps = [event for event in played("tools_yolo") if isinstance(event, ActionEvent)]
    assert [(step.phase, step.action.kind, step.action.title, step.ok) for step in steps] == [
        ("started", "command", "echo made > x.txt", None),
        ("completed", "command", "echo made > x.txt", True),
    ]


def test_without_yolo_it_has_no_shell_and_asks_nobody() -> None:
    events = played("tools_default")
    [end] = [event for event in events if isinstance(event, ActionEvent) and event.phase == "completed"]
    assert end.ok is False
    assert "not found" in end.message
    assert completed(events).answer == "Done."


def test_errors() -> None:
    done = completed(played("error_401"))
    assert done.error == "Gemini CLI is not logged in, or its login was not accepted."
    assert "GEMINI_API_KEY" in done.advice
    done = completed(played("bad_resume", resume="gone"))
    assert done.error == "The session to continue was not found."
