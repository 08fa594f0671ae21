"""The driver: moves bytes, inputs and time between one session and one agent process, for every engine.

All that changes a session goes through one lock, so steps never overlap and a session's history has one order. An
input is stored before any effect of it leaves. Lines for the agent carry the place at which they arose, and are
handed to the process without waiting, so a full pipe never stops the reading of the agent's output.

A process that is taken up again is first folded: its output is read from the beginning, and its stored inputs are
given to the session where they applied. Meanwhile no deadline fires and no new input is taken. Lines for the agent
leave again, for its owner knows by their places which ones it has; stops and questions about outside facts wait until
the fold has caught up.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import anyio
import anyio.abc
import structlog
from msgspec.structs import replace

from ..clock import Clock
from ..model import UntetherEvent
from ..session import (
    Answer,
    Begin,
    Call,
    CallResult,
    Decide,
    End,
    EngineSession,
    Input,
    Place,
    ProcessExit,
    ReadFile,
    Step,
    Tick,
    apply,
)
from .host import DEFAULT_LADDER, AgentProcess, Line, Receipt, Rung
from .replay import StoredInput

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

    async def recall(self, item: Input) -> None:
        """A stored input is about to be given to the session again."""

    async def caught_up(self, decided: Mapping[str, Sequence[Receipt]]) -> None:
        """All that is stored was folded; what follows is new. `decided`: the lines of each decision, by request."""

    async def over(self, exit: ProcessExit, now: float) -> None:
        """The process is over and the effects of its end are committed: nothing of it is to be folded again."""


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
        history: Sequence[StoredInput] = (),
    ) -> None:
        """`history` are the stored inputs of a process that is taken up again."""
        self.session = session
        self.process = process
        self._inputs = inputs
        self._effects = effects
        self._clock = clock
        self._ladder = ladder
        self.offset = 0
        self._ordinal = 0
        self._now = 0.0
        self._history = deque(history)
        self._decided: dict[str, list[Receipt]] = {}  # of the history
        self._postponed: dict[str, Call] = {}
        self._exit: ProcessExit | None = None
        self._lock = anyio.Lock()
        self._deadline: float | None = None
        self._deadline_changed = anyio.Event()
        self._stopping = False
        self._stop_wanted = False
        self._close_wanted = False
        self.ended = False
        self.caught_up = anyio.Event()
        self.finished = anyio.Event()
        if not history:
            self.caught_up.set()

    async def run(
        self, begin: Begin | None = None, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Begin the session (when `begin` is given), feed lines until the agent has ended, then end the session.

        Started when the beginning is stored and on its way; `caught_up` is set when the history is folded. Cancelling
        leaves the agent as it is.
        """
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._keep_time)
                if begin is not None:
                    await self._take_here(begin)
                task_status.started()
                async for batch in self.process.batches():
                    if batch:
                        await self._feed(batch)
                    elif not self.caught_up.is_set():
                        await self._catch_up()
                if not self.caught_up.is_set():
                    await self._catch_up()
                if self._exit is None:
                    await self._take_here(End(await self.process.wait()))
                assert self._exit is not None
                await self._effects.over(self._exit, self._now)
                self.finished.set()
                tasks.cancel_scope.cancel()
        finally:
            self.ended = True
            self.caught_up.set()

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
            await self.caught_up.wait()
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
                    self._end(taking.item)
                taking.receipts = await self._handle(apply(self.session, taking.item, now), now)
                await self._effects.settled()
        finally:
            taking.done.set()

    def _end(self, item: End) -> None:
        self.ended = True
        self._exit = item.exit

    async def _feed(self, batch: Sequence[Line]) -> None:
        async with self._lock:
            for line in batch:
                while self._history and self._history[0].offset < line.end:
                    await self._recall(self._history.popleft())
                self.offset = line.end
                now = self._now = max(self._now, line.time)
                step = self.session.skipped(line.skipped, now) if line.skipped else self.session.feed(line.data, now)
                if not step.empty:
                    await self._handle(step, now)
                else:
                    self._set_deadline(step.deadline)
            await self._effects.settled()

    async def _recall(self, stored: StoredInput) -> None:
        """Give a stored input to the session again, as it was."""
        self._ordinal = stored.ordinal
        now = self._now = max(self._now, stored.time)
        item = stored.item
        await self._effects.recall(item)
        if isinstance(item, End):
            self._end(item)
        if isinstance(item, Answer):
            self._postponed.pop(item.call_id, None)
        receipts = await self._handle(apply(self.session, item, now), now)
        if isinstance(item, Decide):
            self._decided[item.interaction_id] = receipts

    async def _catch_up(self) -> None:
        """The output so far is read: give the session what it got after it, and do what was postponed."""
        async with self._lock:
            while self._history:
                await self._recall(self._history.popleft())
            await self._effects.caught_up(self._decided)
            self._decided = {}
            self.caught_up.set()
            for call in self._postponed.values():
                self._tasks.start_soon(self._look_up, call)
            self._postponed = {}
            self._act_on_process()
            await self._effects.settled()

    async def _handle(self, step: Step, now: float) -> list[Receipt]:
        self._set_deadline(step.deadline)
        if step.events:
            await self._effects.apply(step.events, Place(self.offset, self._ordinal), now)
        again = not self.caught_up.is_set()
        receipts = [
            self.process.write(Place(self.offset, self._ordinal, index), data, again=again)
            for index, data in enumerate(step.writes)
        ]
        for call in step.calls:
            if self.caught_up.is_set():
                self._tasks.start_soon(self._look_up, call)
            else:
                self._postponed[call.call_id] = call
        self._stop_wanted |= step.stop
        self._close_wanted |= step.close_stdin
        if self.caught_up.is_set():
            self._act_on_process()
        return receipts

    def _act_on_process(self) -> None:
        """Do what the session wants done with its agent, once."""
        if self._stop_wanted and not self._stopping:
            self._stopping = True
            self._tasks.start_soon(self.process.stop, self._ladder)
        elif self._close_wanted:
            self._tasks.start_soon(self.process.close_stdin)
        self._close_wanted = False

    async def _look_up(self, call: Call) -> None:
        result = await read_file(call)
        with suppress(Ended):  # the agent went while we looked
            await self.submit(Answer(call.call_id, result))

    async def _keep_time(self) -> None:
        await self.caught_up.wait()
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
        if call.within and not await _lies_in(call.path, call.within):
            return CallResult(error=f"it does not lie in {call.within}")
        async with await anyio.open_file(call.path, "rb") as file:
            data = await file.read(call.limit + call.binary)
    except OSError as error:
        return CallResult(error=error.strerror or str(error))
    if not call.binary:
        return CallResult(text=data.decode("utf-8", "replace"))
    if len(data) > call.limit:
        return CallResult(error=f"it is larger than {call.limit / 1e6:.1f} MB")
    return CallResult(text=b64encode(data).decode())


async def _lies_in(path: str, folder: str) -> bool:
    """Whether a file lies in a folder, links followed."""
    resolved = await anyio.Path(path).resolve()
    return resolved.is_relative_to(await anyio.Path(folder).resolve())
