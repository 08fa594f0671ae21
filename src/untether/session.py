"""The engine session protocol: one agent process as a deterministic state machine without I/O.

Inputs and lines go in, a `Step` comes out. What a session may know arrives in `StartFacts` or as an input, time
arrives as an argument, ids are derived from the process and the place. So the state of a session is a fold over two
stored streams, the lines that the agent printed and the inputs, and folding them again gives the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from .model import Decision, Record, ResumeToken, UntetherEvent, Wait


class Place(Record, frozen=True, order=True):
    """Where in a process's history something happened; places only grow.

    `offset` counts bytes of the agent's stdout, `ordinal` counts inputs, `index` counts lines within one step.
    """

    offset: int
    ordinal: int
    index: int = 0


class Attachment(Record, frozen=True):
    """A file that comes with a prompt. `path` is on this machine."""

    path: str
    name: str
    mime: str = ""


class Prompt(Record, frozen=True):
    """One message for the agent. `id` is a UUID, fresh for every message: engines use it to drop repeats."""

    id: str
    text: str
    attachments: tuple[Attachment, ...] = ()


class Capabilities(Record, frozen=True):
    """What an engine can do; shown to people and asked by the conversation in place of engine names."""

    interactive_permissions: bool = False
    questions: bool = False
    plan: bool = False
    steer: bool = False
    followup: bool = False
    interrupt: bool = False
    set_model: bool = False
    images: bool = False
    cost: bool = False
    resume: bool = True
    continue_latest: bool = False
    documents: bool = False
    set_effort: bool = False  # the agent ends when idle, and the next message resumes it
    stop_task: bool = False
    fork: bool = False
    rewind: bool = False
    partial_text: bool = False


class StartFacts(Record, frozen=True):
    """All that a session may know from outside, frozen when its process is made and stored with it."""

    process_id: str
    engine: str
    cwd: str
    cli_version: str = ""
    features: tuple[str, ...] = ()
    resume: ResumeToken | None = None
    continue_latest: bool = False
    settings: dict[str, Any] = {}
    totals: dict[str, float] = {}


# ------------------------------------------------------------------------------------------------ what comes out


class ReadFile(Record, frozen=True, tag="read_file"):
    """Ask for a file; the answer is its text, cut at `limit` bytes, or an error.

    `binary`: its bytes in base64 instead; a file over the limit is then an error. `within`: the file must really lie in
    this folder, links followed.
    """

    call_id: str
    path: str
    limit: int
    within: str = ""
    binary: bool = False


Call: TypeAlias = ReadFile


class CallResult(Record, frozen=True):
    text: str = ""
    error: str = ""


class Step(msgspec.Struct, frozen=True, gc=False):
    """All that one input or line brought about.

    `writes` are whole lines for the agent's stdin, newline included. `deadline` is the epoch second at which the
    session wants a `tick`, None for none; it replaces the former one. `stop` asks for the end of the process.
    """

    events: tuple[UntetherEvent, ...] = ()
    writes: tuple[bytes, ...] = ()
    calls: tuple[Call, ...] = ()
    deadline: float | None = None
    close_stdin: bool = False
    stop: bool = False

    @property
    def empty(self) -> bool:
        """True when nothing leaves (a deadline alone does not count)."""
        return not (self.events or self.writes or self.calls or self.close_stdin or self.stop)


# -------------------------------------------------------------------------------------------------- what goes in


class ProcessExit(Record, frozen=True):
    """How an agent ended: its exit code, or the signal that ended it. `stderr_tail` is its last words.

    `lost`: it ended with its owner, or while nobody watched it, and not by itself or because we asked for it.
    """

    code: int | None = None
    signal: str = ""
    stderr_tail: str = ""
    stopped: bool = False  # we asked for it
    note: str = ""
    lost: bool = False


class SetModel(Record, frozen=True, tag="set_model"):
    model: str | None = None


class SetPermissionMode(Record, frozen=True, tag="set_permission_mode"):
    mode: str


class SetEffort(Record, frozen=True, tag="set_effort"):
    """How hard the model thinks, from the next message on. An engine that takes it at its start only ends when idle."""

    effort: str | None = None


class StopTask(Record, frozen=True, tag="stop_task"):
    """End a task in the background, by the id of its wait; "" ends them all."""

    task_id: str = ""


class Withdraw(Record, frozen=True, tag="withdraw"):
    """Take back a message that was handed over. A `PromptEvent` tells when that came in time."""

    prompt_id: str


class Rewind(Record, frozen=True, tag="rewind"):
    """Put the files back to what they were before a message; `dry_run` only tells. A `ReportEvent` answers.

    Its detail: `files` (paths), `added` and `removed` (lines), `dry_run`.
    """

    prompt_id: str
    dry_run: bool = True


class AskContext(Record, frozen=True, tag="ask_context"):
    """What fills the context of the conversation. A `ReportEvent` answers.

    Its detail: `used` and `window` (tokens), `parts` (pairs of name and tokens).
    """


SessionChange: TypeAlias = SetModel | SetPermissionMode | SetEffort | StopTask | Withdraw | Rewind | AskContext

When: TypeAlias = Literal["now", "next", "replace"]
"""`now`: into the running turn, at the earliest place the engine has. `next`: after it. `replace`: in its place."""


class Begin(Record, frozen=True, tag="begin"):
    start: StartFacts
    prompt: Prompt


class Decide(Record, frozen=True, tag="decide"):
    interaction_id: str
    decision: Decision


class Say(Record, frozen=True, tag="say"):
    prompt: Prompt
    when: When = "next"


class Interrupt(Record, frozen=True, tag="interrupt"):
    """`cancel_queued`: and withdraw the messages that the agent has not taken.

    `why`: what is told of it when no person asked for it, and what to do then; it is nothing to the session.
    """

    cancel_queued: bool = False
    why: tuple[str, ...] = ()


class Configure(Record, frozen=True, tag="configure"):
    change: SessionChange


class Answer(Record, frozen=True, tag="answer"):
    call_id: str
    result: CallResult


class Tick(Record, frozen=True, tag="tick"):
    pass


class End(Record, frozen=True, tag="end"):
    exit: ProcessExit


Input: TypeAlias = Begin | Decide | Say | Interrupt | Configure | Answer | Tick | End


class EngineSession(Protocol):
    """One agent process. Every method takes `now`, wall time in epoch seconds that never goes back."""

    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def waits(self) -> tuple[Wait, ...]: ...
    @property
    def unknown(self) -> Mapping[str, int]:
        """Names that the agent used and this session does not know, with how often."""

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        """The process was made: greet the agent and hand it the first message."""

    def feed(self, line: bytes, now: float) -> Step:
        """One line of the agent's stdout, without its newline."""

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        """A person decided. A decision on something no longer open gives an empty step."""

    def say(self, prompt: Prompt, when: When, now: float) -> Step:
        """A further message, see `When`."""

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        """End the running turn; the session stays usable. `cancel_queued`: what waits behind it is withdrawn."""

    def configure(self, change: SessionChange, now: float) -> Step:
        """A change or a question besides the messages. What the engine cannot do gives an empty step."""

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        """An outside fact that the session asked for."""

    def tick(self, now: float) -> Step:
        """The deadline has come."""

    def skipped(self, length: int, now: float) -> Step:
        """A line of `length` bytes was over the limit of the line reader and is lost to the session."""

    def end(self, exit: ProcessExit, now: float) -> Step:
        """The agent has ended and its output is read: close what is open, complete what was not."""


def apply(session: EngineSession, item: Input, now: float) -> Step:
    """Feed one stored input to a session."""
    match item:
        case Begin(start, prompt):
            return session.begin(start, prompt, now)
        case Decide(interaction_id, decision):
            return session.decide(interaction_id, decision, now)
        case Say(prompt, when):
            return session.say(prompt, when, now)
        case Interrupt(cancel_queued):
            return session.interrupt(now, cancel_queued=cancel_queued)
        case Configure(change):
            return session.configure(change, now)
        case Answer(call_id, result):
            return session.answer(call_id, result, now)
        case Tick():
            return session.tick(now)
        case End(exit):
            return session.end(exit, now)
