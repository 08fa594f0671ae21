"""`untether doctor`: checks everything that the bridge needs, and says what is wrong and what to do."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import anyio
import click

from ..conversation.engines import Engine
from ..settings import ConfigError, Settings, load
from ..store.journals import size_of
from ..store.migrate import StoreError, integrity_check, load_migrations, newer_schema
from ..text import words
from . import engines, logs, plugged
from .machine import Machine

_DISK_GOOD = 1024**3  # bytes
_DISK_NEEDED = 256 * 1024**2  # below it a keeper stops reading (`KeeperLimits.floor`)


@dataclass(frozen=True)
class Finding:
    """One line. `needed` says whether the bridge cannot do its work without it."""

    ok: bool
    what: str
    todo: str = ""
    needed: bool = True

    def __str__(self) -> str:
        line = f"{'✓' if self.ok else '✗' if self.needed else '·'} {self.what}"
        return line if self.ok or not self.todo else f"{line}\n    {self.todo}"


@click.command()
def doctor() -> None:
    """Check everything that the bridge needs. Exit code 1 when something needed is wrong."""
    logs.set_up((), level=logging.WARNING)
    anyio.run(_report)


async def _report() -> None:
    wrong = False
    async for finding in _findings():
        click.echo(str(finding))
        wrong |= finding.needed and not finding.ok
    raise SystemExit(1 if wrong else 0)


async def _findings() -> AsyncIterator[Finding]:
    version = platform.python_version()
    yield Finding(sys.version_info >= (3, 11), f"Python {version}", "Install Python 3.11 or newer.")
    try:
        settings = load()
    except ConfigError as error:
        yield Finding(False, str(error), "Correct the file, then run untether doctor again.")
        return
    where = str(settings.path) if settings.exists else f"embedded defaults (no file at {settings.path})"
    yield Finding(True, f"Settings: {where}")
    yield _store(settings)
    yield _space(settings)
    for finding in stays(Machine(sys.platform, os.environ)):
        yield finding
    try:
        found, errors = engines.build(settings, os.environ)
    except ConfigError as error:
        yield Finding(False, str(error), "Correct the file, then run untether doctor again.")
        return
    for problem in errors:
        yield Finding(False, f"Engine {problem.id}: {problem.message}", "Uninstall or update its package.")
    for problem in plugged.load_errors(settings):
        yield Finding(
            False, f"Plugin {problem.id}: {problem.message}", "Uninstall or update its package.", needed=False
        )
    for engine in found:
        if not engines.counts(engine, found.default):
            continue
        finding = await _engine(engine, needed=engine.id == found.default)
        yield finding
        if finding.ok and (lines := await engine.runner.drift(os.environ)):
            name = f"{engine.backend.title} {engine.runner.cli_version} has what this version does not know"
            todo = [*lines, "It works all the same; look for a newer Untether."]
            yield Finding(False, name, "\n    ".join(todo), needed=False)
    for name in engines.planned(os.environ):
        yield Finding(False, f"{name} is installed; this version of Untether cannot drive it yet.", needed=False)
    for alias, project in settings.projects.items():
        there = project.path.is_dir()
        yield Finding(
            there, f"Project {alias}: {project.path}", "The folder is not there. Correct its path.", needed=False
        )
    yield await _telegram(settings)
    yield _console(settings)


def _store(settings: Settings) -> Finding:
    file = settings.state_dir / "untether.db"
    name = f"Store: SQLite {sqlite3.sqlite_version}, {file}"
    if not file.exists():
        folder = next(parent for parent in file.parents if parent.exists())
        writable = os.access(folder, os.W_OK)
        return Finding(writable, f"{name} (not made yet)", f"{folder} cannot be written to.")
    try:
        problems = integrity_check(file)
        newer = None if problems else newer_schema(file, load_migrations())
    except StoreError as error:
        return Finding(False, name, str(error))
    if newer is not None:
        return Finding(False, name, str(newer))
    todo = "Move the file away to start anew, or put a copy (untether.db.before-…) in its place if there is one."
    return Finding(not problems, name, f"{problems[0]}. {todo}" if problems else "")


def _space(settings: Settings) -> Finding:
    folder = settings.state_dir
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    name = f"State: {words.size(size_of(folder))} in {folder}, {words.size(free)} free on its disk"
    todo = f"Free some space: below {words.size(_DISK_NEEDED)} agents wait, and nothing new is taken up."
    return Finding(free >= _DISK_GOOD, name, todo, needed=free < _DISK_NEEDED)


def stays(machine: Machine) -> Iterator[Finding]:
    """Whether runs go on when the bridge is restarted, or the person logs out."""
    if kind := machine.container():
        todo = "An agent at work when it stops is cut; the chat tells which, with Resume."
        yield Finding(False, f"Container ({kind}): runs end with it", todo, needed=False)
        return
    if machine.platform != "linux" or not machine.booted_with_systemd():
        return
    if machine.lingers():
        yield Finding(True, f"Linger: what runs as a service of {machine.user} stays after the log-out")
    else:
        todo = f"So that a service and its runs stay: loginctl enable-linger {machine.user}"
        yield Finding(False, "Linger is off: services end when you log out", todo, needed=False)
    if machine.kills_user_processes():
        todo = "untether service install makes it a service; with linger that stays."
        what = "KillUserProcesses is on (logind.conf): what was started in a terminal ends when you log out"
        yield Finding(False, what, todo, needed=False)


async def _engine(engine: Engine, *, needed: bool) -> Finding:
    """Found, version, starts, answers the handshake."""
    title = engine.backend.title
    refusal = await engine.runner.check(os.environ)
    if refusal is not None:
        return Finding(False, refusal.message, refusal.advice, needed)
    failure = await engine.runner.handshake(os.environ)
    name = f"{title} {engine.runner.cli_version}".strip()
    if failure:
        return Finding(False, f"{name}: {failure}", "Start it in a terminal to see what it says.", needed)
    greeted = "starts and answers" if engine.runner.interactive else "found, cannot ask for permission"
    return Finding(True, f"{name}: {greeted} ({engine.path})")


async def _telegram(settings: Settings) -> Finding:
    table = settings.telegram
    if table is None:
        return Finding(False, "Telegram: not connected", "untether pair connects it.", needed=False)
    from ..transports.telegram.check import check

    problem, todo = await check(table.bot_token.get_secret_value(), table.chat_id, table.api_base_url)
    return Finding(not problem, f"Telegram: {problem or f'bot and chat {table.chat_id} answer'}", todo)


def _console(settings: Settings) -> Finding:
    web = settings.web
    if not web.enabled:
        return Finding(True, "Console: switched off")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((web.host, web.port))
        except OSError as error:
            todo = "Untether may be running already; else the next free port is taken, or set transports.web.port."
            return Finding(False, f"Console: port {web.port} is taken ({error.strerror})", todo, needed=False)
    return Finding(True, f"Console: port {web.port} on {web.host} is free")
