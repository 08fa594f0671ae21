"""The command line of the demo agent: the flags of Claude Code 2.1.332, and its refusals.

Flags whose effect makes no sense here (prices, MCP servers, system prompts, …) are accepted and have none.
"""

from __future__ import annotations

import json
import re

from .memory import UUID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SWITCHES = frozenset(
    (
        "--print",
        "--verbose",
        "--version",
        "--help",
        "--continue",
        "--fork-session",
        "--replay-user-messages",
        "--include-partial-messages",
        "--include-hook-events",
        "--dangerously-skip-permissions",
        "--allow-dangerously-skip-permissions",
        "--strict-mcp-config",
        "--bare",
        "--safe-mode",
        "--restricted",
        "--no-session-persistence",
        "--forward-subagent-text",
        "--disable-slash-commands",
        "--exclude-dynamic-system-prompt-sections",
    )
)
VALUES = frozenset(
    (
        "--output-format",
        "--input-format",
        "--permission-prompt-tool",
        "--permission-mode",
        "--permission-prompts",
        "--model",
        "--fallback-model",
        "--effort",
        "--settings",
        "--setting-sources",
        "--session-id",
        "--system-prompt",
        "--append-system-prompt",
        "--system-prompt-file",
        "--append-system-prompt-file",
        "--system-prompt-snapshot",
        "--max-turns",
        "--max-budget-usd",
        "--max-thinking-tokens",
        "--agent",
        "--agents",
        "--json-schema",
        "--name",
        "--autocompact",
        "--prompt-suggestions",
        "--debug-file",
    )
)
LISTS = frozenset(
    (
        "--allowedTools",
        "--disallowedTools",
        "--tools",
        "--add-dir",
        "--mcp-config",
        "--betas",
        "--plugin-dir",
    )
)
OPTIONAL = frozenset(
    (
        "--resume",
        "--debug",
    )
)  # a value only after "=", or when the next word is no flag
ALIASES = {
    "-p": "--print",
    "-v": "--version",
    "-h": "--help",
    "-c": "--continue",
    "-r": "--resume",
    "-n": "--name",
    "-d": "--debug",
    "--allowed-tools": "--allowedTools",
    "--disallowed-tools": "--disallowedTools",
}
MODE_CHOICES = ("acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan")
RULE = re.compile(r"[^\s,(]+(?:\([^)]*\))?")


class UsageError(Exception):
    """The command line is refused; the text goes to stderr, and the program exits with 1."""


class Options:
    """What the command line asks for. Raises `UsageError`, with Claude Code's words where they are known."""

    def __init__(self, argv: list[str]) -> None:
        self._given, words = _parse(argv)
        self.version = "--version" in self._given
        self.help = "--help" in self._given
        self.stream_input = self._one("--input-format", "text") == "stream-json"
        self.words = " ".join(words)
        self.can_ask = self._one("--permission-prompt-tool") == "stdio" and self._one("--permission-prompts") != "none"
        self.mode = self._mode()
        self.may_bypass = self.mode == "bypassPermissions" or self._has("--allow-dangerously-skip-permissions")
        self.model = self._one("--model")
        self.settings = _settings(self._one("--settings"))
        self.rules = RULE.findall(",".join(self._given.get("--allowedTools", []))) + _allowed(self.settings)
        self.replay = self._has("--replay-user-messages")
        self.resume = self._given["--resume"][-1] if self._has("--resume") else None
        self.resume_latest = self._has("--continue")
        self.fork = self._has("--fork-session")
        self.session_id = self._one("--session-id")
        self._check()

    def _has(self, flag: str) -> bool:
        return flag in self._given

    def _one(self, flag: str, default: str = "") -> str:
        return self._given.get(flag, [default])[-1]

    def _mode(self) -> str:
        if self._has("--dangerously-skip-permissions"):
            return "bypassPermissions"
        mode = self._one("--permission-mode", "default")
        if mode not in (*MODE_CHOICES, "default"):
            raise UsageError(
                f"error: option '--permission-mode <mode>' argument '{mode}' is invalid. "
                f"Allowed choices are {', '.join(MODE_CHOICES)}."
            )
        return "default" if mode == "manual" else mode

    def _check(self) -> None:
        if self.version or self.help:
            return
        if self._one("--output-format") != "stream-json":
            raise UsageError("Error: the demo agent needs --output-format stream-json (and --verbose).")
        if not self._has("--verbose"):
            raise UsageError("Error: When using --print, --output-format=stream-json requires --verbose")
        if self.session_id and (self.resume is not None or self.resume_latest) and not self.fork:
            raise UsageError(
                "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified."
            )
        if self.session_id and not UUID.fullmatch(self.session_id):
            raise UsageError("Error: Invalid session ID. Must be a valid UUID.")


def _parse(argv: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The values given for each flag, and the words that belong to none."""
    given: dict[str, list[str]] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return given, words + rest
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        name = ALIASES.get(name, name)
        values = given.setdefault(name, [])
        if name in SWITCHES:
            continue
        if name not in VALUES | LISTS | OPTIONAL:
            raise UsageError(f"error: unknown option '{word.partition('=')[0]}'")
        if equals:
            values.append(value)
        elif name in VALUES:
            if not rest:
                raise UsageError(f"error: option '{name} <value>' argument missing")
            values.append(rest.pop(0))
        elif name in OPTIONAL:
            values.append(rest.pop(0) if rest and not rest[0].startswith("-") else "")
        else:
            while rest and not rest[0].startswith("-"):
                values.append(rest.pop(0))
    return given, words


def _settings(text: str) -> dict[str, Any]:
    """The value of --settings: a JSON object, or the path of a file that holds one."""
    if not text:
        return {}
    try:
        if text.lstrip().startswith("{"):
            settings = json.loads(text)
        else:
            with open(text) as file:
                settings = json.load(file)
    except OSError as error:
        raise UsageError(f"Error: Settings file not found: {text}") from error
    except ValueError as error:
        raise UsageError("Error: Invalid JSON provided to --settings") from error
    if not isinstance(settings, dict):
        raise UsageError("Error: Invalid JSON provided to --settings")
    return settings


def _allowed(settings: dict[str, Any]) -> list[str]:
    """The rules of `permissions.allow`; a backslash stands before a parenthesis that belongs to the command."""
    permissions = settings.get("permissions")
    rules = permissions.get("allow") if isinstance(permissions, dict) else None
    return [re.sub(r"\\(.)", r"\1", rule) for rule in rules or [] if isinstance(rule, str)]
