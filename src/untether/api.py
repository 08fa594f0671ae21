"""The stable surface for plugin authors: everything that docs/reference/plugin-api.md documents, under one name.

What is here keeps its name and its meaning within a major version; additions have defaults. Whatever a plugin imports
from other modules of the package may change with any version. `API_VERSION` counts changes that are not additions.
"""

from __future__ import annotations

from .backends import EngineBackend, EngineConfig
from .command_backends import CommandBackend, CommandCall
from .events import EventFactory
from .model import (
    Action,
    ActionEvent,
    ActionKind,
    Allow,
    Answers,
    Choice,
    CompletedEvent,
    Content,
    Decision,
    Deny,
    EngineId,
    Interaction,
    InteractionEvent,
    Phase,
    PromptEvent,
    Question,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TextEvent,
    TurnEvent,
    UntetherEvent,
    Usage,
    Wait,
    WaitKind,
)
from .process.environment import Names
from .process.host import Launch, Rung
from .runner import (
    PRESPAWN_BLOCKED_KEY,
    BaseRunner,
    JsonlStreamState,
    JsonlSubprocessRunner,
    ResumeTokenMixin,
    Runner,
    RunOptions,
    RunStreamHandle,
    SessionLockMixin,
    publish_run_stream,
    run_folder,
    run_options,
)
from .runners.tool_actions import action_detail, tool_call, tool_kind_and_title
from .session import (
    Attachment,
    Capabilities,
    EngineSession,
    ProcessExit,
    Prompt,
    StartFacts,
    Step,
)
from .transport import Card, ChatRef, Inbound, Inbox, MessageIn, SendFailed, TapIn, Transport
from .transports import TransportBackend, TransportContext

API_VERSION = 1

__all__ = [
    "API_VERSION",
    "PRESPAWN_BLOCKED_KEY",
    "Action",
    "ActionEvent",
    "ActionKind",
    "Allow",
    "Answers",
    "Attachment",
    "BaseRunner",
    "Capabilities",
    "Card",
    "ChatRef",
    "Choice",
    "CommandBackend",
    "CommandCall",
    "CompletedEvent",
    "Content",
    "Decision",
    "Deny",
    "EngineBackend",
    "EngineConfig",
    "EngineId",
    "EngineSession",
    "EventFactory",
    "Inbound",
    "Inbox",
    "Interaction",
    "InteractionEvent",
    "JsonlStreamState",
    "JsonlSubprocessRunner",
    "Launch",
    "MessageIn",
    "Names",
    "Phase",
    "ProcessExit",
    "Prompt",
    "PromptEvent",
    "Question",
    "ResumeToken",
    "ResumeTokenMixin",
    "RunOptions",
    "RunStreamHandle",
    "Rung",
    "Runner",
    "SendFailed",
    "SessionChangedEvent",
    "SessionLockMixin",
    "StartFacts",
    "StartedEvent",
    "Step",
    "TapIn",
    "TextEvent",
    "Transport",
    "TransportBackend",
    "TransportContext",
    "TurnEvent",
    "UntetherEvent",
    "Usage",
    "Wait",
    "WaitKind",
    "action_detail",
    "publish_run_stream",
    "run_folder",
    "run_options",
    "tool_call",
    "tool_kind_and_title",
]
