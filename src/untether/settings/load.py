"""Reading the settings: the typed `Settings` of this machine from its file and environment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final, Literal, overload
from zoneinfo import ZoneInfo

from ..redact import is_secret_name
from .document import Document, suggestion
from .errors import ConfigError, Problem
from .keys import KeyPath
from .model import (
    FLAT_ENGINES,
    Chat,
    Claude,
    Codex,
    CostBudget,
    Demo,
    Loop,
    Pi,
    Plugins,
    Preamble,
    Progress,
    Project,
    Reminders,
    Retention,
    Root,
    Security,
    Telegram,
    Watchdog,
    Web,
)

CONFIG_PATH_VARIABLE: Final = "UNTETHER_CONFIG_PATH"


def default_path(environ: Mapping[str, str]) -> Path:
    """`$UNTETHER_CONFIG_PATH`, else `~/.untether/untether.toml`; always absolute."""
    if chosen := environ.get(CONFIG_PATH_VARIABLE):
        return Path(chosen).expanduser().absolute()
    return Path(environ.get("HOME") or Path.home(), ".untether", "untether.toml")


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this machine; a missing file means the defaults. Raises `ConfigError` with all problems.

    `environ` (default: the process's) gives the place of the file and the overrides `UNTETHER__SECTION__KEY`.
    An override is text for a single value and JSON for a list or table; an empty one is ignored.
    """
    environ = os.environ if environ is None else environ
    path = path.absolute() if path else default_path(environ)
    text = read_text(path)
    document = Document(path, text or "", environ)
    if document.root is None:
        raise ConfigError(path, document.problems)
    return Settings(path=path, exists=text is not None, values=document.root, document=document)


def read_text(path: Path) -> str | None:
    """The text of the file, None when there is none. Raises `ConfigError` when it cannot be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = Problem(what="the text is not UTF-8", line=line, hint="Save the file with the encoding UTF-8.")
        raise ConfigError(path, [problem]) from None
    except IsADirectoryError:
        problem = Problem(what="this is a folder", hint=f"Name a file with {CONFIG_PATH_VARIABLE}.")
        raise ConfigError(path, [problem]) from None
    except OSError as error:
        problem = Problem(
            what=f"the file cannot be read: {error.strerror}", hint="Check its owner and its permissions."
        )
        raise ConfigError(path, [problem]) from None


@dataclass(frozen=True)
class Settings:
    """The settings in force. `exists` tells whether there is a file; without one all values are defaults."""

    path: Path
    exists: bool
    values: Root = field(repr=False)
    document: Document = field(repr=False, compare=False)

    @property
    def state_dir(self) -> Path:
        """The folder of database, journals and lock: the one that holds the settings file."""
        return self.path.parent

    @property
    def default_engine(self) -> str | None:
        return self.values.default_engine

    @property
    def default_project(self) -> str | None:
        return self.values.default_project

    @property
    def zone(self) -> tzinfo | None:
        """In which clock times are shown; None: this machine's."""
        return ZoneInfo(self.values.timezone) if self.values.timezone else None

    @property
    def telegram(self) -> Telegram | None:
        return self.values.transports.telegram

    @property
    def web(self) -> Web:
        return self.values.transports.web

    @property
    def projects(self) -> Mapping[str, Project]:
        """By alias; paths are absolute."""
        return self.values.projects

    @property
    def progress(self) -> Progress:
        return self.values.progress

    @property
    def chat(self) -> Chat:
        return self.values.chat

    @property
    def preamble(self) -> Preamble:
        return self.values.preamble

    @property
    def loop(self) -> Loop:
        return self.values.loop

    @property
    def watchdog(self) -> Watchdog:
        return self.values.watchdog

    @property
    def retention(self) -> Retention:
        return self.values.retention

    @property
    def reminders(self) -> Reminders:
        return self.values.reminders

    @property
    def cost_budget(self) -> CostBudget:
        return self.values.cost_budget

    @property
    def security(self) -> Security:
        return self.values.security

    @property
    def plugins(self) -> Plugins:
        return self.values.plugins

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret that is configured, for a `Redactor`."""
        found = [self.telegram.bot_token.get_secret_value()] if self.telegram else []
        engines = self.values.engines
        ours = (engines.claude.env, engines.codex.env, engines.demo.env, engines.pi.env)
        for env in (*ours, *_plugin_tables(self.values)):
            found += [text for name, text in env.items() if isinstance(text, str) and is_secret_name(name)]
        return tuple(found)

    @overload
    def engine(self, engine_id: Literal["claude"]) -> Claude: ...
    @overload
    def engine(self, engine_id: Literal["codex"]) -> Codex: ...
    @overload
    def engine(self, engine_id: Literal["demo"]) -> Demo: ...
    @overload
    def engine(self, engine_id: Literal["pi"]) -> Pi: ...
    @overload
    def engine(self, engine_id: str) -> Claude | Codex | Demo | Pi | Mapping[str, Any]: ...
    def engine(self, engine_id: str) -> Claude | Codex | Demo | Pi | Mapping[str, Any]:
        """The table of an engine: typed for ours, as it stands (empty when absent) for a plugin's."""
        engines = self.values.engines
        if engine_id in FLAT_ENGINES:
            found: Claude | Codex | Demo | Pi = getattr(engines, engine_id)
            return found
        table: Mapping[str, Any] = (engines.model_extra or {}).get(engine_id, {})
        return table

    def engine_config(self, engine_id: str) -> dict[str, Any]:
        """The same as a plain dict: the `EngineConfig` that a backend's `build_runner` takes."""
        table = self.engine(engine_id)
        return dict(table) if isinstance(table, Mapping) else table.model_dump()

    def typed_engines(self) -> dict[str, dict[str, Any]]:
        """The tables of `[engines]` that say by `type` what they are, and so make an engine of their own."""
        tables = self.values.engines.model_extra or {}
        return {name: dict(table) for name, table in tables.items() if isinstance(table.get("type"), str)}

    def transport(self, transport_id: str) -> Mapping[str, Any]:
        """The table of a plugin's transport as it stands, empty when absent."""
        table: Mapping[str, Any] = (self.values.transports.model_extra or {}).get(transport_id, {})
        return table

    def check_engine_names(self, installed: Iterable[str]) -> None:
        """Raise `ConfigError` when a default engine is not installed. Called once the plugins are known."""
        known = sorted(installed)
        named: dict[KeyPath, str | None] = {("default_engine",): self.default_engine}
        named |= {("projects", alias, "default_engine"): row.default_engine for alias, row in self.projects.items()}
        problems = [
            self.document.problem(key, "names no installed engine", _one_of(name, known))
            for key, name in named.items()
            if name is not None and name not in known
        ]
        if problems:
            raise ConfigError(self.path, problems)

    def unread_tables(self, engines: Iterable[str], transports: Iterable[str]) -> tuple[Problem, ...]:
        """The tables of `[engines]` and `[transports]` that nothing installed reads, to be told as warnings."""
        sections = (
            ("engines", "engine", self.values.engines.model_extra, tuple(engines)),
            ("transports", "transport", self.values.transports.model_extra, tuple(transports)),
        )
        return tuple(
            self.document.problem((section, name), f"is read by no installed {noun}", suggestion(name, known))
            for section, noun, tables, known in sections
            for name in tables or {}
            if name not in known
        )


def _one_of(word: str, known: Sequence[str]) -> str:
    return suggestion(word, known) or f"Installed: {', '.join(known) or 'none'}."


def _plugin_tables(root: Root) -> list[Mapping[str, Any]]:
    """The tables that plugins read, each followed by its `env` table if it has one."""
    tables: list[Mapping[str, Any]] = []
    for section in (root.engines, root.transports, root.plugins):
        for table in (section.model_extra or {}).values():
            env = table.get("env")
            tables += [table, env] if isinstance(env, dict) else [table]
    return tables
