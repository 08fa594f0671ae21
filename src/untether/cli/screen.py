"""The first screen: where the console is, what was found, and how to connect what is not, in one line each."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import click

from .. import __version__
from ..conversation.engines import Engine, Engines
from ..plugins import LoadError
from ..settings import Settings
from ..transports.telegram.api import BotApi
from ..transports.telegram.errors import ApiError
from . import engines as engine_list

_PATIENCE_S = 3.0  # for the versions of the agents and the name of the bot


async def first_screen(
    settings: Settings, engines: Engines, link: str | None, api: BotApi | None, errors: Sequence[LoadError] = ()
) -> None:
    """Print it, once the agents have told their versions and Telegram the bot's name, or after a moment."""
    names: list[str] = []
    refused: dict[str, str] = {}
    with anyio.move_on_after(_PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for engine in engines:
                tasks.start_soon(_check, engine, refused)
            if api is not None:
                tasks.start_soon(_bot_name, api, names)
    shown = [engine for engine in engines if engine_list.counts(engine, engines.default)]
    found = [_engine(engine, refused.get(engine.id, ""), is_default=engine.id == engines.default) for engine in shown]
    missing = [f"{name} (not driven by this version yet)" for name in engine_list.planned(os.environ)]
    program = _program()
    lines = {
        "console": f"{link}   (the link works once)" if link else "switched off",
        "Telegram": _telegram(settings, names) or f"not connected; {program} pair connects a bot",
        "engines": " · ".join([*found, *missing]),
        "projects": ", ".join(settings.projects) or f"none yet; {program} init adds the directory you are in",
        "state": f"{settings.state_dir}  (log: here, on stderr)",
    }
    click.echo(f"untether {__version__}")
    for name, text in lines.items():
        click.echo(f"  {name:<10} {text}")
    for error in errors:
        click.echo(f"  {'plugin':<10} ✗ {error.id}: {error.message}")


async def _check(engine: Engine, refused: dict[str, str]) -> None:
    if (refusal := await engine.runner.check(os.environ)) is not None:
        refused[engine.id] = refusal.message


async def _bot_name(api: BotApi, names: list[str]) -> None:
    try:
        names.append((await api.get_me()).username)
    except ApiError:
        return  # the transport says what is wrong, and keeps on trying


def _telegram(settings: Settings, names: list[str]) -> str:
    if settings.telegram is None:
        return ""
    return " · ".join([*(f"@{name}" for name in names), f"chat {settings.telegram.chat_id}"])


def _engine(engine: Engine, refused: str, *, is_default: bool) -> str:
    mark = " (default)" if is_default else ""
    if not engine.available:
        return f"{engine.id}{mark} not found; install it with: {engine.backend.install_cmd}"
    if refused:
        return f"{engine.id}{mark} cannot be used: {refused}"
    name = " ".join(part for part in (engine.id, engine.runner.cli_version) if part)
    form = "" if engine.runner.interactive else " (cannot ask for permission)"
    note = f" ({engine.backend.note})" if engine.backend.note else ""
    return f"{name}{mark}{form}{note}"


def _program() -> str:
    """How this program is called here: it may be in an environment that is not on PATH."""
    if shutil.which("untether"):
        return "untether"
    script = Path(sys.executable).with_name("untether")
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)
