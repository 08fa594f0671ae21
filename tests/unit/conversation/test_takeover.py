"""A new start beside agents that the last bridge left at work: their runs go on as if nothing had been."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.chat import FakeChat, engines_for, office_with
from untether.clock import SystemClock
from untether.conversation.office import Office
from untether.process.hosts import Keepers
from untether.process.kept import KeeperLimits
from untether.session import Interrupt
from untether.store import deliveries, interactions, kv, runs
from untether.store.database import Database
from untether.store.migrate import load_migrations

pytestmark = pytest.mark.anyio

LIMITS = KeeperLimits(orphan=20.0, retention=5.0)
EPOCHS = iter(range(1, 10_000))


@asynccontextmanager
async def bridge(folder: Path, chat: FakeChat, **options: Any) -> AsyncIterator[Office]:
    """An office whose agents outlive it."""
    host = Keepers(folder / "processes", epoch=next(EPOCHS), limits=LIMITS)
    async with office_with(folder, chat, host=host, **options) as office:
        yield office


async def settled(chat: FakeChat, office: Office) -> None:
    """Wait until no run is open and no agent either."""
    for process in office.scheduler.processes():
        await process.close()
    read = office.services.db.read
    await chat.until(lambda: not read(runs.running) and not read(deliveries.chats_with_pending))


def answers(chat: FakeChat) -> list[str]:
    return [shown.text for shown in chat.messages if not shown.deleted and "✓" in shown.text.rpartition("\n")[2]]


async def test_a_run_goes_on_and_its_status_message_too(tmp_path: Path) -> None:
    chat = FakeChat()
    slow = engines_for({"env": {}})
    async with bridge(tmp_path, chat, engines=slow):
        await chat.say("slow 3")
        status = await chat.shown("▸ demo", "step 1")
    async with bridge(tmp_path, chat, engines=slow) as office:
        (run,) = office.services.db.read(runs.running)
        await chat.until(lambda: status.deleted)
        await chat.until(lambda: len(answers(chat)) == 1)
        await settled(chat, office)
        assert office.services.db.read(lambda conn: runs.run(conn, run.id)).state == "done"  # type: ignore[union-attr]
    assert not [shown for shown in chat.messages if "Interrupted" in shown.text]


@pytest.mark.parametrize("label", ["Approve", "Deny"])
async def test_an_old_button_decides_after_the_restart(tmp_path: Path, label: str) -> None:
    chat = FakeChat()
    async with bridge(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown("⏸ Run a command?", button="Approve")
    async with bridge(tmp_path, chat) as office:
        await chat.tap(asked, label)
        await chat.until(lambda: asked.labels == [])
        await chat.until(lambda: len(answers(chat)) == 1)
        await settled(chat, office)
    assert sum("Run a command?" in shown.text for shown in chat.messages) <= 1
    assert (tmp_path / "home" / "untether-demo.txt").exists() == (label == "Approve")


async def test_a_tap_made_meanwhile_counts(tmp_path: Path) -> None:
    chat = FakeChat()
    async with bridge(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown("⏸ Run a command?", button="Approve")
    async with bridge(tmp_path, chat) as office:
        await chat.tap(asked, "Approve")  # stored before the takeover is through
        await chat.until(lambda: len(answers(chat)) == 1)
        assert office.services.db.read(interactions.all_open) == []
        await settled(chat, office)


async def test_an_agent_that_ended_meanwhile_is_completed_from_its_journal(tmp_path: Path) -> None:
    chat = FakeChat()
    slow = engines_for({"env": {}})
    async with bridge(tmp_path, chat, engines=slow) as office:
        await chat.say("slow 1")
        await chat.shown("▸ demo", "step 1")
        (process,) = office.scheduler.processes()
        process_id = process.start.process_id
    host = Keepers(tmp_path / "processes", epoch=next(EPOCHS), limits=LIMITS)
    async with host.attached(process_id) as agent:
        await agent.close_stdin()  # it ends after its turn
        with anyio.fail_after(10):
            await agent.wait()
    async with bridge(tmp_path, chat, engines=slow) as office:
        await chat.until(lambda: len(answers(chat)) == 1)
        await settled(chat, office)
        assert office.services.db.read(runs.open_processes) == []


async def test_a_follow_up_goes_into_the_process_that_was_taken_up(tmp_path: Path) -> None:
    chat = FakeChat()
    async with bridge(tmp_path, chat) as office:
        await chat.say("remember me")
        await chat.until(lambda: len(answers(chat)) == 1)
        (first,) = office.scheduler.processes()
    async with bridge(tmp_path, chat) as office:
        await chat.say("what did I say")
        await chat.until(lambda: len(answers(chat)) == 2)
        assert "remember me" in answers(chat)[1]
        (second,) = office.scheduler.processes()
        assert second.start.process_id == first.start.process_id
        await settled(chat, office)


async def away(folder: Path, seconds: float) -> None:
    """As if the bridge had been gone for so long."""
    async with Database(folder / "untether.db", migrations=load_migrations()) as db:
        last = SystemClock().now() - seconds
        await db.write(lambda conn: kv.put(conn, "alive", repr(last)))


@pytest.mark.parametrize(("seconds", "again"), [(60.0, 0), (600.0, 1)])
async def test_after_a_long_absence_open_requests_are_announced_once_more(
    tmp_path: Path, seconds: float, again: int
) -> None:
    chat = FakeChat()
    async with bridge(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown("⏸ Run a command?", button="Approve")
    await away(tmp_path, seconds)
    async with bridge(tmp_path, chat) as office:
        await chat.shown("↻ Back after", "your run went on.")
        told = [shown for shown in chat.messages if shown.card.reply_to == asked.message_id]
        assert len(told) == again
        await chat.tap(asked, "Approve")
        await chat.until(lambda: len(answers(chat)) == 1)
        await chat.until(lambda: all(shown.deleted for shown in told))
        await settled(chat, office)


async def test_a_restart_that_is_delivered_twice_restarts_once(tmp_path: Path) -> None:
    chat, restarts = FakeChat(), list[int]()
    async with bridge(tmp_path, chat) as office:
        office.services.restart = lambda: restarts.append(1)
        await chat.say("/restart", key="900")
        notice = await chat.shown("↻ Restarting…")
        await chat.until(lambda: restarts)
    async with bridge(tmp_path, chat) as office:
        office.services.restart = lambda: restarts.append(2)
        await chat.say("/restart", key="900")  # Telegram had not heard that we have it
        await chat.until(lambda: notice.text == "✓ Restarted")
        await chat.say("/help")
        await chat.shown("/restart")
    assert restarts == [1]


async def test_why_a_run_was_stopped_is_known_after_a_kill(tmp_path: Path) -> None:
    chat, slow = FakeChat(), engines_for({"env": {}})
    told = ("No sign of life for 60 min.", "Try again.")
    async with bridge(tmp_path, chat, engines=slow) as office:
        await chat.say("slow 30")
        await chat.shown("▸ demo", "step 1")
        (live,) = office.scheduler.processes()
        live.apply = _never  # type: ignore[assignment, method-assign]  # from here on the bridge does nothing any more
        assert live.driver is not None
        await live.driver.submit(Interrupt(why=told))
    async with bridge(tmp_path, chat, engines=slow) as office:
        await chat.shown("✗ No sign of life for 60 min.", "Try again.", button="Try again")
        await settled(chat, office)


async def _never(*_: object) -> None:
    await anyio.sleep_forever()
