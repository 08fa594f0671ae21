"""The frames of `codex app-server`: JSON-RPC 2.0 over stdio, one object a line and without the `jsonrpc` member.

Source: what codex 0.171.0 prints with `codex app-server generate-ts --experimental`, and the recordings in
`tests/transcripts/codex`. Only what is used here has a struct; every field has a default. What the agent may send is
listed by name in `NOTIFICATIONS` and `REQUESTS`, so that the rest can be counted as unknown. Times that end in `Ms` are
milliseconds, `resetsAt` is epoch seconds.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..process.lines import json_part
from .codex_items import AnyItem, Part
from .tolerant import Misfit, Unknown, loads, salvage

RequestId: TypeAlias = int | str
JsonObject: TypeAlias = dict[str, Any]


class NotAFrame(ValueError):
    """The line is no JSON object."""


class RpcError(msgspec.Struct, frozen=True, gc=False):
    code: int = 0
    message: str = ""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One line. With `method` and `id` a request, with `method` alone a notification, else a response."""

    method: str = ""
    id: RequestId | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: RpcError | None = None


# ------------------------------------------------------------------------------------------------- notifications


class TurnError(Part, frozen=True):
    """`codex_error_info` is a name, or an object whose one key is the name."""

    message: str = ""
    codex_error_info: Any = None
    additional_details: str | None = None


class TurnInfo(Part, frozen=True):
    """`status`: `inProgress`, `completed`, `interrupted`, `failed`."""

    id: str = ""
    status: str = ""
    error: TurnError | None = None
    duration_ms: float | None = None


class TurnEventParams(Part, frozen=True):
    """`turn/started` and `turn/completed`."""

    thread_id: str = ""
    turn: TurnInfo = TurnInfo()


class ItemEvent(Part, frozen=True):
    """`item/started` and `item/completed`."""

    item: AnyItem
    thread_id: str = ""
    turn_id: str = ""


class Delta(Part, frozen=True):
    thread_id: str = ""
    item_id: str = ""
    delta: str = ""


class ErrorNotice(Part, frozen=True):
    error: TurnError = TurnError()
    will_retry: bool = False
    thread_id: str = ""


class Tokens(Part, frozen=True):
    """`input_tokens` counts all that was read, the cached part included."""

    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0


class TokenUsage(Part, frozen=True):
    """`total` is that of the thread since it began, `last` that of the latest model call."""

    total: Tokens = Tokens()
    last: Tokens = Tokens()
    model_context_window: int | None = None


class TokenUsageUpdated(Part, frozen=True):
    thread_id: str = ""
    token_usage: TokenUsage = TokenUsage()


class RateWindow(Part, frozen=True):
    used_percent: float = 0.0
    window_duration_mins: float | None = None
    resets_at: float | None = None


class RateLimits(Part, frozen=True):
    primary: RateWindow | None = None
    secondary: RateWindow | None = None
    rate_limit_reached_type: str | None = None


class RateLimitsUpdated(Part, frozen=True):
    rate_limits: RateLimits = RateLimits()


class PlanStep(Part, frozen=True):
    """`status`: `pending`, `inProgress`, `completed`."""

    step: str = ""
    status: str = ""


class PlanUpdated(Part, frozen=True):
    thread_id: str = ""
    turn_id: str = ""
    plan: tuple[PlanStep, ...] = ()


class RequestResolved(Part, frozen=True):
    thread_id: str = ""
    request_id: RequestId | None = None


class ThreadSettings(Part, frozen=True):
    model: str = ""


class SettingsUpdated(Part, frozen=True):
    thread_id: str = ""
    thread_settings: ThreadSettings = ThreadSettings()


class Rerouted(Part, frozen=True):
    thread_id: str = ""
    from_model: str = ""
    to_model: str = ""


class Warned(Part, frozen=True):
    """`warning` and `guardianWarning`."""

    message: str = ""


class ConfigWarned(Part, frozen=True):
    summary: str = ""
    details: str | None = None


class HookRun(Part, frozen=True):
    id: str = ""
    event_name: str = ""


class HookEvent(Part, frozen=True):
    run: HookRun = HookRun()


class McpStartup(Part, frozen=True):
    """`status`: `starting`, `ready`, `failed`, `cancelled`."""

    name: str = ""
    status: str = ""
    error: str | None = None


class ThreadInfo(Part, frozen=True):
    id: str = ""
    cwd: str = ""
    agent_nickname: str | None = None
    parent_thread_id: str | None = None
    cli_version: str = ""


class ThreadStarted(Part, frozen=True):
    thread: ThreadInfo = ThreadInfo()


# --------------------------------------------------------------------------------------------------- its requests


class NetworkContext(Part, frozen=True):
    host: str = ""
    protocol: str = ""


class NetworkAmendment(Part, frozen=True):
    """`action`: `allow` or `deny`."""

    host: str = ""
    action: str = ""


class CommandApproval(Part, frozen=True):
    """`item/commandExecution/requestApproval`."""

    thread_id: str = ""
    turn_id: str = ""
    item_id: str = ""
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    network_approval_context: NetworkContext | None = None
    additional_permissions: Any = None
    proposed_execpolicy_amendment: tuple[str, ...] | None = None
    proposed_network_policy_amendments: tuple[NetworkAmendment, ...] | None = None
    environment_id: str | None = None


class PatchApproval(Part, frozen=True):
    """`item/fileChange/requestApproval`: the change itself is in the item, which was started before."""

    thread_id: str = ""
    turn_id: str = ""
    item_id: str = ""
    reason: str | None = None
    grant_root: str | None = None


class PermissionsApproval(Part, frozen=True):
    """`item/permissions/requestApproval`."""

    thread_id: str = ""
    turn_id: str = ""
    item_id: str = ""
    reason: str | None = None
    cwd: str | None = None
    permissions: Any = None


class UserOption(Part, frozen=True):
    label: str = ""
    description: str = ""


class UserQuestion(Part, frozen=True):
    id: str = ""
    header: str = ""
    question: str = ""
    is_secret: bool = False
    options: tuple[UserOption, ...] | None = None


class UserInput(Part, frozen=True):
    """`item/tool/requestUserInput`."""

    thread_id: str = ""
    turn_id: str = ""
    item_id: str = ""
    questions: tuple[UserQuestion, ...] = ()


class Elicitation(msgspec.Struct, frozen=True):
    """`mcpServer/elicitation/request`. `mode`: `form`, `url`, and others of which nothing is known here."""

    thread_id: str = msgspec.field(default="", name="threadId")
    turn_id: str | None = msgspec.field(default=None, name="turnId")
    server_name: str = msgspec.field(default="", name="serverName")
    mode: str = "form"
    message: str = ""
    url: str = ""
    schema: Any = msgspec.field(default=None, name="requestedSchema")
    meta: Any = msgspec.field(default=None, name="_meta")


Asked: TypeAlias = CommandApproval | PatchApproval | PermissionsApproval | UserInput | Elicitation


# ------------------------------------------------------------------------------------------------ results of ours


class Initialized(Part, frozen=True):
    user_agent: str = ""
    codex_home: str = ""


class ThreadResult(Part, frozen=True):
    """The answer to `thread/start` and `thread/resume`. `approval_policy` is a name or an object."""

    thread: ThreadInfo = ThreadInfo()
    model: str = ""
    approval_policy: Any = None
    sandbox: Any = None
    reasoning_effort: str | None = None


class ThreadList(Part, frozen=True):
    data: tuple[ThreadInfo, ...] = ()


class TurnResult(Part, frozen=True):
    """The answer to `turn/start`."""

    turn: TurnInfo = TurnInfo()


NOTIFICATIONS: dict[str, Any] = {
    "item/started": ItemEvent,
    "item/completed": ItemEvent,
    "item/agentMessage/delta": Delta,
    "item/commandExecution/outputDelta": Delta,
    "turn/started": TurnEventParams,
    "turn/completed": TurnEventParams,
    "turn/plan/updated": PlanUpdated,
    "thread/started": ThreadStarted,
    "thread/tokenUsage/updated": TokenUsageUpdated,
    "thread/settings/updated": SettingsUpdated,
    "account/rateLimits/updated": RateLimitsUpdated,
    "serverRequest/resolved": RequestResolved,
    "model/rerouted": Rerouted,
    "mcpServer/startupStatus/updated": McpStartup,
    "hook/started": HookEvent,
    "hook/completed": HookEvent,
    "error": ErrorNotice,
    "warning": Warned,
    "guardianWarning": Warned,
    "configWarning": ConfigWarned,
}
"""Notifications that say something here, and what they hold."""

REQUESTS: dict[str, Any] = {
    "item/commandExecution/requestApproval": CommandApproval,
    "item/fileChange/requestApproval": PatchApproval,
    "item/permissions/requestApproval": PermissionsApproval,
    "item/tool/requestUserInput": UserInput,
    "mcpServer/elicitation/request": Elicitation,
}
"""Requests that a person answers. All others are refused."""

_QUIET = """
    account/gatewayOAuth/changed account/login/completed account/updated app/list/updated
    autoApprovalReview/strictReviewRequired command/exec/outputDelta deprecationNotice
    externalAgentConfig/import/completed externalAgentConfig/import/progress fs/changed
    fuzzyFileSearch/sessionCompleted fuzzyFileSearch/sessionUpdated item/autoApprovalReview/completed
    item/autoApprovalReview/started item/commandExecution/terminalInteraction item/fileChange/outputDelta
    item/fileChange/patchUpdated item/mcpToolCall/progress item/plan/delta item/reasoning/summaryPartAdded
    item/reasoning/summaryTextDelta item/reasoning/textDelta mcpServer/event/stream/notification
    mcpServer/oauthLogin/completed model/safetyBuffering/updated model/verification
    modelProvider/authRecoveryCompleted modelProvider/authRecoveryStarted process/exited process/outputDelta
    project/changed rawResponse/completed rawResponseItem/completed remoteControl/status/changed skills/changed
    thread/archived thread/attachment/updated thread/closed thread/compacted thread/deleted
    thread/environment/connected thread/environment/disconnected thread/goal/cleared thread/goal/updated
    thread/name/updated thread/prediction/updated thread/project/updated thread/queue/changed
    thread/readState/changed thread/reverted thread/search/partial thread/section/changed thread/status/changed
    thread/unarchived turn/diff/updated turn/moderationMetadata windows/worldWritableWarning
    windowsSandbox/setupCompleted
"""
QUIET = frozenset(_QUIET.split())
"""Notifications that tell no more here than that the agent lives."""

_message = msgspec.json.Decoder(Message)
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in {*NOTIFICATIONS.values(), *REQUESTS.values(), Initialized, ThreadResult, ThreadList, TurnResult}
}


def decode(line: bytes) -> Message:
    """Decode one line. Raises NotAFrame."""
    try:
        return _message.decode(line)
    except (msgspec.DecodeError, RecursionError):
        pass
    for candidate in (line, json_part(line)):
        try:
            value = loads(candidate)
            found: Message = salvage(Message, value)
        except (ValueError, RecursionError):
            continue
        return found
    raise NotAFrame


def decode_as(kind: Any, data: msgspec.Raw) -> Any:
    """Decode what a message holds; what does not fit is left out, and what is no object at all gives an empty one.

    An item of an unknown type gives an `ItemEvent` whose item is `Unknown`.
    """
    try:
        return _DECODERS[kind].decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return salvage(kind, loads(bytes(data)))
    except (ValueError, RecursionError, Misfit, TypeError):
        return ItemEvent(Unknown("")) if kind is ItemEvent else kind()  # type: ignore[arg-type]
