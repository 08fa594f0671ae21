"""ACP agents through the whole path: the bridge as a process, a Telegram server, real agents, scripted models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.acp_real import AGENTS, RealAgent, fails, runs, says, world

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
TIMEOUT = 45.0
TOUCH = runs("touch made.txt")
LONG = runs("for i in 1 2 3 4 5 6 7 8 9; do sleep 5; done")


@pytest.fixture(params=AGENTS, ids=str)
def agent(request: pytest.FixtureRequest) -> RealAgent:
    found: RealAgent = request.param
    return found


@pytest.fixture
def program(agent: RealAgent, agent_cli: Callable[[str], Path]) -> Path:
    return agent_cli(agent.cli)


async def test_an_answer_and_a_follow_up(tmp_path: Path, agent: RealAgent, program: Path) -> None:
    async with world(tmp_path, agent, program, says("First answer."), says("Second answer.")) as w:
        await w.ann.text("one")
        await w.ann.wait("First answer", timeout=TIMEOUT)
        await w.ann.text("two")
        await w.ann.wait("Second answer", timeout=TIMEOUT)
        assert w.remembers("First answer")


async def test_it_starts_in_a_mode_that_asks_and_an_approved_tool_runs(
    tmp_path: Path, agent: RealAgent, program: Path
) -> None:
    async with world(tmp_path, agent, program, TOUCH, says("Finished.")) as w:
        await w.ann.text("do the work")
        asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
        assert "touch made.txt" in asked["text"]
        assert not (w.project / "made.txt").exists()
        tapped = await w.ann.press("Approve", message_id=asked["id"], wait=5)
        assert tapped["answer"]["text"] == "Approved"
        await w.ann.wait("Finished", timeout=TIMEOUT)
        assert (w.project / "made.txt").exists()


async def test_a_denied_tool_does_not_run_and_the_reason_is_read(
    tmp_path: Path, agent: RealAgent, program: Path
) -> None:
    """After the denial some agents go on by themselves, and others only with the words."""
    async with world(tmp_path, agent, program, TOUCH, says("Understood."), says("Understood.")) as w:
        await w.ann.text("do the work")
        asked = await w.ann.wait(r"Run a command\?", button="Deny and say why", timeout=TIMEOUT)
        await w.ann.text("use the Makefile instead", reply_to=asked["id"])
        await w.ann.wait("Understood", timeout=TIMEOUT)
        assert not (w.project / "made.txt").exists()
        assert w.remembers("use the Makefile instead")


async def test_cancel_in_a_tool_leaves_no_process(tmp_path: Path, agent: RealAgent, program: Path) -> None:
    async with world(tmp_path, agent, program, LONG, says("After the stop.")) as w:
        await w.ann.text("take your time")
        asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
        await w.ann.press("Approve", message_id=asked["id"], wait=5)
        await w.until_running("sleep 5")
        await w.ann.text("/cancel")
        await w.ann.wait(r"■ Stopped after", timeout=20)
        assert w.left("sleep 5") == []
        await w.ann.text("go on")
        await w.ann.wait("After the stop", timeout=TIMEOUT)


async def test_resume_after_the_process_has_gone(tmp_path: Path, agent: RealAgent, program: Path) -> None:
    async with world(tmp_path, agent, program, says("First answer."), says("Second answer.")) as w:
        await w.ann.text("one")
        await w.ann.wait("First answer", timeout=TIMEOUT)
        await w.bridge.restart()
        await w.ann.text("two")
        await w.ann.wait("Second answer", timeout=TIMEOUT)
        assert w.remembers("First answer")


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [(401, "Incorrect API key provided", "not logged in|login"), (429, "Rate limit reached", "limits requests")],
    ids=["401", "429"],
)
async def test_errors_of_the_provider(
    tmp_path: Path, agent: RealAgent, program: Path, status: int, message: str, told: str
) -> None:
    async with world(tmp_path, agent, program, fails(status, message)) as w:
        await w.ann.text("one")
        failed = await w.ann.wait(r"^✗", button="Try again", timeout=100)
        assert re.search(told, failed["text"])


async def test_a_request_that_outlives_the_bridge(tmp_path: Path, agent: RealAgent, program: Path) -> None:
    async with world(tmp_path, agent, program, TOUCH, says("Finished.")) as w:
        await w.ann.text("do the work")
        asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
        await w.bridge.kill()
        await w.bridge.start()
        tapped = await w.ann.press("Approve", message_id=asked["id"], wait=15)
        assert tapped["answer"]["text"] == "Approved"
        await w.ann.wait("Finished", timeout=TIMEOUT)
        assert (w.project / "made.txt").exists()
        assert len([shown for shown in await w.ann.shows(sender="bot") if "Finished" in shown["text"]]) == 1
