"""The frames that Claude Code prints in stream-json mode, as far as they are used here.

Sources: the recordings of 2.1.197 and 2.1.332 in `tests/transcripts`, and the wire sheets made from them. Every field
has a default, since a field that a version leaves out must not cost a line. Names on the wire that are camel case get
snake case here. Text enums are plain `str`: what they may hold is told by the `KNOWN_…` sets, and an unknown member is
the session's to count.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..process.lines import json_part
from .claude_system import QUIET, SYSTEM, SYSTEM_DECODERS, AnySystem, Part, names
from .tolerant import Unknown, loads, salvage

SYNTHETIC = "<synthetic>"
"""The model of messages that the CLI wrote itself: errors of the API, output of local commands."""

JsonObject: TypeAlias = dict[str, Any]


class Frame(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """One line of output."""


# --------------------------------------------------------------------------------------------- messages and blocks


class Block(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """One block of a message's content."""


class Text(Block, tag="text", frozen=True):
    text: str = ""


class Thinking(Block, tag="thinking", frozen=True):
    pass


class RedactedThinking(Block, tag="redacted_thinking", frozen=True):
    pass


class ToolUse(Block, tag="tool_use", frozen=True):
    id: str = ""
    name: str = ""
    input: JsonObject = {}


class ServerToolUse(Block, tag="server_tool_use", frozen=True):
    """A tool that the provider runs; its result comes as a block of the same answer."""


class ServerToolResult(Block, tag="web_search_tool_result", frozen=True):
    pass


class AdvisorToolResult(Block, tag="advisor_tool_result", frozen=True):
    pass


class Image(Block, tag="image", frozen=True):
    pass


class Document(Block, tag="document", frozen=True):
    pass


class ResultPart(Part, frozen=True):
    """One block of a tool's output: text, an image, a `tool_reference`, …"""

    type: str = ""
    text: str = ""


class ToolResult(Block, tag="tool_result", frozen=True):
    tool_use_id: str = ""
    content: str | list[ResultPart] | None = None
    is_error: bool | None = None


AssistantBlock: TypeAlias = (
    Text | Thinking | RedactedThinking | ToolUse | ServerToolUse | ServerToolResult | AdvisorToolResult
)
UserBlock: TypeAlias = ToolResult | Text | Image | Document | AdvisorToolResult


class TokenUse(Part, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class AssistantMessage(Part, frozen=True):
    """`usage` is a `TokenUse`, kept as it came since most are never looked at."""

    id: str = ""
    model: str = ""
    content: list[AssistantBlock] = msgspec.field(default_factory=list)
    usage: msgspec.Raw = msgspec.Raw()


class UserMessage(Part, frozen=True):
    content: str | list[UserBlock] = ""


class Assistant(Frame, tag="assistant", frozen=True):
    """One finished block of the model's answer; the blocks of one answer share `message.id`."""

    message: AssistantMessage = AssistantMessage()
    parent_tool_use_id: str | None = None
    error: str | None = None
    user_message_uuids: tuple[str, ...] = ()


class User(Frame, tag="user", frozen=True):
    """Tool results, notes about interruptions, replays of our messages, the summary of a compaction."""

    message: UserMessage = UserMessage()
    parent_tool_use_id: str | None = None
    uuid: str = ""
    is_replay: bool | None = msgspec.field(default=None, name="isReplay")


class ModelUse(Part, frozen=True, rename="camel"):
    """Sums for one model, over the process or since the last result. `cost_usd` is in US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    context_window: int | None = None
    cost_usd: float | None = msgspec.field(default=None, name="costUSD")


class Origin(Part, frozen=True):
    kind: str = ""


class Result(Frame, tag="result", frozen=True):
    """The end of a turn. `is_error` decides; `total_cost_usd` and `model_usage` are sums over the process."""

    subtype: str = ""
    is_error: bool | None = None
    result: str | None = None
    errors: tuple[str, ...] = ()
    session_id: str = ""
    duration_ms: float | None = None
    num_turns: int | None = None
    stop_reason: str | None = None
    terminal_reason: str | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    api_error: str | None = None
    total_cost_usd: float | None = None
    usage: TokenUse | None = None
    model_usage: dict[str, ModelUse] = msgspec.field(default_factory=dict, name="modelUsage")
    model_usage_since_last_result: dict[str, ModelUse] = msgspec.field(default_factory=dict)  # from 2.1.332 on
    origin: Origin | None = None
    user_message_uuids: tuple[str, ...] = ()
    local_command: str | bool | None = None


class CommandLifecycle(Frame, tag="command_lifecycle", frozen=True):
    """What became of a message that was sent with a uuid, or of a wake-up (2.1.332)."""

    command_uuid: str = ""
    state: str = ""
    wakeup_source: str | None = None


class ConversationReset(Frame, tag="conversation_reset", frozen=True):
    """`/clear`: the next `init` has another session id (2.1.332)."""


class Window(Part, frozen=True, rename="camel"):
    utilization: float | None = None
    resets_at: float | None = None


class RateLimitInfo(Part, frozen=True, rename="camel"):
    """`resets_at` is epoch seconds, `utilization` a share between 0 and 1."""

    status: str = ""
    resets_at: float | None = None
    rate_limit_type: str = ""
    utilization: float | None = None
    is_using_overage: bool | None = None
    unified_windows: dict[str, Window] = msgspec.field(default_factory=dict)


class RateLimitEvent(Frame, tag="rate_limit_event", frozen=True):
    rate_limit_info: RateLimitInfo = RateLimitInfo()


class Delta(Part, frozen=True):
    """`text` only of a `text_delta`."""

    text: str = ""


class ApiMessage(Part, frozen=True):
    id: str = ""


class ApiEvent(Part, frozen=True):
    """`message` comes with `message_start`."""

    delta: Delta | None = None
    message: ApiMessage | None = None


class StreamEvent(Frame, tag="stream_event", frozen=True):
    """A raw event of the API, with partial messages on."""

    event: ApiEvent | None = None
    parent_tool_use_id: str | None = None


class ToolProgress(Frame, tag="tool_progress", frozen=True):
    """A heartbeat of a running tool or of a hook that waits; its `parent_tool_use_id` is the tool's own id."""


class ToolUseSummary(Frame, tag="tool_use_summary", frozen=True):
    pass


class PromptSuggestion(Frame, tag="prompt_suggestion", frozen=True):
    pass


class AuthStatus(Frame, tag="auth_status", frozen=True):
    pass


class KeepAlive(Frame, tag="keep_alive", frozen=True):
    pass


# ------------------------------------------------------------------------------------------------- control channel


class Request(msgspec.Struct, frozen=True, gc=False, tag_field="subtype"):
    """What the CLI asks of us."""


class McpServer(Part, frozen=True):
    name: str = ""


class CanUseTool(Request, tag="can_use_tool", frozen=True):
    """`input` is kept as it came, to be sent back unchanged. `agent_id` is the task id of the sub-agent that asks.

    `matched_ask_rule`: a rule of the user's own that asks, where the reason given is another one.
    `suppress_always_allow_rule`: the request must not become a rule (both from the schema of 2.1.332).
    """

    tool_name: str = ""
    display_name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    agent_id: str | None = None
    description: str | None = None
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    blocked_path: str | None = None
    requires_user_interaction: bool | None = None
    permission_suggestions: list[JsonObject] = msgspec.field(default_factory=list)
    matched_ask_rule: JsonObject | None = None
    suppress_always_allow_rule: bool | None = None
    mcp_server: McpServer | None = None


class HookCallback(Request, tag="hook_callback", frozen=True):
    """`input` is kept as it came."""

    callback_id: str = ""
    tool_use_id: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class McpMessage(Request, tag="mcp_message", frozen=True):
    server_name: str = ""
    message: JsonObject = {}


class InitializeRequest(Request, tag="initialize", frozen=True):
    pass


class RewindFilesRequest(Request, tag="rewind_files", frozen=True):
    pass


class InterruptRequest(Request, tag="interrupt", frozen=True):
    pass


AnyRequest: TypeAlias = (
    CanUseTool | HookCallback | McpMessage | InitializeRequest | RewindFilesRequest | InterruptRequest
)


class ControlRequest(Frame, tag="control_request", frozen=True):
    request_id: str = ""
    request: AnyRequest | None = None


class ControlCancelRequest(Frame, tag="control_cancel_request", frozen=True):
    request_id: str = ""


class Response(Part, frozen=True):
    subtype: str = ""
    request_id: str = ""
    response: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


class ControlResponse(Frame, tag="control_response", frozen=True):
    response: Response = Response()


class Initialized(Part, frozen=True):
    """The answer to `initialize`, of 2.1.332; 2.1.197 has none of these fields."""

    claude_code_version: str = ""
    capabilities: list[str] = msgspec.field(default_factory=list)


class PlanFile(Part, frozen=True):
    """The answer to `get_plan`, of 2.1.332."""

    content: str = ""
    path: str = ""


class StillQueued(Part, frozen=True):
    """The answer to `interrupt`, of 2.1.332."""

    still_queued: tuple[str, ...] = ()


class Cancelled(Part, frozen=True):
    """The answer to `cancel_async_message`."""

    cancelled: bool = False


class Rewound(Part, frozen=True, rename="camel"):
    """The answer to `rewind_files`; without a dry run only the first field."""

    can_rewind: bool = False
    error: str | None = None
    files_changed: tuple[str, ...] = ()
    insertions: int = 0
    deletions: int = 0


class ContextPart(Part, frozen=True):
    name: str = ""
    tokens: int = 0


class ContextUse(Part, frozen=True, rename="camel"):
    """The answer to `get_context_usage`, in tokens."""

    total_tokens: int | None = None
    max_tokens: int | None = None
    categories: tuple[ContextPart, ...] = ()


class System(Frame, tag="system", frozen=True):
    """A system frame whose subtype is of no interest, and the base of those that are."""

    subtype: str = ""


KNOWN_RESULTS = names(
    "success error_during_execution error_max_turns error_max_budget_usd error_max_structured_output_retries"
)
KNOWN_MODES = names("acceptEdits auto bypassPermissions default dontAsk manual plan")
KNOWN_TASK_STATUSES = names("pending running paused completed failed killed stopped")
ENDED_TASK_STATUSES = names("completed failed killed stopped")
KNOWN_RATE_LIMIT_STATUSES = names("allowed allowed_warning rejected")
KNOWN_LIFECYCLE_STATES = names("queued started completed cancelled discarded refused")

AnyFrame: TypeAlias = (
    Assistant
    | User
    | System
    | Result
    | StreamEvent
    | ControlRequest
    | ControlResponse
    | ControlCancelRequest
    | CommandLifecycle
    | ConversationReset
    | RateLimitEvent
    | ToolProgress
    | ToolUseSummary
    | PromptSuggestion
    | AuthStatus
    | KeepAlive
)
Decoded: TypeAlias = AnyFrame | AnySystem | Unknown

decode_usual = msgspec.json.Decoder(AnyFrame).decode
"""Decode a line as it nearly always is. For a `System` frame, a DecodeError and a RecursionError there is `decode`."""


class NotAFrame(ValueError):
    """The line holds no JSON object."""


def decode(line: bytes) -> Decoded:
    """Decode one line. What has an unknown name comes as `Unknown`. Raises NotAFrame."""
    try:
        frame = decode_usual(line)
        return frame if frame.__class__ is not System else _decode_system(frame.subtype, line)
    except (msgspec.DecodeError, RecursionError):
        return _rescue(line)


def decode_object(data: bytes | msgspec.Raw) -> JsonObject:
    """Decode what was kept as it came; anything but an object gives an empty one."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = loads(bytes(data))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def decode_usage(data: msgspec.Raw) -> TokenUse:
    found: TokenUse = salvage(TokenUse, decode_object(data))
    return found


def decode_still_queued(data: msgspec.Raw) -> tuple[str, ...]:
    """The messages that are queued after an interrupt; 2.1.197 does not tell."""
    found: StillQueued = salvage(StillQueued, decode_object(data))
    return found.still_queued


def decode_cancelled(data: msgspec.Raw) -> bool:
    """Whether a queued message was taken back in time."""
    found: Cancelled = salvage(Cancelled, decode_object(data))
    return found.cancelled


def decode_rewound(data: msgspec.Raw) -> Rewound:
    found: Rewound = salvage(Rewound, decode_object(data))
    return found


def decode_context_use(data: msgspec.Raw) -> ContextUse:
    found: ContextUse = salvage(ContextUse, decode_object(data))
    return found


def decode_plan(data: msgspec.Raw) -> PlanFile:
    found: PlanFile = salvage(PlanFile, decode_object(data))
    return found


def decode_initialized(data: msgspec.Raw) -> Initialized:
    found: Initialized = salvage(Initialized, decode_object(data))
    return found


def _decode_system(subtype: str, line: bytes) -> Any:
    decoder = SYSTEM_DECODERS.get(subtype)
    if decoder is not None:
        return decoder.decode(line)
    return System(subtype) if subtype in QUIET else Unknown(f"system/{subtype}")


def _rescue(line: bytes) -> Decoded:
    """Decode a line that did not fit at once: without types first, then field by field."""
    for candidate in (line, json_part(line)):
        try:
            value = loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return _fit(value)
    raise NotAFrame


def _fit(value: JsonObject) -> Decoded:
    """Put an untyped frame into its struct."""
    kind, subtype = value.get("type"), value.get("subtype")
    if kind == "system" and isinstance(subtype, str):
        struct = SYSTEM.get(subtype)
        system: Decoded = salvage(struct, value) if struct is not None else _decode_system(subtype, b"")
        return system
    frame: Decoded = salvage(AnyFrame, value)
    return Unknown(f"type/{frame.name}") if isinstance(frame, Unknown) else frame
