"""`untether status` and `untether runs`: what the store knows, also while the bridge runs, as tables or JSON."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, TypeVar

import click
import msgspec

from ..settings import ConfigError, load
from ..store import interactions, threads
from ..store import runs as run_table
from ..store.runs import Run
from ..text import words
from .errors import told

T = TypeVar("T")

_SIGNS = {
    "running": "▸",
    "done": "✓",
    "failed": "✗",
    "stopped": "■",
    "interrupted": "■",
    "waiting": "⏸",
    "queued": "⏳",
}

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")


@click.command()
@_as_json
def status(as_json: bool) -> None:
    """What waits for you, what runs, what is queued, over all chats."""
    with stored() as read:
        waiting = read(interactions.all_open)
        asked = {pending.run_id: pending.interaction.act for pending in waiting}
        rows = [_row(read, run, state="waiting", title=asked[run.id]) for run in _runs_of(read, list(asked))]
        rows += [_row(read, run) for run in read(run_table.running) if run.id not in asked]
        for thread_id in read(threads.threads_with_queued):
            for message in read(partial(threads.queued, thread_id=thread_id)):
                thread = read(partial(threads.thread, thread_id=thread_id))
                rows.append(_facts(None, "queued", thread, words.one_line(message.text, 200), message.created, None))
    _print(rows, as_json, nothing="Nothing runs and nothing waits.")


@click.command()
@click.option("-n", "--number", default=20, show_default=True, help="How many.")
@_as_json
def runs(number: int, as_json: bool) -> None:
    """List the latest runs, the newest first."""
    with stored() as read:
        found = read(run_table.running)[::-1] + read(lambda conn: run_table.recent(conn, number))
        rows = [_row(read, run) for run in found[:number]]
    _print(rows, as_json, nothing="There were no runs yet.")


Read = Callable[[Callable[[sqlite3.Connection], Any]], Any]


@contextmanager
def stored() -> Iterator[Read]:
    """Reads of the store that change nothing; before the first start there is nothing in it."""
    with told(ConfigError):
        file = load().state_dir / "untether.db"
    if not file.exists():
        yield lambda job: []
        return
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            connection.row_factory = sqlite3.Row
            yield lambda job: job(connection)
    except sqlite3.Error as error:
        click.echo(f"{file} cannot be read: {error}. untether doctor looks at it.", err=True)
        raise SystemExit(1) from error


def _runs_of(read: Read, ids: list[int]) -> list[Run]:
    found = [read(partial(run_table.run, run_id=run_id)) for run_id in ids]
    return [run for run in found if run is not None]


def _row(read: Read, run: Run, *, state: str = "", title: str = "") -> dict[str, Any]:
    thread = read(lambda conn: threads.thread(conn, run.thread_id))
    return _facts(run.id, state or run.state, thread, title or run.title, run.started, run.ended)


def _facts(
    run_id: int | None, state: str, thread: threads.Thread | None, title: str, started: float, ended: float | None
) -> dict[str, Any]:
    return {
        "run": run_id,
        "state": state,
        "where": thread.where if thread else "",
        "engine": thread.engine if thread else "",
        "title": title,
        "started": started,
        "ended": ended,
    }


def _print(rows: list[dict[str, Any]], as_json: bool, *, nothing: str) -> None:
    """A table of at most 80 columns, or one JSON object a line."""
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row))
        return
    if not rows:
        click.echo(nothing)
    for row in rows:
        took = words.duration((row["ended"] or time.time()) - row["started"])
        run = "" if row["run"] is None else str(row["run"])
        where = words.one_line(f"{row['where']} · {row['engine']}", 22)
        click.echo(f"{_SIGNS[row['state']]} {run:>5} {took:>8}  {where:<22} {words.one_line(row['title'], 38)}")
