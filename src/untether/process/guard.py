"""The guard in front of every spawn: is the agent's CLI here and of a supported version, and is there room for it?"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

import anyio
import structlog

from ..model import Record
from ..text import words
from .machine import Machine

log = structlog.get_logger(__name__)

_VERSION = re.compile(r"(?<![\d.])(\d+)\.(\d+)(?:\.(\d+))?")
_ANSWER_LIMIT = 64 * 1024


class Cli(Record, frozen=True):
    """What an engine needs: its name for people, its command, how to install it, the oldest version that works.

    `min_version` is dotted digits, empty for any. `version_args` make the command print its version.
    """

    name: str
    command: str
    install: str = ""
    min_version: str = ""
    version_args: tuple[str, ...] = ("--version",)


class CliInfo(Record, frozen=True):
    """What was found: `path` is empty when there is no such program, `version` when it did not tell. `error` says why.

    `starts` is False when the system refused to start it.
    """

    path: str = ""
    version: str = ""
    error: str = ""
    starts: bool = True


class Refusal(Record, frozen=True):
    """Why a run is not started. `reason` is a word for programs, `message` what happened, `advice` what to do."""

    reason: str
    message: str
    advice: str


class RoomLimits(Record, frozen=True):
    """How much room one more agent needs, in MiB of memory, and how many may live at once (0: any number).

    For each one that lives, `reserve` is kept aside: it may grow. Below `block` of the rest none is started, below
    `warn` it is said.
    """

    warn: int = 2000
    block: int = 500
    reserve: int = 750
    most: int = 0


def no_room(limits: RoomLimits, machine: Machine, living: int) -> Refusal | None:
    """Why one more agent than the `living` ones is not started; None when it may be."""
    if limits.most and living >= limits.most:
        at_work = "1 agent is" if living == 1 else f"{living} agents are"
        return Refusal(
            "too_many_runs",
            f"{at_work} at work, and no more than {limits.most} may be.",
            "Wait until a run is done, or stop one, then try again. The limit is watchdog.max_concurrent_engine_runs.",
        )
    if limits.block and machine.available_mb < limits.block + limits.reserve * living:
        kept = f", and {_memory(limits.reserve * living)} are kept for those at work" if living else ""
        return Refusal(
            "too_little_memory",
            f"There is too little memory for one more agent: {words.memory(machine.available)} are free{kept}.",
            "Stop a run or close other programs, then try again. The limits are watchdog.prespawn_ram_block_mb and"
            " watchdog.prespawn_ram_per_run_reserve_mb.",
        )
    return None


def little_room(limits: RoomLimits, machine: Machine, living: int) -> str:
    """What to say when one more agent is started though memory is short; "" when it is not."""
    if not limits.warn or machine.available_mb >= limits.warn + limits.reserve * living:
        return ""
    return f"memory is short: {words.memory(machine.available)} free on this machine"


def _memory(megabytes: int) -> str:
    return words.memory(megabytes * 2**20)


class Guard:
    """Asks each CLI for its version once, until its file changes."""

    def __init__(self, timeout: float = 10.0) -> None:
        """`timeout` is how many seconds a CLI has to tell its version."""
        self._timeout = timeout
        self._known: dict[tuple[str, int, tuple[str, ...]], CliInfo] = {}
        self._told: dict[tuple[str, int, tuple[str, ...]], str] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def check(self, cli: Cli, environ: Mapping[str, str]) -> Refusal | None:
        """None when `cli` may be started with `environ`. A version that cannot be told is no obstacle."""
        info = await self.probe(cli.command, environ=environ, version_args=cli.version_args)
        install = f"Install it with `{cli.install}`" if cli.install else "Install it"
        if not info.path:
            return Refusal(
                "cli_missing",
                f"{cli.name} was not found: {info.error}.",
                f"{install}, or correct the command in the settings, then try again.",
            )
        if not info.starts:
            return Refusal(
                "cli_unusable",
                f"{cli.name} could not be started: {info.error}.",
                f"{install} again, or correct the command in the settings.",
            )
        if info.version and cli.min_version and _numbers(info.version) < _numbers(cli.min_version):
            return Refusal(
                "cli_unsupported",
                f"{cli.name} {info.version} is too old: {cli.min_version} or newer is needed.",
                f"Update it with `{cli.install}`, then try again." if cli.install else "Update it, then try again.",
            )
        return None

    async def told(self, command: str, args: Sequence[str], environ: Mapping[str, str]) -> str:
        """What `command` prints for `args`, such as its help; "" when it fails. Asked once, until its file changes."""
        path, _ = locate(command, environ)
        try:
            file = _identity(path) if path else None
        except OSError:
            file = None
        if file is None:
            return ""
        async with self._locks.setdefault(file[0], anyio.Lock()):
            key = (*file, tuple(args))
            if key not in self._told:
                answer = await _run(path, args, environ, self._timeout)
                self._told[key] = answer.text if answer.code == 0 else ""
            return self._told[key]

    async def probe(
        self, command: str, *, environ: Mapping[str, str], version_args: Sequence[str] = ("--version",)
    ) -> CliInfo:
        """Find `command` on the PATH of `environ` and ask it for its version."""
        path, error = locate(command, environ)
        if not path:
            return CliInfo(error=error)
        try:
            file = _identity(path)
        except OSError as vanished:
            return CliInfo(error=f"{path} cannot be read: {vanished.strerror}")
        async with self._locks.setdefault(file[0], anyio.Lock()):
            key = (*file, tuple(version_args))
            info = self._known.get(key)
            if info is None:
                info = await _ask(path, version_args, environ, self._timeout)
                if not info.error:
                    self._known[key] = info
            return info


def locate(command: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The path of a program and "", or "" and why there is none."""
    expanded = os.path.expanduser(command)
    path = shutil.which(expanded, path=environ.get("PATH", os.defpath)) if expanded else None
    if path:
        return path, ""
    if os.path.dirname(expanded):
        return "", f"{command} is not a program" if os.path.exists(expanded) else f"there is no file {command}"
    return "", f"there is no program `{command}` on the PATH"


def _identity(path: str) -> tuple[str, int]:
    """The file behind `path`, and when it was changed last."""
    real = os.path.realpath(path)
    return real, os.stat(real).st_mtime_ns


class _Answer(Record, frozen=True):
    """What a program printed. `code` is None when it had to be ended, `error` why it could not be started."""

    text: str = ""
    code: int | None = None
    error: str = ""


async def _ask(path: str, args: Sequence[str], environ: Mapping[str, str], patience: float) -> CliInfo:
    answer = await _run(path, args, environ, patience)
    if answer.error:
        return CliInfo(path, error=answer.error, starts=False)
    if answer.code == 0:
        found = _VERSION.search(answer.text)
        return CliInfo(path, found.group() if found else "")
    if answer.code is None:
        failure = f"it did not tell its version within {patience:g} s"
    else:
        failure = f"it ended with {answer.code} when asked for its version"
    log.warning("guard.version_unknown", path=path, error=failure)
    return CliInfo(path, error=failure)


async def _run(path: str, args: Sequence[str], environ: Mapping[str, str], patience: float) -> _Answer:
    # The answer goes to a file: a pipe could be held open by something that the CLI leaves behind.
    with tempfile.TemporaryFile() as answer:
        try:
            process = await anyio.open_process(
                [path, *args],
                stdin=DEVNULL,
                stdout=answer,
                stderr=answer,
                env=environ,
                cwd=Path.home() if Path.home().is_dir() else None,
                start_new_session=True,
            )
        except OSError as error:
            return _Answer(error=error.strerror or str(error))
        try:
            with anyio.move_on_after(patience) as waiting:
                await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with anyio.move_on_after(1.0, shield=True):
                    await process.wait()
        answer.seek(0)
        text = answer.read(_ANSWER_LIMIT).decode("utf-8", "replace")
    return _Answer(text, None if waiting.cancelled_caught else process.returncode)


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.search(version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()
