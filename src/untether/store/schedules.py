"""The owner of `schedules`: runs that failed for a spent quota, and when they may be gone on with."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

from ..model import Record

State = Literal["offered", "waiting", "fired", "dropped"]


class Schedule(Record, frozen=True):
    """A run to be gone on with at `due` (epoch seconds).

    `offered` waits for a tap, `waiting` for its time; a `dropped` one was gone on with in another way.
    """

    id: int
    run_id: int
    due: float
    state: State
    delivery_id: int | None


_SELECT = "SELECT s.id, s.run_id, s.due, s.state, s.delivery_id FROM schedules s"


def _schedule(row: Any) -> Schedule:
    return Schedule(*row)


def add(conn: sqlite3.Connection, run_id: int, due: float, state: State) -> int:
    """Note that a run may be gone on with, and return the id; there is one for each run."""
    cursor = conn.execute("INSERT INTO schedules (run_id, due, state) VALUES (?, ?, ?)", (run_id, due, state))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def set_delivery(conn: sqlite3.Connection, schedule_id: int, delivery_id: int) -> None:
    conn.execute("UPDATE schedules SET delivery_id = ? WHERE id = ?", (delivery_id, schedule_id))


def get(conn: sqlite3.Connection, schedule_id: int) -> Schedule | None:
    row = conn.execute(f"{_SELECT} WHERE id = ?", (schedule_id,)).fetchone()
    return None if row is None else _schedule(row)


def due(conn: sqlite3.Connection, now: float) -> list[Schedule]:
    """Those that wait and whose time has come, the earliest first."""
    rows = conn.execute(f"{_SELECT} WHERE state = 'waiting' AND due <= ? ORDER BY due, id", (now,))
    return [_schedule(row) for row in rows]


def waiting_in(conn: sqlite3.Connection, thread_ids: Sequence[int]) -> list[Schedule]:
    """Those of some threads that wait."""
    found: list[Schedule] = []
    for thread_id in thread_ids:
        rows = conn.execute(
            f"{_SELECT} JOIN runs r ON r.id = s.run_id WHERE s.state = 'waiting' AND r.thread_id = ?", (thread_id,)
        )
        found += [_schedule(row) for row in rows]
    return found


def drop_of_run(conn: sqlite3.Connection, run_id: int) -> None:
    """A run was sent again in another way."""
    conn.execute(
        "UPDATE schedules SET state = 'dropped' WHERE run_id = ? AND state IN ('offered', 'waiting')", (run_id,)
    )


def move(conn: sqlite3.Connection, schedule_id: int, before: State, after: State) -> bool:
    """False when it is no longer in the state `before`."""
    cursor = conn.execute("UPDATE schedules SET state = ? WHERE id = ? AND state = ?", (after, schedule_id, before))
    return cursor.rowcount == 1
