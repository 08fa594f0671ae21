"""Codex, the real program: the conversation of all engines in a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conversation import TIMEOUT, Conversation, Engine, Fails, Runs, Says, Turn, world
from tests.support.codex_home import codex_home, fake_model, says, shell
from untether.runners.codex.policies import APP_SERVER

pytestmark = pytest.mark.anyio


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


async def test_the_one_shot_form_says_that_it_cannot_ask(tmp_path: Path, engine: Engine) -> None:
    table = engine.table
    one_shot = replace(engine, table=lambda url: {**table(url), "mode": "exec"})
    async with world(tmp_path, one_shot, Runs(f"touch {tmp_path}/made.txt"), Says("Could not.")) as w:
        await w.ann.text("do the work")
        answer = await w.ann.wait("Could not", timeout=TIMEOUT)
        assert "cannot ask" in answer["text"].splitlines()[-1]
        assert not (tmp_path / "made.txt").exists()
        await w.ann.text("and again")
        await w.bridge.wait_until(lambda: "Could not." in w.model.heard(), "the resumed session")


async def test_a_plan_in_a_chat(tmp_path: Path, engine: Engine) -> None:
    table = engine.table
    planning = replace(engine, table=lambda url: {**table(url), "permission_mode": "plan"})
    plan = Says("<proposed_plan>\n# The plan\n- make it\n</proposed_plan>")
    async with world(tmp_path, planning, plan, Says("Carried out.")) as w:
        await w.ann.text("plan it")
        asked = await w.ann.wait("The plan", button="Approve", timeout=TIMEOUT)
        await w.ann.press("Approve", message_id=asked["id"], wait=5)
        await w.ann.wait("Carried out", timeout=TIMEOUT)
        assert "Implement the plan." in w.model.heard()


async def test_a_scope_is_chosen_in_a_chat(tmp_path: Path, engine: Engine) -> None:
    made = tmp_path / "made.txt"
    async with world(tmp_path, engine, Runs(f"touch {made}"), Runs(f"touch {made}"), Says("Twice.")) as w:
        await w.ann.text("do it twice")
        asked = await w.ann.wait(r"Run a command\?", button="This command, this session", timeout=TIMEOUT)
        assert "(for ever, in " in asked["text"]  # the button is too short for the whole effect
        await w.ann.press("This command, this session", message_id=asked["id"], wait=5)
        await w.ann.wait("Twice", timeout=TIMEOUT)
        assert made.exists()
        assert len([shown for shown in await w.ann.shows(sender="bot") if "Run a command?" in str(shown)]) <= 1
