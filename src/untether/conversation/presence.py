"""When the bridge was at work last, so that a new start knows how long nobody was there."""

from __future__ import annotations

import structlog

from ..clock import Clock
from ..store import kv
from ..store.database import Database, StoreError

log = structlog.get_logger(__name__)

_KEY = "alive"
_NOTE_S = 15.0


class Presence:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        last = db.read(lambda conn: kv.get(conn, _KEY))
        self.absence = max(0.0, clock.now() - float(last)) if last is not None else None
        """Seconds between the last sign of life of the bridge before this one, and now; None at the first start."""

    async def run(self) -> None:
        """Note now and then that we are here, until cancelled."""
        while True:
            await self._clock.sleep(_NOTE_S)
            await self.note()

    async def note(self) -> None:
        now = self._clock.now()
        try:
            await self._db.write(lambda conn: kv.put(conn, _KEY, repr(now)))
        except StoreError as error:
            log.warning("presence.not_stored", error=str(error))
