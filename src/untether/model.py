"""The vocabulary that every room shares: frozen records without behaviour, neutral to engine and transport.

The run contract: one `StartedEvent` when the session id is known, `ActionEvent`s, and exactly one
`CompletedEvent`, last. A process that stays alive after it goes on in turns: `TurnEvent(started)`, actions,
`TurnEvent(completed)`. `InteractionEvent`s may come at any place between the first line and the end.
"""

from __future__ import annotations

from typing import Any, Literal, NewType, TypeAlias

import msgspec

EngineId = NewType("EngineId", str)

ActionKind: TypeAlias = Literal[
    "command",
    "tool",
    "file_change",
    "web_search",
    "note",
    "warning",
    "turn",  # a turn marker: metadata only, never shown as a step
    "telemetry",  # usage and cost: metadata only, never shown as a step
    "subagent",
]
Phase: TypeAlias = Literal["started", "updated", "completed"]


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of the vocabulary: immutable, and encodes to JSON without its defaults."""


class ResumeToken(Record, frozen=True):
    """What an engine needs to continue a session. `value` is opaque: never parse it or assume a format."""

    engine: EngineId
    value: str


class Action(Record, frozen=True, gc=False):
    """One step of the agent. `detail` holds facts for rendering; its keys are documented in `tool_actions`."""

    id: str
    kind: ActionKind
    title: str
    detail: dict[str, Any] = {}


class Usage(Record, frozen=True):
    """What one run cost. Always of this run: an engine that reports running totals subtracts inside its session.

    Tokens are counts; `cost_usd` is US dollars; the context figures are tokens of the main conversation.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    context_used: int | None = None
    context_window: int | None = None
    duration_s: float | None = None
    turns: int | None = None


# ---------------------------------------------------------------------------------------------------- waits

WaitKind: TypeAlias = Literal["model", "tool", "human", "quota", "retry", "compaction", "background", "hook", "wakeup"]


class Wait(Record, frozen=True):
    """Whom the run is waiting for. `since` and `until` are epoch seconds; `until` None means unknown.

    Of kind "background", `id` is what `session.StopTask` takes, and `tokens` what the task has used so far.
    """

    kind: WaitKind
    since: float
    until: float | None = None
    label: str = ""
    id: str = ""
    tokens: int = 0


# --------------------------------------------------------------------------------------------- interactions

InteractionKind: TypeAlias = Literal["permission", "plan", "question"]


class Content(Record, frozen=True):
    """A piece of what is asked, whole. `form` says how to show `text`; `label` is its heading (a path, a name)."""

    form: Literal["text", "command", "code", "diff", "json", "markdown"]
    text: str
    label: str = ""
    language: str = ""
    added: int | None = None
    removed: int | None = None


class Choice(Record, frozen=True):
    """One answer that the engine offers beside a plain approve and deny, or one option of a question.

    `id` returns in the decision (`Allow.scope`, `Deny.choice`); `label` tells its whole effect. `wants_text`: the
    person's next reply goes with it. `preview` shows what the option would look like.
    """

    id: str
    label: str
    description: str = ""
    style: Literal["plain", "success", "danger"] = "plain"
    decides: Literal["allow", "deny"] = "allow"
    wants_text: bool = False
    preview: str = ""


class Question(Record, frozen=True):
    """One question of an agent. An option's label is its answer; a person may also answer in words of their own."""

    text: str
    header: str = ""
    options: tuple[Choice, ...] = ()
    multiple: bool = False


class Interaction(Record, frozen=True):
    """Something only a person may decide. `id` is unique within the process (the engine's request id).

    `act` names what is asked in a verb, such as "Run a command?"; `body` is the whole content; `choices` are those
    beside a plain approve and deny; `asked_by` names the agent that asks when it is not the main one; `step_id` is the
    action it belongs to; `editable` names the field of the input that a person may rewrite, "" for none; `offers` are
    the plain answers that the engine can take.
    """

    id: str
    kind: InteractionKind
    act: str
    body: tuple[Content, ...] = ()
    choices: tuple[Choice, ...] = ()
    note: str = ""
    asked_by: str = ""
    step_id: str = ""
    questions: tuple[Question, ...] = ()
    editable: str = ""
    offers: tuple[Literal["allow", "deny"], ...] = ("allow", "deny")


class Allow(Record, frozen=True, tag="allow"):
    """Let it happen. `scope` is the id of a choice; the fields of `updated_input` replace those that were asked."""

    scope: str = ""
    updated_input: dict[str, Any] | None = None


class Deny(Record, frozen=True, tag="deny"):
    """Do not let it happen. `reason` is read by the agent; `interrupt` also ends the turn; `choice` is its id."""

    reason: str = ""
    interrupt: bool = False
    choice: str = ""


class Answers(Record, frozen=True, tag="answers"):
    """Answers to questions, by the question's text; several options of one are joined by ", "."""

    by_question: dict[str, str]


Decision: TypeAlias = Allow | Deny | Answers


# --------------------------------------------------------------------------------------------------- events


class StartedEvent(Record, frozen=True, tag="started"):
    """The session is known. A repeat with `meta` supplements the first (a model that is told late)."""

    engine: EngineId
    resume: ResumeToken
    title: str = ""
    meta: dict[str, Any] | None = None


class SessionChangedEvent(Record, frozen=True, tag="session_changed"):
    """The engine declared that its conversation goes on under another id (a reset or a fork)."""

    engine: EngineId
    resume: ResumeToken
    reason: str = ""


class ActionEvent(Record, frozen=True, gc=False, tag="action"):
    """A step began, changed or ended. `ok` counts only when it is completed."""

    engine: EngineId
    action: Action
    phase: Phase
    ok: bool | None = None
    message: str = ""
    parent: str = ""  # the id of the sub-agent action that this step belongs to


class InteractionEvent(Record, frozen=True, tag="interaction"):
    """A request for a person was opened, resolved by a decision, or withdrawn by the engine."""

    engine: EngineId
    interaction: Interaction
    phase: Literal["opened", "resolved", "withdrawn"]
    reason: str = ""


class CompletedEvent(Record, frozen=True, tag="completed"):
    """The first answer of a process, exactly once. `outcome` tells a stop from a failure.

    `error` is one sentence in plain words; `raw_error` is what the engine said, for the details. `detail`, here and in
    `TurnEvent`, holds what follows from a failure, each key only when it does: `quota` (True: it is spent) with
    `resets_at` (epoch seconds) when it is known, `login` (True: the engine is logged out), `fresh` (the message may be
    given once to a new session: "not_found", the one to resume does not exist, or "empty", it answered with nothing).
    """

    engine: EngineId
    ok: bool
    answer: str = ""
    resume: ResumeToken | None = None
    error: str | None = None
    usage: dict[str, Any] | Usage | None = None
    outcome: Literal["", "stopped", "ended_early", "blocked"] = ""
    raw_error: str = ""
    advice: str = ""
    prompts: tuple[str, ...] = ()
    detail: dict[str, Any] = {}


class TurnEvent(Record, frozen=True, tag="turn"):
    """A later turn of a live process. `prompts` are the ids of the messages that it answers, none for a wake-up."""

    engine: EngineId
    phase: Literal["started", "completed"]
    ok: bool | None = None
    answer: str = ""
    error: str | None = None
    usage: Usage | None = None
    outcome: Literal["", "stopped", "ended_early"] = ""
    raw_error: str = ""
    advice: str = ""
    prompts: tuple[str, ...] = ()
    reason: str = ""  # why it began when nobody asked: "background task", "schedule", …
    detail: dict[str, Any] = {}


class PromptEvent(Record, frozen=True, tag="prompt"):
    """What became of a message that was handed over: taken by a turn, or untaken: handed back to be said again, or
    withdrawn because that was asked for.
    """

    engine: EngineId
    prompt_id: str
    state: Literal["taken", "handed_back", "withdrawn"]


class TextEvent(Record, frozen=True, gc=False, tag="text"):
    """A piece of the answer while it is written, to be shown and not stored: the whole comes with the end.

    `message` tells the answers of one turn apart: another one begins anew.
    """

    engine: EngineId
    text: str
    message: str = ""


class ReportEvent(Record, frozen=True, tag="report"):
    """The engine's answer to something asked of the session (`session.Rewind`, `session.AskContext`).

    `id` is that of the question, such as the message to rewind to. `text` is for people; what `detail` holds is said
    where the question is.
    """

    engine: EngineId
    about: Literal["rewind", "context"]
    ok: bool
    text: str = ""
    id: str = ""
    detail: dict[str, Any] = {}


UntetherEvent: TypeAlias = (
    StartedEvent
    | SessionChangedEvent
    | ActionEvent
    | InteractionEvent
    | CompletedEvent
    | TurnEvent
    | PromptEvent
    | TextEvent
    | ReportEvent
)
