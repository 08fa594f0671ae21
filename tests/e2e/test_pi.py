"""Pi, the real program: the conversation of all engines in a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conversation import Conversation, Engine, Fails, Runs, Says, Turn
from tests.support.codex_home import fake_model, says, shell
from tests.support.pi_home import pi_home
from untether.runners.pi.policies import RPC


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
            return shell(command)
        case Fails(status):
            return {"http_error": {"status": status, "message": "no"}, "times": -1}


@contextmanager
def serve(turns: Sequence[Turn], project: Path) -> Iterator[Served]:
    with fake_model(*map(reply, turns)) as server:
        yield Served(server)


@pytest.fixture
def pi(agent_cli: Callable[..., Path]) -> Path:
    return agent_cli("pi")


@pytest.fixture
def engine(pi: Path, tmp_path: Path) -> Engine:
    def env(url: str, project: Path) -> dict[str, str]:
        return {**pi_home(tmp_path / "home", url, pi), "PYTHONUNBUFFERED": "1"}

    return Engine("pi", RPC, serve, lambda url: {"command": str(pi)}, env)


class TestConversation(Conversation):
    pass
