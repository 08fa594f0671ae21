"""`untether replay`: feeds a recording to an engine's session and prints its events and writes as JSON lines."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click
import msgspec

from ..process.recording import read_rows, replay_recording
from ..settings import ConfigError, load
from . import engines, logs
from .errors import told


@click.command()
@click.option("--engine", "engine_id", required=True, help="The engine whose agent was recorded.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(engine_id: str, file: Path) -> None:
    """Feed the recording FILE to an engine and print what it makes of it.

    FILE holds rows {"t", "dir", "frame" or "raw"}, or plain lines of the agent's stdout. A bug report is such a file.
    """
    logs.set_up((), level=logging.WARNING)
    with told(ConfigError):
        found, _ = engines.build(load(), os.environ)
    engine = found.get(engine_id)
    if engine is None:
        raise click.UsageError(f"There is no engine {engine_id!r}. Known: {', '.join(found.ids())}.")
    with file.open("rb") as lines:
        rows = list(read_rows(lines))
    for record in replay_recording(engine.runner.session, rows, engine.runner.dialect()):
        click.echo(msgspec.json.encode(record))
