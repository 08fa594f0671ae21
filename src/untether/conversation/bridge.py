"""The bridge: one live process and its runs. It folds events into progress, interactions and answers.

Durable effects of a step (rows of runs, interactions, deliveries, the session id) are committed in one transaction
together with the place in the journal, and only then shown. Progress is not stored: the newest state wins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import msgspec
import structlog

from ..model import (
    CompletedEvent,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
    Usage,
)
from ..process.direct import DirectProcess
from ..process.driver import Driver, Ended
from ..process.host import Launch, Rung
from ..session import Begin, Decide, End, Input, Interrupt, Place, Prompt, Say, StartFacts
from ..store import deliveries, interactions, runs, threads
from ..store.database import StoreError
from ..store.threads import Message, Thread
from ..text import words
from ..transport import Card, ChatRef
from . import cards, requests
from .edits import ProgressEdits
from .engines import CANNOT_ASK, Engine
from .live_run import LiveRun, hand_over
from .services import Services

log = structlog.get_logger(__name__)

Job = Callable[[sqlite3.Connection], None]
_STOP_PATIENCE_S = 2.5  # how long an interrupt may take before signals follow


class LiveProcess:
    """An agent at work for one thread, from spawn to end. It is the driver's `InputLog` and `Effects`."""

    def __init__(self, services: Services, engine: Engine, thread: Thread, start: StartFacts) -> None:
        self.services = services
        self.engine = engine
        self.thread = thread
        self.start = start
        self.session = engine.runner.session(start)
        self.resume = start.resume
        self._held: dict[ResumeToken, anyio.Semaphore] = {}
        self.runs: dict[str, LiveRun] = {}  # by prompt id, those not completed
        self.opened: list[LiveRun] = []  # those whose end is not committed
        self.active: LiveRun | None = None
        self.meta: dict[str, Any] = {}  # what is known of the agent: its model, its mode, how full its context is
        self.last: LiveRun | None = None  # the one that ended last: what asks between turns belongs to it
        self.ready = anyio.Event()  # the agent has its first message, or there is no agent
        self.ended = anyio.Event()
        self.driver: Driver | None = None
        self.edits = ProgressEdits(services, lambda: self.active, self.status_card)
        self._closing = False

    # -------------------------------------------------------------------------------------------------- life

    async def live(self, launch: Launch, prompt: Prompt) -> None:
        """Spawn the agent, hand it its first message, and stay until it has ended. Raises SpawnFailed.

        One process writes a session at a time: a session that is resumed is locked before the spawn, a new one when
        it becomes known.
        """
        services, ladder = self.services, self.engine.runner.stop_ladder
        try:
            if self.resume is not None:
                await self._hold(self.resume)
            async with DirectProcess.spawned(
                launch,
                folder=services.process_folder(self.start.process_id),
                clock=services.clock,
                line_limit=services.options.max_line_bytes,
                ladder=ladder,
            ) as process:
                self.driver = Driver(
                    self.session, process, inputs=self, effects=self, clock=services.clock, ladder=ladder
                )
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.edits.run)
                    await tasks.start(self.driver.run, Begin(self.start, prompt))
                    self.ready.set()
                    await self.driver.finished.wait()
                    tasks.cancel_scope.cancel()
        finally:
            for lock in self._held.values():
                lock.release()
            self._held.clear()
            self._log_unknown()
            self.ready.set()
            self.ended.set()
            services.hub.changed()

    def _log_unknown(self) -> None:
        """What the agent said that we do not know yet, once for each process: the CLIs change every week."""
        if self.session.unknown:
            log.info("process.unknown_names", process=self.start.process_id, names=dict(self.session.unknown))

    async def _hold(self, token: ResumeToken) -> None:
        if token not in self._held:
            lock = self.engine.runner.lock_for(token)
            await lock.acquire()
            self._held[token] = lock

    async def say(self, message: Message, view: LiveRun, prompt: Prompt) -> None:
        """Hand a further message to the live agent. Raises Ended."""
        assert self.driver is not None
        view.began_offset = self.driver.offset

        def handed(conn: sqlite3.Connection) -> None:
            hand_over(conn, message, self.services.clock.now())
            self.open_run(conn, view)

        view.tracker.meta.update(self.meta)
        # Known before it is said: its turn may begin, and even end, before `submit` returns.
        self.expect(prompt, view)
        try:
            await self.driver.submit(Say(prompt, "next"), handed)
        except BaseException:
            self._forget(prompt.id, view)
            raise
        self.services.outbox.kick()
        self.show()

    def expect(self, prompt: Prompt, view: LiveRun) -> None:
        """A message is about to be handed over; its run is the active one unless another is."""
        self.runs[prompt.id] = view
        self.opened.append(view)
        if self.active is None:
            self.active = view

    def _forget(self, prompt_id: str, view: LiveRun) -> None:
        """A message was not handed over after all."""
        self.runs.pop(prompt_id, None)
        if view in self.opened:
            self.opened.remove(view)
        if self.active is view:
            self.active = None

    def _closed(self, view: LiveRun) -> None:
        """The end of a run is committed."""
        self.opened.remove(view)
        view.done.set()

    def open_run(self, conn: sqlite3.Connection, view: LiveRun) -> None:
        """Add the row of a run and its status message."""
        now = self.services.clock.now()
        view.run_id = runs.add_run(
            conn,
            thread_id=self.thread.id,
            process_id=self.start.process_id,
            message_id=view.message.id if view.message else None,
            title=view.title,
            now=now,
            began_offset=view.began_offset,
        )
        log.info("run.started", run=view.run_id, engine=self.engine.id, where=self.thread.where)
        card = self.status_card(view)
        (view.status_delivery,) = deliveries.add_send(conn, view.chat, [card], "status", now, run_id=view.run_id)

    async def stop(self) -> None:
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
        if self.session.capabilities.interrupt and await self._interrupted(self.driver, view):
            return
        log.info("run.stopping_by_signal", run=view.run_id)
        await self.driver.process.stop(self.engine.runner.stop_ladder)
        await self.ended.wait()

    async def _interrupted(self, driver: Driver, view: LiveRun) -> bool:
        """Ask the agent to end the turn. False when it did not in time, or the request could not be stored."""
        with anyio.move_on_after(_STOP_PATIENCE_S), suppress(Ended):
            try:
                await driver.submit(Interrupt())
            except StoreError as error:
                log.error("run.interrupt_not_stored", run=view.run_id, error=str(error))
                return False
            await view.done.wait()
        return view.done.is_set()

    async def close(self) -> None:
        """Let an idle agent end: its stdin is closed, and the ladder follows when that is not enough."""
        self._closing = True
        if self.driver is not None:
            await self.driver.process.stop(self._closing_ladder())
            await self.ended.wait()

    def _closing_ladder(self) -> Sequence[Rung]:
        """An idle agent goes when its stdin closes; the engine's own ladder follows when it does not."""
        return (Rung("close_stdin", 3.0), *self.engine.runner.stop_ladder)

    @property
    def busy(self) -> LiveRun | None:
        """The run that goes on, or the first one that will."""
        return self.active or next(iter(self.opened), None)

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing is open, and no work goes on in the background."""
        holding = any(wait.kind in ("human", "background", "hook", "wakeup") for wait in self.session.waits)
        return self.busy is None and not holding

    @property
    def usable(self) -> bool:
        """A further message may be handed to it."""
        return not self.ended.is_set() and not self._closing and self.session.capabilities.followup

    # -------------------------------------------------------------------------------------------- InputLog

    async def append(self, item: Input, offset: int, now: float, also: Callable[[Any], None] | None) -> int:
        process_id = self.start.process_id

        def job(conn: sqlite3.Connection) -> int:
            if also is not None:
                also(conn)
            ordinal = runs.add_input(conn, process_id, offset, now, msgspec.json.encode(item))
            if isinstance(item, End):
                runs.end_process(conn, process_id, msgspec.json.encode(item.exit), now)
            return ordinal

        if isinstance(item, Decide | Interrupt):  # a person is there, to be told that it could not be stored
            return await self.services.db.write(job)
        return await self.services.persist(job)

    # --------------------------------------------------------------------------------------------- Effects

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        jobs: list[Job] = []
        after: list[Callable[[], None]] = []
        for event in events:
            if isinstance(event, StartedEvent | SessionChangedEvent):
                await self._hold(event.resume)
            if isinstance(event, TurnEvent) and event.phase == "started":
                self._turn_started(event, place, now, jobs)
            view = self.active
            if view is not None:
                view.tracker.note_event(event, now)
                self.meta = dict(view.tracker.meta)
            self._durable(event, view, place, now, jobs, after)
        if jobs:

            def commit(conn: sqlite3.Connection) -> None:
                for job in jobs:
                    job(conn)
                runs.set_applied(conn, self.start.process_id, place.offset, place.ordinal)

            await self.services.persist(commit)
            for action in after:
                action()
            self.services.outbox.kick()

    async def settled(self) -> None:
        self.show()

    def _turn_started(self, event: TurnEvent, place: Place, now: float, jobs: list[Job]) -> None:
        """Find the run that a turn belongs to; a turn that nobody asked for gets a run of its own."""
        for prompt_id in event.prompts:
            if (view := self.runs.get(prompt_id)) is not None:
                self.active = view
                return
        if event.prompts:
            return
        chat = self.last.chat if self.last is not None else self.thread.chat
        view = LiveRun(None, chat, event.reason or "the agent went on by itself", now)
        view.tracker.meta.update(self.meta)
        view.began_offset = place.offset
        self.active = view
        self.opened.append(view)
        jobs.append(lambda conn: self.open_run(conn, view))

    def _durable(
        self,
        event: UntetherEvent,
        view: LiveRun | None,
        place: Place,
        now: float,
        jobs: list[Job],
        after: list[Callable[[], None]],
    ) -> None:
        """Add what must be committed for one event."""
        match event:
            case StartedEvent(resume=resume) | SessionChangedEvent(resume=resume):
                self.resume = resume
                jobs.append(lambda conn: threads.set_session(conn, self.thread.id, resume.value))
            case PromptEvent():
                state = "taken" if event.state == "taken" else "queued"
                jobs.append(lambda conn: threads.set_prompt(conn, event.prompt_id, state))
                if event.state == "handed_back":
                    returned = self.runs.pop(event.prompt_id, None)
                    if returned is not None:
                        self._drop(returned, now, jobs, after)
            case InteractionEvent(phase="opened"):
                # Between turns it is a background agent that asks: it belongs to the run that ended last.
                if (asking := view or self.last) is not None:
                    jobs.append(lambda conn: self._ask(conn, event, asking, now))
            case InteractionEvent(phase="withdrawn"):
                jobs.append(lambda conn: self._withdraw(conn, event.interaction.id, now))
            case CompletedEvent() | TurnEvent(phase="completed"):
                self._complete(event, view, place, now, jobs, after)

    def _ask(self, conn: sqlite3.Connection, event: InteractionEvent, view: LiveRun, now: float) -> None:
        process_id = self.start.process_id
        where = self.thread.where
        requests.ask(conn, self.services, view.chat, where, process_id, view.run_id, event.interaction, now)

    def _withdraw(self, conn: sqlite3.Connection, request: str, now: float) -> None:
        pending = interactions.of_request(conn, self.start.process_id, request)
        if pending is not None:
            requests.withdraw(conn, pending, now)

    def _complete(
        self,
        event: CompletedEvent | TurnEvent,
        view: LiveRun | None,
        place: Place,
        now: float,
        jobs: list[Job],
        after: list[Callable[[], None]],
    ) -> None:
        ended = [self.runs.pop(prompt_id) for prompt_id in event.prompts if prompt_id in self.runs]
        if view is not None and view not in ended:
            for prompt_id in [key for key, other in self.runs.items() if other is view]:
                del self.runs[prompt_id]
            ended.insert(0, view)
        self.active = None
        self.last = ended[0] if ended else self.last
        for index, run in enumerate(ended):
            # Several messages may be answered by one turn: the answer is told once, as a reply to the first.
            answering = index == 0
            jobs.append(partial(self._end_run, view=run, event=event, place=place, now=now, answering=answering))
            after.append(partial(self._closed, run))

    def _end_run(
        self,
        conn: sqlite3.Connection,
        view: LiveRun,
        event: CompletedEvent | TurnEvent,
        place: Place,
        now: float,
        answering: bool,
    ) -> None:
        state = "stopped" if event.outcome == "stopped" else "done" if event.ok else "failed"
        usage = _usage(event.usage)
        model = str(view.tracker.meta.get("model") or "")
        if not runs.end_run(
            conn,
            view.run_id,
            state,
            now,
            answer=event.answer,
            error=event.error or "",
            advice=event.advice,
            raw_error=event.raw_error,
            usage=usage,
            steps=view.tracker.count,
            model=model,
            ended_offset=place.offset,
        ):
            return
        took = words.duration(now - view.tracker.started)
        log.info("run.ended", run=view.run_id, state=state, took=took, error=event.error or None)
        if view.message is not None:
            threads.set_prompt(conn, view.message.prompt_id, "answered")
        if answering:
            parts = self.services.parts(view.chat, self._answer_card(view, event, usage, model, now))
            deliveries.add_send(conn, view.chat, parts, "answer", now, run_id=view.run_id)
        if view.status_delivery is not None:
            deliveries.add_delete(conn, view.status_delivery, now)

    def _answer_card(
        self, view: LiveRun, event: CompletedEvent | TurnEvent, usage: dict[str, Any], model: str, now: float
    ) -> Card:
        took = now - view.tracker.started
        resume = self._resume_line(view.chat)
        if event.outcome == "stopped":
            return cards.stopped(took, event.answer, resume=resume, reply_to=view.reply_to)
        if not event.ok:
            error = event.error or "The agent ended without an answer."
            return cards.failure(
                view.run_id,
                error,
                event.advice,
                so_far=event.answer if event.answer != error else "",
                details=bool(event.raw_error),
                resume=resume,
                reply_to=view.reply_to,
            )
        mode = str(view.tracker.meta.get("permission_mode") or "") if self.engine.runner.interactive else CANNOT_ASK
        small = cards.footer(took, view.tracker.count, model, usage, mode)
        return cards.answer(event.answer, small, resume=resume, reply_to=view.reply_to)

    def _resume_line(self, chat: ChatRef) -> str:
        options = self.services.options
        if not options.show_resume_line or chat.transport not in options.stateless or not self.resume:
            return ""
        return self.engine.runner.format_resume(self.resume).strip("`")

    def _drop(self, view: LiveRun, now: float, jobs: list[Job], after: list[Callable[[], None]]) -> None:
        """A message went back to the queue: its run never happened."""

        def job(conn: sqlite3.Connection) -> None:
            runs.end_run(conn, view.run_id, "interrupted", now, error="handed back to the queue")
            if view.status_delivery is not None:
                deliveries.add_delete(conn, view.status_delivery, now)

        jobs.append(job)
        after.append(partial(self._closed, view))
        if self.active is view:
            self.active = None

    # ----------------------------------------------------------------------------------------------- progress

    def status_card(self, view: LiveRun) -> Card:
        options = self.services.options
        return cards.status(
            view.run_id,
            self.engine.label,
            self.thread.where,
            view.tracker,
            self.session.waits,
            self.services.clock.now(),
            verbose=view.verbose or options.verbose,
            stopping=view.stopping,
            max_actions=options.max_actions,
            reply_to=view.reply_to,
        )

    def show(self) -> None:
        """Something visible may have changed."""
        self.edits.changed()
        self.services.hub.changed()


def _usage(usage: Usage | dict[str, Any] | None) -> dict[str, Any]:
    if usage is None:
        return {}
    plain = usage if isinstance(usage, dict) else msgspec.to_builtins(usage)
    return dict(plain)
