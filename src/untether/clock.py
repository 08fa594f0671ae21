"""Time as an argument: the clock of the machine, one that a test moves on, one that only moves when it is told to."""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Awaitable
from typing import Protocol

import anyio
import anyio.lowlevel

_TURNS = 20  # turns of the event loop that a woken task gets to go on before the clock moves further
_EPSILON = 1e-9  # ten steps of 0.1 s wake a sleeper of 1 s


class Clock(Protocol):
    """What the rest of the program knows of time. All times are in seconds."""

    def now(self) -> float:
        """Wall time since the Unix epoch. May jump: stored and shown, never subtracted to time something."""
        ...

    def monotonic(self) -> float:
        """Time since some unspecified point; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of monotonic time; at once, after letting others run, when they are not positive."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(0.0, seconds))


class SteeredClock(SystemClock):
    """The clock of the machine, which a test may move on, so that what waits for long is not waited for.

    In one event loop. `ahead` is how far the wall time is ahead of the machine's from the beginning.
    """

    def __init__(self, ahead: float = 0.0) -> None:
        self._wall_ahead = ahead
        self._monotonic_ahead = 0.0
        self._moved = anyio.Event()

    def now(self) -> float:
        return super().now() + self._wall_ahead

    def monotonic(self) -> float:
        return super().monotonic() + self._monotonic_ahead

    async def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while True:
            with anyio.move_on_after(max(0.0, end - self.monotonic())):
                await self._moved.wait()
            if self.monotonic() >= end:
                return

    async def advance(self, seconds: float) -> None:
        """Move both times on; who would have woken meanwhile wakes now, at once, and gets to go on."""
        self._wall_ahead += seconds
        self._monotonic_ahead += seconds
        self._moved.set()
        self._moved = anyio.Event()
        await _let_others_run()

    def jump(self, seconds: float) -> None:
        """Set the wall time forward or back, as a person, NTP or a suspended machine does. Wakes nobody."""
        self._wall_ahead += seconds


class ManualClock:
    """A clock for tests, in one event loop. Nobody wakes until `advance` comes to the end of the sleep."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._wall = start
        self._monotonic = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []  # sorted: by deadline, then by arrival
        self._arrival = anyio.Event()

    def now(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        sleeper = (self._monotonic + seconds, next(self._order), anyio.Event())
        bisect.insort(self._sleepers, sleeper)
        self._arrival.set()
        self._arrival = anyio.Event()
        try:
            await sleeper[2].wait()
        finally:
            if sleeper in self._sleepers:  # cancelled
                self._sleepers.remove(sleeper)

    async def advance(self, seconds: float) -> None:
        """Move both times on by `seconds`, stopping at the end of each sleep on the way, in order.

        A woken task runs before the clock moves further, so one that sleeps again is woken again in the same call.
        One that first waits for something else, as for a thread, is not seen: use `wait_for_sleepers`.

        :raises ValueError: for a negative time
        """
        if seconds < 0:
            raise ValueError("a clock does not go back; use jump() for the wall time")
        end = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= end + _EPSILON:
            deadline, _, woken = self._sleepers.pop(0)
            self._move_to(deadline)
            woken.set()
            await _let_others_run()
        self._move_to(end)
        await _let_others_run()

    def jump(self, seconds: float) -> None:
        """Set the wall time forward or back, as a person, NTP or a suspended machine does. Wakes nobody."""
        self._wall += seconds

    async def wait_for_sleepers(self, count: int = 1) -> None:
        """Return as soon as at least `count` tasks sleep."""
        while len(self._sleepers) < count:
            await self._arrival.wait()

    def _move_to(self, monotonic: float) -> None:
        step = max(0.0, monotonic - self._monotonic)
        self._monotonic += step
        self._wall += step


async def happens(event: anyio.Event, within: float, clock: Clock) -> bool:
    """Wait for `event`, at most `within` seconds of the clock's time. Says whether it came."""
    async with anyio.create_task_group() as race:
        race.start_soon(_first, event.wait(), race.cancel_scope)
        race.start_soon(_first, clock.sleep(within), race.cancel_scope)
    return event.is_set()


async def _first(waiting: Awaitable[object], scope: anyio.CancelScope) -> None:
    await waiting
    scope.cancel()


async def _let_others_run() -> None:
    for _ in range(_TURNS):
        await anyio.lowlevel.checkpoint()
