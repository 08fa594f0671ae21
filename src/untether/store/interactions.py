"""The owner of `interactions`: what waits for a person, who decided it, and when."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from ..model import Decision, Interaction, Record


class Given(Record, frozen=True):
    """What was answered to one question so far: ticked options by index, words, and whether that is all.

    `delivery_id` is the message that asks it.
    """

    options: tuple[int, ...] = ()
    text: str = ""
    done: bool = False
    delivery_id: int | None = None


class Pending(Record, frozen=True):
    """An interaction as stored. `key` is what a button carries; `state` is open, decided or withdrawn.

    `answers` holds those to its questions so far, in their order; `delivery_id` is the part with the buttons.
    """

    key: str
    process_id: str
    run_id: int
    interaction: Interaction
    state: str
    delivery_id: int | None
    decision: Decision | None
    decided_by: str
    decided: float | None
    opened: float
    answers: tuple[Given, ...] = ()
    reminder_id: int | None = None
    reminded: float | None = None


_SELECT = (
    "SELECT key, process_id, run_id, record AS interaction, state, delivery_id, decision, decided_by, decided, opened,"
    " answers, reminder_id, reminded FROM interactions"
)
_INTERACTION = msgspec.json.Decoder(Interaction)
_ANSWERS = msgspec.json.Decoder(tuple[Given, ...])
_DECISION: msgspec.json.Decoder[Decision] = msgspec.json.Decoder(Decision)


def _pending(row: Any) -> Pending:
    interaction = _INTERACTION.decode(row["interaction"])
    decision = None if row["decision"] is None else _DECISION.decode(row["decision"])
    answers = _ANSWERS.decode(row["answers"])
    return Pending(**{**dict(row), "interaction": interaction, "decision": decision, "answers": answers})


def open_(conn: sqlite3.Connection, key: str, process_id: str, run_id: int, record: Interaction, now: float) -> bool:
    """Add an open interaction. False when the process asked this before: the same request is one interaction."""
    cursor = conn.execute(
        "INSERT OR IGNORE INTO interactions (key, process_id, run_id, request, record, opened)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (key, process_id, run_id, record.id, msgspec.json.encode(record), now),
    )
    return cursor.rowcount == 1


def set_delivery(conn: sqlite3.Connection, key: str, delivery_id: int) -> None:
    conn.execute("UPDATE interactions SET delivery_id = ? WHERE key = ?", (delivery_id, key))


def set_answers(conn: sqlite3.Connection, key: str, answers: tuple[Given, ...]) -> None:
    conn.execute("UPDATE interactions SET answers = ? WHERE key = ?", (msgspec.json.encode(answers).decode(), key))


def set_reminder(conn: sqlite3.Connection, key: str, delivery_id: int | None, reminded: float | None) -> None:
    """The message that reminds of it now, and when it was last reminded of."""
    conn.execute("UPDATE interactions SET reminder_id = ?, reminded = ? WHERE key = ?", (delivery_id, reminded, key))


def get(conn: sqlite3.Connection, key: str) -> Pending | None:
    row = conn.execute(f"{_SELECT} WHERE key = ?", (key,)).fetchone()
    return None if row is None else _pending(row)


def of_request(conn: sqlite3.Connection, process_id: str, request: str) -> Pending | None:
    row = conn.execute(f"{_SELECT} WHERE process_id = ? AND request = ?", (process_id, request)).fetchone()
    return None if row is None else _pending(row)


def all_open(conn: sqlite3.Connection) -> list[Pending]:
    return [_pending(row) for row in conn.execute(f"{_SELECT} WHERE state = 'open' ORDER BY opened")]


def open_of_process(conn: sqlite3.Connection, process_id: str) -> list[Pending]:
    rows = conn.execute(f"{_SELECT} WHERE process_id = ? AND state = 'open' ORDER BY opened", (process_id,))
    return [_pending(row) for row in rows]


def decided_unshown(conn: sqlite3.Connection, process_id: str) -> list[Pending]:
    """Those of a process that were decided while no edit of their message tells so."""
    rows = conn.execute(
        f"{_SELECT} WHERE process_id = ? AND state = 'decided' AND delivery_id IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.target = interactions.delivery_id AND d.act = 'edit'"
        " AND d.created >= interactions.decided)",  # those before it showed the questions on their way
        (process_id,),
    )
    return [_pending(row) for row in rows]


def of_run(conn: sqlite3.Connection, run_id: int) -> list[Pending]:
    return [_pending(row) for row in conn.execute(f"{_SELECT} WHERE run_id = ? ORDER BY opened", (run_id,))]


def claim(conn: sqlite3.Connection, key: str, decision: Decision, by: str, now: float) -> bool:
    """Decide an open interaction. False when it is no longer open: exactly one decision counts."""
    cursor = conn.execute(
        "UPDATE interactions SET state = 'decided', decision = ?, decided_by = ?, decided = ?"
        " WHERE key = ? AND state = 'open'",
        (msgspec.json.encode(decision).decode(), by, now, key),
    )
    return cursor.rowcount == 1


def withdraw(conn: sqlite3.Connection, key: str, now: float) -> bool:
    cursor = conn.execute(
        "UPDATE interactions SET state = 'withdrawn', decided = ? WHERE key = ? AND state = 'open'", (now, key)
    )
    return cursor.rowcount == 1
