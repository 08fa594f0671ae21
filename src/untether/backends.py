"""Engine backends: what a package exports to add an engine, and how the installed ones are found.

An engine is an entry point of the group `untether.engine_backends` whose name is the engine's id and whose value is
an `EngineBackend`. Finding them reads package metadata only; a package's code is imported when its engine is loaded.
What is wrong with one engine never hides another: it is reported as a `LoadError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .model import Record
from .plugins import BackendError, Group, Loaded, LoadError, find, load, load_all
from .session import Capabilities

if TYPE_CHECKING:
    from .runner import Runner

EngineConfig: TypeAlias = Mapping[str, Any]
"""The engine's table of `untether.toml`."""

__all__ = [
    "GROUP",
    "RESERVED_IDS",
    "BackendError",
    "Discovered",
    "EngineBackend",
    "EngineConfig",
    "LoadError",
    "discover",
    "engine_ids",
    "load_backend",
]

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
    people call it, by default the id. `login` is for `/auth`, None when it has to be done on the machine. `note` is
    what an owner should know before choosing it, such as that it is deprecated; shown where engines are listed.
    """

    id: str
    build_runner: Callable[[EngineConfig, Path], Runner]
    cli_cmd: str | None = None
    install_cmd: str | None = None
    min_version: str | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    title: str = ""
    login: Login | None = None
    note: str = ""

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


GROUP: Group[EngineBackend] = Group(
    "untether.engine_backends", "engine", EngineBackend, lambda id: "it is a command" if id in RESERVED_IDS else ""
)
Discovered: TypeAlias = Loaded[EngineBackend]


def discover(allow: Sequence[str] = ()) -> Discovered:
    """Load every installed engine. `allow` names the packages that may bring engines; empty allows all."""
    return load_all(GROUP, allow)


def engine_ids(allow: Sequence[str] = ()) -> tuple[str, ...]:
    """The ids of the installed engines, without importing any."""
    return tuple(find(GROUP, allow)[0])


def load_backend(id: str, allow: Sequence[str] = ()) -> EngineBackend:
    """Load one engine and import no other.

    :raises BackendError: when there is no such engine, or it cannot be used
    """
    found, errors = find(GROUP, allow)
    if plugin := found.get(id):
        return load(GROUP, plugin)
    for error in errors:
        if error.id == id:
            raise BackendError(error)
    known = ", ".join(found) or "none"
    raise BackendError(LoadError(id, "", f"There is no engine {id!r}. Installed: {known}."))
