"""Going on when a spent quota is renewed: by a tap or by itself, once, over a restart."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from tests.support.chat import FakeChat, office_with
from tests.support.costly import QUOTA, Turn, costly
from untether.clock import SteeredClock
from untether.conversation.repeat import CONTINUE
from untether.store.database import Database
from untether.store.migrate import load_migrations
from untether.text import words

pytestmark = pytest.mark.anyio

HOUR = 3600.0


def spent(clock: SteeredClock, *, taken: bool = True) -> tuple[Turn, str]:
    """A turn that fails for a quota that is renewed in an hour, and that time."""
    due = clock.now() + HOUR
    at = words.clock_time(due, UTC, clock.now())
    return Turn(detail={**QUOTA, "resets_at": due}, taken=taken), at


@pytest.mark.parametrize(("taken", "sent"), [(True, CONTINUE), (False, "build it")])
async def test_a_tap_continues_once_when_the_quota_is_renewed(tmp_path: Path, taken: bool, sent: str) -> None:
    chat, clock = FakeChat(), SteeredClock()
    turn, at = spent(clock, taken=taken)
    engines, runner = costly(turn)
    async with office_with(tmp_path, chat, engines=engines, clock=clock, zone=UTC, idle_close_s=10_000.0):
        await chat.say("build it")
        failed = await chat.shown("✗ It did not work.", button=f"Continue at {at}")
        await chat.tap(failed, f"Continue at {at}")
        await chat.shown(f"⏳ continues at {at}", button="Cancel")
        await clock.advance(HOUR - 60)
        assert runner.said == ["build it"]
        await clock.advance(90)
        await chat.shown(f"Answer to {sent}.")
        await chat.until(lambda: "✓ continued at" in failed.text and failed.labels == [])
        await clock.advance(HOUR)
        assert runner.said == ["build it", sent]


async def test_it_can_be_cancelled_and_planned_again(tmp_path: Path) -> None:
    chat, clock = FakeChat(), SteeredClock()
    turn, at = spent(clock)
    engines, runner = costly(turn)
    async with office_with(tmp_path, chat, engines=engines, clock=clock, zone=UTC):
        await chat.say("build it")
        failed = await chat.shown("✗ It did not work.", button=f"Continue at {at}")
        await chat.tap(failed, f"Continue at {at}")
        await chat.tap(await chat.shown(f"⏳ continues at {at}", button="Cancel"), "Cancel")
        await chat.until(lambda: f"Continue at {at}" in failed.labels and "⏳" not in failed.text)
        await clock.advance(HOUR + 60)
        assert runner.said == ["build it"]


@pytest.mark.parametrize("word", ["/cancel", "/new"])
async def test_cancel_and_new_give_it_up(tmp_path: Path, word: str) -> None:
    chat, clock = FakeChat(), SteeredClock()
    turn, at = spent(clock)
    engines, runner = costly(turn)
    async with office_with(tmp_path, chat, engines=engines, clock=clock, zone=UTC):
        await chat.say("build it")
        failed = await chat.shown("✗ It did not work.", button=f"Continue at {at}")
        await chat.tap(failed, f"Continue at {at}")
        await chat.shown(f"⏳ continues at {at}")
        await chat.say(word)
        await chat.shown("1 message withdrawn")
        await chat.until(lambda: failed.labels == ["Try again"])
        await clock.advance(HOUR + 60)
        assert runner.said == ["build it"]


async def test_try_again_takes_its_place(tmp_path: Path) -> None:
    chat, clock = FakeChat(), SteeredClock()
    turn, at = spent(clock)
    engines, runner = costly(turn)
    async with office_with(tmp_path, chat, engines=engines, clock=clock, zone=UTC):
        await chat.say("build it")
        failed = await chat.shown("✗ It did not work.", button=f"Continue at {at}")
        await chat.tap(failed, f"Continue at {at}")
        await chat.shown(f"⏳ continues at {at}")
        await chat.tap(failed, "Try again")
        await chat.shown("Answer to build it.")
        await chat.until(lambda: failed.labels == [] and "⏳" not in failed.text)
        await clock.advance(HOUR + 60)
        assert runner.said == ["build it", "build it"]


async def test_a_time_that_was_missed_fires_at_the_next_start(tmp_path: Path) -> None:
    chat, clock = FakeChat(), SteeredClock()
    turn, at = spent(clock)
    engines, _ = costly(turn)
    async with office_with(tmp_path, chat, engines=engines, clock=clock, zone=UTC):
        await chat.say("build it")
        failed = await chat.shown("✗ It did not work.", button=f"Continue at {at}")
        await chat.tap(failed, f"Continue at {at}")
        await chat.shown(f"⏳ continues at {at}")
    for _ in range(2):
        async with office_with(tmp_path, chat, engines=engines, clock=SteeredClock(3 * HOUR), zone=UTC):
            await chat.shown(f"Answer to {CONTINUE}.")
    async with Database(tmp_path / "untether.db", migrations=load_migrations()) as db:
        sent = db.read(lambda conn: [row[0] for row in conn.execute("SELECT text FROM messages ORDER BY id")])
    assert sent == ["build it", CONTINUE]


async def test_by_itself_where_that_is_chosen(tmp_path: Path) -> None:
    chat, clock = FakeChat(), SteeredClock()
    turn, at = spent(clock)
    engines, _ = costly(turn)
    async with office_with(tmp_path, chat, engines=engines, clock=clock, zone=UTC):
        await chat.say("/autocontinue on")
        await chat.shown("goes on by itself")
        await chat.say("build it")
        await chat.shown("✗ It did not work.", f"⏳ continues at {at}", button="Cancel")
        await clock.advance(HOUR + 60)
        await chat.shown(f"Answer to {CONTINUE}.")


async def test_nothing_is_offered_without_a_time_or_after_it(tmp_path: Path) -> None:
    chat, clock = FakeChat(), SteeredClock()
    engines, _ = costly(Turn(detail=QUOTA), Turn(detail={**QUOTA, "resets_at": clock.now() - 1}))
    async with office_with(tmp_path, chat, engines=engines, clock=clock, zone=UTC):
        for word in ("one", "two"):
            before = len(chat.messages)
            await chat.say(word)
            await chat.shown("✗ It did not work.", after=before)
        assert all(shown.labels == ["Try again"] for shown in chat.messages if "✗" in shown.text)
