"""`untether plugins`: the engines that are installed, and what is wrong with those that cannot be used."""

from __future__ import annotations

import logging
import os

import click

from ..settings import ConfigError, load
from . import engines, logs
from .errors import told


@click.command()
def plugins() -> None:
    """List the engines that are installed."""
    logs.set_up((), level=logging.WARNING)
    with told(ConfigError):
        found, errors = engines.build(load(), os.environ)
    for engine in found:
        place = engine.path or f"not found; install it with: {engine.backend.install_cmd}"
        click.echo(f"{'✓' if engine.available else '✗'} {engine.id:<12} {engine.backend.title:<16} {place}")
    for problem in errors:
        click.echo(f"✗ {problem.id:<12} {problem.message}")
    raise SystemExit(1 if errors else 0)
