"""Gemini CLI in its one-shot form through the whole path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.acp_real import GEMINI_ONE_SHOT, fails, runs, says, world

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
TIMEOUT = 45.0


async def test_an_answer_that_says_that_it_cannot_ask_and_a_resumed_one(
    tmp_path: Path, agent_cli: Callable[[str], Path]
) -> None:
    program = agent_cli("gemini")
    async with world(tmp_path, GEMINI_ONE_SHOT, program, says("First answer."), says("Second answer.")) as w:
        await w.ann.text("one")
        answer = await w.ann.wait("First answer", timeout=TIMEOUT)
        assert "cannot ask" in answer["text"].splitlines()[-1]
        await w.ann.text("two")
        await w.ann.wait("Second answer", timeout=TIMEOUT)
        assert w.remembers("First answer")


async def test_tools_run_when_the_owner_says_so(tmp_path: Path, agent_cli: Callable[[str], Path]) -> None:
    moves = runs("echo made > made.txt"), says("Done.")
    async with world(tmp_path, GEMINI_ONE_SHOT, agent_cli("gemini"), *moves, approval_mode="yolo") as w:
        await w.ann.text("work")
        await w.ann.wait("Done", timeout=TIMEOUT)
        assert (w.project / "made.txt").exists()


async def test_a_refused_key(tmp_path: Path, agent_cli: Callable[[str], Path]) -> None:
    async with world(tmp_path, GEMINI_ONE_SHOT, agent_cli("gemini"), fails(401, "API key not valid")) as w:
        await w.ann.text("one")
        await w.ann.wait("not logged in", button="Try again", timeout=TIMEOUT)
