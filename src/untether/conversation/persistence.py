"""Writes of what has happened already: they must not be refused, so they wait until the store has room."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import structlog

from ..clock import Clock
from ..store.database import Database, StoreError

log = structlog.get_logger(__name__)

T = TypeVar("T")

PASSING = frozenset(("full", "locked", "io"))  # kinds of StoreError that go away when somebody makes room
_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 30.0


async def persist(db: Database, clock: Clock, job: Callable[[sqlite3.Connection], T]) -> T:
    """Write `job`; while the store has no room, wait, and log it. Raises what `job` raises, and lasting StoreErrors."""
    pause = _PAUSE_MIN_S
    while True:
        try:
            return await db.write(job)
        except StoreError as error:
            if error.kind not in PASSING:
                raise
            log.error("store.waiting", error=str(error), next_try_s=pause)
            await clock.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)
