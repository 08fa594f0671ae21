"""What Pi prints, in RPC mode and in JSON print mode: one JSON object a line, named by its `type`.

Source: the recordings of `@earendil-works/pi-coding-agent` 1.6.0 in `tests/transcripts/pi`, and the program's own
`docs/rpc.md`. A frame of an unknown name is an `Unknown`; fields that are not listed here are not read. Tokens are
counts, `cost` is US dollars, times are milliseconds.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from .tolerant import Misfit, Unknown, loads, salvage


class NotAFrame(ValueError):
    """The line is not a JSON object with a `type`."""


class Part(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A piece of a frame, in camel case on the wire."""


class Cost(Part, frozen=True):
    total: float = 0.0


class Usage(Part, frozen=True):
    """Of one message. `output` includes what was thought; `total_tokens` is how full the conversation is after it."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = Cost()


class Message(Part, frozen=True):
    """`role`: `system`, `user`, `assistant`, `toolResult`. `stop_reason`: `stop`, `toolUse`, `length`, `error`, …"""

    role: str = ""
    content: str | list[Any] = ""
    model: str = ""
    usage: Usage | None = None
    stop_reason: str = ""
    error_message: str = ""

    @property
    def text(self) -> str:
        """Its text, without what was thought and the calls of tools."""
        if isinstance(self.content, str):
            return self.content
        parts = [part for part in self.content if isinstance(part, dict) and part.get("type") == "text"]
        return "\n".join(text for part in parts if isinstance(text := part.get("text"), str) and text)


class Model(Part, frozen=True):
    id: str = ""
    provider: str = ""
    context_window: int | None = None


class Frame(msgspec.Struct, frozen=True, gc=False, rename="camel", tag_field="type"):
    pass


class Header(Frame, tag="session", frozen=True):
    """The first line of the JSON print mode."""

    id: str = ""


class Response(Frame, tag="response", frozen=True):
    """The answer to a command of ours, by its `id`."""

    id: str | None = None
    command: str = ""
    success: bool = False
    data: Any = None
    error: str = ""


class AgentStart(Frame, tag="agent_start", frozen=True):
    pass


class MessageStart(Frame, tag="message_start", frozen=True):
    message: Message = Message()


class Piece(Part, frozen=True):
    """`type`: `text_delta`, `thinking_delta`, `toolcall_delta`, and the starts and ends of each."""

    type: str = ""
    delta: str = ""


class MessageUpdate(Frame, tag="message_update", frozen=True):
    assistant_message_event: Piece = Piece()


class MessageEnd(Frame, tag="message_end", frozen=True):
    message: Message = Message()


class ToolStart(Frame, tag="tool_execution_start", frozen=True):
    tool_call_id: str = ""
    tool_name: str = ""
    args: Any = None


class ToolUpdate(Frame, tag="tool_execution_update", frozen=True):
    tool_call_id: str = ""


class ToolEnd(Frame, tag="tool_execution_end", frozen=True):
    tool_call_id: str = ""
    tool_name: str = ""
    result: Any = None
    is_error: bool = False


class AgentEnd(Frame, tag="agent_end", frozen=True):
    """The model is done, or its call failed and is tried again (`will_retry`). Not the end of the turn."""

    will_retry: bool = False


class AgentSettled(Frame, tag="agent_settled", frozen=True):
    """The end of the turn: nothing goes on any more."""

    aborted: bool = False


class RetryStart(Frame, tag="auto_retry_start", frozen=True):
    attempt: int = 0
    max_attempts: int = 0
    delay_ms: float = 0.0
    error_message: str = ""


class RetryEnd(Frame, tag="auto_retry_end", frozen=True):
    success: bool = False


class CompactionStart(Frame, tag="compaction_start", frozen=True):
    reason: str = ""


class CompactionEnd(Frame, tag="compaction_end", frozen=True):
    aborted: bool = False
    error_message: str = ""


class OldCompactionStart(Frame, tag="auto_compaction_start", frozen=True):
    reason: str = ""


class OldCompactionEnd(Frame, tag="auto_compaction_end", frozen=True):
    aborted: bool = False


class UiRequest(Frame, tag="extension_ui_request", frozen=True):
    """What an extension shows or asks. `method`: `select`, `confirm`, `input` and `editor` want an answer."""

    id: str = ""
    method: str = ""
    title: str = ""
    message: str = ""
    options: list[Any] = []
    placeholder: str = ""
    prefill: str = ""
    timeout: float | None = None
    notify_type: str = ""


class ExtensionError(Frame, tag="extension_error", frozen=True):
    extension_path: str = ""
    error: str = ""


class TurnStart(Frame, tag="turn_start", frozen=True):
    pass


class TurnEnd(Frame, tag="turn_end", frozen=True):
    pass


class QueueUpdate(Frame, tag="queue_update", frozen=True):
    pass


class EntryAppended(Frame, tag="entry_appended", frozen=True):
    pass


class ThinkingLevelChanged(Frame, tag="thinking_level_changed", frozen=True):
    pass


class SessionInfoChanged(Frame, tag="session_info_changed", frozen=True):
    pass


AnyFrame: TypeAlias = (
    Header
    | Response
    | AgentStart
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolStart
    | ToolUpdate
    | ToolEnd
    | AgentEnd
    | AgentSettled
    | RetryStart
    | RetryEnd
    | CompactionStart
    | CompactionEnd
    | OldCompactionStart
    | OldCompactionEnd
    | UiRequest
    | ExtensionError
    | TurnStart
    | TurnEnd
    | QueueUpdate
    | EntryAppended
    | ThinkingLevelChanged
    | SessionInfoChanged
)

_decoder = msgspec.json.Decoder(AnyFrame)


def decode(line: bytes) -> AnyFrame | Unknown:
    """A line as a frame.

    :raises NotAFrame: when it is not a JSON object with a `type`
    """
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        value = loads(line.replace(b"\0", b"").removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        raise NotAFrame(str(error)) from error
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise NotAFrame("it is no object with a type")
    try:
        found: AnyFrame | Unknown = salvage(AnyFrame, value)
    except Misfit as error:
        raise NotAFrame(str(error)) from error
    return found


def result_text(result: Any) -> str:
    """The text of a tool's result."""
    return Message(content=result["content"]).text if _has_parts(result) else ""


def _has_parts(result: Any) -> bool:
    return isinstance(result, dict) and isinstance(result.get("content"), list)


class State(Part, frozen=True):
    """What `get_state` tells."""

    session_id: str = ""
    model: Model | None = None
    thinking_level: str = ""


def read_as(kind: type[Any], data: Any) -> Any:
    """The `data` of a response as `kind`, with defaults for what is not there."""
    try:
        return salvage(kind, data)
    except Misfit:
        return kind()
