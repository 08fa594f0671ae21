"""What each item of Codex becomes: the kind, title and detail of a step, how it ended, and the beginning of its output.

Used for both forms: the items of `codex exec` are put into the same structs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...model import ActionKind
from ...schemas import codex_items as kinds
from ...text import words
from ..tool_actions import tool_call
from . import changes

LONGEST_MESSAGE = 500
_LONGEST_DIFF = 4_000
_LONGEST_TITLE = 1_000
_SHELLS = ("-lc", "-c")


class Shown(NamedTuple):
    """An item as a step. `ok` and `message` count once it is completed."""

    kind: ActionKind
    title: str
    detail: dict[str, Any]
    ok: bool | None = None
    message: str = ""


def command_text(command: str) -> str:
    """A command as the model wrote it: Codex tells `/bin/bash -lc '…'`."""
    try:
        parts = shlex.split(command)
    except ValueError:
        return command
    if len(parts) == 3 and parts[1] in _SHELLS and parts[0].endswith("sh"):
        return parts[2]
    return command


def show(item: Any, root: str) -> Shown | None:
    """An item as a step; None for one that is no step. `root` is the agent's folder without a slash at its end."""
    match item:
        case kinds.CommandExecution():
            return _command(item, root)
        case kinds.FileChange():
            return _change(item, root)
        case kinds.McpToolCall():
            return _mcp(item, root)
        case kinds.DynamicToolCall():
            kind, title, detail = tool_call(item.tool or "a tool", item.arguments, root)
            return Shown(kind, title, detail, item.success is not False and item.status != "failed")
        case kinds.WebSearch():
            return _web(item)
        case kinds.CollabToolCall():
            return _collab(item)
        case kinds.ImageView():
            path = changes.relative(item.path, root)
            return Shown("tool", f"View {path}", {"tool": "imageView", "path": item.path}, True)
        case kinds.ImageGeneration():
            return Shown("tool", "Make an image", {"tool": "imageGeneration"}, item.status != "failed")
        case kinds.Sleep():
            return Shown("tool", "Wait", {"tool": "sleep"}, True)
    return None


def heading(reasoning: kinds.Reasoning) -> str:
    """What a piece of reasoning is about: its first line, which Codex writes in bold."""
    text = "\n".join(reasoning.summary).strip()
    return text.split("\n", 1)[0].strip().strip("*").strip()


def todo(steps: list[tuple[str, bool]]) -> str:
    """One line for a list of (text, done)."""
    done = sum(finished for _, finished in steps)
    following = next((text for text, finished in steps if not finished), "")
    return f"todo {done}/{len(steps)}" + (f": {following}" if following else "")


def beginning(text: str) -> str:
    """The beginning of an output."""
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"


# --------------------------------------------------------------------------------------------------- kinds of items


def _command(item: kinds.CommandExecution, root: str) -> Shown:
    kind, title, detail = tool_call("shell", {"command": command_text(item.command)}, root)
    ok = item.status == "completed" and item.exit_code in (0, None)
    message = "Denied." if item.status == "declined" else beginning(item.aggregated_output or "")
    if item.exit_code is not None:
        detail["exit_code"] = item.exit_code
    return Shown(kind, title, detail, ok, message)


def _change(item: kinds.FileChange, root: str) -> Shown:
    diffs = [changes.diff(change, root) for change in item.changes]
    title = ", ".join(diff.path for diff in diffs)[:_LONGEST_TITLE] or "files"
    detail: dict[str, Any] = {"tool": "apply_patch", "verb": changes.verb(item.changes)}
    if diffs:
        detail["path"] = item.changes[0].path
    if any(change.diff for change in item.changes):
        detail["added"] = sum(diff.added for diff in diffs)
        detail["removed"] = sum(diff.removed for diff in diffs)
        detail["diff"] = "".join(diff.patch for diff in diffs)[:_LONGEST_DIFF]
    return Shown(
        "file_change", title, detail, item.status == "completed", "Denied." if item.status == "declined" else ""
    )


def _mcp(item: kinds.McpToolCall, root: str) -> Shown:
    kind, title, detail = tool_call(f"mcp__{item.server}__{item.tool}", item.arguments, root)
    if item.error is not None:
        return Shown(kind, title, detail, False, beginning(item.error.message))
    return Shown(kind, title, detail, item.status == "completed", beginning(_result_text(item.result)))


def _result_text(result: Any) -> str:
    content = result.get("content") if isinstance(result, Mapping) else None
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)


def _web(item: kinds.WebSearch) -> Shown:
    action = item.action or kinds.WebAction()
    detail: dict[str, Any] = {"tool": "web_search"}
    query = action.query or item.query
    match action.type:
        case "openPage" | "open_page" if action.url:
            detail |= {"verb": "Fetch", "url": action.url}
            title = action.url
        case "findInPage" | "find_in_page":
            detail |= {"verb": "Find", "url": action.url or ""}
            title = f"{action.pattern or 'text'} in {action.url or 'a page'}"
        case _:
            detail |= {"verb": "Search"}
            title = query or "the web"
            if query:
                detail["query"] = query
    return Shown("web_search", title[:_LONGEST_TITLE], detail, True)


_COLLAB = {
    "sendInput": "Write to a sub-agent",
    "sendMessage": "Write to a sub-agent",
    "followupTask": "Give a sub-agent more to do",
    "resumeAgent": "Resume a sub-agent",
    "wait": "Wait for sub-agents",
    "closeAgent": "Close a sub-agent",
    "interruptAgent": "Interrupt a sub-agent",
    "listAgents": "List the sub-agents",
}


def _collab(item: kinds.CollabToolCall) -> Shown:
    ok = item.status == "completed"
    detail: dict[str, Any] = {"tool": item.tool}
    if item.tool == "spawnAgent":
        title = words.one_line(item.prompt or "a sub-agent", 200)
        return Shown("subagent", title, detail | ({"description": item.prompt[:4000]} if item.prompt else {}), ok)
    return Shown("tool", _COLLAB.get(item.tool, item.tool or "sub-agents"), detail, ok)
