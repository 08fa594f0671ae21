"""Requests that are half answered when the bridge stops: what was ticked or asked for is there after the start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.chat import FakeChat, office_with
from untether.conversation.office import Office
from untether.process.hosts import Keepers
from untether.process.kept import KeeperLimits
from untether.store import runs

pytestmark = pytest.mark.anyio

LIMITS = KeeperLimits(orphan=20.0, retention=5.0)


@asynccontextmanager
async def bridge(folder: Path, chat: FakeChat, epoch: int) -> AsyncIterator[Office]:
    """An office whose agents outlive it."""
    host = Keepers(folder / "processes", epoch=epoch, limits=LIMITS)
    async with office_with(folder, chat, host=host) as office:
        yield office


async def end(chat: FakeChat, office: Office) -> None:
    await chat.until(lambda: not office.services.db.read(runs.running))
    for process in office.scheduler.processes():
        await process.close()


async def test_questions_in_the_middle(tmp_path: Path) -> None:
    chat = FakeChat()
    async with bridge(tmp_path, chat, 1):
        await chat.say("question please")
        await chat.tap(await chat.shown("(1 of 3)", button="SQLite"), "SQLite")
        second = await chat.shown("(2 of 3)", button="☐ CI")
        await chat.tap(second, "☐ CI")
        await chat.until(lambda: "☑ CI" in second.labels)
        await chat.tap(second, "Other…")
        prompt = await chat.shown("Reply to this message", button="Back")
    async with bridge(tmp_path, chat, 2) as office:
        await chat.say("a changelog", reply_to=prompt)
        await chat.tap(await chat.shown("(3 of 3)", button="Flat"), "Flat")
        await chat.tap(await chat.shown("Send these answers?", "CI, a changelog"), "Send")
        await chat.shown("Thank you. You answered:", "Which database? SQLite", "Which extras? CI, a changelog")
        await end(chat, office)


async def test_a_reason_that_was_asked_for(tmp_path: Path) -> None:
    chat = FakeChat()
    async with bridge(tmp_path, chat, 1):
        await chat.say("permission please")
        await chat.tap(await chat.shown("Run a command?", button="Deny"), "Deny and say why")
        prompt = await chat.shown("Your next message is the reason", button="Back")
    async with bridge(tmp_path, chat, 2) as office:
        await chat.say("no new files")
        await chat.shown("The answer was: no new files")
        await chat.until(lambda: prompt.deleted)
        await end(chat, office)
