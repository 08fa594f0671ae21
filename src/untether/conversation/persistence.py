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


class Backoff:
    """A pause that doubles each time it is taken, between two bounds in seconds."""

    def __init__(self, least: float = 1.0, longest: float = 30.0) -> None:
        self._least = self._next = least
        self._longest = longest

    def next(self) -> float:
        """How long to wait now."""
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        """It went well: the next pause is a short one again."""
        self._next = self._least


async def persist(db: Database, clock: Clock, job: Callable[[sqlite3.Connection], T]) -> T:
    """Write `job`; while the store has no room, wait, and log it. Raises what `job` raises, and lasting StoreErrors."""
    backoff = Backoff()
    while True:
        try:
            return await db.write(job)
        except StoreError as error:
            if error.kind not in PASSING:
                raise
            pause = backoff.next()
            log.error("store.waiting", error=str(error), next_try_s=pause)
            await clock.sleep(pause)
