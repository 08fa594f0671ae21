"""Payloads of the Agent Client Protocol, version 1 (agentclientprotocol.com), as far as the engine reads them.

Every struct is read by `read`, which loses only what does not fit. Kinds of updates and contents that are not known
decode to `Unknown` with their name. What real agents send beside the protocol's text (`models`, usage in `_meta`) is
taken from recordings of Gemini CLI 0.61, codex-acp 2.6, claude-agent-acp 0.49 and OpenCode 1.18.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

from .tolerant import Misfit, Unknown, salvage, without_surrogates

VERSION = 1
AUTH_REQUIRED = -32000  # the protocol's own error code

T = TypeVar("T")


def read(kind: type[T], value: Any) -> T:
    """Read decoded JSON as one of the structs here. Raises ValueError when it is no object at all."""
    try:
        found: T = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeError):
        try:
            found = salvage(kind, without_surrogates(value))
        except Misfit as error:
            raise ValueError(str(error)) from error
    return found


class _Payload(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What all have: names in camelCase on the wire."""


# ------------------------------------------------------------------------------------------------------- greeting


class AuthMethod(_Payload, frozen=True):
    id: str = ""
    name: str = ""
    description: str | None = None


class AgentInfo(_Payload, frozen=True):
    name: str = ""
    title: str | None = None
    version: str = ""


class PromptCapabilities(_Payload, frozen=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class AgentCapabilities(_Payload, frozen=True):
    """`session_capabilities` has a key for each further thing that the agent can do with sessions."""

    load_session: bool = False
    prompt_capabilities: PromptCapabilities = PromptCapabilities()
    session_capabilities: dict[str, Any] = {}


class Initialized(_Payload, frozen=True):
    protocol_version: Any = None
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    agent_info: AgentInfo | None = None
    auth_methods: list[AuthMethod] = []


# ------------------------------------------------------------------------------------------------------- sessions


class Mode(_Payload, frozen=True):
    id: str = ""
    name: str = ""
    description: str | None = None


class Modes(_Payload, frozen=True):
    current_mode_id: str = ""
    available_modes: list[Mode] = []


class Model(_Payload, frozen=True):
    model_id: str = ""
    name: str = ""


class Models(_Payload, frozen=True):
    current_model_id: str = ""
    available_models: list[Model] = []


class ConfigOption(_Payload, frozen=True):
    """A selector of the session. `category` is "mode", "model", "thought_level" or the agent's own."""

    id: str = ""
    category: str | None = None
    current_value: Any = None
    options: list[Any] = []

    def values(self) -> list[str]:
        """What can be chosen; options may stand in groups."""
        found: list[str] = []
        for option in self.options:
            members = option.get("options") if isinstance(option, dict) else None
            for one in members if isinstance(members, list) else [option]:
                if isinstance(one, dict) and isinstance(one.get("value"), str):
                    found.append(one["value"])
        return found


class Opened(_Payload, frozen=True):
    """The answer to session/new (with the id), session/load and session/resume (without)."""

    session_id: str = ""
    modes: Modes | None = None
    models: Models | None = None
    config_options: list[ConfigOption] = []


# -------------------------------------------------------------------------------------------------------- content


class Text(_Payload, frozen=True, tag="text", tag_field="type"):
    text: str = ""


class Link(_Payload, frozen=True, tag="resource_link", tag_field="type"):
    uri: str = ""
    name: str = ""


class Image(_Payload, frozen=True, tag="image", tag_field="type"):
    mime_type: str = ""


class Audio(_Payload, frozen=True, tag="audio", tag_field="type"):
    mime_type: str = ""


class Resource(_Payload, frozen=True, tag="resource", tag_field="type"):
    resource: dict[str, Any] = {}


Block: TypeAlias = Text | Link | Image | Audio | Resource


class Wrapped(_Payload, frozen=True, tag="content", tag_field="type"):
    """An ordinary content block in a tool call."""

    content: Any = None


class Diff(_Payload, frozen=True, tag="diff", tag_field="type"):
    """A change of a file: its old text (None: a new file) and its new one."""

    path: str = ""
    old_text: str | None = None
    new_text: str = ""


class Terminal(_Payload, frozen=True, tag="terminal", tag_field="type"):
    terminal_id: str = ""


ToolContent: TypeAlias = Wrapped | Diff | Terminal


class Location(_Payload, frozen=True):
    path: str = ""
    line: int | None = None


class ToolCall(_Payload, frozen=True):
    """A tool call or a change of one; None means: as before."""

    tool_call_id: str = ""
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[ToolContent] | None = None
    locations: list[Location] | None = None
    raw_input: Any = None
    raw_output: Any = None


# -------------------------------------------------------------------------------------------------------- updates


class MessageChunk(_Payload, frozen=True, tag="agent_message_chunk", tag_field="sessionUpdate"):
    content: Any = None
    message_id: str | None = None


class ThoughtChunk(_Payload, frozen=True, tag="agent_thought_chunk", tag_field="sessionUpdate"):
    content: Any = None
    message_id: str | None = None


class UserChunk(_Payload, frozen=True, tag="user_message_chunk", tag_field="sessionUpdate"):
    content: Any = None


class ToolCallNew(ToolCall, frozen=True, tag="tool_call", tag_field="sessionUpdate"):
    pass


class ToolCallChange(ToolCall, frozen=True, tag="tool_call_update", tag_field="sessionUpdate"):
    pass


class PlanEntry(_Payload, frozen=True):
    content: str = ""
    priority: str = ""
    status: str = ""


class Plan(_Payload, frozen=True, tag="plan", tag_field="sessionUpdate"):
    entries: list[PlanEntry] = []


class Command(_Payload, frozen=True):
    name: str = ""
    description: str = ""


class Commands(_Payload, frozen=True, tag="available_commands_update", tag_field="sessionUpdate"):
    available_commands: list[Command] = []


class CurrentMode(_Payload, frozen=True, tag="current_mode_update", tag_field="sessionUpdate"):
    current_mode_id: str = ""


class Config(_Payload, frozen=True, tag="config_option_update", tag_field="sessionUpdate"):
    config_options: list[ConfigOption] = []


class Cost(_Payload, frozen=True):
    amount: float | None = None
    currency: str = ""


class UsageUpdate(_Payload, frozen=True, tag="usage_update", tag_field="sessionUpdate"):
    """`used` and `size` are tokens of the context; `cost` is what the session has cost so far."""

    used: int | None = None
    size: int | None = None
    cost: Cost | None = None


class SessionInfo(_Payload, frozen=True, tag="session_info_update", tag_field="sessionUpdate"):
    """codex-acp tells in `_meta` the state of its thread: active, idle, or systemError when the turn failed."""

    title: str | None = None
    meta: dict[str, Any] = msgspec.field(default={}, name="_meta")

    @property
    def thread_status(self) -> str:
        codex = self.meta.get("codex")
        status = codex.get("threadStatus") if isinstance(codex, dict) else None
        return str(status.get("type")) if isinstance(status, dict) else ""


Update: TypeAlias = (
    MessageChunk
    | ThoughtChunk
    | UserChunk
    | ToolCallNew
    | ToolCallChange
    | Plan
    | Commands
    | CurrentMode
    | Config
    | UsageUpdate
    | SessionInfo
)


class SessionUpdate(_Payload, frozen=True):
    session_id: str = ""
    update: Update | Unknown = Unknown("")


def read_update(params: dict[str, Any]) -> SessionUpdate:
    """The params of a session/update. Raises ValueError when there is no update in them."""
    return read(_SessionUpdate, params).known()


class _SessionUpdate(_Payload, frozen=True):
    session_id: str = ""
    update: Any = None

    def known(self) -> SessionUpdate:
        if not isinstance(self.update, dict):
            raise ValueError("an update is an object")
        return SessionUpdate(self.session_id, _one_of(Update, self.update))


def blocks(content: list[ToolContent] | None) -> list[ToolContent]:
    """The contents of a tool call that are known."""
    return [item for item in content or [] if not isinstance(item, Unknown)]


def block(value: Any) -> Block | Unknown:
    """A content block."""
    return _one_of(Block, value) if isinstance(value, dict) else Unknown("")


def text_of(value: Any) -> str:
    """The text of a content block, "" for other kinds."""
    if isinstance(value, dict) and value.get("type") == "text" and isinstance(value.get("text"), str):
        return str(value["text"])
    return ""


def _one_of(union: Any, value: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(value, union)
    except (msgspec.ValidationError, UnicodeError):
        try:
            return salvage(union, without_surrogates(value))
        except Misfit:
            return Unknown("")


# -------------------------------------------------------------------------------------------- requests and their ends


class PermissionOption(_Payload, frozen=True):
    """`kind` is allow_once, allow_always, reject_once or reject_always."""

    option_id: str = ""
    name: str = ""
    kind: str = ""


class PermissionRequest(_Payload, frozen=True):
    session_id: str = ""
    options: list[PermissionOption] = []
    tool_call: ToolCall = ToolCall()


class TurnUsage(_Payload, frozen=True):
    """Tokens. Some agents count the cached ones into the input and others do not; the total tells which."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None
    thought_tokens: int | None = None


class TurnEnd(_Payload, frozen=True):
    """The answer to session/prompt."""

    stop_reason: str = ""
    usage: TurnUsage | None = None
    meta: dict[str, Any] = msgspec.field(default={}, name="_meta")
