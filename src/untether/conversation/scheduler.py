"""The scheduler: one run per thread at a time, first come first served behind it, and the life of the processes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
import anyio.abc
import msgspec
import structlog

from ..faults import point
from ..model import CompletedEvent, EngineId, ResumeToken, TurnEvent
from ..process.driver import Ended
from ..process.host import NotOurs, SpawnFailed
from ..runner import PRESPAWN_BLOCKED_KEY
from ..session import ProcessExit, Prompt, StartFacts
from ..store import deliveries, interactions, runs, threads
from ..store.database import StoreError
from ..store.threads import Message, Thread
from . import cards, logged_out, money_cards, queue, requests
from .admission import Admission
from .bridge import LiveProcess
from .budget import Budget
from .live_run import LiveRun
from .presence import Presence
from .queue import Withdrawn, hand_over, prompt_of
from .services import Services
from .start import start_settings
from .takeover import Found, Takeover

log = structlog.get_logger(__name__)

_LOOK_AGAIN_S = 1.0  # at an agent that waits for something between turns
_UNANSWERED = ("The agent ended without an answer.", "Send the message again.")


class Scheduler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._live: dict[int, LiveProcess] = {}  # by thread id
        self._agents: dict[str, LiveProcess] = {}  # by process id; those too that a newer one of the thread follows
        self._wakes: dict[int, anyio.Event] = {}  # of the threads that have a worker
        self._tasks: anyio.abc.TaskGroup | None = None
        self._admission = Admission(services, self.processes)
        self._budget = Budget(services)
        self._holding: set[str] = set()  # engines whose messages wait for a login
        self.may_begin = anyio.Event()  # what waits may be taken up: the commands that came after it are done

    # ------------------------------------------------------------------------------------------------- outside

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take up the agents that were left at work, then what waits, and serve until cancelled."""
        presence = Presence(self._services.db, self._services.clock)
        takeover = Takeover(self._services, presence)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            found = await takeover.find()
            for one in found:
                self._register(one.live)
            task_status.started()
            tasks.start_soon(presence.run)
            tasks.start_soon(self._take_up, found)
            tasks.start_soon(takeover.welcome_back, found)
            for thread_id in self._services.db.read(threads.threads_with_queued):
                (first,) = self._services.db.read(partial(threads.queued, thread_id=thread_id, limit=1))
                if first.chat.transport in self._services.transports:
                    self.wake(thread_id)  # those of a transport that is switched off now wait for it
            await anyio.sleep_forever()

    async def _take_up(self, found: Sequence[Found]) -> None:
        """Those that wait for a person first: the others begin when these are done."""
        assert self._tasks is not None
        for urgent in (True, False):
            for one in found:
                if one.waits_for_person is urgent:
                    self._tasks.start_soon(self._live_out, one.live, one.untold)
                    self._tasks.start_soon(self._see_to, one.live)
            for one in found:
                if one.waits_for_person is urgent:
                    await one.live.ready.wait()

    async def _see_to(self, live: LiveProcess) -> None:
        """Go on with what the last bridge had begun to do with an agent that was taken up."""
        await live.ready.wait()
        if self._live.get(live.thread.id) is not live:
            await live.close()  # a newer one of its thread follows it
            return
        if (busy := live.busy) is not None and busy.stopping:
            await live.stop()
        self.wake(live.thread.id)

    def _register(self, live: LiveProcess) -> None:
        self._live[live.thread.id] = live
        self._agents[live.start.process_id] = live
        live.on_end = partial(self._turn_over, live)

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
        return self._agents.get(process_id)

    def processes(self) -> list[LiveProcess]:
        return list(self._agents.values())

    def view(self, run_id: int) -> tuple[LiveProcess, LiveRun] | None:
        for live in self._agents.values():
            for view in live.opened:
                if view.run_id == run_id:
                    return live, view
        return None

    async def going_on(self, thread_ids: Sequence[int]) -> tuple[int, int]:
        """How many turns go on in threads, and how many agents work in the background only."""
        found = await self._going_on(thread_ids)
        turns = sum(live.busy is not None for live in found)
        return turns, len(found) - turns

    async def _going_on(self, thread_ids: Sequence[int]) -> list[LiveProcess]:
        known = [live for thread_id in thread_ids if (live := self._live.get(thread_id)) is not None]
        for live in known:
            await live.ready.wait()  # before it is taken up, nothing tells whether it is busy
        return [live for live in known if not live.idle]

    async def stop(self, thread_ids: Sequence[int], *, withdraw: bool = False) -> None:
        """Stop what goes on in threads: turns, each of which tells so, and work in the background. Always ends.

        `withdraw`: what the agents were told and have not taken is withdrawn.
        """
        async with anyio.create_task_group() as tasks:
            for live in await self._going_on(thread_ids):
                tasks.start_soon(partial(live.stop, withdraw=withdraw))

    def can_steer(self, thread: Thread) -> bool:
        """Whether an agent of a thread can be told something while it works."""
        live, engine = self._live.get(thread.id), self._services.engines.get(thread.engine)
        if live is not None:
            return live.session.capabilities.steer
        return engine is not None and engine.runner.capabilities.steer

    async def steer(self, message: Message) -> bool:
        """Tell the agent a queued message in the running turn. False when that cannot be: it stays in the queue."""
        live = self._live.get(message.thread_id)
        if live is None:
            return False
        await live.ready.wait()
        if not live.steerable:
            return False
        try:
            await live.say(message, self._run_of(message), prompt_of(message), "now")
        except (Withdrawn, Ended):
            return False
        return True

    def renew(self, which: Callable[[LiveProcess], bool]) -> int:
        """End some processes as soon as they are idle: what they started with is not right any more. How many.

        Their sessions are resumed with the next message.
        """
        found = [live for live in self._live.values() if which(live)]
        for live in found:
            live.outdated = True
            self.wake(live.thread.id)
        return len(found)

    def logged_in(self, engine_id: str) -> int:
        """An engine may be logged in again: its messages go on, how many, and agents that know the old login go."""
        self._holding.discard(engine_id)
        self.renew(lambda live: live.engine.id == engine_id)
        return self._wake_all(engine_id)

    def _wake_all(self, engine_id: str) -> int:
        read, count = self._services.db.read, 0
        for thread_id in read(threads.threads_with_queued):
            thread = read(partial(threads.thread, thread_id=thread_id))
            if thread is not None and thread.engine == engine_id:
                count += read(partial(threads.count_queued, thread_id=thread_id))
                self.wake(thread_id)
        return count

    def _turn_over(self, live: LiveProcess, run: LiveRun, event: CompletedEvent | TurnEvent) -> None:
        """A run has ended: others may wait for its success, and at a limit its agent goes no further by itself."""
        if event.ok and live.engine.id in self._holding:
            self._holding.discard(live.engine.id)
            self._wake_all(live.engine.id)
        reason = self._budget.stops_after(run.run_id)
        if reason and live.busy is None and self._tasks is not None:
            live.outdated = True
            self._tasks.start_soon(self._close_spent, live, run, reason)

    async def _close_spent(self, live: LiveProcess, run: LiveRun, reason: str) -> None:
        services = self._services
        if not live.idle:
            card = cards.notice(f"■ What went on in the background is stopped: {reason}.", reply_to=run.reply_to)
            now = services.clock.now()
            await services.persist(lambda conn: deliveries.add_send(conn, run.chat, [card], "notice", now))
            services.outbox.kick()
        log.info("process.closed_at_limit", process=live.start.process_id, reason=reason)
        await live.close()

    # ------------------------------------------------------------------------------------------------- a thread

    async def _work(self, thread_id: int) -> None:
        """Serve one thread until it has neither messages nor a process."""
        try:
            await self.may_begin.wait()
            while True:
                wake = self._wakes[thread_id] = anyio.Event()
                live = self._live.get(thread_id)
                if live is not None:
                    await live.ready.wait()
                if live is not None and live.busy is not None:
                    await live.busy.done.wait()
                    continue
                waiting = self._services.db.read(lambda conn: threads.queued(conn, thread_id, limit=1))
                if waiting and await self._held(thread_id):
                    if live is not None:
                        await self._rest(live, wake)
                    elif not wake.is_set():
                        return  # `logged_in` looks again
                elif waiting:
                    await self._bring(thread_id, waiting[0])
                elif live is None:
                    return
                else:
                    await self._rest(live, wake)
        finally:
            del self._wakes[thread_id]

    async def _held(self, thread_id: int) -> bool:
        """Whether the messages of a thread wait for the login of its engine, which is said under each."""
        services = self._services
        thread = services.db.read(lambda conn: threads.thread(conn, thread_id))
        if thread is None or not services.db.read(lambda conn: logged_out.holds(conn, thread)):
            return False
        self._holding.add(thread.engine)
        now = services.clock.now()
        held = await services.persist(lambda conn: logged_out.show_held(conn, thread, now))
        services.outbox.kick()
        return bool(held)

    async def _bring(self, thread_id: int, message: Message) -> None:
        """Handle a message; a defect on its way to the agent is told and does not stop what follows."""
        try:
            await self.handle_message(thread_id, message)
        except StoreError as error:
            log.error("message.not_handed_over", message=message.id, error=str(error))
            await self._services.clock.sleep(1.0)  # it is still queued
        except Exception as failure:
            log.exception("message.failed", message=message.id)
            thread = self._services.db.read(lambda conn: threads.thread(conn, thread_id))
            if thread is not None:
                view = LiveRun(message, message.chat, _title(message.text), self._services.clock.now())
                what = f"Untether could not hand this message to the agent: {_cause(failure)}"
                await self._refuse(thread, message, view, "defect", what, "The log has the details.")

    async def _rest(self, live: LiveProcess, wake: anyio.Event) -> None:
        """Wait for the next message; an agent that stays idle is let go."""
        patience = 0.0 if live.outdated else self._services.options.idle_close_s
        within = patience if live.idle else max(patience, _LOOK_AGAIN_S)
        async with anyio.create_task_group() as tasks:
            for event in (wake, live.ended):
                tasks.start_soon(self._first, event.wait(), tasks.cancel_scope)
            tasks.start_soon(self._first, self._services.clock.sleep(within), tasks.cancel_scope)
        if not wake.is_set() and not live.ended.is_set() and live.idle:
            log.info("process.closed_idle", process=live.start.process_id)
            await live.close()

    @staticmethod
    async def _first(waiting: Awaitable[object], scope: anyio.CancelScope) -> None:
        await waiting
        scope.cancel()

    async def handle_message(self, thread_id: int, message: Message) -> None:
        """Bring one message to the agent and wait for its run to end."""
        thread = self._services.db.read(lambda conn: threads.thread(conn, thread_id))
        assert thread is not None
        view = self._run_of(message)
        prompt = prompt_of(message)
        if reason := self._budget.refusal(message):
            await self._refuse(thread, message, view, "budget", reason, "")
            return
        live = self._live.get(thread_id)
        if live is not None and live.usable:
            try:
                await live.say(message, view, prompt)
            except Withdrawn:
                return
            except Ended:
                live, view = None, self._run_of(message)
        elif live is not None:
            await live.close()
            live = None
        if live is None:
            with self._admission.place(thread_id):
                live = await self._start(thread, message, view, prompt)
        if live is not None:
            await view.done.wait()

    def _run_of(self, message: Message) -> LiveRun:
        return LiveRun(message, message.chat, _title(message.text), self._services.clock.now())

    # ------------------------------------------------------------------------------------------------ a process

    async def _start(self, thread: Thread, message: Message, view: LiveRun, prompt: Prompt) -> LiveProcess | None:
        """Make a process for a thread and hand it the message; None when it was refused, which is told."""
        services = self._services
        engine = services.engines.get(thread.engine)
        if engine is None:
            error = f"The engine {thread.engine} is not installed here."
            advice = f"Install it, or send /new: then {services.engines.default} answers."
            await self._refuse(thread, message, view, "engine", error, advice)
            return None
        refusal = await engine.runner.check(os.environ) or await self._admission.ask(thread.id, view)
        if refusal is not None:
            await self._refuse(thread, message, view, refusal.reason, refusal.message, refusal.advice)
            return None
        start = StartFacts(
            process_id=services.new_id(),
            engine=engine.id,
            cwd=thread.cwd,
            cli_version=engine.runner.cli_version,
            resume=ResumeToken(EngineId(engine.id), thread.session) if thread.session else None,
            settings=start_settings(services, engine, thread, message),
        )
        live = LiveProcess(services, engine, thread, start)
        live.expect(prompt, view)

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
        self._register(live)
        assert self._tasks is not None
        self._tasks.start_soon(self._live_out, live, prompt)
        await live.ready.wait()
        return live

    async def _live_out(self, live: LiveProcess, prompt: Prompt | None) -> None:
        """Hold a process from spawn to end, and close what a failure left open.

        Without a `prompt` it is one that has its message already, and was left by the last bridge. A stop of the
        bridge cuts this short: the next start takes the process up.
        """
        try:
            try:
                trouble = await self._lived(live, prompt)
            except NotOurs as error:
                # Nothing of it is closed or told: whoever controls it does that.
                log.error("process.not_ours", process=live.start.process_id, error=str(error))
                return
            finally:
                if self._live.get(live.thread.id) is live:
                    del self._live[live.thread.id]
                self._agents.pop(live.start.process_id, None)
            if trouble is not None or live.opened:
                await self._close_open(live, *(trouble or _UNANSWERED))
        finally:
            live.ready.set()
            live.ended.set()
            self.wake(live.thread.id)

    async def _lived(self, live: LiveProcess, prompt: Prompt | None) -> tuple[str, str] | None:
        """Stay with an agent until it has ended. What to tell of the runs that a failure leaves open, and to advise.

        Raises NotOurs.
        """
        engine = live.engine
        try:
            if prompt is None:
                await live.take_up()
            else:
                environ = self._services.environment(engine.runner, live.start.process_id)
                await live.live(engine.runner.launch(live.start, prompt, environ=environ), prompt)
        except NotOurs:
            raise
        except SpawnFailed as failure:
            command = engine.backend.install_cmd
            return str(failure), f"Install it with: {command}" if command else "Check the command in the configuration."
        except Exception as failure:
            # A defect in one session must not take the other chats down; the run is told as failed, with the facts.
            log.exception("process.failed", process=live.start.process_id)
            return f"Untether could not go on with this agent: {_cause(failure)}", "Send the message again."
        return None

    async def _close_open(self, live: LiveProcess, error: str, advice: str) -> None:
        """Fail the runs that the session did not complete (it never began, or it broke), and close the process."""
        services = self._services
        process_id = live.start.process_id
        for view in tuple(live.opened):
            await self._fail(live.thread, view, error, advice)
        live.opened.clear()
        live.runs.clear()
        live.active = None

        def close(conn: sqlite3.Connection) -> None:
            now = services.clock.now()
            for pending in interactions.open_of_process(conn, process_id):
                requests.withdraw(conn, pending, now)
            runs.end_process(conn, process_id, msgspec.json.encode(ProcessExit(note=error)), now)

        await services.persist(close)
        services.outbox.kick()
        services.hub.changed()

    async def _fail(
        self, thread: Thread, view: LiveRun, error: str, advice: str, usage: dict[str, str] | None = None
    ) -> None:
        services = self._services
        now = services.clock.now()
        blocked = (usage or {}).get(PRESPAWN_BLOCKED_KEY)
        if blocked == "budget":
            card = money_cards.over_budget(view.run_id, error, view.reply_to)
        else:
            card = cards.failure(view.run_id, error, advice, details=False, reply_to=view.reply_to)
        parts = services.parts(view.chat, card)

        def job(conn: sqlite3.Connection) -> None:
            if not runs.end_run(conn, view.run_id, "failed", now, error=error, advice=advice, usage=usage):
                return
            if view.message is not None:
                queue.moved(conn, view.message.prompt_id, "answered", now)
            deliveries.add_send(conn, view.chat, parts, "answer", now, run_id=view.run_id)
            if view.status_delivery is not None:
                deliveries.add_delete(conn, view.status_delivery, now)

        await services.persist(job)
        view.done.set()
        services.outbox.kick()
        services.hub.changed()

    async def _refuse(
        self, thread: Thread, message: Message, view: LiveRun, reason: str, error: str, advice: str
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


def _cause(failure: BaseException) -> BaseException:
    """What went wrong, without the groups around it."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure


def _title(text: str) -> str:
    return " ".join(text.split())[:200]
