"""The owner of `ledger`: what each run cost, for as long as the database lives."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from ..model import Record


class Spent(Record, frozen=True):
    """What some runs came to. `unknown` of them cost something that their engine did not tell."""

    cost_usd: float = 0.0
    runs: int = 0
    unknown: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class PlaceSpent(Record, frozen=True):
    """What the runs of one engine in one place came to; `place` is a project, else a folder."""

    place: str
    engine: str
    spent: Spent


_SUMS = (
    "COALESCE(SUM(cost_usd), 0), COUNT(*), COUNT(*) - COUNT(cost_usd), COALESCE(SUM(input_tokens), 0),"
    " COALESCE(SUM(output_tokens), 0)"
)


def add(conn: sqlite3.Connection, run_id: int, usage: Mapping[str, Any], model: str, now: float) -> None:
    """Note what a run used (the fields of `model.Usage`), in the transaction that ends it; a run counts once."""
    figures = [usage.get(name) for name in ("cost_usd", "input_tokens", "output_tokens")]
    if all(figure is None for figure in figures):
        return
    conn.execute(
        "INSERT OR IGNORE INTO ledger (run_id, time, engine, place, model, cost_usd, input_tokens, output_tokens)"
        " SELECT r.id, ?, t.engine, COALESCE(t.project, t.cwd), ?, ?, ?, ?"
        " FROM runs r JOIN threads t ON t.id = r.thread_id WHERE r.id = ?",
        (now, model, *figures, run_id),
    )


def cost_of(conn: sqlite3.Connection, run_id: int) -> float:
    """US dollars of one run; 0 when they are not known."""
    row = conn.execute("SELECT COALESCE(cost_usd, 0) FROM ledger WHERE run_id = ?", (run_id,)).fetchone()
    return 0.0 if row is None else float(row[0])


def since(conn: sqlite3.Connection, then: float) -> Spent:
    """What all runs came to that ended at or after `then` (epoch seconds)."""
    return Spent(*conn.execute(f"SELECT {_SUMS} FROM ledger WHERE time >= ?", (then,)).fetchone())


def by_place(conn: sqlite3.Connection, then: float) -> list[PlaceSpent]:
    """The same for each project or folder and each engine, the dearest first."""
    rows = conn.execute(
        f"SELECT place, engine, {_SUMS} FROM ledger WHERE time >= ? GROUP BY place, engine"
        " ORDER BY SUM(cost_usd) DESC, COUNT(*) DESC, place, engine",
        (then,),
    )
    return [PlaceSpent(row[0], row[1], Spent(*row[2:])) for row in rows]
