"""`untether db`: a copy of the database, and whether it is sound; both also while the bridge runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import click

from ..settings import ConfigError, load
from ..store.migrate import StoreError, backup, connect, integrity_check, load_migrations, newer_schema
from .errors import told


@click.group()
def db() -> None:
    """Back up the database, or check it."""


@db.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE when it is there.")
def backup_(file: Path, force: bool) -> None:
    """Copy the database to FILE, whole and consistent, while Untether may run. Only you can read the copy."""
    source = _database()
    _refuse(source, file, force=force)
    with told(StoreError):
        backup(source, file)
    with closing(connect(file, read_only=True)) as copy:
        (count,) = copy.execute("SELECT COUNT(*) FROM runs").fetchone()
    click.echo(f"✓ {file}  ({file.stat().st_size:,} bytes, {count} runs)")


def _refuse(source: Path, file: Path, *, force: bool) -> None:
    """End with an error when FILE cannot be what the copy is written to."""
    problem = ""
    if file.is_dir():
        problem = f"{file} is a folder. Name a file in it."
    elif not file.absolute().parent.is_dir():
        problem = f"There is no folder {file.absolute().parent}."
    elif file.resolve() in (source.resolve(), *(Path(f"{source.resolve()}{end}") for end in ("-wal", "-shm"))):
        problem = f"{file} is the database itself. Name another file."
    elif file.exists() and not force:
        problem = f"{file} is there already. Name another file, or replace it with --force."
    if problem:
        click.echo(problem, err=True)
        raise SystemExit(1)


@db.command()
def check() -> None:
    """Read the whole database and tell what is wrong in it. Exit code 1 when something is."""
    file = _database()
    with told(StoreError, sqlite3.Error):
        problems = integrity_check(file)
        if not problems and (newer := newer_schema(file, load_migrations())):
            problems = [str(newer)]
    for problem in problems:
        click.echo(f"✗ {problem}")
    if problems:
        raise SystemExit(1)
    click.echo(f"✓ {file} is sound")


def _database() -> Path:
    with told(ConfigError):
        file = load().state_dir / "untether.db"
    if not file.exists():
        click.echo(f"There is no database yet ({file}). The first start makes it.", err=True)
        raise SystemExit(1)
    return file
