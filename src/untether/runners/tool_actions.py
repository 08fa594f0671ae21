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
from typing import Any

import msgspec

from untether.model import ActionKind

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


class _Rule(msgspec.Struct, frozen=True):
    """How one tool is shown: the title is `prefix` and the first fact of `keys` that there is, else `fallback`.

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

    `input` is a JSON object, or whatever came instead. Paths under `root`, an absolute folder, are shown relative to it
    in the title. The detail holds JSON values of a few kilobytes at most; see the module's docstring.
    """
    detail: dict[str, Any] = {"tool": name}
    rule = _RULES.get(name.lower())
    if rule is None:
        rule = _OTHER
        if mcp := _mcp_name(name):
            detail["server"] = mcp[0]
            rule = _Rule("tool", fallback=f"{mcp[0]}: {mcp[1]}")
    kind = rule.kind
    if rule.verb:
        detail["verb"] = rule.verb
    if not isinstance(input, dict):
        return kind, rule.fallback or name, detail
    for key, value in input.items():
        fact = _FACTS.get(key)
        if fact is not None and fact not in detail:
            text = value.strip() if value.__class__ is str else _text(value)
            if text:
                detail[fact] = text if len(text) <= _LONGEST_FACT else _shortened(text, _LONGEST_FACT)
    if kind == "file_change":
        detail |= _line_counts(input)
    for key in rule.keys:
        text = detail.get(key) or (_text(input.get(key)) if key == "prompt" else "")
        if text:
            return kind, rule.prefix + _title(key, text, root), detail
    return kind, rule.fallback or name, detail


def tool_kind_and_title(name: str, input: Any, *, root: str = "") -> tuple[ActionKind, str]:
    """The first two of `tool_call`."""
    return tool_call(name, input, root)[:2]


def action_detail(name: str, input: Any) -> dict[str, Any]:
    """The third of `tool_call`."""
    return tool_call(name, input, "")[2]


# ---------------------------------------------------------------------------------------------------------- text


def _mcp_name(name: str) -> tuple[str, str] | None:
    """Server and tool of `mcp__SERVER__TOOL`."""
    if "__" in name:
        parts = name.split("__", 2)
        if len(parts) == 3 and parts[0].lower() == "mcp" and parts[1] and parts[2]:
            return parts[1], parts[2]
    return None


def _text(value: Any) -> str:
    """A text, stripped; an argument vector counts as its command line, all else as no text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return shlex.join(value).strip()
    return ""


def _title(key: str, text: str, root: str) -> str:
    """One line for the text of fact `key`."""
    if key == "command":
        text = _relative_command(text, root)
    elif key == "path":
        text = _relative_path(text, root)
    elif key == "prompt" or key == "description":
        text = text.split("\n", 1)[0]
    if len(lines := text.splitlines()) > 1:
        text = " ".join(filter(None, map(str.strip, lines)))
    return text if len(text) <= _LONGEST_TITLE else _shortened(text, _LONGEST_TITLE)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _relative_path(path: str, root: str) -> str:
    base = root.rstrip("/") + "/"
    if base == "/" or not path.startswith(base):
        return "." if path + "/" == base else path
    return path[len(base) :].lstrip("/") or "."


def _relative_command(command: str, root: str) -> str:
    """Leave out `root` where it begins a longer path; `rm -rf ROOT/` stays as it is."""
    base = root.rstrip("/")
    if not base or base not in command:
        return command
    return re.sub(rf"(?<![\w./~-]){re.escape(base)}/(?=[\w.-])", "", command)


# ---------------------------------------------------------------------------------------------------- line counts


def _line_counts(input: dict[str, Any]) -> dict[str, int]:
    """`added` and `removed` of a change, as far as its input tells them."""
    if isinstance(content := input.get("content"), str):
        return {"added": len(content.splitlines())}
    edits = input.get("edits")
    changes = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else [input]
    added = removed = 0
    for change in changes:
        old, new = _old_and_new(change)
        if old is None or new is None or change.get("replace_all") or change.get("replaceAll"):
            return {}  # unknown, or as often as the text occurs
        plus, minus = _changed_lines(old.splitlines(), new.splitlines())
        added += plus
        removed += minus
    return {"added": added, "removed": removed} if changes else {}


def _old_and_new(change: dict[str, Any]) -> tuple[str | None, str | None]:
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
