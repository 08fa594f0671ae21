"""The driver: moves bytes, inputs and time between one session and one agent process, for every engine.

All that changes a session goes through one lock, so steps never overlap and a session's history has one order. An
input is stored before any effect of it leaves. Lines for the agent carry the place at which they arose, and are
handed to the process without waiting, so a full pipe never stops the reading of the agent's output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import anyio
import anyio.abc
import structlog
from msgspec.structs import replace

from ..clock import Clock
from ..model import UntetherEvent
from ..session import Answer, Begin, Call, CallResult, End, EngineSession, Input, Place, ReadFile, Step, Tick, apply
from .host import DEFAULT_LADDER, AgentProcess, Line, Receipt, Rung

log = structlog.get_logger(__name__)

# Work to be done in the transaction that stores an input (the claim of a tap, the hand-over of a message). It gets
# the database connection and may raise to refuse the input.
Also = Callable[[Any], None]


class InputLog(Protocol):
    """Where the inputs of one process are stored."""

    async def append(self, item: Input, offset: int, now: float, also: Also | None) -> int:
        """Commit `item`, and what `also` does, and return its ordinal. When `also` raises, nothing is stored.

        A `Tick` and an `End` have happened already: they must be stored, however long it takes.
        """


class Effects(Protocol):
    """What becomes of the events of a step."""

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        """Commit the durable effects of `events` together with `place`, then show them."""

    async def settled(self) -> None:
        """A batch of lines or an input was worked off; waits may have changed."""


class Ended(RuntimeError):
    """The process has ended; it takes no more inputs."""


class _Taking:
    """An input on its way: what came of it, and when. It is refused with `Ended` unless it was stored."""

    def __init__(self, item: Input, also: Also | None) -> None:
        self.item = item
        self.also = also
        self.receipts: list[Receipt] = []
        self.refusal: Exception | None = Ended()
        self.done = anyio.Event()

    def result(self) -> list[Receipt]:
        if self.refusal is not None:
            raise self.refusal
        return self.receipts


class Driver:
    """One live process. `run()` lives as long as the agent; `submit()` may be called from any task meanwhile."""

    def __init__(
        self,
        session: EngineSession,
        process: AgentProcess,
        *,
        inputs: InputLog,
        effects: Effects,
        clock: Clock,
        ladder: Sequence[Rung] = DEFAULT_LADDER,
        place: Place | None = None,
    ) -> None:
        self.session = session
        self.process = process
        self._inputs = inputs
        self._effects = effects
        self._clock = clock
        self._ladder = ladder
        start = place or Place(0, 0)
        self.offset = start.offset
        self._ordinal = start.ordinal
        self._now = 0.0
        self._lock = anyio.Lock()
        self._deadline: float | None = None
        self._deadline_changed = anyio.Event()
        self._stopping = False
        self.ended = False
        self.finished = anyio.Event()

    async def run(
        self, begin: Begin | None = None, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Begin the session (when `begin` is given), feed lines until the agent has ended, then end the session.

        Started when the beginning is stored and on its way. Cancelling leaves the agent as it is.
        """
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._keep_time)
                if begin is not None:
                    await self._take_here(begin)
                task_status.started()
                async for batch in self.process.batches():
                    await self._feed(batch)
                exit = await self.process.wait()
                await self._take_here(End(exit))
                self.finished.set()
                tasks.cancel_scope.cancel()
        finally:
            self.ended = True

    async def submit(self, item: Input, also: Also | None = None) -> list[Receipt]:
        """Store `item`, apply it, and return receipts of the lines it sends to the agent.

        Raises Ended when the process has ended, and what storing it or `also` raised. A caller that is cancelled has
        only given up hearing of it: once stored, an input is also applied, or the fold would differ from what happened.
        """
        if self.ended:
            raise Ended
        taking = _Taking(item, also)
        self._tasks.start_soon(self._take, taking)
        await taking.done.wait()
        return taking.result()

    async def _take_here(self, item: Input) -> None:
        """Take an input of our own, in this task: what goes wrong is raised as it is, and once."""
        taking = _Taking(item, None)
        await self._take(taking)
        taking.result()

    async def _take(self, taking: _Taking) -> None:
        """Take one input. A session that fails at it ends the run, as one that fails at a line does."""
        try:
            async with self._lock:
                if self.ended:
                    return
                now = max(self._now, self._clock.now())
                try:
                    self._ordinal = await self._inputs.append(taking.item, self.offset, now, taking.also)
                except Exception as refusal:  # whatever it is, it is the caller's
                    taking.refusal = refusal
                    return
                taking.refusal = None
                self._now = now  # only now: a refused input leaves no trace, in time neither
                if isinstance(taking.item, End):
                    self.ended = True
                taking.receipts = await self._handle(apply(self.session, taking.item, now), now)
                await self._effects.settled()
        finally:
            taking.done.set()

    async def _feed(self, batch: Sequence[Line]) -> None:
        async with self._lock:
            for line in batch:
                self.offset = line.end
                now = self._now = max(self._now, line.time)
                step = self.session.skipped(line.skipped, now) if line.skipped else self.session.feed(line.data, now)
                if not step.empty:
                    await self._handle(step, now)
                else:
                    self._set_deadline(step.deadline)
            await self._effects.settled()

    async def _handle(self, step: Step, now: float) -> list[Receipt]:
        self._set_deadline(step.deadline)
        if step.events:
            await self._effects.apply(step.events, Place(self.offset, self._ordinal), now)
        receipts = [
            self.process.write(Place(self.offset, self._ordinal, index), data) for index, data in enumerate(step.writes)
        ]
        for call in step.calls:
            self._tasks.start_soon(self._look_up, call)
        if step.stop and not self._stopping:
            self._stopping = True
            self._tasks.start_soon(self.process.stop, self._ladder)
        elif step.close_stdin:
            self._tasks.start_soon(self.process.close_stdin)
        return receipts

    async def _look_up(self, call: Call) -> None:
        result = await read_file(call)
        with suppress(Ended):  # the agent went while we looked
            await self.submit(Answer(call.call_id, result))

    async def _keep_time(self) -> None:
        while True:
            deadline, changed = self._deadline, self._deadline_changed
            if deadline is None:
                await changed.wait()
                continue
            async with anyio.create_task_group() as race:
                race.start_soon(_first, self._clock.sleep(max(0.0, deadline - self._clock.now())), race.cancel_scope)
                race.start_soon(_first, changed.wait(), race.cancel_scope)
            if not changed.is_set():
                await self._tick(deadline)

    async def _tick(self, deadline: float) -> None:
        """Let the session act on its deadline. A tick that did nothing leaves no trace."""
        async with self._lock:
            if self.ended or self._deadline != deadline:
                return
            now = max(self._now, self._clock.now(), deadline)
            step = self.session.tick(now)
            if step.deadline is not None and step.deadline <= now:
                step = replace(step, deadline=None)  # it would come at once again, for ever
            self._set_deadline(step.deadline)
            if not step.empty:
                self._ordinal = await self._inputs.append(Tick(), self.offset, now, None)
                self._now = now
                await self._handle(step, now)
                await self._effects.settled()

    def _set_deadline(self, deadline: float | None) -> None:
        if deadline != self._deadline:
            self._deadline = deadline
            self._deadline_changed.set()
            self._deadline_changed = anyio.Event()


async def _first(waiting: Awaitable[object], scope: anyio.CancelScope) -> None:
    """One of several waits: the first to end ends the others."""
    await waiting
    scope.cancel()


async def read_file(call: ReadFile) -> CallResult:
    """Answer a session's call for a file: its text, cut at the limit, or why it could not be read."""
    try:
        async with await anyio.open_file(call.path, "rb") as file:
            data = await file.read(call.limit)
    except OSError as error:
        return CallResult(error=error.strerror or str(error))
    return CallResult(text=data.decode("utf-8", "replace"))
