"""How soon a question of an agent leaves for the chat, and how soon a tap reaches the agent.

All in one process, as the bridge runs: agents as its children, driver, session, store and outbox, and a transport that
only notes the time. Agent and bridge use the same clock. Each run has a chat of its own, so that no chat is throttled.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from untether.backends import EngineBackend
from untether.clock import SystemClock
from untether.conversation.engines import Engine, Engines
from untether.conversation.hub import Hub
from untether.conversation.office import Office
from untether.conversation.outbox import Outbox
from untether.conversation.services import Options, Services
from untether.model import EngineId
from untether.process.environment import agent_environment
from untether.process.host import Host
from untether.process.hosts import Keepers
from untether.process.kept import KeeperLimits
from untether.runner import Runner
from untether.runners.claude import ClaudeRunner
from untether.runners.claude.forms import CONTROL
from untether.store.database import Database
from untether.store.migrate import load_migrations

from .figures import Figure, median, percentile
from .people import People

# How many runs at once, how often each asks, and about how many seconds it works between its questions.
_LOADS = ((1, 100, 0.1), (10, 20, 0.3), (20, 20, 0.3))
_AGENT = str(Path(__file__).parent / "agent.py")


class ScriptedRunner(ClaudeRunner):
    """The agent of `agent.py`, through the Claude session."""

    engine = EngineId("bench")
    name = "Scripted agent"
    min_version = ""

    def __init__(self, asks: int, pause: float) -> None:
        super().__init__({"command": sys.executable})
        self._words = (str(asks), str(pause))
        self._started = 0

    def program(self) -> tuple[str, ...]:
        self._started += 1
        return (self.command(), "-S", _AGENT, *self._words, str(self._started))


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for runs, asks, pause in _LOADS:
        figures += _figures(runs, asks, pause)
    fsync = Figure("latency: the disk", "one fsync, median", 1000 * median(_fsyncs()), "ms")
    return [*figures, fsync]


def _figures(runs: int, asks: int, pause: float) -> list[Figure]:
    with TemporaryDirectory(prefix="untether-bench-") as folder:
        people = anyio.run(_measure, Path(folder), runs, asks, pause)
    group = f"latency: {runs} run{'s' if runs > 1 else ''} at once, {len(people.requests)} questions"
    busiest = runs == max(load[0] for load in _LOADS)
    return [
        Figure(group, "agent's line → request leaves, median", *_ms(median(people.requests)), "≤ 5 ms" * busiest),
        Figure(group, "agent's line → request leaves, p99", *_ms(percentile(people.requests, 99)), "≤ 20 ms" * busiest),
        Figure(group, "tap → agent has read it, median", *_ms(median(people.taps)), "≤ 10 ms + one fsync"),
        Figure(group, "tap → agent has read it, p99", *_ms(percentile(people.taps, 99))),
    ]


def _ms(seconds: float) -> tuple[float, str]:
    return 1000 * seconds, "ms"


async def _measure(folder: Path, runs: int, asks: int, pause: float) -> People:
    async with (
        Database(folder / "untether.db", migrations=load_migrations()) as db,
        anyio.create_task_group() as tasks,
    ):
        people = People(tasks)
        host = Keepers(folder / "processes", epoch=1, limits=KeeperLimits(orphan=5.0, retention=5.0))
        office = Office(services(folder, db, people, ScriptedRunner(asks, pause), host))
        tasks.start_soon(office.run)
        async with anyio.create_task_group() as talks:
            for number in range(runs):
                talks.start_soon(partial(people.ask, office.inbox, str(number)))
        tasks.cancel_scope.cancel()
    return people


def services(folder: Path, db: Database, people: People, runner: Runner, host: Host) -> Services:
    clock, hub, transports = SystemClock(), Hub(), {people.name: people}

    def build(config: object, path: Path) -> Runner:
        return runner

    def environment(runner: Runner, process_id: str) -> dict[str, str]:
        return agent_environment(os.environ, engine_names=runner.env_names, process_id=process_id)

    backend = EngineBackend(id="bench", build_runner=build, capabilities=CONTROL)
    return Services(
        db=db,
        clock=clock,
        options=Options(state_dir=str(folder), home=str(folder)),
        projects={},
        transports=transports,
        engines=Engines({"bench": Engine("bench", backend, runner, sys.executable)}, "bench"),
        outbox=Outbox(db, transports, clock, hub),
        hub=hub,
        host=host,
        environment=environment,
    )


def _fsyncs(count: int = 100) -> Sequence[float]:
    """Seconds of an fsync after a small write, where the store was measured."""
    times = []
    with TemporaryDirectory(prefix="untether-bench-") as folder, (Path(folder) / "file").open("wb", 0) as file:
        for _ in range(count):
            file.write(b"x" * 4096)
            before = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - before)
    return times
