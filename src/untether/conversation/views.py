"""What a surface that shows everything asks for: the lists of runs, and one thread as a conversation."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Literal

from ..model import Record, Wait
from ..store import interactions, runs, threads
from ..store.interactions import Pending
from ..store.runs import Run
from ..store.threads import Message, Thread
from ..text import words
from ..transport import ChatRef
from .history import tracker_of
from .progress import ProgressTracker, Pulse, step_text
from .scheduler import Scheduler
from .services import Services

_KEPT_TRACKERS = 64


class RunRow(Record, frozen=True):
    """A run in a list. `state` is that of the run, or `waiting` when it needs a person."""

    run_id: int
    state: Literal["waiting", "running", "queued", "done", "failed", "stopped", "interrupted"]
    title: str
    where: str
    engine: str
    started: float
    last: str


class Overview(Record, frozen=True):
    needs_you: tuple[RunRow, ...]
    running: tuple[RunRow, ...]
    recent: tuple[RunRow, ...]
    machine: str = ""  # what the machine has left, in words


class RunView(Record, frozen=True):
    """One run of a conversation: the message that began it, what was done, what was asked, how it ended."""

    run: Run
    message: Message | None
    tracker: ProgressTracker
    waits: tuple[Wait, ...]
    asked: tuple[Pending, ...]
    stopping: bool = False
    alive: bool = False  # its agent lives, so what it asked can still be decided
    pulse: Pulse | None = None


class Page(Record, frozen=True):
    thread: Thread
    where: str
    runs: tuple[RunView, ...]
    queued: tuple[Message, ...]
    cannot_ask: bool = False  # its engine has no way to ask for permission, which is said on every run


class Views:
    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler
        self._trackers: OrderedDict[int, ProgressTracker] = OrderedDict()

    def overview(self, recent: int = 30) -> Overview:
        db = self._services.db
        # In the order in which they were asked. A background agent may ask after its run has ended.
        waiting = dict.fromkeys(pending.run_id for pending in db.read(interactions.all_open))
        asking = [run for run_id in waiting if (run := db.read(partial(runs.run, run_id=run_id))) is not None]
        ended = db.read(lambda conn: runs.recent(conn, recent))
        return Overview(
            needs_you=tuple(self._row(run, waits=True) for run in asking),
            running=tuple(self._row(run) for run in db.read(runs.running) if run.id not in waiting),
            recent=tuple(self._row(run) for run in ended if run.id not in waiting),
            machine=self._services.machine_line(),
        )

    def _row(self, run: Run, *, waits: bool = False) -> RunRow:
        thread = self._services.db.read(lambda conn: threads.thread(conn, run.thread_id))
        last = run.error or words.one_line(run.answer, 80)
        if run.state == "running":
            found = self._scheduler.view(run.id)
            steps = found[1].tracker.last(1) if found is not None else []
            last = step_text(steps[0], self._services.clock.now()) if steps else ""
        return RunRow(
            run.id,
            "waiting" if waits else run.state,  # type: ignore[arg-type]  # the schema checks the states
            words.one_line(run.title, 80),
            thread.where if thread else "",
            thread.engine if thread else "",
            run.started,
            last,
        )

    def page(self, run_id: int) -> Page | None:
        """The conversation that a run belongs to."""
        db = self._services.db
        run = db.read(lambda conn: runs.run(conn, run_id))
        if run is None:
            return None
        thread = db.read(lambda conn: threads.thread(conn, run.thread_id))
        assert thread is not None
        views = tuple(self._run_view(one) for one in db.read(lambda conn: runs.of_thread(conn, thread.id)))
        engine = self._services.engines.get(thread.engine)
        cannot_ask = engine is not None and not engine.runner.interactive
        queued = tuple(db.read(lambda conn: threads.queued(conn, thread.id)))
        return Page(thread, thread.where, views, queued, cannot_ask)

    def _run_view(self, run: Run) -> RunView:
        db = self._services.db
        message_id = run.message_id
        message = db.read(lambda conn: threads.message(conn, message_id)) if message_id is not None else None
        asked = tuple(db.read(lambda conn: interactions.of_run(conn, run.id)))
        if (found := self._scheduler.view(run.id)) is not None:
            live, view = found
            pulse = live.watch.pulse if view is live.busy else None
            waits = live.session.waits
            return RunView(run, message, view.tracker, waits, asked, view.stopping, alive=True, pulse=pulse)
        alive = run.process_id is not None and self._scheduler.process(run.process_id) is not None
        return RunView(run, message, self._tracker(run), (), asked, alive=alive)

    def _tracker(self, run: Run) -> ProgressTracker:
        if (known := self._trackers.get(run.id)) is not None:
            self._trackers.move_to_end(run.id)
            return known
        tracker = tracker_of(self._services, run)
        if run.state != "running":
            self._trackers[run.id] = tracker
            if len(self._trackers) > _KEPT_TRACKERS:
                self._trackers.popitem(last=False)
        return tracker

    def latest_run_of_chat(self, chat: ChatRef) -> int | None:
        """The newest run of the thread that a chat goes on with."""
        current = self._services.db.read(lambda conn: threads.chat(conn, chat)).current
        if current is None:
            return None
        found = self._services.db.read(lambda conn: runs.of_thread(conn, current))
        return found[-1].id if found else None
