"""Time as an argument: the clock of the machine, and one for tests that only moves when it is told to."""

from __future__ import annotations

import bisect
import itertools
import time
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


async def _let_others_run() -> None:
    for _ in range(_TURNS):
        await anyio.lowlevel.checkpoint()
