"""The fold of one agent's events: what they mean for its runs, its requests and its answers.

Durable effects of a step (rows of runs, interactions, deliveries, the session id) are committed in one transaction
together with the place in the journal, and only then shown. Progress is not stored: the newest state wins. A process
that is taken up again is folded from its beginning: what was committed before changes the fold, and nothing else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.abc
import msgspec
import structlog

from ..faults import point
from ..model import (
    CompletedEvent,
    Interaction,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
)
from ..process.host import Receipt, WriteFailed
from ..session import Begin, End, Input, Interrupt, Place, ProcessExit, Prompt, Say, StartFacts
from ..store import deliveries, interactions, runs, threads
from ..store.interactions import Pending
from ..store.threads import Thread
from ..transport import Card
from . import cards, queue, requests
from .edits import ProgressEdits
from .endings import Endings
from .engines import Engine
from .live_run import Limit, LiveRun
from .recovery import NO_ROWS, Left, rows_of
from .services import Services
from .watch import Watch, as_told

log = structlog.get_logger(__name__)

Job = Callable[[sqlite3.Connection], None]


class RunFold:
    """The runs of one process while it lives. It is the driver's `Effects`; `LiveProcess` adds the agent itself."""

    watch: Watch
    _tasks: anyio.abc.TaskGroup  # while the process lives

    def __init__(
        self, services: Services, engine: Engine, thread: Thread, start: StartFacts, left: Left | None
    ) -> None:
        self.services = services
        self.engine = engine
        self.thread = thread
        self.start = start
        self.session = engine.runner.session(start)
        self.resume = start.resume
        self.runs: dict[str, LiveRun] = {}  # by prompt id, those not completed
        self.opened: list[LiveRun] = []  # those whose end is not committed
        self.active: LiveRun | None = None
        self.meta: dict[str, Any] = {}  # what is known of the agent: its model, its mode, how full its context is
        self.last: LiveRun | None = None  # the one that ended last: what asks between turns belongs to it
        self.asking: dict[str, tuple[Interaction, LiveRun]] = {}  # what waits for a person, by the engine's id
        self.blocked = ""  # why the agent has to wait for the disk
        self.edits = ProgressEdits(services, lambda: self.active, self.status_card)
        self.on_end: Callable[[LiveRun, CompletedEvent | TurnEvent], None] = lambda run, event: None
        """Called when the end of a run is committed, before anything else is handed over."""
        self._held: dict[ResumeToken, anyio.Semaphore] = {}
        self._endings = Endings(services, engine)
        self._lost = False
        self._history = left.history if left is not None else ()
        self._applied = left.applied if left is not None else Place(-1, 0)  # effects up to here are committed
        self._rows = services.db.read(lambda conn: rows_of(conn, left)) if left is not None else NO_ROWS

    @property
    def busy(self) -> LiveRun | None:
        """The run that goes on, or the first one that will."""
        return self.active or next(iter(self.opened), None)

    async def _hold(self, token: ResumeToken) -> None:
        if token not in self._held:
            lock = self.engine.runner.lock_for(token)
            await lock.acquire()
            self._held[token] = lock

    # ----------------------------------------------------------------------------------------------------- its runs

    def expect(self, prompt: Prompt, view: LiveRun) -> None:
        """A message is about to be handed over; its run is the active one unless another is."""
        self.runs[prompt.id] = view
        self.opened.append(view)
        if self.active is None:
            self.active = view

    def _forget(self, prompt_id: str, view: LiveRun) -> None:
        """A message was not handed over after all: this run will not be."""
        self.runs.pop(prompt_id, None)
        if view in self.opened:
            self.opened.remove(view)
        if self.active is view:
            self.active = None
        view.done.set()

    def _closed(self, view: LiveRun) -> None:
        """The end of a run is committed."""
        self.opened.remove(view)
        view.done.set()

    def open_run(self, conn: sqlite3.Connection, view: LiveRun, *, shown: bool = True) -> None:
        """Add the row of a run and its status message; one that may join the running turn is not `shown` by itself."""
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
        if shown:
            self._show_run(conn, view)

    def _show_run(self, conn: sqlite3.Connection, view: LiveRun) -> None:
        card, now = self.status_card(view), self.services.clock.now()
        (view.status_delivery,) = deliveries.add_send(conn, view.chat, [card], "status", now, run_id=view.run_id)

    # --------------------------------------------------------------------------------------------- Effects

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        jobs: list[Job] = []
        after: list[Callable[[], None]] = []
        self.watch.note(now, place.offset)
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
        if jobs and place > self._applied:
            await self._commit(jobs, place, ending=bool(after))
        for action in after:
            action()

    async def _commit(self, jobs: Sequence[Job], place: Place, *, ending: bool) -> None:
        """Store the effects of a step together with its place."""

        def commit(conn: sqlite3.Connection) -> None:
            for job in jobs:
                job(conn)
            runs.set_applied(conn, self.start.process_id, place.offset, place.ordinal)

        point("run.ending" if ending else "process.event")
        await self.services.persist(commit)
        self._applied = place
        point("run.ended" if ending else "process.applied")
        self.services.outbox.kick()

    async def settled(self) -> None:
        self.show()

    def recall_message(self, prompt: Prompt) -> None:
        """A message that is stored as handed to this process, or about to be."""
        if (view := self._rows.of_prompt(prompt.id)) is not None:
            view.tracker.meta.update(self.meta)
            self.expect(prompt, view)

    async def recall(self, item: Input) -> None:
        match item:
            case Begin(prompt=prompt) | Say(prompt=prompt):
                self.recall_message(prompt)
            case Interrupt(why=why):
                if (busy := self.busy) is not None:
                    busy.stopping = True
                    busy.limit = Limit(*why) if why else busy.limit
            case End(exit=exit):
                self._lost = exit.lost

    async def caught_up(self, decided: Mapping[str, Sequence[Receipt]]) -> None:
        """Bring the store and the folded session together: requests that the other does not know, runs that ended."""
        services, process_id = self.services, self.start.process_id
        now = services.clock.now()

        def reconcile(conn: sqlite3.Connection) -> list[int]:
            for pending in interactions.open_of_process(conn, process_id):
                if pending.interaction.id not in self.asking:
                    requests.withdraw(conn, pending, now)
            for interaction, view in self.asking.values():
                self._ask(conn, interaction, view, now)
            return [run.id for run in runs.of_process(conn, process_id) if run.state == "running"]

        running = await services.persist(reconcile)
        for view in [view for view in self.opened if view.run_id not in running]:
            self.opened.remove(view)  # this version of the session does not see that it had ended
            view.done.set()
        for pending in services.db.read(lambda conn: interactions.decided_unshown(conn, process_id)):
            receipts = decided.get(pending.interaction.id, ())
            self._tasks.start_soon(self.tell_decided, pending, receipts)
        services.outbox.kick()

    async def tell_decided(self, pending: Pending, receipts: Sequence[Receipt]) -> None:
        """Change the message of a request that was decided, as soon as the agent has the decision, or never will."""
        services = self.services
        try:
            for receipt in receipts:
                await receipt.written()
            undelivered = not receipts  # the session had no use for it
            point("tap.written")
        except WriteFailed as error:
            log.warning("request.not_written", key=pending.key, error=str(error))
            undelivered = True
        by, at = pending.decided_by, pending.decided or services.clock.now()
        zone = services.options.zone
        await services.persist(lambda conn: requests.retire(conn, pending, by, at, undelivered=undelivered, zone=zone))
        services.outbox.kick()
        services.hub.changed()

    async def over(self, exit: ProcessExit, now: float) -> None:
        process_id = self.start.process_id
        await self.services.persist(lambda conn: runs.end_process(conn, process_id, msgspec.json.encode(exit), now))

    def _turn_started(self, event: TurnEvent, place: Place, now: float, jobs: list[Job]) -> None:
        """Find the run that a turn belongs to; a turn that nobody asked for gets a run of its own."""
        for prompt_id in event.prompts:
            if (view := self.runs.get(prompt_id)) is not None:
                self.active = view
                if view.status_delivery is None:  # it was meant for a turn that had ended
                    jobs.append(partial(self._show_run, view=view))
                return
        if event.prompts:
            return
        view = self._rows.at(place.offset)
        if view is None:
            chat = self.last.chat if self.last is not None else self.thread.chat
            view = LiveRun(None, chat, event.reason or "the agent went on by itself", now)
            view.began_offset = place.offset
            jobs.append(partial(self.open_run, view=view))
        view.tracker.meta.update(self.meta)
        self.active = view
        self.opened.append(view)

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
                state = "queued" if event.state == "handed_back" else event.state
                jobs.append(lambda conn: queue.moved(conn, event.prompt_id, state, now))
                if event.state == "taken":
                    jobs.append(lambda conn: runs.set_taken(conn, event.prompt_id))
                else:
                    returned = self.runs.pop(event.prompt_id, None)
                    if returned is not None:
                        self._drop(returned, now, jobs, after)
            case InteractionEvent(phase="opened"):
                # Between turns it is a background agent that asks: it belongs to the run that ended last.
                if (asking := view or self.last) is not None:
                    self.asking[event.interaction.id] = (event.interaction, asking)
                    jobs.append(lambda conn: self._ask(conn, event.interaction, asking, now))
            case InteractionEvent(phase="withdrawn"):
                self.asking.pop(event.interaction.id, None)
                jobs.append(lambda conn: self._withdraw(conn, event.interaction.id, now))
            case InteractionEvent(phase="resolved"):
                self.asking.pop(event.interaction.id, None)
            case CompletedEvent() | TurnEvent(phase="completed"):
                self._complete(event, view, place, now, jobs, after)

    def _ask(self, conn: sqlite3.Connection, interaction: Interaction, view: LiveRun, now: float) -> None:
        process_id = self.start.process_id
        where = self.thread.where
        requests.ask(conn, self.services, view.chat, where, process_id, view.run_id, interaction, now)

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
        if view is not None:
            event = as_told(event, view)
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
            end = partial(self._endings.end, view=run, event=event, resume=self.resume, offset=place.offset, now=now)
            jobs.append(partial(end, answering=answering, lost=self._lost))
            after.append(partial(self._closed, run))
        if ended and place > self._applied:  # what is folded again was told by the start before
            after.append(lambda: self.on_end(ended[0], event))

    def _drop(self, view: LiveRun, now: float, jobs: list[Job], after: list[Callable[[], None]]) -> None:
        """A message went back to the queue: its run never happened."""

        jobs.append(partial(self._endings.drop, view=view, now=now))
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
            blocked=self.blocked,
            max_actions=options.max_actions,
            reply_to=view.reply_to,
            pulse=self.watch.pulse if view is self.busy else None,
            zone=options.zone,
        )

    def show(self) -> None:
        """Something visible may have changed."""
        self.edits.changed()
        self.services.hub.changed()
