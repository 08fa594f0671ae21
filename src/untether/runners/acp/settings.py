"""The table of an ACP engine, checked: `[engines.ID]` with `type = "acp"`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends import EngineConfig
from ...model import Record
from .agents import AGENTS, UNLISTED, Agent, recognised

_KEYS = ("type", "agent", "command", "title", "mode", "model", "auth", "env")
_SUFFIX = "_acp"


class Table(Record, frozen=True):
    """`agent` is the id of the ready-made entry that the command is known as, "" for none."""

    command: tuple[str, ...]
    agent: str = ""
    title: str = ""
    mode: str = ""
    model: str = ""
    auth: str = ""
    env: dict[str, str] = {}

    @property
    def known(self) -> Agent:
        return AGENTS.get(self.agent, UNLISTED)


def read(id: str, config: EngineConfig) -> Table:
    """Raises ValueError."""
    if unknown := sorted(set(config) - set(_KEYS)):
        raise ValueError(f"engines.{id}.{unknown[0]} is not a known key. Known: {', '.join(_KEYS)}.")
    texts = {name: _text(id, config, name) for name in ("agent", "title", "mode", "model", "auth")}
    command = _command(id, config.get("command"))
    agent = _agent(id, texts["agent"], command)
    env = config.get("env") or {}
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise ValueError(f"engines.{id}.env must be a table of texts.")
    if not command and not agent.id:
        raise ValueError(f'engines.{id}.command is required, such as command = ["goose", "acp"].')
    title = texts["title"] or agent.title or id
    return Table(
        command or agent.command, agent.id, title, texts["mode"], texts["model"], texts["auth"], {**agent.env, **env}
    )


def _agent(id: str, named: str, command: Sequence[str]) -> Agent:
    if named:
        if named not in AGENTS:
            raise ValueError(f"engines.{id}.agent names no known agent. Known: {', '.join(AGENTS)}.")
        return AGENTS[named]
    return recognised(command) if command else AGENTS.get(id.removesuffix(_SUFFIX), UNLISTED)


def _command(id: str, value: Any) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if words is None:
        return ()
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) and word for word in words) or not words:
        raise ValueError(f'engines.{id}.command must be a list of texts, such as ["goose", "acp"].')
    if any("\0" in word for word in words):
        raise ValueError(f"engines.{id}.command must not contain control characters.")
    return tuple(words)


def _text(id: str, config: EngineConfig, name: str) -> str:
    value = config.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"engines.{id}.{name} must be text.")
    return value or ""
