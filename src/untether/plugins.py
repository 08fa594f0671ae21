"""Plugins: entry points of installed packages, found by their metadata, checked, and loaded one by one.

There are three groups: engines (`untether.engine_backends`), transports (`untether.transport_backends`) and commands
(`untether.command_backends`). The name of an entry point is the plugin's id. Finding reads package metadata only; a
package's code is imported when its plugin is loaded. What is wrong with one plugin never hides another: it is reported
as a `LoadError`.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Generic, Protocol, TypeVar

import structlog

from .model import Record

log = structlog.get_logger(__name__)

OWN_DISTRIBUTION = "untether"

_ID = re.compile(r"[a-z0-9_]{1,32}")


class HasId(Protocol):
    """What an entry point gives: an object that says its id."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=HasId)


class LoadError(Record, frozen=True):
    """A plugin that is installed and cannot be used: its id, the package it came with, and why, in a sentence."""

    id: str
    dist: str
    message: str


class BackendError(LookupError):
    """The plugin cannot be had; `error` says why."""

    def __init__(self, error: LoadError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True)
class Group(Generic[T]):
    """A group of entry points: its name, what its plugins are called, their class, and ids that they may not have.

    `taken(id)` says why an id cannot be used, "" when it can.
    """

    name: str
    noun: str
    kind: type[T]
    taken: Callable[[str], str] = lambda id: ""


@dataclass(frozen=True)
class Plugin:
    """One that is installed, not loaded yet. `dist` and `version` are of its package."""

    id: str
    dist: str
    version: str
    entry: EntryPoint


@dataclass(frozen=True)
class Loaded(Generic[T]):
    """All that could be loaded, by id in alphabetical order, and what was wrong with the others."""

    backends: Mapping[str, T]
    errors: tuple[LoadError, ...] = ()


def load_all(group: Group[T], allow: Sequence[str] = ()) -> Loaded[T]:
    """Load every plugin of a group. `allow` names the packages that may bring some; empty allows all."""
    backends: dict[str, T] = {}
    found, errors = find(group, allow)
    for plugin in found.values():
        try:
            backends[plugin.id] = load(group, plugin)
        except BackendError as problem:
            errors.append(problem.error)
    for error in errors:
        log.warning("plugins.not_loaded", group=group.name, id=error.id, dist=error.dist, error=error.message)
    return Loaded(backends, tuple(errors))


def find(group: Group[T], allow: Sequence[str] = ()) -> tuple[dict[str, Plugin], list[LoadError]]:
    """The usable plugins by id, and why others are not. A built-in one wins over a package's of the same id."""
    allowed = {_normal(name) for name in allow}
    by_id: dict[str, list[Plugin]] = {}
    for entry in importlib.metadata.entry_points(group=group.name):
        plugin = _plugin(entry)
        if not allowed or _normal(plugin.dist) in allowed or _is_own(plugin):
            by_id.setdefault(plugin.id, []).append(plugin)

    found: dict[str, Plugin] = {}
    errors: list[LoadError] = []
    for id, plugins in sorted(by_id.items()):
        plugins.sort(key=lambda plugin: (not _is_own(plugin), plugin.dist))
        first, *others = plugins
        if problem := wrong_id(group, id, own=_is_own(first)):
            errors += [LoadError(id, plugin.dist, problem) for plugin in plugins]
        elif not others:
            found[id] = first
        elif _is_own(first):
            found[id] = first
            message = f"The {group.noun} {id!r} is built in; the one of this package is not used."
            errors += [LoadError(id, plugin.dist, message) for plugin in others]
        else:
            names = ", ".join(plugin.dist for plugin in plugins)
            article = "an" if group.noun[0] in "aeiou" else "a"
            message = f"Several packages bring {article} {group.noun} {id!r}: {names}. Uninstall all but one."
            errors += [LoadError(id, plugin.dist, message) for plugin in plugins]
    return found, errors


def load(group: Group[T], plugin: Plugin) -> T:
    """Import the package's code.

    :raises BackendError: when that fails, or gives something else than a plugin of the group with this id
    """

    def problem(message: str) -> BackendError:
        return BackendError(LoadError(plugin.id, plugin.dist, message))

    try:
        backend = plugin.entry.load()
    except Exception as error:  # a package's code: whatever it raises, the other plugins go on
        log.debug("plugins.import_failed", group=group.name, id=plugin.id, dist=plugin.dist, exc_info=True)
        raise problem(f"Its code failed to load: {type(error).__name__}: {error}") from error
    if not isinstance(backend, group.kind):
        needed = group.kind.__name__
        article = "an" if needed[0] in "AEIOU" else "a"
        raise problem(f"{plugin.entry.value} is a {type(backend).__name__}; {article} {needed} is needed.")
    if backend.id != plugin.id:
        raise problem(f"The entry point is named {plugin.id!r}, but the backend's id is {backend.id!r}.")
    return backend


def wrong_id(group: Group[T], id: str, *, own: bool) -> str:
    """Why `id` can be none in this group, "" when it can. `own`: it is one of Untether's."""
    article = "an" if group.noun[0] in "aeiou" else "a"
    if not _ID.fullmatch(id):
        return f"{id!r} cannot be {article} {group.noun} id: use 1 to 32 of a-z, 0-9 and _."
    taken = "" if own else group.taken(id)
    return f"{id!r} cannot be {article} {group.noun} id: {taken}." if taken else ""


def _plugin(entry: EntryPoint) -> Plugin:
    dist = entry.dist
    return Plugin(entry.name, dist.name if dist is not None else "", dist.version if dist is not None else "", entry)


def _is_own(plugin: Plugin) -> bool:
    return _normal(plugin.dist) == OWN_DISTRIBUTION


def _normal(name: str) -> str:
    """A distribution name in the form that PEP 503 compares."""
    return re.sub(r"[-_.]+", "-", name).lower()
