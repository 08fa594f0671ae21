"""The new start: takes up the agents that the last bridge left at work, and tells of those that ended meanwhile.

Every open process is registered before anything is routed, so that a message or a tap finds the agent it is meant
for. Then they are attached to and folded, those that wait for a person first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import anyio
import msgspec
import structlog

from ..process.host import NotOurs
from ..session import ProcessExit, Prompt
from ..store import deliveries, interactions, kv, runs, threads
from ..text import words
from ..transport import ChatRef, Priority
from . import cards, queue, requests
from .bridge import LiveProcess
from .presence import Presence
from .queue import prompt_of
from .recovery import Left, left_open, rows_of
from .services import Services

log = structlog.get_logger(__name__)

RESTARTED = "restarted"  # in `kv`: the notice of a restart that was asked for in a chat
_TAPS_KEPT_S = 150.0  # about as long Telegram keeps a tap: after more, one may have been lost
_SPOKEN_OF_S = 10.0  # an absence that is shorter is not worth a line


class Found:
    """A process that is taken up: with the message that its agent has yet to be told, if it was not."""

    def __init__(self, live: LiveProcess, untold: Prompt | None, waits_for_person: bool) -> None:
        self.live = live
        self.untold = untold
        self.waits_for_person = waits_for_person


class Takeover:
    def __init__(self, services: Services, presence: Presence) -> None:
        self._services = services
        self._presence = presence

    async def find(self) -> list[Found]:
        """The processes to be taken up, those that wait for a person first; what cannot be is closed and told."""
        services = self._services
        asking = {pending.process_id for pending in services.db.read(interactions.all_open)}
        found: list[Found] = []
        for left in services.db.read(left_open):
            if (one := await self._find(left, left.start.process_id in asking)) is not None:
                found.append(one)
        await self._close_orphans()
        await self._tell_restarted()
        return sorted(found, key=lambda one: not one.waits_for_person)

    async def _find(self, left: Left, asking: bool) -> Found | None:
        services, process_id = self._services, left.start.process_id
        engine = services.engines.get(left.thread.engine)
        standing = services.host.standing(process_id)
        if engine is None:
            log.error("process.engine_missing", process=process_id, engine=left.thread.engine)
            await self._end(process_id, standing == "alive")
            await self._close(left, f"the engine {left.thread.engine} is no longer installed")
            return None
        live = LiveProcess(services, engine, left.thread, left.start, left)
        if left.first is not None:
            return Found(live, None, asking)
        # Its agent was not told its message: it is now, by the same way, unless there is no agent any more.
        prompt = self._untold(left) if standing in ("new", "alive") else None
        if prompt is None:
            await self._end(process_id, standing == "alive")
            await self._close(left, "ended before it had a message")
            return None
        live.recall_message(prompt)
        return Found(live, prompt, asking)

    def _untold(self, left: Left) -> Prompt | None:
        def first(conn: sqlite3.Connection) -> Prompt | None:
            for run in runs.of_process(conn, left.start.process_id):
                message = threads.message(conn, run.message_id) if run.message_id is not None else None
                if message is not None and message.state == "handed":
                    return prompt_of(message)
            return None

        return self._services.db.read(first)

    async def _end(self, process_id: str, alive: bool) -> None:
        """End an agent that nobody will listen to."""
        host = self._services.host
        if alive:
            try:
                async with host.attached(process_id) as process:
                    await process.stop()
                    await process.release()
            except NotOurs as error:
                log.error("process.not_ours", process=process_id, error=str(error))
        else:
            await host.end_leftovers(process_id)

    async def _close(self, left: Left, note: str) -> None:
        """Close a process that is not taken up: untold messages are queued again, other runs are interrupted."""
        services = self._services
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> None:
            rows, told = rows_of(conn, left), left.prompts
            for run in runs.of_process(conn, left.start.process_id):
                message = threads.message(conn, run.message_id) if run.message_id is not None else None
                view = rows.of_prompt(message.prompt_id) if message is not None else rows.at(run.began_offset)
                again = message is not None and message.prompt_id not in told
                if again and message is not None:
                    queue.moved(conn, message.prompt_id, "queued", now)
                self._interrupt(conn, run, view.chat if view is not None else left.thread.chat, now, quietly=again)
            for pending in interactions.open_of_process(conn, left.start.process_id):
                requests.withdraw(conn, pending, now)
            exit = msgspec.json.encode(ProcessExit(note=note, lost=True))
            runs.end_process(conn, left.start.process_id, exit, now)

        await services.persist(job)

    async def _close_orphans(self) -> None:
        """Runs that are open though their process is not: there is no agent that could end them."""
        services = self._services
        now = services.clock.now()
        open_ids = {process.id for process in services.db.read(runs.open_processes)}
        orphans = [run for run in services.db.read(runs.running) if run.process_id not in open_ids]
        if not orphans:
            return

        def job(conn: sqlite3.Connection) -> None:
            for run in orphans:
                if (thread := threads.thread(conn, run.thread_id)) is not None:
                    self._interrupt(conn, run, thread.chat, now, quietly=False)

        await services.persist(job)
        services.outbox.kick()

    def _interrupt(self, conn: sqlite3.Connection, run: runs.Run, chat: ChatRef, now: float, *, quietly: bool) -> None:
        if not runs.end_run(conn, run.id, "interrupted", now, error="The agent ended while Untether was away."):
            return
        if not quietly:
            parts = self._services.parts(chat, cards.interrupted(run.id, run.title))
            deliveries.add_send(conn, chat, parts, "notice", now, run_id=run.id)
        if (status := deliveries.status_of_run(conn, run.id)) is not None:
            deliveries.add_delete(conn, status.id, now)

    async def _tell_restarted(self) -> None:
        """A restart was asked for in a chat: it is through."""
        services = self._services
        notice = services.db.read(lambda conn: kv.get(conn, RESTARTED))
        if notice is None:
            return
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> None:
            kv.remove(conn, RESTARTED)
            deliveries.add_edit(conn, int(notice), cards.notice("✓ Restarted"), now, priority=Priority.NOTICE)

        await services.persist(job)
        services.outbox.kick()

    # ------------------------------------------------------------------------------------------------- and then

    async def welcome_back(self, found: Sequence[Found]) -> None:
        """Wait until all are taken up; then say in each chat whose run went on that we are back."""
        services = self._services
        for one in found:
            await one.live.ready.wait()
        absence = self._presence.absence
        if absence is not None and absence > _TAPS_KEPT_S:
            await self._announce_again([one.live.start.process_id for one in found])
        going_on = [view for one in found for view in one.live.opened if not view.done.is_set()]
        if absence is None or absence < _SPOKEN_OF_S or not going_on:
            return
        now = services.clock.now()
        text = f"↻ Back after {words.duration(absence)}; your run went on."

        def job(conn: sqlite3.Connection) -> None:
            for chat in dict.fromkeys(view.chat for view in going_on):
                deliveries.add_send(conn, chat, [cards.notice(text, silent=True)], "notice", now)

        with anyio.CancelScope(shield=True):
            await services.persist(job)
        services.outbox.kick()

    async def _announce_again(self, process_ids: Sequence[str]) -> None:
        """A tap on an open request may have been lost: say that it still waits, with its buttons."""
        services = self._services
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> None:
            for process_id in process_ids:
                for pending in interactions.open_of_process(conn, process_id):
                    requests.announce_again(conn, services, pending, now)

        with anyio.CancelScope(shield=True):
            await services.persist(job)
        services.outbox.kick()
