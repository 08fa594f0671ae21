"""Codex, the real program: the conversation of all engines in a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conversation import Conversation, Engine, Fails, Runs, Says, Turn
from tests.support.codex_home import codex_home, fake_model, says, shell
from untether.runners.codex.policies import APP_SERVER


class Served:
    """The fake server as the conversation sees it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.base_url

    def heard(self) -> str:
        return json.dumps(self._server.bodies, ensure_ascii=False)


def reply(turn: Turn) -> dict[str, Any]:
    match turn:
        case Says(text):
            return says(text)
        case Runs(command):
            return shell(command, "May I?")
        case Fails(status):
            return {"http_error": {"status": status, "message": "no"}, "times": -1}


@contextmanager
def serve(turns: Sequence[Turn], project: Path) -> Iterator[Served]:
    with fake_model(*map(reply, turns)) as server:
        yield Served(server)


@pytest.fixture
def codex(agent_cli: Callable[..., Path]) -> Path:
    return agent_cli("codex")


@pytest.fixture
def engine(codex: Path, tmp_path: Path) -> Engine:
    def env(url: str, project: Path) -> dict[str, str]:
        return {**codex_home(tmp_path / "home", url, project), "PYTHONUNBUFFERED": "1"}

    return Engine("codex", APP_SERVER, serve, lambda url: {"command": str(codex)}, env)


class TestConversation(Conversation):
    pass
