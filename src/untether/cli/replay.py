"""`untether replay`: prints what happened in a run of ours, or what an engine's session makes of a recording."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from ..conversation.engines import Engine, Engines
from ..conversation.recovery import stored_inputs
from ..process.journal import JournalReader
from ..process.recording import read_rows, replay_recording
from ..process.replay import Folded, StoredInput, fold
from ..session import StartFacts
from ..settings import ConfigError, load
from ..store import runs as run_table
from . import engines, logs
from .errors import told
from .runs import stored


@click.command()
@click.option("--engine", "engine_id", help="The engine whose agent was recorded; for a file.")
@click.option("--events", "form", flag_value="events", default="events", help="The events of the run (the default).")
@click.option("--raw", "form", flag_value="raw", help="All that went in and came out, in its order.")
@click.argument("what", metavar="RUN|FILE")
def replay(engine_id: str | None, form: str, what: str) -> None:
    """Print a RUN (its number, see `untether runs`) from its journal, or feed the recording FILE to an engine.

    One JSON object a line. FILE holds rows {"t", "dir", "frame" or "raw"}, or plain lines of the agent's stdout. A
    bug report is such a file, and what --raw prints is one too.
    """
    logs.set_up((), level=logging.WARNING)
    with told(ConfigError):
        settings = load()
        found, _ = engines.build(settings, os.environ)
    if what.isdigit() and not Path(what).exists():
        records = _run(found, settings.state_dir / "processes", int(what), form)
    else:
        records = _recording(found, engine_id, Path(what))
    for record in records:
        click.echo(msgspec.json.encode(record))


def _recording(found: Engines, engine_id: str | None, file: Path) -> Iterator[dict[str, Any]]:
    if not file.is_file():
        raise click.UsageError(
            f"There is no file {str(file)!r}. A run is named by its number: untether runs lists them."
        )
    if engine_id is None:
        raise click.UsageError("Say which engine's agent was recorded: --engine ENGINE.")
    engine = _engine(found, engine_id)
    with file.open("rb") as lines:
        rows = list(read_rows(lines))
    return replay_recording(engine.runner.session, rows, engine.runner.dialect())


def _engine(found: Engines, engine_id: str) -> Engine:
    engine = found.get(engine_id)
    if engine is None:
        raise click.UsageError(f"There is no engine {engine_id!r}. Known: {', '.join(found.ids())}.")
    return engine


def _run(found: Engines, processes: Path, number: int, form: str) -> Iterator[dict[str, Any]]:
    with stored() as read:
        run: run_table.Run | None = read(lambda conn: run_table.run(conn, number)) or None
        if run is None:
            raise click.ClickException(f"There is no run {number}. untether runs lists them.")
        process_id = run.process_id
        facts = read(lambda conn: run_table.start_facts(conn, process_id)) if process_id else None
        inputs: list[StoredInput] = read(lambda conn: stored_inputs(conn, process_id)) if process_id else []
    if process_id is None or facts is None:
        raise click.ClickException(f"No agent was started for run {number}: {run.error}")
    reader = JournalReader(processes / process_id)
    if not (processes / process_id).exists():
        raise click.ClickException(f"The journal of run {number} is no longer kept.")
    start = msgspec.json.decode(facts, type=StartFacts)
    session = _engine(found, start.engine).runner.session(start)
    for folded in fold(session, reader.lines(), inputs):
        if run.ended_offset is not None and folded.place.offset > run.ended_offset:
            return
        if folded.place.offset > run.began_offset or not run.began_offset:
            yield from _events(folded) if form == "events" else _raw(folded)


def _events(folded: Folded) -> Iterator[dict[str, Any]]:
    for event in folded.step.events:
        yield {"t": folded.now, "event": msgspec.to_builtins(event)}


def _raw(folded: Folded) -> Iterator[dict[str, Any]]:
    """What came in (a line, or an input of ours), and the lines for the agent that it led to."""
    cause = folded.cause
    if isinstance(cause, StoredInput):
        yield {"t": folded.now, "dir": "meta", "event": "input", "input": msgspec.to_builtins(cause.item)}
    else:
        yield {"t": folded.now, "dir": "out", **_line(cause.data)}
    for line in folded.step.writes:
        yield {"t": folded.now, "dir": "in", **_line(line)}


def _line(data: bytes) -> dict[str, Any]:
    try:
        return {"frame": msgspec.json.decode(data)}
    except msgspec.DecodeError:
        return {"raw": data.decode("utf-8", "replace").rstrip("\n")}
