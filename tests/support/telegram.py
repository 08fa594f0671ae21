"""Help for tests that talk to the fake Telegram server."""

from __future__ import annotations

import time

import anyio


class FastClock:
    """A clock that runs many times faster than the machine's, so that pauses and pace cost tests no time."""

    def __init__(self, speed: float = 300.0) -> None:
        self._speed = speed

    def now(self) -> float:
        return 1_700_000_000.0 + self.monotonic()

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(0.0, seconds) / self._speed)
