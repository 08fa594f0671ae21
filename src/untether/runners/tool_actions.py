"""What a tool call of an agent is: its action kind, its title, and small facts for rendering it.

One table serves all engines, since they name their tools alike (Claude Code `Bash`, Pi `bash`, OpenCode `bash`). Names
are matched without regard to case. Sessions call this for every tool call, so it is pure: text in, text out.

Keys of `Action.detail` made here, each only when known:

    tool         the tool's name, as the engine wrote it
    verb         the word to show before a title that has none ("Edit", "Grep")
    path         the file or folder, as given
    added        lines added, removed lines removed (Edit, MultiEdit: where they differ; Write: the lines written)
    removed
    command      the whole command
    description  what the agent says it does
    pattern, query, url
    server       the MCP server of an MCP tool
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from untether.model import ActionKind

_LONGEST_TITLE = 1_000
_LONGEST_FACT = 4_000

_PATH_KEYS = ("file_path", "path", "filePath", "notebook_path")
_FACTS = frozenset({"command", "description", "pattern", "query", "url"})  # keys of inputs that become details


class _Rule(NamedTuple):
    """How one tool is shown: the title is `prefix` and the first of `keys` that holds text, else `fallback`.

    An empty `fallback` means the tool's name.
    """

    kind: ActionKind
    keys: tuple[str, ...] = ()
    prefix: str = ""
    fallback: str = ""
    verb: str = ""


_COMMAND = _Rule("command", ("command",))
_SUBAGENT = _Rule("subagent", ("description", "prompt"))
_ASK = _Rule("note", fallback="ask user")
_OTHER = _Rule("tool")

_RULES: Mapping[str, _Rule] = {
    "bash": _COMMAND,
    "shell": _COMMAND,
    "killshell": _Rule("command"),
    "killbash": _Rule("command"),
    "edit": _Rule("file_change", _PATH_KEYS, verb="Edit"),
    "multiedit": _Rule("file_change", _PATH_KEYS, verb="Edit"),
    "write": _Rule("file_change", _PATH_KEYS, verb="Write"),
    "notebookedit": _Rule("file_change", _PATH_KEYS, verb="Edit"),
    "read": _Rule("tool", _PATH_KEYS, prefix="Read "),
    "glob": _Rule("tool", ("pattern",), verb="Glob"),
    "grep": _Rule("tool", ("pattern",), verb="Grep"),
    "find": _Rule("tool", ("pattern", *_PATH_KEYS), verb="Find"),
    "ls": _Rule("tool", _PATH_KEYS, verb="List"),
    "list": _Rule("tool", _PATH_KEYS, verb="List"),
    "websearch": _Rule("web_search", ("query",), verb="Search"),
    "webfetch": _Rule("web_search", ("url",), verb="Fetch"),
    "todowrite": _Rule("note", fallback="update todos"),
    "todoread": _Rule("note", fallback="read todos"),
    "askuserquestion": _ASK,
    "ask_question": _ASK,
    "question": _ASK,
    "task": _SUBAGENT,
    "agent": _SUBAGENT,
}


def tool_kind_and_title(name: str, input: Any, *, root: str = "") -> tuple[ActionKind, str]:
    """The kind and the one-line title of a call of tool `name` with `input` (a JSON object, or whatever came instead).

    Paths under `root`, an absolute folder, are shown relative to it.
    """
    if mcp := _mcp_name(name):
        return "tool", f"{mcp[0]}: {mcp[1]}"
    rule = _RULES.get(name.lower(), _OTHER)
    key, text = _first_text(input, rule.keys)
    if not text:
        return rule.kind, rule.fallback or name
    if rule.kind == "subagent":
        text = text.split("\n", 1)[0].rstrip()
    elif rule.kind == "command":
        text = _relative_command(text, root)
    elif key in _PATH_KEYS:
        text = _relative_path(text, root)
    if len(lines := text.splitlines()) > 1:
        text = " ".join(filter(None, map(str.strip, lines)))
    return rule.kind, _shortened(rule.prefix + text, _LONGEST_TITLE)


def action_detail(name: str, input: Any) -> dict[str, Any]:
    """Facts about a tool call for rendering, as JSON values of a few kilobytes at most; see the module's docstring."""
    detail: dict[str, Any] = {"tool": name}
    if mcp := _mcp_name(name):
        detail["server"] = mcp[0]
    rule = _RULES.get(name.lower(), _OTHER)
    if rule.verb:
        detail["verb"] = rule.verb
    if not isinstance(input, dict):
        return detail
    if path := _first_text(input, _PATH_KEYS)[1]:
        detail["path"] = _shortened(path, _LONGEST_FACT)
    for key, value in input.items():
        if key in _FACTS and (text := _text(value)):
            detail[key] = _shortened(text, _LONGEST_FACT)
    if rule.kind == "file_change":
        detail |= _line_counts(input)
    return detail


# ---------------------------------------------------------------------------------------------------------- text


def _mcp_name(name: str) -> tuple[str, str] | None:
    """Server and tool of `mcp__SERVER__TOOL`."""
    if "__" in name:
        parts = name.split("__", 2)
        if len(parts) == 3 and parts[0].lower() == "mcp" and parts[1] and parts[2]:
            return parts[1], parts[2]
    return None


def _first_text(input: Any, keys: Sequence[str]) -> tuple[str, str]:
    """The first of `keys` that holds text, and that text."""
    if isinstance(input, dict):
        for key in keys:
            if (value := input.get(key)) and (text := _text(value)):
                return key, text
    return "", ""


def _text(value: Any) -> str:
    """A text, stripped; an argument vector counts as its command line, and all else as no text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return shlex.join(value).strip()
    return ""


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _relative_path(path: str, root: str) -> str:
    base = root.rstrip("/")
    if not base:
        return path
    if path.rstrip("/") == base:
        return "."
    return path.removeprefix(base + "/")


def _relative_command(command: str, root: str) -> str:
    """Leave out `root` where it begins a longer path; `rm -rf ROOT/` stays as it is."""
    base = root.rstrip("/")
    if not base or base not in command:
        return command
    return re.sub(rf"(?<![\w./~-]){re.escape(base)}/(?=[\w.-])", "", command)


# ---------------------------------------------------------------------------------------------------- line counts


def _line_counts(input: Mapping[str, Any]) -> dict[str, int]:
    """`added` and `removed` of a change, as far as its input tells them."""
    if isinstance(content := input.get("content"), str):
        return {"added": len(content.splitlines())}
    edits = input.get("edits")
    changes = [edit for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else [input]
    added = removed = 0
    for change in changes:
        old, new = _old_and_new(change)
        if old is None or new is None or change.get("replace_all") or change.get("replaceAll"):
            return {}  # unknown, or as often as the text occurs
        plus, minus = _changed_lines(old.splitlines(), new.splitlines())
        added += plus
        removed += minus
    return {"added": added, "removed": removed} if changes else {}


def _old_and_new(change: Mapping[str, Any]) -> tuple[str | None, str | None]:
    for old_key, new_key in (("old_string", "new_string"), ("oldString", "newString"), ("oldText", "newText")):
        old, new = change.get(old_key), change.get(new_key)
        if isinstance(old, str) and isinstance(new, str):
            return old, new
    return None, None


def _changed_lines(old: list[str], new: list[str]) -> tuple[int, int]:
    """Lines added and removed between the common beginning and the common end."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return len(new) - head - tail, len(old) - head - tail
