"""Engine backends: what a package exports to add an engine, and how the installed ones are found.

An engine is an entry point of the group `untether.engine_backends` whose name is the engine's id and whose value is
an `EngineBackend`. Finding them reads package metadata only; a package's code is imported when its engine is loaded.
What is wrong with one engine never hides another: it is reported as a `LoadError`.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from .model import Record
from .session import Capabilities

if TYPE_CHECKING:
    from .runner import Runner

log = structlog.get_logger(__name__)

GROUP = "untether.engine_backends"
OWN_DISTRIBUTION = "untether"

EngineConfig: TypeAlias = Mapping[str, Any]
"""The engine's table of `untether.toml`."""

_ID = re.compile(r"[a-z0-9_]{1,32}")

# An engine is chosen with `/ID` in a chat and named on the command line, so its id may be no command there.
_COMMANDS = """
    agent ask at auth autocontinue browse cancel config continue ctx doctor export file grants health help init listen
    loop model new pair ping planmode plugins queue reasoning replay restart runs start stats status steer stop threads
    topic trigger usage verbose version
"""
RESERVED_IDS = frozenset(_COMMANDS.split())


class Login(Record, frozen=True):
    """How the CLI of an engine logs in without a terminal: it prints a link, and ends with 0 when it is logged in.

    `arguments` come after the program. `takes_code`: it reads the code that the page shows as a line of its stdin;
    else it waits for the page by itself, and what it prints may name a code to type there.
    """

    arguments: tuple[str, ...]
    takes_code: bool = True


@dataclass(frozen=True)
class EngineBackend:
    """An engine as its package exports it.

    `build_runner(config, config_path)` makes the runner from the engine's table and the path of the file it is in; it
    raises ValueError with a message for the owner when the table is wrong. `cli_cmd` is the program that must be on
    PATH (None: none is needed), `install_cmd` how to get it, `min_version` the oldest one that works. `title` is how
    people call it, by default the id. `login` is for `/auth`, None when it has to be done on the machine.
    """

    id: str
    build_runner: Callable[[EngineConfig, Path], Runner]
    cli_cmd: str | None = None
    install_cmd: str | None = None
    min_version: str | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    title: str = ""
    login: Login | None = None

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.id)

    def build(self, config: EngineConfig, config_path: Path) -> Runner:
        """Make a runner, and tell it what only the backend says: capabilities, how its CLI is got, which will do.

        :raises ValueError: when the table is wrong; a package's code may raise anything else
        """
        runner = self.build_runner(config, config_path)
        for name, unset in (("capabilities", Capabilities()), ("install_cmd", ""), ("min_version", "")):
            value = getattr(self, name)
            if value and getattr(runner, name, None) == unset:
                setattr(runner, name, value)
        return runner


class LoadError(Record, frozen=True):
    """An engine that is installed and cannot be used: its id, the package it came with, and why, in a sentence."""

    id: str
    dist: str
    message: str


class BackendError(LookupError):
    """The engine cannot be had; `error` says why."""

    def __init__(self, error: LoadError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True)
class Discovered:
    """All engines that could be loaded, by id in alphabetical order, and what was wrong with the others."""

    backends: Mapping[str, EngineBackend]
    errors: tuple[LoadError, ...] = ()


def discover(allow: Sequence[str] = ()) -> Discovered:
    """Load every installed engine. `allow` names the packages that may bring engines; empty allows all."""
    backends: dict[str, EngineBackend] = {}
    found, errors = _find(allow)
    for entry in found.values():
        try:
            backends[entry.name] = _load(entry)
        except BackendError as problem:
            errors.append(problem.error)
    for error in errors:
        log.warning("backends.not_loaded", engine=error.id, dist=error.dist, error=error.message)
    return Discovered(backends, tuple(errors))


def engine_ids(allow: Sequence[str] = ()) -> tuple[str, ...]:
    """The ids of the installed engines, without importing any."""
    return tuple(_find(allow)[0])


def load_backend(id: str, allow: Sequence[str] = ()) -> EngineBackend:
    """Load one engine and import no other.

    :raises BackendError: when there is no such engine, or it cannot be used
    """
    found, errors = _find(allow)
    if entry := found.get(id):
        return _load(entry)
    for error in errors:
        if error.id == id:
            raise BackendError(error)
    known = ", ".join(found) or "none"
    raise BackendError(LoadError(id, "", f"There is no engine {id!r}. Installed: {known}."))


def _find(allow: Sequence[str]) -> tuple[dict[str, EntryPoint], list[LoadError]]:
    """The usable entry points by id, and why others are not. A built-in engine wins over a package's of the same id."""
    allowed = {_normal(name) for name in allow}
    by_id: dict[str, list[EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        dist = _normal(_dist(entry))
        if not allowed or dist in allowed or dist == OWN_DISTRIBUTION:
            by_id.setdefault(entry.name, []).append(entry)

    found: dict[str, EntryPoint] = {}
    errors: list[LoadError] = []
    for id, entries in sorted(by_id.items()):
        entries.sort(key=lambda entry: (_normal(_dist(entry)) != OWN_DISTRIBUTION, _dist(entry)))
        first, *others = entries
        if problem := _wrong_id(id):
            errors += [LoadError(id, _dist(entry), problem) for entry in entries]
        elif not others:
            found[id] = first
        elif _normal(_dist(first)) == OWN_DISTRIBUTION:
            found[id] = first
            message = f"The engine {id!r} is built in; the one of this package is not used."
            errors += [LoadError(id, _dist(entry), message) for entry in others]
        else:
            names = ", ".join(_dist(entry) for entry in entries)
            message = f"Several packages bring an engine {id!r}: {names}. Uninstall all but one."
            errors += [LoadError(id, _dist(entry), message) for entry in entries]
    return found, errors


def _wrong_id(id: str) -> str | None:
    if not _ID.fullmatch(id):
        return f"{id!r} cannot be an engine id: use 1 to 32 of a-z, 0-9 and _."
    if id in RESERVED_IDS:
        return f"{id!r} cannot be an engine id: it is a command."
    return None


def _load(entry: EntryPoint) -> EngineBackend:
    dist = _dist(entry)

    def problem(message: str) -> BackendError:
        return BackendError(LoadError(entry.name, dist, message))

    try:
        backend = entry.load()
    except Exception as error:  # a package's code: whatever it raises, the other engines go on
        log.debug("backends.import_failed", engine=entry.name, dist=dist, exc_info=True)
        raise problem(f"Its code failed to load: {type(error).__name__}: {error}") from error
    if not isinstance(backend, EngineBackend):
        raise problem(f"{entry.value} is a {type(backend).__name__}; an EngineBackend is needed.")
    if backend.id != entry.name:
        raise problem(f"The entry point is named {entry.name!r}, but the backend's id is {backend.id!r}.")
    return backend


def _dist(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else ""


def _normal(name: str) -> str:
    """A distribution name in the form that PEP 503 compares."""
    return re.sub(r"[-_.]+", "-", name).lower()
