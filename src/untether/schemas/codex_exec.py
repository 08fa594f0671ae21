"""The lines of `codex exec --json`, as far as they are used here.

Source: the recordings exec_* of 0.171.0 in `tests/transcripts/codex`. Every field has a default; `todo_list` and
`collab_tool_call` are in the SDK's types and were not seen. Names on the wire are in snake case.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..process.lines import json_part
from .tolerant import Misfit, Unknown, loads, salvage


class NotAFrame(ValueError):
    """The line is no JSON object."""


class Item(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    id: str = ""


class AgentMessage(Item, tag="agent_message", frozen=True):
    """`phase` is not told by 0.171.0."""

    text: str = ""
    phase: str | None = None


class Reasoning(Item, tag="reasoning", frozen=True):
    text: str = ""


class CommandExecution(Item, tag="command_execution", frozen=True):
    """`status`: `in_progress`, `completed`, `failed`, `declined`."""

    command: str = ""
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str = ""


class FileUpdate(msgspec.Struct, frozen=True, gc=False):
    """`kind`: `add`, `update`, `delete`. No diff is told."""

    path: str = ""
    kind: str = ""


class FileChange(Item, tag="file_change", frozen=True):
    changes: tuple[FileUpdate, ...] = ()
    status: str = ""


class Failure(msgspec.Struct, frozen=True, gc=False):
    message: str = ""


class McpToolCall(Item, tag="mcp_tool_call", frozen=True):
    server: str = ""
    tool: str = ""
    arguments: Any = None
    result: Any = None
    error: Failure | None = None
    status: str = ""


class WebAction(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    query: str | None = None
    url: str | None = None
    pattern: str | None = None


class WebSearch(Item, tag="web_search", frozen=True):
    query: str = ""
    action: WebAction | None = None


class Todo(msgspec.Struct, frozen=True, gc=False):
    text: str = ""
    completed: bool = False


class TodoList(Item, tag="todo_list", frozen=True):
    items: tuple[Todo, ...] = ()


class ErrorItem(Item, tag="error", frozen=True):
    """A warning, such as about an unknown model."""

    message: str = ""


class CollabToolCall(Item, tag="collab_tool_call", frozen=True):
    pass


AnyItem: TypeAlias = (
    AgentMessage
    | Reasoning
    | CommandExecution
    | FileChange
    | McpToolCall
    | WebSearch
    | TodoList
    | ErrorItem
    | CollabToolCall
)


class Line(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """One line of output."""


class ThreadStarted(Line, tag="thread.started", frozen=True):
    thread_id: str = ""


class TurnStarted(Line, tag="turn.started", frozen=True):
    pass


class ItemStarted(Line, tag="item.started", frozen=True):
    item: AnyItem


class ItemUpdated(Line, tag="item.updated", frozen=True):
    item: AnyItem


class ItemCompleted(Line, tag="item.completed", frozen=True):
    item: AnyItem


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """Sums over the thread since it began. `input_tokens` includes the cached ones."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0


class TurnCompleted(Line, tag="turn.completed", frozen=True):
    usage: Tokens | None = None


class TurnFailed(Line, tag="turn.failed", frozen=True):
    error: Failure = Failure()


class ErrorLine(Line, tag="error", frozen=True):
    """Also a notice that the provider is called again: "Reconnecting... 1/5 (…)"."""

    message: str = ""


AnyLine: TypeAlias = (
    ThreadStarted | TurnStarted | ItemStarted | ItemUpdated | ItemCompleted | TurnCompleted | TurnFailed | ErrorLine
)

_decoder = msgspec.json.Decoder(AnyLine)


def decode(line: bytes) -> AnyLine | Unknown:
    """Decode one line; what has an unknown name comes as `Unknown`. Raises NotAFrame."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        pass
    for candidate in (line, json_part(line)):
        try:
            value = loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            try:
                return salvage(AnyLine, value)  # type: ignore[no-any-return]
            except (Misfit, TypeError):  # TypeError: an item line without its item
                return Unknown(str(value.get("type")))
    raise NotAFrame
