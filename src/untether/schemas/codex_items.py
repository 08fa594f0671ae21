"""The items of a Codex thread: what the agent says and does, one struct a kind. See `codex` for the source."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class Part(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A piece of a frame, in camel case on the wire."""


class Item(Part, frozen=True, tag_field="type"):
    id: str = ""


class UserMessage(Item, tag="userMessage", frozen=True):
    """`client_id` is what we named the message, None when it had no name."""

    client_id: str | None = None


class AgentMessage(Item, tag="agentMessage", frozen=True):
    """`phase`: `commentary`, `partial_answer`, `final_answer`, or None."""

    text: str = ""
    phase: str | None = None


class Reasoning(Item, tag="reasoning", frozen=True):
    summary: tuple[str, ...] = ()


class Plan(Item, tag="plan", frozen=True):
    text: str = ""


class CommandExecution(Item, tag="commandExecution", frozen=True):
    """`status`: `inProgress`, `completed`, `failed`, `declined`. `process_id` is set once it runs."""

    command: str = ""
    cwd: str | None = None
    process_id: str | None = None
    status: str = ""
    aggregated_output: str | None = None
    exit_code: int | None = None


class ChangeKind(Part, frozen=True):
    type: str = ""
    move_path: str | None = None


class FileUpdate(Part, frozen=True):
    """`diff` holds the hunks of an update, and the bare content of a file that is added or deleted."""

    path: str = ""
    kind: ChangeKind = ChangeKind()
    diff: str = ""


class FileChange(Item, tag="fileChange", frozen=True):
    changes: tuple[FileUpdate, ...] = ()
    status: str = ""


class ToolError(Part, frozen=True):
    message: str = ""


class McpToolCall(Item, tag="mcpToolCall", frozen=True):
    server: str = ""
    tool: str = ""
    arguments: Any = None
    result: Any = None
    error: ToolError | None = None
    status: str = ""


class DynamicToolCall(Item, tag="dynamicToolCall", frozen=True):
    namespace: str | None = None
    tool: str = ""
    arguments: Any = None
    success: bool | None = None
    status: str = ""


class WebAction(Part, frozen=True):
    """`type`: `search`, `openPage`, `findInPage`, `other`."""

    type: str = ""
    query: str | None = None
    url: str | None = None
    pattern: str | None = None


class WebSearch(Item, tag="webSearch", frozen=True):
    query: str = ""
    action: WebAction | None = None


class CollabToolCall(Item, tag="collabAgentToolCall", frozen=True):
    """Work with sub-agents. `tool`: `spawnAgent`, `sendInput`, `wait`, …; the receivers are their threads."""

    tool: str = ""
    status: str = ""
    receiver_thread_ids: tuple[str, ...] = ()
    prompt: str | None = None


class SubAgentActivity(Item, tag="subAgentActivity", frozen=True):
    """`kind`: `started`, `interacted`, `interrupted`, `completed`."""

    kind: str = ""
    agent_thread_id: str = ""
    agent_path: str = ""


class ImageView(Item, tag="imageView", frozen=True):
    path: str = ""


class ImageGeneration(Item, tag="imageGeneration", frozen=True):
    status: str = ""
    saved_path: str | None = None


class ContextCompaction(Item, tag="contextCompaction", frozen=True):
    pass


class ExitedReviewMode(Item, tag="exitedReviewMode", frozen=True):
    review: str = ""


class EnteredReviewMode(Item, tag="enteredReviewMode", frozen=True):
    pass


class HookPrompt(Item, tag="hookPrompt", frozen=True):
    pass


class Sleep(Item, tag="sleep", frozen=True):
    pass


class FunctionCallOutput(Item, tag="functionCallOutput", frozen=True):
    pass


AnyItem: TypeAlias = (
    UserMessage
    | AgentMessage
    | Reasoning
    | Plan
    | CommandExecution
    | FileChange
    | McpToolCall
    | DynamicToolCall
    | WebSearch
    | CollabToolCall
    | SubAgentActivity
    | ImageView
    | ImageGeneration
    | ContextCompaction
    | EnteredReviewMode
    | ExitedReviewMode
    | HookPrompt
    | Sleep
    | FunctionCallOutput
)
