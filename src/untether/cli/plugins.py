"""`untether plugins`: the engines, transports and commands that are installed, and what is wrong with others."""

from __future__ import annotations

import logging
import os
from typing import Any

import click

from .. import backends, command_backends, transports
from ..plugins import Group, find, load_all
from ..settings import ConfigError, load
from . import engines, logs, plugged
from .errors import told


@click.command()
def plugins() -> None:
    """List the engines, transports and commands that are installed."""
    logs.set_up((), level=logging.ERROR)
    with told(ConfigError):
        settings = load()
        found, errors = engines.build(settings, os.environ)
    groups: tuple[tuple[str, Group[Any]], ...] = (
        ("Engines", backends.GROUP),
        ("Transports", transports.GROUP),
        ("Commands", command_backends.GROUP),
    )
    wrong = {
        "Engines": errors,
        "Transports": list(load_all(transports.GROUP, settings.plugins.enabled).errors),
        "Commands": plugged.commands(settings)[1],
    }
    failed = False
    for title, group in groups:
        installed, _ = find(group, settings.plugins.enabled)
        if not installed and not wrong[title]:
            continue
        click.echo(title)
        bad = {problem.id for problem in wrong[title]}
        for id, plugin in installed.items():
            engine = found.get(id) if title == "Engines" else None
            if engine is None and id in bad:
                continue
            here = engine is None or engine.available
            place = "" if engine is None else engine.path or f"not found; install it with: {engine.backend.install_cmd}"
            origin = f"{plugin.dist} {plugin.version}".strip()
            name = engine.backend.title if engine is not None else ""
            click.echo(f"{'✓' if here else '✗'} {id:<12} {origin:<28} {name:<16} {place}".rstrip())
            if engine is not None and engine.backend.note:
                click.echo(f"  {engine.backend.note}")
        for engine in found if title == "Engines" else ():
            if engine.id not in installed:
                place = engine.path or f"not found; install it with: {engine.backend.install_cmd}"
                mark = "✓" if engine.available else "✗"
                click.echo(f"{mark} {engine.id:<12} {'in the settings':<28} {engine.backend.title:<16} {place}")
        for problem in wrong[title]:
            failed = True
            click.echo(f"✗ {problem.id:<12} {f'{problem.dist}: ' if problem.dist else ''}{problem.message}")
    if settings.plugins.enabled:
        click.echo(f"Only these packages may bring plugins (plugins.enabled): {', '.join(settings.plugins.enabled)}")
    raise SystemExit(1 if failed else 0)
