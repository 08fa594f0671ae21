"""What a chat chooses for its runs: the permission mode and whether questions may be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat import ANN, FakeChat, office_with
from tests.support.scripted import scripted
from untether.session import SetPermissionMode
from untether.transport import ChatRef, MessageIn

pytestmark = pytest.mark.anyio


async def say_in_topic(chat: FakeChat, text: str, topic: str) -> None:
    message = MessageIn(ChatRef("fake", "1", topic), ANN, f"t-{topic}-{text}", text)
    await chat._store(message, None)


@pytest.mark.parametrize(
    ("word", "mode"), [("on", "plan"), ("off", "acceptEdits"), ("plan-auto", "plan-auto"), ("dontAsk", "dontAsk")]
)
async def test_planmode_counts_for_the_next_run(tmp_path: Path, word: str, mode: str) -> None:
    chat, (engines, runner) = FakeChat(), scripted()
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say(f"/planmode {word}")
        await chat.shown(f"✓ Permission mode of this chat: {mode}.")
        await chat.say("go")
        await chat.shown("All decided.")
        assert runner.starts[0].settings["permission_mode"] == mode


async def test_an_open_agent_is_told_at_once(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted()
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("go")
        await chat.shown("All decided.")
        await chat.say("/planmode on")
        await chat.shown("Permission mode of this chat: plan.", "The agent that is open was told.")
        await chat.say("/planmode clear")
        await chat.shown("no permission mode of its own any more: default holds")
        assert runner.changes == [SetPermissionMode("plan"), SetPermissionMode("default")]


async def test_a_topic_has_its_own_else_that_of_its_chat(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted()
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("/planmode on")
        await chat.shown("plan.")
        await say_in_topic(chat, "/planmode auto", "5")
        await chat.shown("Permission mode of this topic: auto.")
        await say_in_topic(chat, "go", "5")
        await chat.until(lambda: len(runner.starts) == 1)
        await say_in_topic(chat, "go", "6")
        await chat.until(lambda: len(runner.starts) == 2)
        assert [start.settings["permission_mode"] for start in runner.starts] == ["auto", "plan"]
        await say_in_topic(chat, "/planmode", "6")
        await chat.shown("Permission mode: plan, set for the chat of this topic.", button="Plan first")


async def test_the_buttons_of_planmode(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted()
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("/planmode show")
        await chat.tap(await chat.shown("Permission mode: default, from the settings."), "Accept edits")
        await chat.shown("✓ Permission mode of this chat: acceptEdits.")
        await chat.say("go")
        await chat.shown("All decided.")
        assert runner.starts[0].settings["permission_mode"] == "acceptEdits"


async def test_what_is_no_mode_is_refused(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted()
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("/planmode sometimes")
        await chat.shown("✗ There is no permission mode sometimes.", "bypassPermissions")
        await chat.say("go")
        await chat.shown("All decided.")
        assert "permission_mode" not in runner.starts[0].settings


async def test_an_engine_without_modes_is_pointed_elsewhere(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(plan=False)
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("/planmode on")
        await chat.shown("✗ scripted has no permission modes.", "untether.toml")
        await chat.say("go")
        await chat.shown("All decided.")
        assert "permission_mode" not in runner.starts[0].settings


async def test_ask_mode(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted()
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.say("go")
        await chat.shown("All decided.")
        assert "ask_questions" not in runner.starts[0].settings
        await chat.say("/ask off")
        await chat.shown("✓ Agents decide by themselves here", "It counts from the next message on.")
        await chat.until(lambda: not office.scheduler.processes())
        await chat.say("go")
        await chat.until(lambda: len(runner.starts) == 2)
        assert runner.starts[1].settings["ask_questions"] is False
        await chat.say("/ask")
        await chat.shown("Agents do not ask questions here")
