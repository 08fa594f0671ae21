"""The owner of `processes`, `inputs` and `runs`: agents at work, what went into them, and what came of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from ..model import Record


class Process(Record, frozen=True):
    """An agent's process as stored: its start facts as JSON, and the place (output offset, input ordinal) up to which
    its effects are committed."""

    id: str
    thread_id: int
    start: bytes
    applied: tuple[int, int]


class Run(Record, frozen=True):
    """One request to its answer. Times are epoch seconds; offsets are bytes of the process's output."""

    id: int
    thread_id: int
    process_id: str | None
    message_id: int | None
    title: str
    state: str
    started: float
    ended: float | None
    began_offset: int
    ended_offset: int | None
    answer: str
    error: str
    advice: str
    raw_error: str
    usage: dict[str, Any]
    steps: int
    model: str
    stop_asked: bool = False
    taken: bool = False  # by the agent: its message is in the session


_RUN = (
    "SELECT id, thread_id, process_id, message_id, title, state, started, ended, began_offset, ended_offset, answer,"
    " error, advice, raw_error, usage, steps, model, stop_asked, taken FROM runs"
)


def _run(row: Any) -> Run:
    decoded = {
        "usage": msgspec.json.decode(row["usage"]),
        "stop_asked": bool(row["stop_asked"]),
        "taken": bool(row["taken"]),
    }
    return Run(**{**dict(row), **decoded})


# ---------------------------------------------------------------------------------------------------- processes


def add_process(conn: sqlite3.Connection, process_id: str, thread_id: int, start: bytes, now: float) -> None:
    """`start` is the session's start facts as JSON."""
    conn.execute(
        "INSERT INTO processes (id, thread_id, start, created) VALUES (?, ?, ?, ?)",
        (process_id, thread_id, start.decode(), now),
    )


def start_facts(conn: sqlite3.Connection, process_id: str) -> bytes | None:
    row = conn.execute("SELECT start FROM processes WHERE id = ?", (process_id,)).fetchone()
    return None if row is None else str(row[0]).encode()


def end_process(conn: sqlite3.Connection, process_id: str, exit: bytes, now: float) -> None:
    """`exit` is how the agent ended, as JSON. A process ends once."""
    conn.execute(
        "UPDATE processes SET ended = ?, exit = ? WHERE id = ? AND ended IS NULL", (now, exit.decode(), process_id)
    )


def set_applied(conn: sqlite3.Connection, process_id: str, offset: int, ordinal: int) -> None:
    """Effects up to this place of the journal are committed."""
    conn.execute(
        "UPDATE processes SET applied_offset = ?, applied_ordinal = ? WHERE id = ?", (offset, ordinal, process_id)
    )


def open_processes(conn: sqlite3.Connection) -> list[Process]:
    """Those not marked as ended, oldest first."""
    rows = conn.execute(
        "SELECT id, thread_id, start, applied_offset, applied_ordinal FROM processes WHERE ended IS NULL"
        " ORDER BY created"
    )
    return [Process(row[0], row[1], str(row[2]).encode(), (row[3], row[4])) for row in rows]


# ------------------------------------------------------------------------------------------------------- inputs


def add_input(conn: sqlite3.Connection, process_id: str, offset: int, now: float, item: bytes) -> int:
    """Append an input (as JSON) and return its ordinal; the first is 1."""
    (ordinal,) = conn.execute(
        "SELECT COALESCE(MAX(ordinal), 0) + 1 FROM inputs WHERE process_id = ?", (process_id,)
    ).fetchone()
    conn.execute(
        "INSERT INTO inputs (process_id, ordinal, offset, time, item) VALUES (?, ?, ?, ?, ?)",
        (process_id, ordinal, offset, now, item),
    )
    return int(ordinal)


def inputs(conn: sqlite3.Connection, process_id: str) -> list[tuple[int, int, float, bytes]]:
    """(ordinal, output offset, epoch seconds, input as JSON), in order."""
    rows = conn.execute(
        "SELECT ordinal, offset, time, item FROM inputs WHERE process_id = ? ORDER BY ordinal", (process_id,)
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows]


# --------------------------------------------------------------------------------------------------------- runs


def add_run(
    conn: sqlite3.Connection,
    *,
    thread_id: int,
    process_id: str | None,
    message_id: int | None,
    title: str,
    now: float,
    began_offset: int = 0,
) -> int:
    cursor = conn.execute(
        "INSERT INTO runs (thread_id, process_id, message_id, title, started, began_offset) VALUES (?, ?, ?, ?, ?, ?)",
        (thread_id, process_id, message_id, title, now, began_offset),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def run(conn: sqlite3.Connection, run_id: int) -> Run | None:
    row = conn.execute(f"{_RUN} WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else _run(row)


def running(conn: sqlite3.Connection) -> list[Run]:
    return [_run(row) for row in conn.execute(f"{_RUN} WHERE state = 'running' ORDER BY started")]


def of_process(conn: sqlite3.Connection, process_id: str) -> list[Run]:
    return [_run(row) for row in conn.execute(f"{_RUN} WHERE process_id = ? ORDER BY id", (process_id,))]


def recent(conn: sqlite3.Connection, limit: int) -> list[Run]:
    rows = conn.execute(f"{_RUN} WHERE state <> 'running' ORDER BY started DESC LIMIT ?", (limit,))
    return [_run(row) for row in rows]


def of_thread(conn: sqlite3.Connection, thread_id: int) -> list[Run]:
    return [_run(row) for row in conn.execute(f"{_RUN} WHERE thread_id = ? ORDER BY id", (thread_id,))]


def end_run(
    conn: sqlite3.Connection,
    run_id: int,
    state: str,
    now: float,
    *,
    answer: str = "",
    error: str = "",
    advice: str = "",
    raw_error: str = "",
    usage: dict[str, Any] | None = None,
    steps: int = 0,
    model: str = "",
    ended_offset: int | None = None,
) -> bool:
    """Close a run that is open. False when it was closed before: a run ends once."""
    cursor = conn.execute(
        "UPDATE runs SET state = ?, ended = ?, answer = ?, error = ?, advice = ?, raw_error = ?, usage = ?, steps = ?,"
        " model = ?, ended_offset = ? WHERE id = ? AND state = 'running'",
        (
            state,
            now,
            answer,
            error,
            advice,
            raw_error,
            msgspec.json.encode(usage or {}).decode(),
            steps,
            model,
            ended_offset,
            run_id,
        ),
    )
    return cursor.rowcount == 1


def ask_stop(conn: sqlite3.Connection, thread_ids: Sequence[int]) -> None:
    """What runs in these threads is to be stopped, after a restart too."""
    conn.executemany(
        "UPDATE runs SET stop_asked = 1 WHERE thread_id = ? AND state = 'running'", [(one,) for one in thread_ids]
    )


def last_model(conn: sqlite3.Connection, thread_id: int) -> str:
    """The model of the newest run of a thread of which it is known, else ""."""
    row = conn.execute(
        "SELECT model FROM runs WHERE thread_id = ? AND model <> '' ORDER BY id DESC LIMIT 1", (thread_id,)
    ).fetchone()
    return "" if row is None else str(row[0])


def set_taken(conn: sqlite3.Connection, prompt_id: str) -> None:
    """The agent has taken the message of a run."""
    conn.execute(
        "UPDATE runs SET taken = 1 WHERE message_id = (SELECT id FROM messages WHERE prompt_id = ?)"
        " AND state = 'running'",
        (prompt_id,),
    )
