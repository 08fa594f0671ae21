"""The spawn recipe of Claude Code: its arguments, its environment, and how it is stopped.

The prompt is never an argument, and no secret is one. Values that could start with a dash are written `--flag=value`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...model import ResumeToken
from ...process.host import Rung
from . import options
from .modes import BYPASS, TABLE, asked_mode

INSTALL = "npm install -g @anthropic-ai/claude-code"
MIN_VERSION = "2.1.0"

# The interrupt, and `stop_task` for what works in the background, have come before. At the end of its input a CLI with
# background work waits for that (claude-protocol-332 §10), so signals follow soon. SIGTERM orphans a running shell in
# 2.1.197, where SIGINT ends tools too (claude-protocol §10); in 2.1.332 it ends everything at once.
LADDER = (Rung("close_stdin", 0.5), Rung("SIGINT", 3.0), Rung("SIGTERM", 2.0), Rung("SIGKILL", 2.0))
_CLEAN_SIGTERM = (2, 1, 332)
_LADDER_332 = (Rung("close_stdin", 0.5), Rung("SIGTERM", 3.0), Rung("SIGKILL", 2.0))

_CONTROL = ("--output-format", "stream-json", "--input-format", "stream-json", "--verbose")
_ONE_SHOT = ("-p", "--output-format", "stream-json", "--verbose")

# Without it an automatic check decides on shell commands in plan mode, and nobody is asked (claude-protocol-332 §1).
_SETTINGS = {"useAutoModeDuringPlan": False}


def ladder(version: str) -> tuple[Rung, ...]:
    """How a CLI of this version is stopped; "" for one that is not known."""
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return _LADDER_332 if numbers >= _CLEAN_SIGTERM else LADDER


def arguments(
    settings: Mapping[str, Any],
    resume: ResumeToken | None = None,
    *,
    continue_latest: bool = False,
    more: Sequence[str] = (),
) -> list[str]:
    """The arguments for a process with these `StartFacts.settings`. Raises ValueError when they are wrong.

    `grants` are rules that the owner allowed for good, such as `Bash(git push:*)`; `more` are further flags.
    """
    one_shot = settings.get("interactive") is False
    extra, flag_settings = _take_settings([str(word) for word in settings.get("extra_args") or ()])
    _allow(flag_settings, settings.get("grants") or ())
    args = [*(_ONE_SHOT if one_shot else _CONTROL), *extra]
    if resume is not None:
        args.append(f"--resume={resume.value}")
    elif continue_latest:
        args.append("--continue")
    if settings.get("fork"):
        args.append("--fork-session")
    args += [*options.flags(settings, resumed=resume is not None), *more]
    if allowed := settings.get("allowed_tools"):
        args += ["--allowedTools", ",".join(allowed)]
    mode = asked_mode(settings)
    if mode == BYPASS and settings.get("dangerously_skip_permissions"):
        args.append("--dangerously-skip-permissions")  # it would win over any mode
    else:
        args += ["--permission-mode", TABLE[mode].cli]
    if not one_shot:
        # A replay of each message shows when it was taken, also to a host of 2.1.197 (claude-protocol §6).
        args += ["--permission-prompt-tool", "stdio", "--replay-user-messages"]
    return [*args, "--settings", json.dumps(flag_settings)]


def environment(
    environ: Mapping[str, str], own: Mapping[str, str], settings: Mapping[str, Any], *, use_api_billing: bool
) -> dict[str, str]:
    """`environ`, made for an agent, with what Claude Code needs and the owner's `own` variables on top.

    ANTHROPIC_API_KEY would bill the account's API instead of its subscription, so it passes only when that is wanted.
    """
    kept = {name: value for name, value in environ.items() if use_api_billing or name != "ANTHROPIC_API_KEY"}
    return {**kept, "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1", **options.variables(settings), **own}


def _take_settings(extra: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `--settings` out of `extra` and put ours into them, since the CLI reads one only."""
    rest: list[str] = []
    found: dict[str, Any] = {}
    words = iter(extra)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != "--settings":
            rest.append(word)
        else:
            found |= _read_settings(value if equals else next(words, ""))
    return rest, found | _SETTINGS


def _allow(flag_settings: dict[str, Any], grants: Sequence[str]) -> None:
    """Put rules into the settings of the flag. There a rule may hold commas, which `--allowedTools` would split at."""
    rules = [rule for grant in grants for rule in str(grant).splitlines() if rule.strip()]
    if not rules:
        return
    permissions = flag_settings.get("permissions")
    permissions = dict(permissions) if isinstance(permissions, dict) else {}
    allowed = permissions.get("allow")
    allowed = list(allowed) if isinstance(allowed, list) else []
    permissions["allow"] = allowed + [rule for rule in dict.fromkeys(rules) if rule not in allowed]
    flag_settings["permissions"] = permissions


def _read_settings(text: str) -> dict[str, Any]:
    """The settings of the flag, which are JSON or the path of a file with it. Raises ValueError."""
    try:
        if not text.lstrip().startswith("{"):
            text = Path(text).expanduser().read_text("utf-8")
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise ValueError(f"the --settings among extra_args cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("the --settings among extra_args must be a JSON object")
    return value
