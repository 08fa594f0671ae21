"""Limits in a chat with the demo agent: runs that are stopped, agents that are refused, and those that make room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import anyio
import pytest

from tests.contract.toy_engine import BACKEND, ToyRunner
from tests.support.chat import FakeChat, Shown, office_with
from untether.clock import ManualClock
from untether.conversation.engines import Engine, Engines
from untether.conversation.services import WatchLimits
from untether.model import Wait
from untether.process.guard import RoomLimits
from untether.process.machine import Machine
from untether.runner import PRESPAWN_BLOCKED_KEY
from untether.store import interactions, runs, threads

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def passing(clock: ManualClock, step: float) -> AsyncIterator[None]:
    """Time passes, `step` seconds in each turn of the loop, so that all that works meanwhile goes on."""

    async def pass_by() -> None:
        while True:
            await clock.advance(step)
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pass_by)
        yield
        tasks.cancel_scope.cancel()


async def test_a_run_without_a_sign_of_life_is_stopped_and_told_why(tmp_path: Path) -> None:
    chat, clock = FakeChat(), ManualClock()
    async with office_with(tmp_path, chat, clock=clock, min_render_interval=0.0) as office:
        async with passing(clock, 0.1):
            await chat.say("my favourite colour is teal")
            await chat.shown("teal")
            await chat.say("silent")
            await chat.shown("▸ demo", button="Stop")
        async with passing(clock, 5.0):
            await chat.shown("stuck? No sign of life for", button="Stop", seconds=20)
            failed = await chat.shown("✗ No sign of life for 60 min", button="Try again", seconds=30)
        assert "Its session is kept: try again." in failed.text
        (run, *_) = office.services.db.read(lambda conn: runs.recent(conn, 1))
        assert run.state == "failed"
        async with passing(clock, 0.1):
            before = len(chat.messages)
            await chat.say("what did I say?")
            await chat.shown("Before this you said", "silent", after=before)


async def test_waiting_for_a_person_counts_toward_no_limit(tmp_path: Path) -> None:
    chat, clock = FakeChat(), ManualClock()
    limits = WatchLimits(silence=600.0, run=1200.0)
    async with office_with(tmp_path, chat, clock=clock, watch=limits) as office:
        async with passing(clock, 0.1):
            await chat.say("permission please")
            asked = await chat.shown("⏸ Run a command?", button="Approve")
            await chat.shown("⏸ waiting for you: permission", button="Stop")
        await clock.advance(24 * 3600.0)
        assert [live.busy is not None and live.busy.limit for live in office.scheduler.processes()] == [None]
        async with passing(clock, 0.1):
            await chat.tap(asked, "Approve")
            done = await chat.shown("✓", button="")
            assert "✗" not in done.text
            await chat.until(lambda: not office.services.db.read(runs.running))
            (run,) = office.services.db.read(lambda conn: runs.recent(conn, 9))
            assert run.state == "done"


class Memory:
    """A machine whose free memory a test sets, in MiB."""

    def __init__(self, free_mb: int) -> None:
        self.free_mb = free_mb

    def __call__(self) -> Machine:
        return Machine(self.free_mb * 2**20, 8 * 2**30)


async def test_an_agent_is_refused_when_memory_is_short_and_can_be_tried_again(tmp_path: Path) -> None:
    chat, memory = FakeChat(), Memory(8000)
    async with office_with(tmp_path, chat, machine=memory, idle_close_s=0.0) as office:
        await chat.say("my favourite colour is teal")
        await chat.shown("teal")
        await chat.until(lambda: not office.scheduler.processes())
        memory.free_mb = 300
        await chat.say("what did I say?")
        refused = await chat.shown(
            "✗ There is too little memory for one more agent: 300 MB are free.", button="Try again"
        )
        (run, *_) = office.services.db.read(lambda conn: runs.recent(conn, 1))
        assert run.usage == {PRESPAWN_BLOCKED_KEY: "too_little_memory"}
        assert run.process_id is None
        thread = office.services.db.read(lambda conn: threads.thread(conn, run.thread_id))
        assert thread is not None
        assert thread.session
        memory.free_mb = 1000
        await chat.tap(refused, "Try again")
        await chat.shown("favourite colour")


async def test_short_memory_is_one_line_of_the_status(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, machine=Memory(1500)):
        await chat.say("permission please")
        status = await chat.shown("⏸ waiting for you", button="Stop")
        assert status.text.splitlines()[1] == "· memory is short: 1.5 GB free on this machine"
        await chat.say("/status")
        await chat.shown("1.5 GB free · load")


async def test_the_agent_that_rests_longest_makes_room(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, room=RoomLimits(most=2), idle_close_s=600.0) as office:
        for number in ("1", "2"):
            await chat.say(f"hello from {number}", chat=number)
            await chat.shown(f"hello from {number}", "I cannot")
        await chat.until(lambda: all(live.idle for live in office.scheduler.processes()))
        first, second = office.scheduler.processes()
        await chat.say("hello from 3", chat="3")
        await chat.shown("hello from 3", "I cannot")
        assert first.ended.is_set()
        assert not second.ended.is_set()


async def test_nothing_that_works_is_closed_to_make_room(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, room=RoomLimits(most=1)) as office:
        await chat.say("permission please", chat="1")
        asked = await chat.shown("⏸ Run a command?", button="Approve")
        await chat.say("hello", chat="2")
        refused = await chat.shown("✗ 1 agent is at work, and no more than 1 may be.", button="Try again")
        assert not office.scheduler.processes()[0].ended.is_set()
        await chat.tap(asked, "Approve")
        await chat.until(lambda: not office.services.db.read(runs.running))
        await chat.tap(refused, "Try again", chat="2")
        await chat.shown("Hello! I am the demo agent")


async def test_of_two_that_start_at_once_one_gets_the_last_place(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, room=RoomLimits(most=1)) as office:
        await chat.say("permission please", chat="1")
        await chat.say("permission please", chat="2")
        await chat.shown("✗ 1 agent is at work", button="Try again")
        await chat.shown("⏸ Run a command?", button="Approve")
        assert len(office.scheduler.processes()) == 1


async def test_an_agent_that_lingers_after_its_answer_is_ended_behind_the_scenes(tmp_path: Path) -> None:
    runner = ToyRunner()
    runner.linger_s = 0.2
    chat = FakeChat()
    engines = Engines({"toy": Engine("toy", BACKEND, runner, "toy")}, "toy")
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.say('>{"type":"session","id":"s1"}\n>{"type":"result","text":"all done"}\n.')
        answer = await chat.shown("all done")
        await chat.until(lambda: not office.services.db.read(runs.running))
        (live,) = office.scheduler.processes()  # answered, and still there
        with anyio.fail_after(10):
            await live.ended.wait()
        await chat.until(lambda: not office.scheduler.processes())
        assert [shown for shown in chat.messages if not shown.deleted] == [answer]


async def test_an_idle_agent_is_not_let_go_while_something_goes_on_in_the_background(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, idle_close_s=0.0) as office:
        await chat.say("permission please")
        asked = await chat.shown("⏸ Run a command?", button="Approve")
        (live,) = office.scheduler.processes()
        waits = (Wait("background", 0.0, label="serve"),)
        live.session = cast(Any, Busy(live.session, waits))
        await chat.tap(asked, "Approve")
        await chat.until(lambda: not office.services.db.read(runs.running))
        assert live.busy is None
        with anyio.move_on_after(1.2) as looked:  # longer than the pause between two looks
            await live.ended.wait()
        assert looked.cancelled_caught
        live.session = cast(Any, Busy(live.session, ()))
        with anyio.fail_after(10):
            await live.ended.wait()


class Busy:
    """A session with other waits."""

    def __init__(self, session: Any, waits: tuple[Wait, ...]) -> None:
        self._session = session
        self.waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("name", ["Asia/Kolkata", "Pacific/Kiritimati"])
async def test_times_are_shown_in_the_zone_of_the_reader(tmp_path: Path, name: str) -> None:
    """Of two zones that never show the same time, one is not that of the machine."""
    chat, zone = FakeChat(), ZoneInfo(name)
    async with office_with(tmp_path, chat, zone=zone) as office:
        await chat.say("permission please")
        shown = await chat.shown("⏸ Run a command?", button="Approve")
        asked = Shown(shown.message_id, shown.chat, shown.card)
        await chat.tap(asked, "Approve")
        await chat.until(lambda: "Approved by Ann" in shown.text and not office.services.db.read(runs.running))
        (run,) = office.services.db.read(lambda conn: runs.recent(conn, 9))
        (pending,) = office.services.db.read(lambda conn: interactions.of_run(conn, run.id))
        assert pending.decided is not None
        time = datetime.fromtimestamp(pending.decided, zone).strftime("%H:%M")
        assert f"Approved by Ann {time}" in shown.text
        await chat.tap(asked, "Approve")
        await chat.until(lambda: f"Already approved {time}" in chat.toasts)
