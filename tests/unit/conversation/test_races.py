"""What happens at the same moment, or while the store gives no room."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from tests.support.chat import FakeChat, engines_for, office_with
from untether.runner import Runner
from untether.store import interactions, runs, threads
from untether.store.database import Database, StoreError

pytestmark = pytest.mark.anyio
T = TypeVar("T")


async def test_a_request_after_the_answer_is_shown_and_decided(tmp_path: Path) -> None:
    program = tmp_path / "late-asker"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name('late_asker.py')}\n")
    program.chmod(0o755)
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for({"command": str(program)}), idle_close_s=0.0) as office:
        await chat.say("go")
        await chat.shown("Working in the background.", "✓")
        asked = await chat.shown("⏸ Run a command?", "make", button="Approve")
        assert [row.state for row in office.views.overview().needs_you] == ["waiting"]
        await chat.tap(asked, "Approve")
        await chat.shown("It was allow.", "✓")


class Slow:
    """Holds the guard's check until it is let go."""

    def __init__(self, runner: Runner) -> None:
        self.reached = anyio.Event()
        self.go = anyio.Event()
        self._check = runner.check
        runner.check = self.check  # type: ignore[method-assign]

    async def check(self, environ: Any) -> Any:
        self.reached.set()
        await self.go.wait()
        return await self._check(environ)


async def test_cancel_before_the_agent_is_started_withdraws_the_message(tmp_path: Path) -> None:
    chat, engines = FakeChat(), engines_for()
    engine = engines.get("demo")
    assert engine is not None
    slow = Slow(engine.runner)
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.say("never to be started")
        await slow.reached.wait()
        await chat.say("/cancel")
        await chat.shown("■ 1 message withdrawn.")
        slow.go.set()
        await chat.say("but this one")
        await chat.shown("but this one", "✓")
        assert len(office.services.db.read(lambda conn: runs.recent(conn, 9))) == 1


async def test_stop_while_the_agent_is_starting(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for({"env": {}})) as office:
        await chat.say("slow 30")
        status = await chat.shown("▸ demo", button="Stop")
        await chat.tap(status, "Stop")
        await chat.shown("■ Stopped after")
        assert office.services.db.read(runs.running) == []


async def test_new_with_an_open_request_withdraws_it(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("permission please")
        asked = await chat.shown(button="Approve")
        await chat.say("/new")
        await chat.shown("The next message starts a new session")
        await chat.until(lambda: "■ No longer needed" in asked.text)
        assert office.services.db.read(interactions.all_open) == []


class Refusing:
    """Lets the next writes of a database fail as a full disk does."""

    def __init__(self, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self._write = db.write
        monkeypatch.setattr(db, "write", self.write)

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self.left > 0:
            self.left -= 1
            raise StoreError("full", "database or disk is full")
        return await self._write(job)


@pytest.mark.parametrize("after", range(6))
async def test_a_store_without_room_delays_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The write that fails is another one each time: of the inbox, of the start, of the outbox, of the answer."""
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        refusing = Refusing(office.services.db, monkeypatch)
        write, seen = refusing.write, 0

        async def count(job: Callable[[sqlite3.Connection], T]) -> T:
            nonlocal seen
            seen += 1
            if seen == after + 2:  # the first is the transport's own
                refusing.left = 1
            return await write(job)

        monkeypatch.setattr(office.services.db, "write", count)
        await chat.say("hello there")
        await chat.shown("hello there", "✓", seconds=20)
        answers = [shown for shown in chat.messages if "hello there" in shown.text and "✓" in shown.text]
        assert len(answers) == 1
        assert len(office.services.db.read(lambda conn: runs.recent(conn, 9))) == 1
        assert office.services.db.read(threads.threads_with_queued) == []
