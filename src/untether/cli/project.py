"""`untether init`: adds a directory as a project."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from ..backends import RESERVED_IDS
from ..settings import ConfigError, default_path, edit
from .errors import told


@click.command()
@click.argument("alias", required=False)
@click.option("--default", "make_default", is_flag=True, help="Messages that name no project go here.")
@click.option("--config-path", type=click.Path(path_type=Path), help="The settings file.")
def init(alias: str | None, make_default: bool, config_path: Path | None) -> None:
    """Add this directory as a project. ALIAS is its name in chats; by default that of the directory."""
    folder = Path.cwd()
    name = alias or re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,31}", name or ""):
        raise click.UsageError(
            f"{name or folder.name!r} cannot be a name: use letters, digits, - and _. Give one: untether init NAME"
        )
    if name in RESERVED_IDS:
        raise click.UsageError(f"{name!r} is taken: it is a command. Give another: untether init my-{name}")
    path = config_path or default_path(os.environ)
    with told(ConfigError):
        edit.add_project(path, name, folder, environ=os.environ, make_default=make_default)
    click.echo(
        f"✓ {name} is {folder}\n  In a chat: /{name} and your task, or /ctx set {name}. Restart Untether if it runs."
    )
