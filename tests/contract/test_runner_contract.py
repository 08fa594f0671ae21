"""The runner contract, which every engine passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.contract.engines import STORIES, Story
from tests.contract.rules import assert_contract
from untether.model import CompletedEvent, EngineId, PromptEvent, ResumeToken, StartedEvent

ROOT = Path(__file__).resolve().parent.parent.parent
ENGINES = {story.engine: story.runner for story in STORIES}
TOKENS = ["0199a213-7c5e-7d41-b6a2-d8f5f0b3c1aa", "ses_AbC123", "x"]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_events(story: Story) -> None:
    events = story.events()
    assert_contract(events, started=story.session is not None)
    [completed] = [event for event in events if isinstance(event, CompletedEvent)]
    assert (completed.ok, completed.answer) == (story.ok, story.answer)
    assert (completed.error is None) == story.ok
    token = ResumeToken(EngineId(story.engine), story.session) if story.session else None
    assert completed.resume == token
    assert all(event.resume == token for event in events if isinstance(event, StartedEvent))


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_the_prompt_is_answered_and_never_handed_back_too(story: Story) -> None:
    events = story.events()
    [completed] = [event for event in events if isinstance(event, CompletedEvent)]
    assert completed.prompts == ("00000000-0000-4000-8000-000000000001",)
    states = [event.state for event in events if isinstance(event, PromptEvent)]
    assert states == ["taken"] if story.session else states in ([], ["taken"])


def test_same_outcome_whatever_the_hash_seed() -> None:
    outcomes = [
        subprocess.run(
            [sys.executable, "-m", "tests.contract.outcome"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4242")
    ]
    assert outcomes[0] == outcomes[1]
    assert set(msgspec.json.decode(outcomes[0])) == {str(story) for story in STORIES}


@pytest.mark.parametrize("value", TOKENS)
@pytest.mark.parametrize("engine", ENGINES)
def test_resume_line_round_trip(engine: str, value: str) -> None:
    runner = ENGINES[engine]()
    token = ResumeToken(EngineId(engine), value)
    line = runner.format_resume(token)
    assert runner.extract_resume(line) == token
    assert runner.extract_resume(line.strip("`")) == token
    assert runner.extract_resume(f"Look at this\n\n  {line}\nand go on") == token
    assert runner.is_resume_line(line)
    assert runner.is_resume_line(f"  {line.strip('`')}  ")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_last_resume_line_counts_and_prose_is_none(engine: str) -> None:
    runner = ENGINES[engine]()
    lines = [runner.format_resume(ResumeToken(EngineId(engine), value)) for value in TOKENS]
    last = runner.extract_resume("\n".join(lines))
    assert last == ResumeToken(EngineId(engine), TOKENS[-1])
    assert runner.extract_resume("please resume the work") is None
    assert runner.extract_resume("") is None
    assert runner.extract_resume(None) is None
    assert not runner.is_resume_line(f"What does {lines[0]} do?")
    assert not runner.is_resume_line("")
