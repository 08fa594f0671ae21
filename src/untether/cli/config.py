"""`untether config`: show and change the settings file. Exit codes: 0 done, 1 refused or not set, 2 wrong usage."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..settings import ConfigError, Problem, default_path, edit

_config_path = click.option(
    "--config-path",
    type=click.Path(path_type=Path),
    help="The settings file. Default: $UNTETHER_CONFIG_PATH, else ~/.untether/untether.toml.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def config() -> None:
    """Show and change the settings. Secrets are never shown."""


@config.command("path")
@_config_path
def show_path(config_path: Path | None) -> None:
    """Print where the settings file is."""
    click.echo(_file(config_path))


@config.command("list")
@click.option("--all", "with_defaults", is_flag=True, help="Also show the defaults in force.")
@_as_json
@_config_path
def list_settings(config_path: Path | None, as_json: bool, with_defaults: bool) -> None:
    """Print every setting of the file and the environment."""
    with _told_errors():
        entries = edit.list_values(_file(config_path), environ=os.environ, defaults=with_defaults)
    _print(entries, as_json)


@config.command("get")
@click.argument("key")
@_as_json
@_config_path
def get_setting(key: str, config_path: Path | None, as_json: bool) -> None:
    """Print the value of KEY, or all values of a table."""
    with _told_errors():
        entries = edit.get(_file(config_path), key, environ=os.environ)
        wanted = edit.canonical(key)
    if not entries:
        click.echo(f"{key} is not set.", err=True)
        sys.exit(1)
    if len(entries) > 1 or entries[0].path != wanted:
        _print(entries, as_json)
    elif as_json:
        click.echo(_json(entries[0].shown))
    else:
        shown = entries[0].shown
        click.echo(shown if isinstance(shown, str) else entries[0].toml)


# Ids of groups are negative: without this setting click would read -1001234 as an option.
@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value", required=False)
@_config_path
def set_setting(key: str, value: str | None, config_path: Path | None) -> None:
    """Set KEY to VALUE: a TOML value such as 5, true or ["a", "b"], anything else is text.

    Without VALUE it is read from standard input, which keeps a secret out of the shell's history.
    """
    if value is None:
        value = click.prompt("Value", hide_input=True) if sys.stdin.isatty() else sys.stdin.read().strip()
    path = _file(config_path)
    with _told_errors():
        remaining = edit.set_value(path, key, value, environ=os.environ)
        entries = edit.get(path, key, environ=os.environ)
    for entry in entries:
        if entry.variable:
            click.echo(f"{entry.variable} is set in the environment and overrides {entry.key}.", err=True)
    _tell_remaining(path, remaining)


@config.command("unset")
@click.argument("key")
@_config_path
def unset_setting(key: str, config_path: Path | None) -> None:
    """Remove KEY, a value or a whole table, from the file."""
    path = _file(config_path)
    with _told_errors():
        remaining = edit.unset(path, key, environ=os.environ)
    _tell_remaining(path, remaining)


def _file(chosen: Path | None) -> Path:
    return chosen.absolute() if chosen else default_path(os.environ)


@contextmanager
def _told_errors() -> Iterator[None]:
    try:
        yield
    except edit.UnknownKeyError as error:
        raise click.UsageError(str(error)) from None
    except (ConfigError, edit.KeyNotSetError) as error:
        click.echo(error.args[0] if isinstance(error, edit.KeyNotSetError) else str(error), err=True)
        sys.exit(1)


def _tell_remaining(path: Path, problems: Sequence[Problem]) -> None:
    if problems:
        click.echo(ConfigError(path, problems, headline=f"Changed. {path} still has a problem:"), err=True)


def _print(entries: Sequence[edit.Entry], as_json: bool) -> None:
    if as_json:
        click.echo(_json({entry.key: entry.shown for entry in entries}))
        return
    for entry in entries:
        origin = f"  # from {entry.variable}" if entry.variable else "  # default" if entry.is_default else ""
        click.echo(f"{entry.key} = {entry.toml}{origin}")


def _json(value: Any) -> str:
    as_text: Callable[[Any], str] = str  # TOML's dates
    return json.dumps(value, ensure_ascii=False, indent=2, default=as_text)
