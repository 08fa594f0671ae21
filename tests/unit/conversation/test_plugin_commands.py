"""Commands of packages, as a person in a chat meets them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from untether.command_backends import CommandBackend, CommandCall
from untether.conversation.plugin_commands import PluginCommands
from untether.conversation.services import Services
from untether.text.blocks import Line, Markdown
from untether.transport import ChatRef, MessageIn, Sender

pytestmark = pytest.mark.anyio

SERVICES = cast(
    Services,
    SimpleNamespace(
        db=SimpleNamespace(read=lambda job: SimpleNamespace(project=None)),
        project_of=lambda chat, bound: "shop",
        projects={"shop": SimpleNamespace(path="/home/ann/shop")},
        options=SimpleNamespace(home="/home/ann"),
    ),
)
MESSAGE = MessageIn(ChatRef("telegram", "7"), Sender("1", "Ann"), "5", "/word  some words")


async def replied(run: Any, **more: Any) -> str:
    backend = CommandBackend("word", "does something", run, **more)
    commands = PluginCommands({"word": backend}, {"word": {"key": 1}})
    card = await commands.run(SERVICES, MESSAGE, "word", "some words")
    return "\n".join(
        block.source if isinstance(block, Markdown) else block.text
        for block in card.blocks
        if isinstance(block, Line | Markdown)
    )


async def test_it_gets_where_it_was_written_and_its_table() -> None:
    calls: list[CommandCall] = []

    async def run(call: CommandCall) -> str:
        calls.append(call)
        return "**yes**"

    assert await replied(run) == "**yes**"
    settings = {"key": 1}
    assert calls == [CommandCall("word", "some words", "Ann", "telegram", "7", "shop", "/home/ann/shop", settings)]


async def test_without_a_reply_it_is_done() -> None:
    async def run(call: CommandCall) -> str:
        return ""

    assert await replied(run) == "✓ /word is done."


async def test_what_it_raises_is_told() -> None:
    async def mistaken(call: CommandCall) -> str:
        raise ValueError("Say more.")

    async def broken(call: CommandCall) -> str:
        return call.nothing  # type: ignore[attr-defined, no-any-return]

    assert await replied(mistaken) == "✗ Say more."
    assert await replied(broken) == "✗ /word failed: AttributeError.\nThe log has the details."


async def test_one_that_does_not_end_is_stopped() -> None:
    assert await replied(lambda call: anyio.sleep_forever(), timeout_s=0.01) == (
        "✗ /word did not finish within 0s, and was stopped."
    )
