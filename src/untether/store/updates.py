"""The owner of `updates`: what came in, stored before the outside is told so."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from ..model import Record

MAX_ATTEMPTS = 3


class Update(Record, frozen=True):
    id: int
    transport: str
    key: str
    raw: bytes
    received: float
    attempts: int


def store(conn: sqlite3.Connection, transport: str, updates: Sequence[tuple[str, bytes]], now: float) -> int:
    """Insert what is new and return how many that were."""
    before = conn.total_changes
    conn.executemany(
        "INSERT OR IGNORE INTO updates (transport, key, raw, received) VALUES (?, ?, ?, ?)",
        [(transport, key, raw, now) for key, raw in updates],
    )
    return conn.total_changes - before


def waiting(conn: sqlite3.Connection, after: int = 0) -> list[Update]:
    """Updates that are not handled, oldest first, with ids above `after`."""
    rows = conn.execute(
        "SELECT id, transport, key, raw, received, attempts FROM updates WHERE state = 'stored' AND id > ? ORDER BY id",
        (after,),
    )
    return [Update(*row) for row in rows]


def begin(conn: sqlite3.Connection, update_id: int) -> bool:
    """Count one more attempt at routing. False when it had its attempts and is parked now."""
    conn.execute("UPDATE updates SET attempts = attempts + 1 WHERE id = ?", (update_id,))
    (attempts,) = conn.execute("SELECT attempts FROM updates WHERE id = ?", (update_id,)).fetchone()
    if attempts <= MAX_ATTEMPTS:
        return True
    conn.execute("UPDATE updates SET state = 'parked' WHERE id = ?", (update_id,))
    return False


def done(conn: sqlite3.Connection, update_id: int) -> None:
    conn.execute("UPDATE updates SET state = 'done' WHERE id = ?", (update_id,))


def withdraw_before(conn: sqlite3.Connection, transport: str, before: int, belongs: Callable[[bytes], bool]) -> int:
    """Mark as done what came before an update, is not routed yet and `belongs`; returns how many that were."""
    found = [u for u in waiting(conn) if u.id < before and u.transport == transport and belongs(u.raw)]
    for update in found:
        done(conn, update.id)
    return len(found)


def is_done(conn: sqlite3.Connection, update_id: int) -> bool:
    row = conn.execute("SELECT state FROM updates WHERE id = ?", (update_id,)).fetchone()
    return row is None or row[0] != "stored"
