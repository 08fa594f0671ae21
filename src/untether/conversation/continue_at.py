"""Going on when a spent quota is renewed: planned by a tap, or by itself (see `planned`).

A plan is a row: it survives restarts, fires once, and a time that was missed fires at the next start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from ..store import deliveries, runs, schedules, threads, updates
from ..store.database import StoreError
from ..store.schedules import Schedule
from ..store.updates import Update
from ..text import words
from ..transport import Card, ChatRef, TapIn
from . import cards, money_cards, planned, queue, repeat
from .scheduler import Scheduler
from .services import Services

log = structlog.get_logger(__name__)

Toast = Callable[[str], Awaitable[None]]

_LOOK_S = 10.0  # between two looks at what is due: the wall time may jump

_LATE = {
    "offered": "It is not planned",
    "waiting": "It is planned already",
    "fired": "It was continued",
    "dropped": "It was sent again or given up",
}


class ContinueAt:
    BUTTONS = frozenset((money_cards.LATER, money_cards.NOT_LATER))

    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler

    async def run(self) -> None:
        """Continue what is due until cancelled; what was missed first."""
        clock = self._services.clock
        while True:
            try:
                await self.fire(clock.now())
            except StoreError as error:
                log.error("continue_at.not_stored", error=str(error))  # the next look tries again
            await clock.sleep(_LOOK_S)

    async def fire(self, now: float) -> None:
        """Continue every run that is due at `now`."""
        services = self._services
        for schedule in services.db.read(lambda conn: schedules.due(conn, now)):
            thread_id = await services.db.write(partial(self._fire, schedule=schedule, now=now))
            log.info("continue_at.fired", run=schedule.run_id, late_s=round(now - schedule.due))
            services.outbox.kick()
            if thread_id is not None:
                self._scheduler.wake(thread_id)

    def _fire(self, conn: sqlite3.Connection, *, schedule: Schedule, now: float) -> int | None:
        run = runs.run(conn, schedule.run_id)
        thread = threads.thread(conn, run.thread_id) if run is not None else None
        if run is None or thread is None or not schedules.move(conn, schedule.id, "waiting", "fired"):
            return None  # it was given up a moment ago
        shown = deliveries.get(conn, schedule.delivery_id) if schedule.delivery_id is not None else None
        chat = shown.chat if shown is not None else thread.chat
        waiting = threads.count_queued(conn, thread.id)
        message = repeat.again(conn, self._services, run, goes_on=run.taken, chat=chat)
        if message is None:
            return None
        at = words.clock_time(now, self._services.options.zone)
        planned.show(conn, schedule, now, lambda card: money_cards.continued(card, at))
        live = self._scheduler.live(thread.id)
        if waiting or (live is not None and live.busy is not None):
            queue.announce(conn, message, now, steer=self._scheduler.can_steer(thread))
        return thread.id

    # ------------------------------------------------------------------------------------------------------- people

    async def tap(self, update: Update, tap: TapIn, what: str, schedule_id: int, toast: Toast) -> None:
        """`Continue at …`, or `Cancel` of what is planned."""
        services = self._services
        now, zone = services.clock.now(), services.options.zone
        plans = what == money_cards.LATER

        def job(conn: sqlite3.Connection) -> str:
            updates.done(conn, update.id)
            schedule = schedules.get(conn, schedule_id)
            if schedule is None or not self._belongs(conn, tap, schedule):
                return "This button is not known any more"
            before, after = ("offered", "waiting") if plans else ("waiting", "offered")
            if not schedules.move(conn, schedule_id, before, after):  # type: ignore[arg-type]  # both are states
                return _LATE[schedule.state]
            at = words.clock_time(schedule.due, zone, now)
            decorate = money_cards.continue_planned if plans else money_cards.continue_offered
            planned.show(conn, schedule, now, lambda card: decorate(card, schedule_id, at))
            return f"Continues at {at}" if plans else "Not continued by itself"

        await toast(await services.db.write(job))
        services.outbox.kick()

    def _belongs(self, conn: sqlite3.Connection, tap: TapIn, schedule: Schedule) -> bool:
        """A tap counts in the chat where it was offered, and on a transport that shows all."""
        if self._services.transports[tap.chat.transport].shows_all:
            return True
        shown = deliveries.get(conn, schedule.delivery_id) if schedule.delivery_id is not None else None
        return shown is not None and (shown.chat.transport, shown.chat.chat) == (tap.chat.transport, tap.chat.chat)

    async def choose(self, chat: ChatRef, rest: str) -> Card:
        """`/autocontinue [on | off | clear]`"""
        services, word = self._services, rest.strip().lower()
        if word in ("on", "off", "clear"):
            value = None if word == "clear" else word == "on"
            await services.db.write(lambda conn: threads.set_chat(conn, chat, auto_continue=value))
        elif word:
            return cards.notice("Form: /autocontinue [on | off | clear]")
        own = services.db.read(lambda conn: threads.chosen(conn, chat, "auto_continue"))
        on = services.options.auto_continue if own is None else own
        if on:
            return cards.notice(
                "✓ A run here that a spent quota cuts goes on by itself when the quota is renewed.",
                "Each time says so, with Cancel.",
            )
        return cards.notice("✓ A run here that a spent quota cuts waits for a tap on “Continue at …”.")
