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
    """Count one more attempt at routing. False when it had all of them: it is to be told, and then done with."""
    conn.execute("UPDATE updates SET attempts = attempts + 1 WHERE id = ?", (update_id,))
    (attempts,) = conn.execute("SELECT attempts FROM updates WHERE id = ?", (update_id,)).fetchone()
    return bool(attempts <= MAX_ATTEMPTS)


def done(conn: sqlite3.Connection, update_id: int) -> bool:
    """It is dealt with, or parked when it had all its attempts. False when it was before: handled or withdrawn."""
    cursor = conn.execute(
        "UPDATE updates SET state = CASE WHEN attempts > ? THEN 'parked' ELSE 'done' END"
        " WHERE id = ? AND state = 'stored'",
        (MAX_ATTEMPTS, update_id),
    )
    return cursor.rowcount == 1


def park(conn: sqlite3.Connection, update_id: int) -> None:
    """It cannot be read; it is kept for a person to look at."""
    conn.execute("UPDATE updates SET state = 'parked' WHERE id = ?", (update_id,))


def withdraw_before(conn: sqlite3.Connection, transport: str, before: int, belongs: Callable[[bytes], bool]) -> int:
    """Mark as done what came before an update, is not routed yet and `belongs`; returns how many that were."""
    found = [u for u in waiting(conn) if u.id < before and u.transport == transport and belongs(u.raw)]
    for update in found:
        done(conn, update.id)
    return len(found)


def forget(conn: sqlite3.Connection, update_id: int) -> None:
    """Do not keep what an update said, which is dealt with: it was a secret."""
    conn.execute("UPDATE updates SET raw = x'' WHERE id = ?", (update_id,))


def is_done(conn: sqlite3.Connection, update_id: int) -> bool:
    row = conn.execute("SELECT state FROM updates WHERE id = ?", (update_id,)).fetchone()
    return row is None or row[0] != "stored"
