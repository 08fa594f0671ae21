"""Flags and variables for what the owner may choose besides permissions: models, limits, folders, servers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_VALUES = (
    ("reasoning", "--effort"),
    ("fallback_model", "--fallback-model"),
    ("max_turns", "--max-turns"),
    ("max_budget_usd", "--max-budget-usd"),
)

NAMES = ("fallback_model", "max_turns", "max_budget_usd", "add_dirs", "agents", "partial_messages", "checkpoints")
"""Keys of the engine's table that go into `StartFacts.settings`, besides those about permissions."""


def flags(settings: Mapping[str, Any], *, resumed: bool) -> list[str]:
    """The flags for `StartFacts.settings`.

    `resume_model` is the model that the resumed session had: without it the CLI forgets the `[1m]` of a model's name
    (claude-protocol §7).
    """
    args = []
    model = settings.get("model") or (settings.get("resume_model") if resumed else None)
    if model:
        args += ["--model", str(model)]
    for name, flag in _VALUES:
        if settings.get(name):
            args += [flag, str(settings[name])]
    for folder in settings.get("add_dirs") or ():
        args += ["--add-dir", str(folder)]
    if settings.get("partial_messages") and settings.get("interactive") is not False:
        args.append("--include-partial-messages")
    return args


def variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """The variables for `StartFacts.settings`. `disable_cron`: a job of the session is run by us instead."""
    found = {}
    if settings.get("checkpoints"):
        found["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] = "1"
    if settings.get("disable_cron"):
        found["CLAUDE_CODE_DISABLE_CRON"] = "1"
    return found


def mcp_flags(config: str | Mapping[str, Any] | None, folder: Path) -> list[str]:
    """The flag for the owner's MCP servers: the path of a file, or a table of servers, by name.

    Servers may hold secrets, so a table is written to a file of our own in `folder`, for this user only.
    Raises OSError.
    """
    if not config:
        return []
    if isinstance(config, str):
        return ["--mcp-config", str(Path(config).expanduser())]
    table = config if "mcpServers" in config else {"mcpServers": config}
    text = json.dumps(table, sort_keys=True)
    path = folder / f"mcp-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = path.with_suffix(f".{os.getpid()}")
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    return ["--mcp-config", str(path)]
