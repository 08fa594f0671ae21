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

Engines add what only they know: `diff`, the beginning of a change as a unified diff; `exit_code` of a command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from ..model import ActionKind

_LONGEST_TITLE = 1_000
_LONGEST_FACT = 4_000

# Keys of inputs, and the facts that their texts are.
_FACTS = {
    "command": "command",
    "description": "description",
    "pattern": "pattern",
    "query": "query",
    "url": "url",
    "file_path": "path",
    "path": "path",
    "filePath": "path",
    "notebook_path": "path",
}

_OLD_AND_NEW = (("old_string", "new_string"), ("oldString", "newString"), ("oldText", "newText"))


class _Rule(msgspec.Struct, frozen=True):
    """How one tool is shown: the title is `prefix` and the first of `facts` that there is, else `fallback`.

    An empty `fallback` means the tool's name.
    """

    kind: ActionKind
    facts: tuple[str, ...] = ()
    prefix: str = ""
    fallback: str = ""
    verb: str = ""


_COMMAND = _Rule("command", ("command",))
_SUBAGENT = _Rule("subagent", ("description",))
_ASK = _Rule("note", fallback="ask user")
_OTHER = _Rule("tool")

_RULES: Mapping[str, _Rule] = {
    "bash": _COMMAND,
    "shell": _COMMAND,
    "killshell": _Rule("command"),
    "killbash": _Rule("command"),
    "edit": _Rule("file_change", ("path",), verb="Edit"),
    "multiedit": _Rule("file_change", ("path",), verb="Edit"),
    "write": _Rule("file_change", ("path",), verb="Write"),
    "notebookedit": _Rule("file_change", ("path",), verb="Edit"),
    "read": _Rule("tool", ("path",), prefix="Read "),
    "glob": _Rule("tool", ("pattern",), verb="Glob"),
    "grep": _Rule("tool", ("pattern",), verb="Grep"),
    "find": _Rule("tool", ("pattern", "path"), verb="Find"),
    "ls": _Rule("tool", ("path",), verb="List"),
    "list": _Rule("tool", ("path",), verb="List"),
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


def tool_call(name: str, input: Any, root: str) -> tuple[ActionKind, str, dict[str, Any]]:
    """The kind, the one-line title and the detail of a call of tool `name` with `input`.

    `input` is a JSON object, or whatever came instead. Paths under `root` are shown relative to it in the title; it is
    an absolute folder without a slash at its end, or "" for none. The detail holds JSON values of a few kilobytes at
    most; see the module's docstring.
    """
    detail: dict[str, Any] = {"tool": name}
    rule = _RULES.get(name.lower()) or _unlisted(name, detail)
    kind = rule.kind
    if rule.verb:
        detail["verb"] = rule.verb
    if not isinstance(input, dict):
        return kind, rule.fallback or name, detail
    for key, value in input.items():
        if key in _FACTS:
            text = value.strip() if value.__class__ is str else _text(value)
            if text:
                detail[_FACTS[key]] = text if len(text) <= _LONGEST_FACT else _shortened(text, _LONGEST_FACT)
    if kind == "file_change":
        _count_lines(detail, input)
    for fact in rule.facts:
        if fact in detail:
            text = detail[fact]
            if root and root in text:
                text = _relative_command(text, root) if fact == "command" else _relative_path(text, root)
            if len(text) > _LONGEST_TITLE or not text.isprintable():
                text = _title(text, whole=kind != "subagent")
            return kind, rule.prefix + text, detail
    if kind == "subagent" and (text := _text(input.get("prompt"))):
        return kind, _title(text, whole=False), detail
    return kind, rule.fallback or name, detail


def tool_kind_and_title(name: str, input: Any, *, root: str = "") -> tuple[ActionKind, str]:
    """The first two of `tool_call`."""
    return tool_call(name, input, root.rstrip("/"))[:2]


def action_detail(name: str, input: Any) -> dict[str, Any]:
    """The third of `tool_call`."""
    return tool_call(name, input, "")[2]


# ---------------------------------------------------------------------------------------------------------- text


def _unlisted(name: str, detail: dict[str, Any]) -> _Rule:
    """The rule for a tool that has none of its own; `mcp__SERVER__TOOL` is one of an MCP server."""
    parts = name.split("__", 2)
    if len(parts) == 3 and all(parts) and parts[0].lower() == "mcp":
        detail["server"] = parts[1]
        return _Rule("tool", fallback=f"{parts[1]}: {parts[2]}")
    return _OTHER


def _text(value: Any) -> str:
    """A text, stripped; an argument vector counts as its command line, all else as no text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return shlex.join(value).strip()
    return ""


def _title(text: str, *, whole: bool) -> str:
    """One short line for a text: for the whole of it, or for its first line."""
    lines = text.splitlines()
    return _shortened(" ".join(filter(None, map(str.strip, lines if whole else lines[:1]))), _LONGEST_TITLE)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _relative_path(path: str, root: str) -> str:
    if path.startswith(root + "/"):
        return path[len(root) + 1 :].lstrip("/") or "."
    return "." if path == root else path


def _relative_command(command: str, root: str) -> str:
    """Leave out `root` where it begins a longer path; `rm -rf ROOT/` stays as it is."""
    return re.sub(rf"(?<![\w./~-]){re.escape(root)}/(?=[\w.-])", "", command)


# ---------------------------------------------------------------------------------------------------- line counts


def _count_lines(detail: dict[str, Any], input: dict[str, Any]) -> None:
    """Add `added` and `removed` of a change to `detail`, as far as its input tells them."""
    content, edits = input.get("content"), input.get("edits")
    if isinstance(content, str):
        detail["added"] = len(content.splitlines())
        return
    changes = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else (input,)
    if not changes:
        return
    added = removed = 0
    for change in changes:
        counts = _changed_lines(change)
        if counts is None:
            return
        added += counts[0]
        removed += counts[1]
    detail["added"], detail["removed"] = added, removed


def _changed_lines(change: dict[str, Any]) -> tuple[int, int] | None:
    """Lines added and removed between the common beginning and the common end; None when that cannot be told."""
    if change.get("replace_all") or change.get("replaceAll"):
        return None  # it happens as often as the text occurs
    for old_key, new_key in _OLD_AND_NEW:
        before, after = change.get(old_key), change.get(new_key)
        if isinstance(before, str) and isinstance(after, str):
            break
    else:
        return None
    old, new = before.splitlines(), after.splitlines()
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return len(new) - head - tail, len(old) - head - tail
