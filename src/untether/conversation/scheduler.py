"""The scheduler: one run per thread at a time, first come first served behind it, and the life of the processes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence

import anyio
import anyio.abc
import msgspec
import structlog

from ..faults import point
from ..model import CompletedEvent, EngineId, ResumeToken
from ..process.direct import SpawnFailed
from ..process.driver import Ended
from ..process.kept import end_leftovers
from ..runner import PRESPAWN_BLOCKED_KEY, RunOptions
from ..session import Prompt, StartFacts
from ..store import deliveries, interactions, runs, threads
from ..store.threads import Message, Thread
from ..transport import Priority
from . import cards
from .bridge import LiveProcess, RunView, Withdrawn, hand_over
from .services import Services

log = structlog.get_logger(__name__)


class Scheduler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._live: dict[int, LiveProcess] = {}  # by thread id
        self._wakes: dict[int, anyio.Event] = {}  # of the threads that have a worker
        self._tasks: anyio.abc.TaskGroup | None = None

    # ------------------------------------------------------------------------------------------------- outside

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Tell what the last stop interrupted, take up what waits, and serve until cancelled."""
        await self._end_leftovers()
        await self._tell_interrupted()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            for thread_id in self._services.db.read(threads.threads_with_queued):
                self.wake(thread_id)
            await anyio.sleep_forever()

    def wake(self, thread_id: int) -> None:
        """There may be a queued message."""
        if (event := self._wakes.get(thread_id)) is not None:
            event.set()
        elif self._tasks is not None:
            self._wakes[thread_id] = anyio.Event()
            self._tasks.start_soon(self._work, thread_id)

    def live(self, thread_id: int) -> LiveProcess | None:
        return self._live.get(thread_id)

    def process(self, process_id: str) -> LiveProcess | None:
        return next((live for live in self._live.values() if live.start.process_id == process_id), None)

    def processes(self) -> list[LiveProcess]:
        return list(self._live.values())

    def view(self, run_id: int) -> tuple[LiveProcess, RunView] | None:
        for live in self._live.values():
            for view in (live.active, *live.runs.values()):
                if view is not None and view.run_id == run_id:
                    return live, view
        return None

    async def stop(self, thread_ids: Sequence[int]) -> int:
        """Stop the running turns of threads; returns how many there were. Always ends."""
        found = [live for thread_id in thread_ids if (live := self._live.get(thread_id)) and live.active is not None]
        async with anyio.create_task_group() as tasks:
            for live in found:
                tasks.start_soon(live.stop)
        return len(found)

    # ------------------------------------------------------------------------------------------------- a thread

    async def _work(self, thread_id: int) -> None:
        """Serve one thread until it has neither messages nor a process."""
        try:
            while True:
                wake = self._wakes[thread_id] = anyio.Event()
                live = self._live.get(thread_id)
                if live is not None and live.active is not None:
                    await live.active.done.wait()
                    continue
                waiting = self._services.db.read(lambda conn: threads.queued(conn, thread_id))
                if waiting:
                    await self.handle_message(thread_id, waiting[0])
                elif live is None:
                    return
                else:
                    await self._rest(live, wake)
        finally:
            self._wakes.pop(thread_id, None)
            if self._services.db.read(lambda conn: threads.queued(conn, thread_id)):
                self.wake(thread_id)  # it came between the last look and now

    async def _rest(self, live: LiveProcess, wake: anyio.Event) -> None:
        """Wait for the next message; an agent that stays idle is let go."""
        with anyio.move_on_after(self._services.options.idle_close_s):
            async with anyio.create_task_group() as tasks:
                for event in (wake, live.ended):
                    tasks.start_soon(self._first, event, tasks.cancel_scope)
        if not wake.is_set() and not live.ended.is_set() and live.idle:
            log.info("process.closed_idle", process=live.start.process_id)
            await live.close()

    @staticmethod
    async def _first(event: anyio.Event, scope: anyio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    async def handle_message(self, thread_id: int, message: Message) -> None:
        """Bring one message to the agent and wait for its run to end."""
        thread = self._services.db.read(lambda conn: threads.thread(conn, thread_id))
        assert thread is not None
        view = RunView(message, _title(message.text), self._services.clock.now())
        prompt = Prompt(message.prompt_id, message.text)
        live = self._live.get(thread_id)
        if live is not None and live.usable:
            try:
                await live.say(message, view, prompt)
            except Withdrawn:
                return
            except Ended:
                live = None
        elif live is not None:
            await live.close()
            live = None
        if live is None:
            live = await self._start(thread, message, view, prompt)
        if live is not None:
            await view.done.wait()

    # ------------------------------------------------------------------------------------------------ a process

    async def _start(self, thread: Thread, message: Message, view: RunView, prompt: Prompt) -> LiveProcess | None:
        """Make a process for a thread and hand it the message; None when it was refused, which is told."""
        services = self._services
        engine = services.engines.get(thread.engine)
        if engine is None:
            await self._refuse(
                thread, message, view, "engine", f"The engine {thread.engine} is not installed here.", ""
            )
            return None
        refusal = await engine.runner.check(os.environ)
        if refusal is not None:
            await self._refuse(thread, message, view, refusal.reason, refusal.message, refusal.advice)
            return None
        start = StartFacts(
            process_id=services.new_id(),
            engine=engine.id,
            cwd=thread.cwd,
            cli_version=engine.runner.cli_version,
            resume=ResumeToken(EngineId(engine.id), thread.session) if thread.session else None,
            settings=engine.runner.start_settings(RunOptions(**message.options)),
        )
        live = LiveProcess(services, engine, thread, start)
        live.runs[prompt.id] = view
        live.active = view

        def commit(conn: sqlite3.Connection) -> None:
            runs.add_process(conn, start.process_id, thread.id, msgspec.json.encode(start), services.clock.now())
            live.open_run(conn, view)
            hand_over(conn, message, services.clock.now())

        try:
            await services.persist(commit)
        except Withdrawn:
            return None
        point("process.committed")
        services.outbox.kick()
        services.hub.changed()
        self._live[thread.id] = live
        assert self._tasks is not None
        await self._tasks.start(self._live_out, live, prompt)
        return live

    async def _live_out(self, live: LiveProcess, prompt: Prompt, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Hold a process from spawn to end, and close what a failure left open."""
        told = _Once(task_status)
        cut = False  # by a stop of the bridge: then the next start tells what was interrupted
        error, advice = "The agent ended without an answer.", "Send the message again."
        try:
            environ = self._services.environment(live.engine.runner, live.start.process_id)
            launch = live.engine.runner.launch(live.start, prompt, environ=environ)
            await live.live(launch, prompt, task_status=told)
        except SpawnFailed as failure:
            error, advice = str(failure), live.engine.backend.install_cmd or ""
            advice = f"Install it with: {advice}" if advice else "Check the command in the configuration."
        except anyio.get_cancelled_exc_class():
            cut = True
            raise
        except Exception as failure:
            # A defect in one session must not take the other chats down; the run is told as failed, with the facts.
            log.exception("process.failed", process=live.start.process_id)
            error, advice = f"Untether could not go on with this agent: {failure}", "Send the message again."
        finally:
            if self._live.get(live.thread.id) is live:
                del self._live[live.thread.id]
            if not cut:
                await self._close_open(live, error, advice)
            live.ended.set()
            told.started()
            self.wake(live.thread.id)

    async def _close_open(self, live: LiveProcess, error: str, advice: str) -> None:
        """Fail the runs that the session did not complete (it never began, or it broke)."""
        views = list(dict.fromkeys([*([live.active] if live.active else []), *live.runs.values()]))
        for view in views:
            await self._fail(live.thread, view, error, advice)
        live.runs.clear()
        live.active = None

    async def _fail(
        self, thread: Thread, view: RunView, error: str, advice: str, usage: dict[str, str] | None = None
    ) -> None:
        services = self._services
        now = services.clock.now()
        transport = services.transports[thread.chat.transport]
        card = cards.failure(view.run_id, error, advice, details=False, reply_to=view.reply_to)

        def job(conn: sqlite3.Connection) -> None:
            if not runs.end_run(conn, view.run_id, "failed", now, error=error, advice=advice, usage=usage):
                return
            if view.message is not None:
                threads.set_prompt(conn, view.message.prompt_id, "answered")
            deliveries.add_send(conn, thread.chat, transport.parts(card), "answer", now, run_id=view.run_id)
            if view.status_delivery is not None:
                deliveries.add_delete(conn, view.status_delivery, now)

        await services.persist(job)
        view.done.set()
        services.outbox.kick()
        services.hub.changed()

    async def _refuse(
        self, thread: Thread, message: Message, view: RunView, reason: str, error: str, advice: str
    ) -> None:
        """The guard said no before anything was spawned. The stored session is kept."""
        services = self._services
        event = CompletedEvent(EngineId(thread.engine), False, error=error, usage={PRESPAWN_BLOCKED_KEY: reason})

        def open_run(conn: sqlite3.Connection) -> None:
            view.run_id = runs.add_run(
                conn,
                thread_id=thread.id,
                process_id=None,
                message_id=message.id,
                title=view.title,
                now=services.clock.now(),
            )
            hand_over(conn, message, services.clock.now())

        try:
            await services.persist(open_run)
        except Withdrawn:
            return
        await self._fail(thread, view, event.error or "", advice, usage={PRESPAWN_BLOCKED_KEY: reason})

    # ---------------------------------------------------------------------------------------------- a new start

    async def _end_leftovers(self) -> None:
        """Agents of the last start may still be about after a crash: two would write one session on a resume."""
        for process_id, _ in self._services.db.read(runs.open_processes):
            folder = self._services.process_folder(process_id)
            ended = await end_leftovers(folder, process_id)
            if ended:
                log.warning("process.leftovers_ended", process=process_id, count=ended)

    async def _tell_interrupted(self) -> None:
        """Runs that a stop or crash cut are never started again by themselves: they are told, with a way to resume.

        A message whose agent never got it goes back to the queue.
        """
        services = self._services
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> None:
            for run in runs.running(conn):
                began = run.process_id is not None and bool(runs.inputs(conn, run.process_id))
                message = threads.message(conn, run.message_id) if run.message_id is not None else None
                runs.end_run(conn, run.id, "interrupted", now, error="Untether was stopped while this ran.")
                status = deliveries.status_of_run(conn, run.id)
                if message is not None and not began:
                    threads.set_message(conn, message.id, "queued")
                    if status is not None:
                        deliveries.add_delete(conn, status.id, now)
                    continue
                self._mark_interrupted(conn, run, status, now)
            for process_id, _ in runs.open_processes(conn):
                runs.end_process(conn, process_id, b'{"note":"ended with the bridge"}', now)

        await services.persist(job)
        services.outbox.kick()

    def _mark_interrupted(
        self, conn: sqlite3.Connection, run: runs.Run, status: deliveries.Delivery | None, now: float
    ) -> None:
        card = cards.interrupted(run.id, run.title)
        if status is not None:
            deliveries.add_edit(conn, status.id, card, now, priority=Priority.NOTICE)
        for pending in interactions.of_run(conn, run.id):
            if interactions.withdraw(conn, pending.key, now) and pending.delivery_id is not None:
                gone = msgspec.structs.replace(pending, state="withdrawn")
                deliveries.add_edit(
                    conn, pending.delivery_id, cards.outcome(gone, "", now), now, priority=Priority.NOTICE
                )


class _Once:
    """A task status that may be told twice."""

    def __init__(self, status: anyio.abc.TaskStatus[None]) -> None:
        self._status: anyio.abc.TaskStatus[None] | None = status

    def started(self, value: None = None) -> None:
        if self._status is not None:
            self._status.started()
            self._status = None


def _title(text: str) -> str:
    return " ".join(text.split())[:200]
