"""The clock of tests wakes in order and only when told."""

from __future__ import annotations

import time

import anyio
import pytest

from untether.clock import ManualClock, SteeredClock, SystemClock, happens

pytestmark = pytest.mark.anyio


async def test_sleepers_wake_in_the_order_of_their_deadlines_at_their_time() -> None:
    clock = ManualClock(start=1000.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now()))

    async with anyio.create_task_group() as tasks:
        for name, seconds in [("late", 30.0), ("early", 10.0), ("same", 10.0), ("never", 99.0)]:
            tasks.start_soon(sleeper, name, seconds)
        await clock.wait_for_sleepers(4)
        await clock.advance(9.9)
        assert woken == []
        await clock.advance(50.0)
        tasks.cancel_scope.cancel()

    assert woken == [("early", 1010.0), ("same", 1010.0), ("late", 1030.0)]
    assert clock.now() == pytest.approx(1059.9)
    assert clock.monotonic() == pytest.approx(59.9)


async def test_a_task_that_sleeps_again_is_woken_again_on_the_way() -> None:
    clock = ManualClock()
    ticks: list[float] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(1.0)
            ticks.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticker)
        await clock.wait_for_sleepers()
        for _ in range(10):
            await clock.advance(0.1)
        await clock.advance(3.0)
        tasks.cancel_scope.cancel()
    assert ticks == pytest.approx([1.0, 2.0, 3.0, 4.0])


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.sleep, 5.0)
        await clock.wait_for_sleepers()
        tasks.cancel_scope.cancel()
    await clock.advance(10.0)
    await clock.sleep(0)
    assert clock.monotonic() == 10.0


async def test_the_wall_time_may_jump_while_sleeps_go_on() -> None:
    clock = ManualClock(start=1000.0)
    clock.jump(-500.0)
    assert (clock.now(), clock.monotonic()) == (500.0, 0.0)
    with pytest.raises(ValueError, match="jump"):
        await clock.advance(-1.0)


async def test_the_clock_of_the_machine() -> None:
    clock = SystemClock()
    assert clock.now() == pytest.approx(time.time(), abs=5.0)
    before = clock.monotonic()
    await clock.sleep(-1.0)
    assert clock.monotonic() >= before


async def test_a_steered_clock_cuts_long_sleeps_short_and_no_others() -> None:
    clock = SteeredClock(ahead=1000.0)
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    began = time.time()
    assert clock.now() == pytest.approx(began + 1000, abs=5)
    async with anyio.create_task_group() as tasks:
        for seconds in (60.0, 900.0, 3600.0):
            tasks.start_soon(sleeper, seconds)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(59.0)
        assert woken == []
        await clock.advance(850.0)
        assert sorted(woken) == [60.0, 900.0]
        clock.jump(5000.0)
        await anyio.wait_all_tasks_blocked()
        assert sorted(woken) == [60.0, 900.0]
        assert clock.now() == pytest.approx(began + 6909, abs=5)
        tasks.cancel_scope.cancel()


async def test_a_wait_for_an_event_ends_with_it_or_with_the_time() -> None:
    clock, event, came = ManualClock(), anyio.Event(), list[bool]()

    async def wait(within: float) -> None:
        came.append(await happens(event, within, clock))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, 5.0)
        tasks.start_soon(wait, 50.0)
        await clock.wait_for_sleepers(2)
        await clock.advance(6.0)
        assert came == [False]
        event.set()
    assert came == [False, True]
