"""One conversation for every engine: what a person in a chat may rely on, whatever agent works behind it.

``Conversation`` holds the tests and knows no engine by name. A test module of an engine has a fixture ``engine`` that
gives its ``Engine``, and a subclass of ``Conversation``::

    @pytest.fixture
    def engine(agent_cli, tmp_path) -> Engine: ...

    class TestConversation(Conversation):
        pass

The bridge is a process of its own, Telegram the strict fake server, the agent the real program, its model scripted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from fake_telegram import FakeTelegram
from tests.support.bridge import AsyncBridge, Bridge, is_alive, make_project, write_engine_config
from untether.session import Capabilities

TIMEOUT = 30.0
NAP = "4.321"  # seconds: a word by which a command is found among the processes of a machine


@dataclass(frozen=True)
class Says:
    """The model answers."""

    text: str


@dataclass(frozen=True)
class Runs:
    """The model runs a command for which its agent asks."""

    command: str


@dataclass(frozen=True)
class Fails:
    """The provider answers every call with this HTTP status, from now on."""

    status: int


Turn = Says | Runs | Fails


class Model(Protocol):
    """A scripted model server at work."""

    @property
    def url(self) -> str: ...

    def heard(self) -> str:
        """All that the model was told so far: messages and results of tools."""
        ...


@dataclass(frozen=True)
class Engine:
    """One engine to converse with.

    ``serve(turns, project)`` starts its model; ``table(url)`` is its table in ``untether.toml`` for a model there;
    ``env(url, project)`` the environment of the bridge, with a home of the agent's own made ready.
    """

    id: str
    capabilities: Capabilities
    serve: Callable[[Sequence[Turn], Path], AbstractContextManager[Model]]
    table: Callable[[str], Mapping[str, object]]
    env: Callable[[str, Path], dict[str, str]]
    env_extra_allow: Sequence[str] = ()


@dataclass
class World:
    telegram: Any
    model: Model
    ann: Any
    bridge: AsyncBridge
    project: Path

    async def answers(self, text: str) -> list[str]:
        """The messages of ours that hold ``text``."""
        return [shown["text"] for shown in await self.ann.shows(sender="bot") if text in shown["text"]]


@asynccontextmanager
async def world(tmp_path: Path, engine: Engine, *turns: Turn, extra: str = "") -> AsyncIterator[World]:
    """A chat of Ann's with a bridge whose default engine is ``engine``."""
    project = make_project(tmp_path / "project")
    with engine.serve(turns, project) as model:
        async with FakeTelegram(limits="off") as telegram:
            ann = await telegram.ctl.user(first_name="Ann")
            config = write_engine_config(
                tmp_path / "state",
                telegram=telegram,
                engine=engine.id,
                table=engine.table(model.url),
                project=project,
                chat_id=ann.chat,
                allowed_user_ids=[ann.chat],
                env_extra_allow=engine.env_extra_allow,
                extra=extra,
            )
            async with AsyncBridge(Bridge(config, env=engine.env(model.url, project))) as bridge:
                yield World(telegram, model, ann, bridge, project)


def needs(engine: Engine, *capabilities: str) -> None:
    """Skip a test of what this engine says it cannot do."""
    for name in capabilities:
        if not getattr(engine.capabilities, name):
            pytest.skip(f"{engine.id} has no {name}")


class Conversation:
    """The tests. A subclass in a ``test_*.py`` runs them for the engine of its module."""

    pytestmark = pytest.mark.anyio

    async def test_a_plain_answer(self, tmp_path: Path, engine: Engine) -> None:
        async with world(tmp_path, engine, Says("Hello **Ann**.")) as w:
            await w.ann.text("say hello")
            answer = await w.ann.wait("Hello Ann", timeout=TIMEOUT)
            assert re.search(r"^✓ \d+s", answer["text"].splitlines()[-1])
            assert answer["reply_to"] is not None
            assert "say hello" in w.model.heard()

    async def test_a_tool_that_is_approved(self, tmp_path: Path, engine: Engine) -> None:
        needs(engine, "interactive_permissions")
        made = tmp_path / "made.txt"
        async with world(tmp_path, engine, Runs(f"touch {made}"), Says("Finished.")) as w:
            await w.ann.text("do the work")
            asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
            assert f"touch {made}" in asked["text"]
            assert not made.exists()
            tapped = await w.ann.press("Approve", message_id=asked["id"], wait=5)
            assert tapped["answer"]["text"] == "Approved"
            await w.ann.wait("Finished", timeout=TIMEOUT)
            assert made.exists()
            await w.ann.wait(r"✓ Approved by Ann", timeout=TIMEOUT)

    async def test_a_tool_that_is_denied(self, tmp_path: Path, engine: Engine) -> None:
        """The agent goes on without it."""
        needs(engine, "interactive_permissions")
        made = tmp_path / "made.txt"
        async with world(tmp_path, engine, Runs(f"touch {made}"), Says("Without it then.")) as w:
            await w.ann.text("do the work")
            asked = await w.ann.wait(r"Run a command\?", button="Deny", timeout=TIMEOUT)
            await w.ann.press("Deny", message_id=asked["id"], wait=5)
            await w.ann.wait("Without it then", timeout=TIMEOUT)
            assert not made.exists()
            await w.ann.wait(r"✗ Denied by Ann", timeout=TIMEOUT)

    async def test_the_reason_of_a_deny_reaches_the_model(self, tmp_path: Path, engine: Engine) -> None:
        needs(engine, "interactive_permissions")
        made = tmp_path / "made.txt"
        async with world(tmp_path, engine, Runs(f"touch {made}"), Says("Understood.")) as w:
            await w.ann.text("do the work")
            asked = await w.ann.wait(r"Run a command\?", button="Deny and say why", timeout=TIMEOUT)
            await w.ann.text("use the Makefile instead", reply_to=asked["id"])
            await w.ann.wait("Understood", timeout=TIMEOUT)
            assert "use the Makefile instead" in w.model.heard()
            assert not made.exists()

    async def test_a_cancel_in_a_tool_leaves_no_process(self, tmp_path: Path, engine: Engine) -> None:
        long = Runs(f"touch {tmp_path}/begun; while true; do sleep {NAP}; done")
        async with world(tmp_path, engine, long, Says("After the stop.")) as w:
            await w.ann.text("take your time")
            if engine.capabilities.interactive_permissions:
                asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
                await w.ann.press("Approve", message_id=asked["id"], wait=5)
            await w.ann.wait(r"▸ touch", timeout=TIMEOUT)
            napping = await w.bridge.wait_until(lambda: nappers(w.bridge), "the command", timeout=TIMEOUT)
            await w.ann.text("/cancel")
            await w.ann.wait(r"■ Stopped after", timeout=12)
            await w.bridge.wait_until(lambda: not any(map(is_alive, napping)), "the end of the command")
            assert nappers(w.bridge) == []
            await w.ann.text("go on")
            await w.ann.wait("After the stop", timeout=TIMEOUT)

    async def test_a_follow_up(self, tmp_path: Path, engine: Engine) -> None:
        async with world(tmp_path, engine, Says("First answer."), Says("Second answer.")) as w:
            await w.ann.text("message one")
            await w.ann.wait("First answer", timeout=TIMEOUT)
            await w.ann.text("message two")
            await w.ann.wait("Second answer", timeout=TIMEOUT)
            assert "First answer" in w.model.heard()  # the same conversation

    async def test_resume_after_the_process_has_gone(self, tmp_path: Path, engine: Engine) -> None:
        needs(engine, "resume")
        async with world(tmp_path, engine, Says("First answer."), Says("Second answer.")) as w:
            await w.ann.text("message one")
            await w.ann.wait("First answer", timeout=TIMEOUT)
            await w.bridge.restart()
            await w.ann.text("message two")
            await w.ann.wait("Second answer", timeout=TIMEOUT)
            assert "First answer" in w.model.heard()

    @pytest.mark.parametrize("status", [401, 429])
    async def test_an_error_of_the_provider(self, tmp_path: Path, engine: Engine, status: int) -> None:
        words = {401: "logged in|log in|login", 429: "limit"}[status]
        async with world(tmp_path, engine, Fails(status)) as w:
            await w.ann.text("one")
            failed = await w.ann.wait(r"^✗", button="Try again", timeout=3 * TIMEOUT)
            assert re.search(words, failed["text"], re.IGNORECASE)

    async def test_a_message_said_into_the_running_turn(self, tmp_path: Path, engine: Engine) -> None:
        needs(engine, "steer")
        gate = tmp_path / "gate"
        waits = Runs(f"touch {gate}.begun; while [ ! -e {gate} ]; do sleep 0.1; done")
        async with world(tmp_path, engine, waits, Says("I looked left.")) as w:
            await w.ann.text("begin")
            if engine.capabilities.interactive_permissions:
                asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
                await w.ann.press("Approve", message_id=asked["id"], wait=5)
            await w.ann.wait(r"▸ touch", timeout=TIMEOUT)
            await w.ann.text("/steer look left")
            await w.ann.wait("on its way into the running turn", timeout=TIMEOUT)
            gate.touch()
            await w.ann.wait("I looked left", timeout=TIMEOUT)
            assert "look left" in w.model.heard()
            assert len(await w.answers("I looked left")) == 1
            assert len(await w.answers("✓ taken")) <= 1
            ends = [text for text in await w.answers("✓") if re.search(r"^✓ \d+s", text.splitlines()[-1])]
            assert len(ends) == 1  # both messages have one answer

    async def test_an_old_button_decides_after_a_kill(self, tmp_path: Path, engine: Engine) -> None:
        needs(engine, "interactive_permissions")
        made = tmp_path / "made.txt"
        async with world(tmp_path, engine, Runs(f"touch {made}"), Says("Finished.")) as w:
            await w.ann.text("do the work")
            asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
            await w.bridge.kill()
            await w.bridge.start()
            tapped = await w.ann.press("Approve", message_id=asked["id"], wait=15)
            assert tapped["answer"]["text"] == "Approved"
            await w.ann.wait("Finished", timeout=TIMEOUT)
            assert made.exists()
            await w.ann.wait(r"✓ Approved by Ann", timeout=TIMEOUT)
            assert len(await w.answers("Finished")) == 1

    async def test_an_agent_that_died_with_the_bridge_is_told_and_resumed(self, tmp_path: Path, engine: Engine) -> None:
        needs(engine, "interactive_permissions", "resume")
        async with world(tmp_path, engine, Runs(f"touch {tmp_path}/made.txt"), Says("Resumed.")) as w:
            await w.ann.text("do the work")
            await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
            await w.bridge.kill()
            for process in w.bridge.sync.descendants():
                process.kill()
            await w.bridge.start()
            told = await w.ann.wait("■ Interrupted", button="Resume", timeout=TIMEOUT)
            await w.ann.wait("■ No longer needed", timeout=TIMEOUT)
            await w.ann.press("Resume", message_id=told["id"], wait=5)
            await w.ann.wait("Resumed", timeout=TIMEOUT)


def nappers(bridge: AsyncBridge) -> list[psutil.Process]:
    """The processes under the bridge and its agents that nap, and the shells that have them do so."""
    found = []
    for process in bridge.sync.descendants():
        with contextlib.suppress(psutil.Error):
            if any(NAP in word for word in process.cmdline()):
                found.append(process)
    return found
