"""Reminders: an open request is reminded of once after some minutes, then every half hour, but not at night.

A request never times out by itself. There is one reminder of it at a time: the next takes the place of the last.
"""

from __future__ import annotations

import sqlite3
from functools import partial

import structlog

from ..store import interactions
from ..store.database import StoreError
from . import requests
from .services import Services

log = structlog.get_logger(__name__)

_LOOK_S = 15.0  # between two looks at what is open


class Reminders:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self) -> None:
        """Remind until cancelled."""
        clock = self._services.clock
        while True:
            await clock.sleep(_LOOK_S)
            try:
                await self.remind(clock.now())
            except StoreError as error:
                log.error("reminders.not_stored", error=str(error))  # the next look tries again

    async def remind(self, now: float) -> None:
        """Remind of every request that is due at `now`."""
        services = self._services
        times = services.options.reminders
        if times.is_quiet(now, services.options.zone):
            return
        due = [pending for pending in services.db.read(interactions.all_open) if times.is_due(pending, now)]
        for pending in due:
            await services.db.write(partial(self._announce, key=pending.key, now=now))
        if due:
            services.outbox.kick()

    def _announce(self, conn: sqlite3.Connection, *, key: str, now: float) -> None:
        pending = interactions.get(conn, key)
        if pending is None or pending.state != "open":
            return  # it was decided a moment ago
        if not requests.announce_again(conn, self._services, pending, now):
            interactions.set_reminder(conn, key, pending.reminder_id, now)
