"""How long a new start takes to take up a run with a long journal, and what another chat notices of it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from untether.conversation.bridge import LiveProcess
from untether.conversation.office import Office
from untether.process.hosts import Keepers
from untether.process.kept import KeeperLimits
from untether.store.database import Database
from untether.store.migrate import load_migrations

from .figures import Figure, median, percentile
from .latency import ScriptedRunner, services
from .people import People

_JOURNALS = (10_000, 200_000)
_ASKS, _PAUSE = 40, 0.02  # of the other chat
_TALKER = str(Path(__file__).parent / "talker.py")
_LIMITS = KeeperLimits(orphan=30.0, retention=5.0)


class _Runner(ScriptedRunner):
    """The talker first, then agents that ask."""

    def __init__(self, lines: int) -> None:
        super().__init__(_ASKS, _PAUSE)
        self._lines = lines

    def program(self) -> tuple[str, ...]:
        asking = super().program()
        return asking if self._started > 1 else (self.command(), "-S", _TALKER, str(self._lines))


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for lines in _JOURNALS:
        with TemporaryDirectory(prefix="untether-bench-") as folder:
            seconds, people = anyio.run(_measure, Path(folder), lines)
        group = f"recovery: a journal of {lines:,} lines, another chat is served"
        figures += [
            Figure(group, "start → taken up", seconds, "s"),
            Figure(group, "the other chat: line → request, median", 1000 * median(people.requests), "ms"),
            Figure(group, "the other chat: line → request, p99", 1000 * percentile(people.requests, 99), "ms"),
        ]
    return figures


async def _measure(folder: Path, lines: int) -> tuple[float, People]:
    runner = _Runner(lines)
    async with Database(folder / "untether.db", migrations=load_migrations()) as db:
        async with anyio.create_task_group() as tasks:
            people = People(tasks)
            office = Office(services(folder, db, people, runner, _keepers(folder, 1)))
            tasks.start_soon(office.run)
            tasks.start_soon(partial(people.ask, office.inbox, "long"))
            process = await _first_process(office)
            assert process.driver is not None
            before = -1
            while process.driver.offset == 0 or process.driver.offset != before:
                before = process.driver.offset
                await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            people = People(tasks, first=1_000)  # what the first start has stored is not new
            host = _keepers(folder, 2)
            office = Office(services(folder, db, people, runner, host))
            began = time.perf_counter()
            tasks.start_soon(office.run)
            async with anyio.create_task_group() as both:
                both.start_soon(partial(people.ask, office.inbox, "other"))
                process = await _first_process(office)
                seconds = time.perf_counter() - began
            await process.stop()
            tasks.cancel_scope.cancel()
    return seconds, people


async def _first_process(office: Office) -> LiveProcess:
    """The one that was there first, as soon as we are at its side."""
    async for _ in office.services.hub.watch():
        if found := office.scheduler.processes():
            await found[0].ready.wait()
            return found[0]
    raise AssertionError("the watch ended")


def _keepers(folder: Path, epoch: int) -> Keepers:
    return Keepers(folder / "processes", epoch=epoch, limits=_LIMITS)
