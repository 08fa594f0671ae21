"""The Claude runner with a process: the demo agent, which speaks the same dialect."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from untether.model import ActionEvent, CompletedEvent, ResumeToken, StartedEvent, UntetherEvent
from untether.process.recording import read_rows, replay_recording
from untether.runner import bind_run
from untether.runners.claude import BACKEND as CLAUDE
from untether.runners.claude.runner import ClaudeRunner
from untether.runners.demo.runner import DemoRunner

pytestmark = pytest.mark.anyio


@pytest.fixture
def demo(tmp_path: Path) -> DemoRunner:
    return DemoRunner({"env": {"UNTETHER_DEMO_HOME": str(tmp_path / "home"), "UNTETHER_DEMO_SPEED": "0"}})


async def run(
    runner: ClaudeRunner, prompt: str, folder: Path, resume: ResumeToken | None = None
) -> list[UntetherEvent]:
    with bind_run(folder=str(folder)):
        return [event async for event in runner.run(prompt, resume)]


async def test_a_run_and_its_continuation(demo: DemoRunner, tmp_path: Path) -> None:
    first = await run(demo, "hello", tmp_path)
    assert isinstance(first[0], StartedEvent)
    assert isinstance(first[1], ActionEvent)  # that this form cannot ask
    assert isinstance(first[-1], CompletedEvent)
    assert first[-1].ok
    token = first[-1].resume
    assert token is not None
    again = await run(demo, "hello again", tmp_path, token)
    assert isinstance(again[-1], CompletedEvent)
    assert (again[-1].ok, again[-1].resume) == (True, token)


async def test_a_session_that_is_gone(demo: DemoRunner, tmp_path: Path) -> None:
    token = ResumeToken(demo.engine, "e901a3ab-76d4-4d53-b3c0-2541b1adda79")
    (completed,) = await run(demo, "hello", tmp_path, token)
    assert isinstance(completed, CompletedEvent)
    assert completed.error == "The session to continue was not found."


async def test_a_missing_cli_is_refused_before_it_is_spawned(tmp_path: Path) -> None:
    runner = ClaudeRunner({"command": str(tmp_path / "no-such-claude")})
    (completed,) = await run(runner, "hello", tmp_path)
    assert isinstance(completed, CompletedEvent)
    assert completed.outcome == "blocked"
    assert completed.error is not None
    assert completed.error.startswith("Claude Code was not found")
    assert "npm install -g @anthropic-ai/claude-code" in completed.advice


async def test_a_cli_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "claude"
    old.write_text("#!/bin/sh\necho '2.0.14 (Claude Code)'\n")
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    refusal = await ClaudeRunner({"command": str(old)}).check(os.environ)
    assert refusal is not None
    assert "2.0.14" in refusal.message
    assert "2.1.0" in refusal.message


async def test_the_handshake(demo: DemoRunner) -> None:
    assert await demo.handshake(os.environ) == ""
    mute = DemoRunner({"command": sys.executable})
    assert "unknown option" in await mute.handshake(os.environ)
    gone = DemoRunner({"command": "/no/such/agent"})
    assert await gone.handshake(os.environ) != ""


def test_plain_lines_can_be_replayed() -> None:
    runner = CLAUDE.build_runner({}, Path("/x"))
    lines = [
        b'{"type":"system","subtype":"init","session_id":"s","model":"m"}\n',
        b"noise\n",
        b"\n",
        b'{"type":"result","subtype":"success","is_error":false,"result":"Hi."}\n',
    ]
    records = list(replay_recording(runner.session, read_rows(lines), runner.dialect()))
    kinds = [record["event"]["type"] if "event" in record else sorted(record)[1] for record in records]
    assert kinds == ["write", "write", "started", "prompt", "action", "completed"]
    assert records[-1]["event"]["answer"] == "Hi."
    assert records[1]["write"]["type"] == "user"
