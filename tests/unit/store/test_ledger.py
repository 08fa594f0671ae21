"""The ledger: a run counts once, sums are of a time, and costs from before it are carried over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from untether.store import ledger, runs, threads
from untether.store.ledger import PlaceSpent, Spent
from untether.store.migrate import load_migrations, open_migrated
from untether.transport import ChatRef


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    conn = open_migrated(tmp_path / "untether.db", load_migrations())
    yield conn
    conn.close()


def run_in(conn: sqlite3.Connection, project: str | None, cwd: str = "/work/shop") -> int:
    chat = ChatRef("fake", "1")
    thread = threads.add_thread(conn, chat, engine="demo", cwd=cwd, project=project, branch=None, session=None, now=1.0)
    return runs.add_run(conn, thread_id=thread.id, process_id=None, message_id=None, title="", now=1.0)


def test_a_run_counts_once(conn: sqlite3.Connection) -> None:
    run = run_in(conn, "shop")
    ledger.add(conn, run, {"cost_usd": 0.5, "input_tokens": 10, "output_tokens": 2}, "m", 100.0)
    ledger.add(conn, run, {"cost_usd": 0.5}, "m", 200.0)
    assert ledger.cost_of(conn, run) == 0.5
    assert ledger.since(conn, 0.0) == Spent(0.5, 1, 0, 10, 2)
    assert ledger.since(conn, 100.5) == Spent()


def test_sums_by_place_and_what_is_not_known(conn: sqlite3.Connection) -> None:
    ledger.add(conn, run_in(conn, None), {"input_tokens": 5}, "m", 100.0)
    for cost in (0.25, 1.0):
        ledger.add(conn, run_in(conn, "shop"), {"cost_usd": cost}, "m", 100.0)
    ledger.add(conn, run_in(conn, "shop"), {}, "m", 100.0)  # it used nothing, such as one that was refused
    assert ledger.by_place(conn, 0.0) == [
        PlaceSpent("shop", "demo", Spent(1.25, 2)),
        PlaceSpent("/work/shop", "demo", Spent(0.0, 1, 1, 5)),
    ]
    assert ledger.since(conn, 0.0) == Spent(1.25, 3, 1, 5)


def test_costs_from_before_the_ledger_are_carried_over(tmp_path: Path) -> None:
    path, steps = tmp_path / "untether.db", load_migrations()
    before = next(number for number, step in enumerate(steps) if "money" in str(step.name))
    old = open_migrated(path, steps[:before])
    run = run_in(old, "shop")
    runs.end_run(old, run, "done", 50.0, usage={"cost_usd": 0.75, "input_tokens": 7}, model="m")
    runs.end_run(old, run_in(old, "shop"), "failed", 60.0)
    run_in(old, "shop")  # it still runs
    old.commit()
    old.close()
    new = open_migrated(path, steps)
    assert ledger.by_place(new, 0.0) == [PlaceSpent("shop", "demo", Spent(0.75, 1, 0, 7))]
    new.close()
