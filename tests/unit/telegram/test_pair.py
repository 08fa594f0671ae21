"""Waiting for the pairing code ends in time, whatever the network does."""

from __future__ import annotations

import anyio
import pytest

from untether.clock import ManualClock
from untether.transports.telegram.errors import ApiError
from untether.transports.telegram.pair import PairingExpired, pair

pytestmark = pytest.mark.anyio


class Silence:
    """A server without updates, reached only every second time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.polls = 0

    async def get_updates(self, offset: int | None, seconds: int) -> list[tuple[int, bytes]]:
        self.polls += 1
        if self.polls % 2:
            raise ApiError("later", "ReadError")
        await self.clock.sleep(seconds)
        return []

    async def delete_webhook(self) -> str:
        return ""


async def test_a_code_expires_after_ten_minutes_and_a_shaky_network_does_not_end_the_waiting() -> None:
    clock = ManualClock()
    ended: list[float] = []

    async def wait() -> None:
        with pytest.raises(PairingExpired):
            await pair(Silence(clock), code="s3cret", clock=clock)
        ended.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await clock.advance(0)
        await clock.advance(900)
    assert ended == [pytest.approx(600, abs=2)]
