"""Amp against a scripted peer: it was not verified against the real program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.contract.rules import assert_contract
from untether.model import ActionEvent, CompletedEvent, EngineId, ResumeToken, StartedEvent, UntetherEvent, Usage
from untether.runners.amp import BACKEND, AmpRunner

pytestmark = pytest.mark.anyio
PEER = Path(__file__).with_name("peer.py")


@pytest.fixture
def runner(tmp_path: Path) -> AmpRunner:
    program = tmp_path / "amp"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {PEER} "$@"\n')
    program.chmod(0o755)
    return AmpRunner({"command": str(program), "mode": "smart"})


async def run(runner: AmpRunner, prompt: str, resume: ResumeToken | None = None) -> list[UntetherEvent]:
    events = [event async for event in runner.run(prompt, resume)]
    assert_contract(events)
    return events


async def test_a_run(runner: AmpRunner) -> None:
    events = await run(runner, "--help me")
    [started] = [event for event in events if isinstance(event, StartedEvent)]
    assert started.resume.value == "T-1"
    steps = [event for event in events if isinstance(event, ActionEvent)]
    assert [(step.phase, step.action.title, step.message) for step in steps] == [
        ("started", "ls", ""),
        ("completed", "ls", "a.txt"),
    ]
    done = events[-1]
    assert isinstance(done, CompletedEvent)
    assert done.answer == "--help me --mode smart --stream-json --stream-json-input -x"
    assert done.usage == Usage(duration_s=1.2, turns=2)


async def test_resume_and_errors(runner: AmpRunner) -> None:
    token = ResumeToken(EngineId("amp"), "T-9")
    done = (await run(runner, "again", token))[-1]
    assert isinstance(done, CompletedEvent)
    assert done.answer.startswith("again threads continue T-9")
    assert done.resume == token
    failed = (await run(runner, "fail"))[-1]
    assert isinstance(failed, CompletedEvent)
    assert (failed.ok, failed.error) == (False, "Amp reported an error: No credits left")
    died = (await run(runner, "die"))[-1]
    assert isinstance(died, CompletedEvent)
    assert died.error is not None
    assert "out of order" in died.error


def test_how_it_is_marked() -> None:
    assert "deprecated" in BACKEND.note
    assert "not verified against the real program" in BACKEND.note
    assert not BACKEND.build({}, Path("untether.toml")).interactive


@pytest.mark.parametrize("config", [{"dangerously_allow_all": "yes"}, {"model": "x"}])
def test_wrong_settings(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"engines\.amp\."):
        BACKEND.build(config, Path("untether.toml"))
