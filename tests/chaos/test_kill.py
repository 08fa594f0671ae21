"""The bridge dies with SIGKILL at every named point of the conversation, and is started again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.chaos.conversation import talk
from tests.chaos.invariants import check
from tests.chaos.world import World, world

pytestmark = pytest.mark.anyio

# How often the conversation passes each, at least. Which pass is the deadly one is left to chance.
POINTS = {
    "poll.received": 6,  # a batch of updates has come, nothing is stored
    "poll.stored": 6,  # stored, not confirmed
    "inbox.routing": 8,  # confirmed, not routed
    "process.committed": 2,  # the row of a process, no keeper
    "process.spawned": 2,  # the keeper runs, nothing is read
    "process.event": 7,  # before effects are committed; the first pass is before the first event
    "process.applied": 7,  # after
    "tap.claimed": 1,  # not written
    "tap.written": 1,  # written, not known
    "run.ending": 6,  # the result is seen, the delivery not stored
    "run.ended": 6,  # it is stored, not sent
    "outbox.marked": 14,  # about to be sent
    "outbox.requested": 14,  # sent, its message id not stored
    "outbox.between_parts": 2,  # of the long answer; the second pass is between parts 2 and 3
    "store.commit": 70,  # any moment at which something is stored
}


async def _killed_at(world: World, name: str, nth: int) -> None:
    world.faults.kill_at(name, nth)
    said = await talk(world)
    if world.faults.deaths != [f"{name}#{nth}"]:
        world.problems.append(f"{name} was passed {world.faults.passed[name]} times, not {nth}")
    await check(world, said)


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at(
    tmp_path: Path, point: str, chance: random.Random, record_property: Callable[[str, object], None]
) -> None:
    nth = chance.randint(1, POINTS[point])
    record_property("pass", nth)
    async with world(tmp_path) as w:
        await _killed_at(w, point, nth)


@pytest.mark.parametrize("point", ["process.event", "process.applied", "outbox.between_parts"])
async def test_killed_at_the_first_pass_of(tmp_path: Path, point: str, chance: random.Random) -> None:
    """Before and after the first event, and between the first two parts."""
    async with world(tmp_path) as w:
        await _killed_at(w, point, 1)


async def test_killed_between_parts_2_and_3(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path) as w:
        await _killed_at(w, "outbox.between_parts", 2)


async def test_killed_twice(tmp_path: Path, chance: random.Random) -> None:
    """The second death comes while the bridge recovers from the first, or soon after."""
    async with world(tmp_path) as w:
        w.faults.kill_at("store.commit", chance.randint(5, 60))

        async def again() -> None:
            await w.until(lambda: w.faults.deaths, "the first death")
            w.faults.kill_at("store.commit", chance.randint(1, 8))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(again)
            said = await talk(w)
        assert len(w.faults.deaths) == 2
        if lost := w.rows("SELECT attempts FROM deliveries WHERE state = 'unknown' AND act = 'send'"):
            # Both deaths came around one send. It is repeated once, never more, and that is said.
            assert [row["attempts"] for row in lost] == [3]
            shown = [*await w.ann.shows(sender="bot"), *await w.bob.shows(sender="bot")]
            assert sum("It is not known whether" in message["text"] for message in shown) == 1
            return
        await check(w, said)


async def test_killed_while_an_approval_is_open(tmp_path: Path, chance: random.Random) -> None:
    """The tap comes while nobody is there; the waiting request is decided by it."""
    async with world(tmp_path, supervised=False) as w, anyio.create_task_group() as tasks:

        async def come_back() -> None:
            await w.until(w.tap_waits, "the tap")
            await w.bridge.start()

        async def die() -> None:
            await w.kill()
            tasks.start_soon(come_back)

        await check(w, await talk(w, before_tap=die))


async def test_killed_during_shutdown(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path) as w:

        async def stop() -> None:
            w.faults.kill_at("bridge.stopping")
            assert w.bridge.sync.process is not None
            w.bridge.sync.process.terminate()

        said = await talk(w, before_tap=stop)
        if not w.faults.deaths:
            w.problems.append("bridge.stopping was not passed")
        await check(w, said)


async def test_stopped_and_started_in_the_middle(tmp_path: Path, chance: random.Random) -> None:
    """As an upgrade does: SIGTERM, and a start, with an agent at work and a request open."""
    async with world(tmp_path, supervised=False) as w:

        async def restart() -> None:
            if await w.bridge.stop() != 0:
                w.problems.append("the bridge did not stop well")
            await w.bridge.start()

        await check(w, await talk(w, before_tap=restart))
