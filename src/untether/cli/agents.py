"""`untether stop` and `untether restart`: act on what is at work, from another terminal or from an agent itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import click
import msgspec

from ..process.host import NotOurs, Rung
from ..process.journal import JournalReader
from ..process.kept import KeptProcess, NotStarted, standing
from ..session import ProcessExit, StartFacts
from ..settings import ConfigError, load
from ..store import runs as run_table
from ..store.lock import holder
from . import engines
from .errors import told
from .runs import stored


@click.command()
@click.argument("run", type=int)
def stop(run: int) -> None:
    """Stop the agent of RUN and all that it started, within 10 seconds. `untether runs` shows the numbers.

    A running bridge tells the chat; without one, the next start does.
    """
    with told(ConfigError):
        settings = load()
    with stored() as read:
        row: run_table.Run | None = read(partial(run_table.run, run_id=run)) or None
        process_id = row.process_id if row is not None else None
        facts = read(partial(run_table.start_facts, process_id=process_id)) if process_id else None
    if row is None:
        raise click.ClickException(f"There is no run {run}. untether runs lists them.")
    folder = settings.state_dir / "processes" / str(process_id)
    ended = JournalReader(folder).state() is not None  # its keeper may still wait for a bridge
    if process_id is None or ended or not folder.exists() or standing(folder) != "alive":
        click.echo(f"The agent of run {run} is not at work ({row.state}).")
        return
    found, _ = engines.build(settings, os.environ)
    engine = found.get(msgspec.json.decode(facts, type=StartFacts).engine) if facts else None
    ladder = engine.runner.stop_ladder if engine is not None else None
    end = anyio.run(_stop, folder, ladder)
    click.echo(f"Stopped: {end.note or end.signal or f'it ended with code {end.code}'}.")


async def _stop(folder: Path, ladder: Sequence[Rung] | None) -> ProcessExit:
    try:
        async with KeptProcess.attached(folder, epoch=None) as process:
            await (process.stop(ladder) if ladder is not None else process.stop())
            return await process.wait()
    except (NotOurs, NotStarted) as error:
        raise click.ClickException(f"The agent could not be stopped: {error}.") from error


@click.command()
def restart() -> None:
    """Start the running bridge again, such as after an upgrade. What runs goes on and is taken up again."""
    with told(ConfigError):
        folder = load().state_dir
    note = holder(folder) if folder.exists() else None
    if note is None:
        raise click.ClickException(f"No bridge is running on {folder}. Start it with: untether")
    os.kill(note.pid, signal.SIGUSR2)
    click.echo(f"Restarting (process {note.pid}).")
