"""Limits of what runs may cost: told, kept over a restart, and gone over only by the owner."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.chat import FakeChat, office_with
from tests.support.costly import Turn, costly
from untether.clock import SteeredClock
from untether.conversation.spending import BudgetLimits, midnight, monday
from untether.store import ledger
from untether.transport import ChatRef

pytestmark = pytest.mark.anyio

DAY = BudgetLimits(per_day=5.0)
OWNER = ChatRef("fake", "7")  # Ann
SOMEBODY = ChatRef("fake", "8")


async def test_the_daily_limit_stops_further_runs_over_a_restart(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), costly(Turn(2.0), Turn(3.5))
    async with office_with(tmp_path, chat, engines=engines, budget=DAY, owner=OWNER):
        await chat.say("one")
        await chat.shown("Answer to one.")
        await chat.say("two")
        await chat.shown("Answer to two.", "■ Daily limit reached: $5.50 of $5.00 today.")
        await chat.say("three")
        await chat.shown("■ Daily limit $5.00 reached", button="Run anyway")
    async with office_with(tmp_path, chat, engines=engines, budget=DAY, owner=OWNER):
        before = len(chat.messages)
        await chat.say("four")
        refused = await chat.shown("■ Daily limit $5.00 reached", button="Run anyway", after=before)
        await chat.tap(refused, "Run anyway")
        await chat.shown("Answer to four.")
        await chat.until(lambda: "Run anyway" not in refused.labels)
        await chat.say("five")  # it counted for one message
        await chat.shown("■ Daily limit $5.00 reached", after=chat.messages.index(refused) + 1)
        assert [said for said in runner.said if said not in ("one", "two")] == ["four"]


async def test_only_the_owner_goes_over_a_limit(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), costly(Turn(6.0))
    async with office_with(tmp_path, chat, engines=engines, budget=DAY, owner=SOMEBODY):
        await chat.say("one")
        await chat.shown("Answer to one.")
        await chat.say("two")
        await chat.tap(await chat.shown("■ Daily limit", button="Run anyway"), "Run anyway")
        await chat.until(lambda: "Only the owner may go over a limit" in chat.toasts)
        assert runner.said == ["one"]


async def test_a_new_day_starts_from_zero(tmp_path: Path) -> None:
    chat, (engines, _), clock = FakeChat(), costly(Turn(6.0)), SteeredClock()
    async with office_with(tmp_path, chat, engines=engines, budget=DAY, clock=clock, zone=UTC):
        await chat.say("one")
        await chat.shown("Answer to one.")
        clock.jump(86_400.0)
        await chat.say("two")
        await chat.shown("Answer to two.")


async def test_the_agent_goes_no_further_by_itself(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), costly(Turn(1.0, holds=True), Turn(0.5), Turn(0.2))
    limits = BudgetLimits(per_run=0.8)
    async with office_with(tmp_path, chat, engines=engines, budget=limits):
        await chat.say("one")
        await chat.shown("Answer to one.", "■ This run reached the limit of a run: $1.00 of $0.80.")
        await chat.shown("■ What went on in the background is stopped: the limit of a run is reached.")
        await chat.say("two")
        await chat.shown("Answer to two.")
        assert len(runner.starts) == 2  # the next run is one of a process of its own
        await chat.say("three")
        await chat.shown("Answer to three.")
        assert len(runner.starts) == 2


async def test_limits_that_are_only_told(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), costly(Turn(6.0))
    limits = BudgetLimits(per_day=5.0, stops=False)
    async with office_with(tmp_path, chat, engines=engines, budget=limits):
        await chat.say("one")
        told = await chat.shown("■ Daily limit reached: $6.00 of $5.00 today.")
        assert "owner" not in told.text
        await chat.say("two")
        await chat.shown("Answer to two.")
        assert len(runner.starts) == 1


async def test_coming_near_is_said_once(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), costly(Turn(3.0), Turn(0.6), Turn(0.1))
    async with office_with(tmp_path, chat, engines=engines, budget=DAY):
        for word, said in (("one", False), ("two", True), ("three", False)):
            await chat.say(word)
            answer = await chat.shown(f"Answer to {word}.")
            assert ("· 72 % of the daily limit: $3.60 of $5.00 today." in answer.text) is said


async def test_an_expensive_run_is_told_without_limits(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), costly(Turn(20.5))
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("one")
        await chat.shown("· An expensive run: $20.50, more than $20.00.")


async def test_usage_and_status(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), costly(Turn(1.25), Turn(), Turn(0.5))
    async with office_with(tmp_path, chat, engines=engines, budget=DAY) as office:
        for word in ("one", "two", "three"):
            await chat.say(word)
            await chat.shown(f"Answer to {word}.")
        await chat.say("/usage")
        await chat.shown(
            "Today: $1.75 of $5.00 · 2 runs · 2 k in / 100 out", "This week:", "home · scripted: $1.75 · 2"
        )
        await chat.say("/status")
        await chat.shown("today: $1.75 of $5.00")
        assert office.services.db.read(lambda conn: ledger.since(conn, 0)).runs == 2


def test_days_and_weeks() -> None:
    now = datetime(2026, 12, 3, 14, 30, tzinfo=UTC).timestamp()  # a Thursday
    assert datetime.fromtimestamp(midnight(now, UTC), UTC) == datetime(2026, 12, 3, tzinfo=UTC)
    assert datetime.fromtimestamp(monday(now, UTC), UTC) == datetime(2026, 11, 30, tzinfo=UTC)
