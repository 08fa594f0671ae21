"""Claude Code, the real program: the conversation of all engines in a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fake_anthropic import FakeAnthropic, Scenario
from tests.e2e.conversation import Conversation, Engine, Fails, Runs, Says, Turn
from tests.support.bridge import QUIET_CLAUDE, bridge_env
from untether.runners.claude.forms import CONTROL


class Served:
    """The fake server as the conversation sees it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.base_url

    def heard(self) -> str:
        return json.dumps(self._server.calls, ensure_ascii=False)


def turn(one: Turn) -> dict[str, Any]:
    match one:
        case Says(text):
            return {"blocks": [{"text": text}]}
        case Runs(command):
            return {"blocks": [{"tool_use": {"name": "Bash", "input": {"command": command, "description": "Do it"}}}]}
        case Fails(status):
            return {"error": {"status": status, "message": "no"}, "repeat": True}


@contextmanager
def serve(turns: Sequence[Turn], project: Path) -> Iterator[Served]:
    scenario = {"name": "test", "scripts": [{"name": "main", "turns": [turn(one) for one in turns]}]}
    with FakeAnthropic(Scenario(scenario, {"REPO": str(project)}), full_record=True) as server:
        yield Served(server)


@pytest.fixture
def engine(claude_cli: Callable[[], Path], claude_home: dict[str, str]) -> Engine:
    program = claude_cli()

    def table(url: str) -> dict[str, object]:
        env = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_MAX_RETRIES": "1", **QUIET_CLAUDE}
        return {"command": str(program), "use_api_billing": True, "env": env}

    def env(url: str, project: Path) -> dict[str, str]:
        return bridge_env(claude_home)

    return Engine("claude", CONTROL, serve, table, env, ["CLAUDE_CONFIG_DIR"])


class TestConversation(Conversation):
    pass
