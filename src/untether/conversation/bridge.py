"""The bridge: one live process, from its spawn or the new start that takes it up, to its end.

What its events mean is told by `run_fold`; here is what is done with the agent: handed messages, stops, its close.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Literal

import anyio
import msgspec
import structlog

from ..faults import point
from ..process.driver import Driver, Ended
from ..process.host import AgentProcess, Launch, NotOurs, Rung
from ..session import (
    Begin,
    Configure,
    Decide,
    End,
    Input,
    Interrupt,
    Prompt,
    Say,
    SessionChange,
    StartFacts,
    StopTask,
)
from ..store import runs
from ..store.database import StoreError
from ..store.threads import Message, Thread
from . import queue
from .engines import Engine
from .live_run import LiveRun
from .recovery import NO_ROWS, Left
from .run_fold import RunFold
from .services import Services
from .watch import Watch

log = structlog.get_logger(__name__)

_STOP_PATIENCE_S = 2.5  # how long an interrupt may take before signals follow


class LiveProcess(RunFold):
    """An agent at work for one thread, from spawn to end: the driver's `InputLog`, and by its fold its `Effects`."""

    def __init__(
        self, services: Services, engine: Engine, thread: Thread, start: StartFacts, left: Left | None = None
    ) -> None:
        """`left`: it is one that an earlier start of the bridge left open."""
        super().__init__(services, engine, thread, start, left)
        self.ready = anyio.Event()  # the agent has its first message and we are at its side, or there is no agent
        self.ended = anyio.Event()
        self.driver: Driver | None = None
        self.watch = Watch(services.clock, services.options.watch, self)
        self.outdated = False  # what it started with is not right any more: it gets no further message
        self._closing = False

    # -------------------------------------------------------------------------------------------------- life

    async def live(self, launch: Launch, prompt: Prompt) -> None:
        """Spawn the agent, hand it its first message, and stay until it has ended. Raises SpawnFailed, NotOurs."""
        host, process_id = self.services.host, self.start.process_id
        ladder = self.engine.runner.stop_ladder
        await self._live(
            lambda: host.spawned(launch, process_id, ladder=ladder, on_blocked=self._note_blocked),
            Begin(self.start, prompt),
        )

    async def take_up(self) -> None:
        """Attach to the agent that an earlier start left, fold what it did, and stay until it has ended.

        Raises NotOurs.
        """
        process_id = self.start.process_id
        await self._live(lambda: self.services.host.attached(process_id, on_blocked=self._note_blocked), None)

    async def _live(self, opened: Callable[[], AbstractAsyncContextManager[AgentProcess]], begin: Begin | None) -> None:
        """One process writes a session at a time: a session that is resumed is locked first, a new one when it
        becomes known."""
        try:
            if self.resume is not None:
                await self._hold(self.resume)
            async with opened() as process:
                point("process.spawned")
                try:
                    await self._drive(process, begin)
                except NotOurs:
                    raise
                except Exception:
                    with anyio.CancelScope(shield=True):  # nobody would listen to it any more
                        await process.stop(self.engine.runner.stop_ladder)
                    raise
        finally:
            for lock in self._held.values():
                lock.release()
            self._held.clear()
            self._log_unknown()
            self.ready.set()
            self.ended.set()
            self.services.hub.changed()

    async def _drive(self, process: AgentProcess, begin: Begin | None) -> None:
        self.driver = driver = Driver(
            self.session,
            process,
            inputs=self,
            effects=self,
            clock=self.services.clock,
            ladder=self.engine.runner.stop_ladder,
            history=self._history,
        )
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await tasks.start(driver.run, begin)
            await driver.caught_up.wait()
            self._history = ()
            self._rows = NO_ROWS
            self.ready.set()
            tasks.start_soon(self.edits.run)
            tasks.start_soon(self.watch.run)
            await driver.finished.wait()
            await process.release()
            tasks.cancel_scope.cancel()

    def _note_blocked(self, reason: str) -> None:
        self.blocked = reason
        if reason:
            log.warning("process.blocked", process=self.start.process_id, reason=reason)
        self.show()

    def _log_unknown(self) -> None:
        """What the agent said that we do not know yet, once for each process: the CLIs change every week."""
        if self.session.unknown:
            log.info("process.unknown_names", process=self.start.process_id, names=dict(self.session.unknown))

    async def say(self, message: Message, view: LiveRun, prompt: Prompt, when: Literal["now", "next"] = "next") -> None:
        """Hand a further message to the live agent; `now`: into the running turn. Raises Ended and queue.Withdrawn."""
        assert self.driver is not None
        view.began_offset = self.driver.offset
        steered = when == "now"

        def handed(conn: sqlite3.Connection) -> None:
            queue.hand_over(conn, message, self.services.clock.now(), steered=steered)
            self.open_run(conn, view, shown=not steered)

        view.tracker.meta.update(self.meta)
        # Known before it is said: its turn may begin, and even end, before `submit` returns.
        self.expect(prompt, view)
        try:
            await self.driver.submit(Say(prompt, when), handed)
        except BaseException:
            self._forget(prompt.id, view)
            raise
        self.services.outbox.kick()
        self.show()

    async def stop(self, *, withdraw: bool = False) -> None:
        """End the running turn: by an interrupt when the engine has one, by signals when that does not help.

        Between turns it is the work in the background that is stopped, and with it the agent.
        """
        view = self.busy
        if view is None:
            await self.close()
            return
        view.stopping = True
        self.show()
        await self.ready.wait()
        if self.driver is None or view.done.is_set():
            return
        if self.session.capabilities.interrupt and await self._interrupted(self.driver, view, withdraw):
            return
        log.info("run.stopping_by_signal", run=view.run_id)
        await self.driver.process.stop(self.engine.runner.stop_ladder)
        await self.ended.wait()

    async def _interrupted(self, driver: Driver, view: LiveRun, withdraw: bool) -> bool:
        """Ask the agent to end the turn. False when it did not in time, or the request could not be stored."""
        with anyio.move_on_after(_STOP_PATIENCE_S), suppress(Ended):
            try:
                why = (view.limit.error, view.limit.advice) if view.limit is not None else ()
                await driver.submit(Interrupt(withdraw, why))
            except StoreError as error:
                log.error("run.interrupt_not_stored", run=view.run_id, error=str(error))
                return False
            await view.done.wait()
        return view.done.is_set()

    async def configure(self, change: SessionChange) -> None:
        """Change what the agent works under, at once. Raises Ended."""
        await self.ready.wait()
        if self.driver is None:
            raise Ended
        await self.driver.submit(Configure(change))

    async def close(self) -> None:
        """Let an agent end: what it does in the background is stopped, its stdin closed, and the ladder follows."""
        self._closing = True
        if self.driver is not None:
            if self.session.capabilities.stop_task and any(wait.kind == "background" for wait in self.session.waits):
                with anyio.move_on_after(_STOP_PATIENCE_S), suppress(Ended, StoreError):
                    await self.driver.submit(Configure(StopTask()))
            await self.driver.process.stop(self._closing_ladder())
            await self.ended.wait()

    def _closing_ladder(self) -> Sequence[Rung]:
        """An idle agent goes when its stdin closes; the engine's own ladder follows when it does not."""
        return (Rung("close_stdin", 3.0), *self.engine.runner.stop_ladder)

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing is open, and no work goes on in the background."""
        holding = any(wait.kind in ("human", "background", "hook", "wakeup") for wait in self.session.waits)
        return self.busy is None and not holding

    @property
    def steerable(self) -> bool:
        """A further message may be told it in the running turn."""
        view = self.active
        return view is not None and not view.stopping and self.usable and self.session.capabilities.steer

    @property
    def usable(self) -> bool:
        """A further message may be handed to it."""
        if self.ended.is_set() or self._closing or self.outdated:
            return False
        return self.session.capabilities.followup

    # -------------------------------------------------------------------------------------------- InputLog

    async def append(self, item: Input, offset: int, now: float, also: Callable[[Any], None] | None) -> int:
        process_id = self.start.process_id

        def job(conn: sqlite3.Connection) -> int:
            if also is not None:
                also(conn)
            return runs.add_input(conn, process_id, offset, now, msgspec.json.encode(item))

        if isinstance(item, End):
            self._lost = item.exit.lost
        if isinstance(item, Decide | Interrupt):  # a person is there, to be told that it could not be stored
            return await self.services.db.write(job)
        return await self.services.persist(job)
