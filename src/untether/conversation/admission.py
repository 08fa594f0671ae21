"""Admission: whether there is room for one more agent, and which idle one makes room for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
import structlog

from ..process.guard import Refusal, little_room, no_room
from .bridge import LiveProcess
from .live_run import LiveRun
from .services import Services

log = structlog.get_logger(__name__)


class Admission:
    """Counts the agents that live or are about to be started. `processes` tells those that live."""

    def __init__(self, services: Services, processes: Callable[[], Sequence[LiveProcess]]) -> None:
        self._services = services
        self._processes = processes
        self._starting: set[int] = set()  # threads that were admitted and have no process yet
        self._lock = anyio.Lock()  # two that ask at once must not both get the last place

    @contextmanager
    def place(self, thread_id: int) -> Iterator[None]:
        """Around the start of a process: a place that `ask` gives counts until the process is among those that live."""
        try:
            yield
        finally:
            self._starting.discard(thread_id)

    async def ask(self, thread_id: int, view: LiveRun) -> Refusal | None:
        """Why no agent is started for a thread now, or None. Agents that rest are let go before that, the one that has
        rested longest first; what runs short is noted for the status of the run."""
        limits = self._services.options.room
        closed: set[str] = set()
        async with self._lock:
            while True:
                living = self._count(thread_id)
                machine = self._services.machine()
                refusal = no_room(limits, machine, living)
                resting = self._longest_idle(closed) if refusal is not None else None
                if resting is None:
                    break
                log.info("process.closed_for_another", process=resting.start.process_id)
                closed.add(resting.start.process_id)
                await resting.close()
            if refusal is not None:
                log.warning("guard.no_room", reason=refusal.reason, living=living, free_mb=machine.available_mb)
                return refusal
            self._starting.add(thread_id)
        view.tracker.warning = little_room(limits, machine, living)
        return None

    def _count(self, thread_id: int) -> int:
        living = {live.thread.id for live in self._processes() if not live.ended.is_set()}
        return len((living | self._starting) - {thread_id})

    def _longest_idle(self, closed: set[str]) -> LiveProcess | None:
        idle = [live for live in self._processes() if live.idle and live.start.process_id not in closed]
        return min(idle, key=lambda live: live.watch.heard, default=None)
