"""Calls leave at the pace Telegram allows, the important ones first, and one chat's flood is its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest

from untether.clock import ManualClock
from untether.transport import Priority
from untether.transports.telegram.errors import ApiError
from untether.transports.telegram.lanes import Lanes

pytestmark = pytest.mark.anyio

ANN, BOB, GROUP = "1001", "1002", "-2001"


class Calls:
    """Makes calls that note their name and time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.made: list[tuple[str, float]] = []

    def __call__(self, name: str, fails: ApiError | None = None) -> Callable[[], Awaitable[None]]:
        async def call() -> None:
            self.made.append((name, round(self.clock.monotonic(), 3)))
            if fails is not None:
                raise fails

        return call

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.made]

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.made]


async def later(clock: ManualClock, seconds: float) -> None:
    """Let tasks that were just started begin, then let time pass."""
    await clock.advance(0)
    await clock.advance(seconds)


@asynccontextmanager
async def running(lanes: Lanes, clock: ManualClock) -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lanes.run)
        await clock.advance(0)
        yield tasks
        tasks.cancel_scope.cancel()


async def test_a_private_chat_gets_a_short_burst_and_then_one_call_a_second_on_average() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with anyio.create_task_group() as tasks:
        for number in range(7):
            tasks.start_soon(lanes.do, ANN, calls(str(number)), Priority.ANSWER)
        await later(clock, 20)
    assert calls.names == ["0", "1", "2", "3", "4", "5", "6"]
    assert calls.times == [0, 0, 0, 3, 3, 3, 6]


async def test_a_group_gets_no_more_than_twenty_calls_a_minute() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock, group_rps=0.3333), Calls(clock)
    async with anyio.create_task_group() as tasks:
        for number in range(45):
            tasks.start_soon(lanes.do, GROUP, calls(str(number)), Priority.ANSWER)
        await later(clock, 300)
    assert len(calls.made) == 45
    assert all(next_one - one > 60 for one, next_one in zip(calls.times, calls.times[20:], strict=False))


async def test_all_chats_together_get_no_more_than_thirty_calls_a_second() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with anyio.create_task_group() as tasks:
        for number in range(70):
            tasks.start_soon(lanes.do, str(number), calls(str(number)), Priority.ANSWER)
        await later(clock, 5)
    assert calls.times == [0] * 30 + [1] * 30 + [2] * 10


async def test_who_matters_most_goes_first_and_equals_go_in_order() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(lanes.do, ANN, calls(f"first {number}"), Priority.PROGRESS)
        await clock.advance(0)
        for name, priority in [
            ("delete", Priority.DELETE),
            ("answer 1", Priority.ANSWER),
            ("answer 2", Priority.ANSWER),
            ("request", Priority.INTERACTION),
        ]:
            tasks.start_soon(lanes.do, ANN, calls(name), priority)
            await clock.advance(0)
        await later(clock, 10)
    assert calls.names[3:] == ["request", "answer 1", "answer 2", "delete"]


async def test_a_flood_closes_its_own_chat_for_exactly_that_long() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    flood = ApiError("later", "Too Many Requests: retry after 35", retry_after=35)
    with pytest.raises(ApiError):
        await lanes.do(ANN, calls("flood", flood), Priority.ANSWER)
    assert lanes.paused() == {ANN: clock.now() + 35}

    await later(clock, 5)
    with pytest.raises(ApiError) as caught:
        await lanes.do(ANN, calls("too early"), Priority.ANSWER)
    assert (caught.value.kind, caught.value.retry_after) == ("later", 30)
    await lanes.do(BOB, calls("other chat"), Priority.ANSWER)

    await later(clock, 30)
    await lanes.do(ANN, calls("in time"), Priority.ANSWER)
    assert calls.made == [("flood", 0), ("other chat", 5), ("in time", 35)]
    assert lanes.paused() == {}


async def test_calls_that_wait_when_the_flood_comes_go_back_to_their_store() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    told: list[float] = []
    release = anyio.Event()

    async def flood() -> None:
        await release.wait()
        raise ApiError("later", "Too Many Requests", retry_after=900)

    async def send(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await lanes.do(ANN, call, Priority.ANSWER)
        except ApiError as error:
            told.append(error.retry_after)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send, flood)
        await clock.advance(0)
        tasks.start_soon(send, calls("waiting"))
        await clock.advance(0)
        release.set()
        await clock.advance(0)
    assert told == [900, 900]
    assert calls.made == []


async def test_a_call_that_is_given_up_does_not_hold_up_the_next() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            await lanes.do(ANN, calls(str(number)), Priority.ANSWER)
        with anyio.CancelScope() as scope:
            tasks.start_soon(lanes.do, ANN, calls("stays"), Priority.NOTICE)

            async def give_up() -> None:
                await clock.wait_for_sleepers(2)
                scope.cancel()

            tasks.start_soon(give_up)
            await lanes.do(ANN, calls("given up"), Priority.INTERACTION)
        await later(clock, 3)
    assert calls.names == ["0", "1", "2", "stays"]


async def test_only_the_newest_paint_of_a_message_is_shown() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with running(lanes, clock):
        lanes.paint(ANN, "7", calls("step 1"))
        await later(clock, 0.1)
        for step in range(2, 50):
            lanes.paint(ANN, "7", calls(f"step {step}"))
            lanes.paint(ANN, "8", calls(f"other {step}"))
            await later(clock, 0.1)
        await later(clock, 10)
    assert calls.names[0] == "step 1"
    assert {"step 49", "other 49"} <= set(calls.names)
    assert len(calls.made) <= 6
    assert all(next_one - one >= 1.5 for one, next_one in zip(calls.times, calls.times[1:], strict=False))


@pytest.mark.parametrize(("chat", "a_minute"), [(ANN, 40), (GROUP, 15)])
async def test_paints_leave_room_for_what_matters(chat: str, a_minute: int) -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with running(lanes, clock):
        for _ in range(600):
            lanes.paint(chat, "7", calls("paint"))
            await later(clock, 0.1)
        assert len(calls.made) == pytest.approx(a_minute, abs=1)
        before = clock.monotonic()
        await lanes.do(chat, calls("request"), Priority.INTERACTION)
        assert clock.monotonic() == before


async def test_a_paint_that_fails_is_dropped_and_a_flood_of_paints_makes_them_rarer() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with running(lanes, clock):
        lanes.paint(ANN, "7", calls("gone", ApiError("gone", "message to edit not found")))
        await later(clock, 2)
        lanes.paint(ANN, "7", calls("flood", ApiError("later", "Too Many Requests", retry_after=10)))
        await later(clock, 2)
        lanes.paint(ANN, "7", calls("during"))
        lanes.paint(ANN, "7", calls("newest"))
        await later(clock, 60)
        assert calls.made == [("gone", 0), ("flood", 2), ("newest", 12)]
        lanes.paint(ANN, "7", calls("next"))
        await later(clock, 60)
        assert calls.names[-1] == "next"


async def test_what_is_out_of_date_is_not_painted() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)
    async with running(lanes, clock):
        lanes.paint(ANN, "7", calls("shown"))
        await later(clock, 0.1)
        lanes.paint(ANN, "7", calls("out of date"))
        await later(clock, 0.1)
        lanes.forget_paint(ANN, "7")
        await later(clock, 10)
        lanes.paint(ANN, "7", calls("later"))
        await later(clock, 10)
    assert calls.names == ["shown", "later"]


async def test_a_defect_in_a_paint_ends_neither_painting_nor_receiving() -> None:
    clock = ManualClock()
    lanes, calls = Lanes(clock), Calls(clock)

    async def broken() -> None:
        raise ZeroDivisionError

    async with running(lanes, clock):
        lanes.paint(ANN, "7", broken)
        await later(clock, 5)
        lanes.paint(ANN, "7", calls("next"))
        await later(clock, 5)
    assert calls.names == ["next"]
