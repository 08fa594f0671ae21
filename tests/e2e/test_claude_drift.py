"""What the pinned releases of Claude Code have that is not known here, or have no more.

A release that is pinned anew fails here and prints what is new: each name is looked at, and then listed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.bridge import API_KEY
from tests.support.clis import pinned
from untether.runners.claude.drift import compare, look
from untether.runners.claude.runner import ClaudeRunner

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("version", pinned("claude"))
async def test_nothing_of_a_release_is_unknown(
    version: str, claude_cli: Callable[[str], Path], claude_home: dict[str, str]
) -> None:
    environ = {**claude_home, "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    runner = ClaudeRunner({"command": str(claude_cli(version))})
    assert await runner.check(environ) is None
    surface = await look(runner, environ)
    assert surface.failure == ""
    # The probe itself reads something: in both releases these are there.
    assert {"Bash", "Write", "ExitPlanMode", "AskUserQuestion"} <= surface.tools
    assert {"init", "api_retry", "task_started"} <= surface.subtypes
    assert "interrupt" in surface.requests
    assert any("acceptEdits" in enum for enum in surface.enums)
    differences = compare(surface)
    print("\n".join(differences))
    assert differences == ()


async def test_what_is_new_is_named(claude_cli: Callable[[], Path], claude_home: dict[str, str]) -> None:
    environ = {**claude_home, "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    runner = ClaudeRunner({"command": str(claude_cli())})
    await runner.check(environ)
    surface = await look(runner, environ)
    from msgspec.structs import replace

    changed = replace(
        surface,
        tools=surface.tools | {"TimeTravel"},
        subtypes=surface.subtypes | {"brand_new"},
        requests=surface.requests - {"stop_task"},
        flags=surface.flags - {"--effort"},
        enums=(*surface.enums, frozenset({"allowed", "rejected", "perhaps"})),
    )
    assert compare(changed) == (
        "new tools: TimeTravel",
        "new frames: brand_new",
        "new rate limit status: perhaps",
        "flags that are gone: --effort",
        "requests that are gone: stop_task",
    )
