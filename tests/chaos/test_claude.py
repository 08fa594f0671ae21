"""The scripted conversation with the real Claude Code, and a scripted model behind it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from fake_anthropic import FakeAnthropic, Scenario
from tests.chaos.conversation import talk
from tests.chaos.invariants import check
from tests.chaos.world import Engine, program, world
from tests.support.bridge import API_KEY, QUIET_CLAUDE
from untether.runners.demo import script

pytestmark = pytest.mark.anyio

ALLOW = '[security]\nenv_extra_allow = ["CLAUDE_CONFIG_DIR", "CLAUDE_CODE_TMPDIR"]\n'
WITNESS = Path(__file__).with_name("witness.py")


def model() -> Any:
    """Answers as the demo agent does, so that the same conversation can be had."""
    touch = {"name": "Bash", "input": {"command": "touch made.txt", "description": "Make a file"}}
    turns = [
        turn("alpha-1", {"text": "You said:\n\nalpha-1"}),
        turn("alpha-2", {"text": "You said:\n\nalpha-2"}),
        turn("alpha-3", {"tool_use": touch}),
        turn("^(?!.*(alpha|beta)-)", {"text": "The command ran."}),  # after the result of the tool
        turn("alpha-4", {"text": "word ", "times": 4000}) | {"chunk_chars": 20, "chunk_delay_ms": 100},
        turn("beta-1", {"text": script.long(None, None)}),  # type: ignore[arg-type]
        turn("beta-2", {"text": "You said:\n\nPlease read\n\nbeta-2, from a file"}),
    ]
    return Scenario({"name": "chaos", "scripts": [{"name": "main", "turns": turns}]}, {})


def turn(when: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"when": {"last_text": when}, "blocks": list(blocks)}


def claude(folder: Path, cli: Path, home: dict[str, str], url: str) -> Engine:
    return Engine(
        "claude",
        program(folder, "claude", sys.executable, WITNESS, cli),
        env={**QUIET_CLAUDE, "ANTHROPIC_BASE_URL": url},
        bridge_env={**home, "ANTHROPIC_API_KEY": API_KEY},
        table="use_api_billing = true",
    )


async def test_killed_while_claude_waits_for_a_tap(
    tmp_path: Path, claude_cli: Callable[[], Path], claude_home: dict[str, str], chance: random.Random
) -> None:
    """SIGKILL with a request open; a tap on the old button after the restart completes the run."""
    with FakeAnthropic(model()) as fake:
        engine = claude(tmp_path, claude_cli(), claude_home, fake.base_url)
        async with (
            world(tmp_path, engine=engine, extra=ALLOW, hurry=4, supervised=False) as w,
            anyio.create_task_group() as tasks,
        ):

            async def come_back() -> None:
                await w.until(w.tap_waits, "the tap")
                await w.bridge.start()

            async def die() -> None:
                await w.kill()
                tasks.start_soon(come_back)

            await check(w, await talk(w, before_tap=die))


async def test_claude_with_nothing_in_the_way(
    tmp_path: Path, claude_cli: Callable[[], Path], claude_home: dict[str, str], chance: random.Random
) -> None:
    with FakeAnthropic(model()) as fake:
        engine = claude(tmp_path, claude_cli(), claude_home, fake.base_url)
        async with world(tmp_path, engine=engine, extra=ALLOW, hurry=4) as w:
            await check(w, await talk(w))
