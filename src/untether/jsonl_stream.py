"""The rules by which the output of a line-by-line JSON agent becomes events: one stream of one run.

A runner's template methods say what a line means; this says what may come of it, for `JsonlSubprocessRunner.run_impl`
and for `JsonlSession` alike:

- one started event, first; one with the same session again passes only when it has `meta`, as a supplement
- another session than the one resumed, or than the one started, raises `ForeignSession`; a declared change is followed
- one completed event, last; what comes after it is dropped, or becomes turns when the runner has `followup_turns`
- a line that cannot be decoded or translated becomes a warning, and the run goes on
- what is still open when the agent ends is closed, and a run without a completed event gets one
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
import structlog

from .events import EventFactory
from .exit_text import short_session
from .model import (
    ActionEvent,
    CompletedEvent,
    EngineId,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
    Usage,
    Wait,
)
from .session import Capabilities, ProcessExit

log = structlog.get_logger(__name__)

_MOST_EARLY = 100
_SHOWN_OF_LINE = 500
_WORK = frozenset({"command", "tool", "file_change", "web_search", "subagent"})


@dataclass
class JsonlStreamState:
    """Where a stream is. The first six fields are the contract; the others serve diagnosis."""

    expected_session: ResumeToken | None = None
    found_session: ResumeToken | None = None
    did_emit_completed: bool = False
    ignored_after_completed: bool = False
    jsonl_seq: int = 0
    followup_turns: bool = False
    last_event_type: str | None = None
    saw_result: bool = False
    proc_returncode: int | None = None


class ForeignSession(RuntimeError):
    """The agent answered in another session than the one it was asked to continue."""


class JsonlHooks(Protocol):
    """What the rules need of a runner; see `JsonlSubprocessRunner` for what each one does."""

    engine: EngineId
    capabilities: Capabilities
    followup_turns: bool
    linger_s: float

    def decode_jsonl(self, *, line: bytes) -> Any | None: ...
    def translate(
        self, data: Any, *, state: Any, resume: ResumeToken | None, found_session: ResumeToken | None
    ) -> list[UntetherEvent]: ...
    def invalid_json_events(self, *, raw: str, line: str, state: Any) -> list[UntetherEvent]: ...
    def decode_error_events(self, *, raw: str, line: str, error: Exception, state: Any) -> list[UntetherEvent]: ...
    def translate_error_events(self, *, data: Any, error: Exception, state: Any) -> list[UntetherEvent]: ...
    def exit_events(
        self, exit: ProcessExit, *, resume: ResumeToken | None, found_session: ResumeToken | None, state: Any
    ) -> list[UntetherEvent]: ...


def returncode(exit: ProcessExit) -> int | None:
    """The exit as `subprocess` counts it: minus the number for a signal; None when nobody knows."""
    if exit.signal:
        number = getattr(signal, exit.signal, None)
        return -int(number) if number is not None else -1
    return exit.code


class JsonlStream:
    """One run's stream. `state` is what the runner's `new_state` made; `prompt_id` names the message it answers."""

    def __init__(self, hooks: JsonlHooks, state: Any, resume: ResumeToken | None, *, prompt_id: str = "") -> None:
        self.stream = JsonlStreamState(expected_session=resume, followup_turns=hooks.followup_turns)
        self._hooks = hooks
        self._state = state
        self._resume = resume
        self._prompt_id = prompt_id
        self._events = EventFactory(hooks.engine)
        self._numbers: dict[str, int] = {}
        self._started = False
        self._taken = False
        self._turn_open = False
        self._failed = False
        self._ending = False  # the events come from the end of the process and not from a line
        self._early: list[UntetherEvent] | None = []  # what came before the started event; None: no longer held back
        self._open: dict[str, tuple[ActionEvent, float]] = {}
        self._last_line = 0.0

    # ------------------------------------------------------------------------------------------------- inputs

    def begin(self, now: float) -> None:
        """The agent has its prompt; from now on it is waited for."""
        self._last_line = now

    def line(self, raw: bytes, now: float) -> list[UntetherEvent]:
        """One line of stdout.

        :raises ForeignSession: see the class
        """
        self.stream.jsonl_seq += 1
        self._last_line = now
        if self.finished:
            self._note_ignored()
            return []
        # The line may carry NUL bytes and a BOM, which no JSON text has (a terminal or a wrapper script adds them).
        line = raw.replace(b"\0", b"").removeprefix(b"\xef\xbb\xbf").strip()
        events = self._accept_all(self._translate(raw, line), now) if line else []
        self.stream.saw_result = self.stream.did_emit_completed
        return events

    def skipped(self, length: int, now: float) -> list[UntetherEvent]:
        """A line of `length` bytes was too long to be read."""
        self._last_line = now
        if self.finished:
            return []
        title = f"A line of {length / 1_000_000:.0f} MB from {self._hooks.engine} was too long and was skipped"
        return self._accept(self._events.warning(title, {"bytes": length}, action_id=""), now)

    def fail(self, error: ForeignSession, now: float) -> list[UntetherEvent]:
        """End the run because of `error`; the session that was asked for is kept. Later lines are dropped."""
        if self.stream.did_emit_completed:
            events = self._close_turn(str(error), "ended_early", now)
        else:
            advice = "Try again, or begin a new session with /new."
            completed = self._events.completed_error(
                str(error), self.stream.expected_session, advice=advice, outcome="ended_early"
            )
            events = self._finish([completed], now)
        self._failed = True
        return events

    def end(self, exit: ProcessExit, now: float, *, stopped: bool = False) -> list[UntetherEvent]:
        """The agent has ended; `stopped` when we asked for it."""
        self.stream.proc_returncode = returncode(exit)
        if self.finished:
            return []
        self._ending = True
        if stopped:
            exit = msgspec.structs.replace(exit, stopped=True)
        ended = f"{self._hooks.engine} ended without an answer."
        if self.stream.did_emit_completed:
            return self._close_turn(ended, "stopped" if exit.stopped else "ended_early", now)
        produced = self._guarded(
            self._hooks.exit_events,
            exit=exit,
            resume=self._resume,
            found_session=self.stream.found_session,
            state=self._state,
        )
        if not any(isinstance(event, CompletedEvent) for event in produced):
            produced.append(self._events.completed_error(ended))
        return self._finish([_as_ended(event, exit) for event in produced], now)

    # ------------------------------------------------------------------------------------------------ outside

    @property
    def finished(self) -> bool:
        """True when nothing more may come."""
        return self._failed or (self.stream.did_emit_completed and not self.stream.followup_turns)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The tools at work, or else the model."""
        if self.stream.did_emit_completed and not self._turn_open:
            return ()
        tools = tuple(
            Wait("tool", since, label=event.action.title, id=event.action.id)
            for event, since in self._open.values()
            if event.action.kind in _WORK
        )
        return tools or (Wait("model", self._last_line),)

    # --------------------------------------------------------------------------------- from line to raw events

    def _translate(self, raw: bytes, line: bytes) -> list[UntetherEvent]:
        hooks, state = self._hooks, self._state
        texts = {"raw": raw.decode("utf-8", "replace"), "line": line.decode("utf-8", "replace")}
        try:
            data = self._decode(line)
        except Exception as error:  # a plugin's decoder: the line is lost, not the run
            log.warning("jsonl.decode_error", engine=hooks.engine, seq=self.stream.jsonl_seq, error=str(error))
            return self._guarded(hooks.decode_error_events, **texts, error=error, state=state)
        if data is None:
            log.warning("jsonl.invalid_json", engine=hooks.engine, seq=self.stream.jsonl_seq)
            return self._guarded(hooks.invalid_json_events, **texts, state=state)
        self.stream.last_event_type = _type_of(data)
        try:
            found = self.stream.found_session
            return list(hooks.translate(data, state=state, resume=self._resume, found_session=found) or ())
        except Exception as error:  # a plugin's translation: the line is lost, not the run
            log.warning("jsonl.translate_error", engine=hooks.engine, seq=self.stream.jsonl_seq, exc_info=True)
            return self._guarded(hooks.translate_error_events, data=data, error=error, state=state)

    def _decode(self, line: bytes) -> Any | None:
        """The line, or else what stands behind text that got in front of it (a wrapper's or a library's print)."""
        try:
            data = self._hooks.decode_jsonl(line=line)
        except Exception:  # tried again without the text in front; what the whole line raised is told otherwise
            data = self._decode_from_brace(line)
            if data is None:
                raise
            return data
        return self._decode_from_brace(line) if data is None else data

    def _decode_from_brace(self, line: bytes) -> Any | None:
        start = line.find(b"{")
        if start <= 0:
            return None
        try:
            return self._hooks.decode_jsonl(line=line[start:])
        except Exception:  # a plugin's decoder; the caller tells what the whole line raised
            log.debug("jsonl.no_frame_behind_text", engine=self._hooks.engine, seq=self.stream.jsonl_seq)
            return None

    def _guarded(self, hook: Callable[..., Iterable[UntetherEvent] | None], **arguments: Any) -> list[UntetherEvent]:
        try:
            return list(hook(**arguments) or ())
        except Exception:  # a plugin's own error handling failed: the run goes on without it
            log.exception("jsonl.hook_failed", engine=self._hooks.engine, hook=getattr(hook, "__name__", ""))
            return []

    # -------------------------------------------------------------------------- from raw events to the contract

    def _accept_all(self, events: Iterable[UntetherEvent], now: float) -> list[UntetherEvent]:
        accepted: list[UntetherEvent] = []
        for event in events:
            if self.finished:
                self._note_ignored()
                break
            accepted += self._accept(event, now)
        return accepted

    def _accept(self, event: UntetherEvent, now: float) -> list[UntetherEvent]:
        match event:
            case StartedEvent():
                return self._accept_started(event)
            case SessionChangedEvent():
                self._check_engine(event.resume)
                self.stream.found_session = self.stream.expected_session = event.resume
                return self._hold_back(event)
            case ActionEvent():
                return self._accept_action(event, now)
            case CompletedEvent():
                if self.stream.did_emit_completed:
                    return self._accept_later(event)
                return self._accept_completed(event, now)
            case TurnEvent() if self.stream.did_emit_completed:
                self._turn_open = event.phase == "started"
                return [event]
            case InteractionEvent() | PromptEvent():
                return [event]
        log.warning("jsonl.unexpected_event", engine=self._hooks.engine, type=type(event).__name__)
        return []

    def _accept_started(self, event: StartedEvent) -> list[UntetherEvent]:
        self._check_engine(event.resume)
        stream = self.stream
        known = stream.expected_session or stream.found_session
        if known is not None and event.resume != known:
            raise ForeignSession(
                f"{self._hooks.engine} opened session {short_session(event.resume)} in place of {short_session(known)}."
            )
        stream.found_session = event.resume
        if self._started:
            return [event] if event.meta else []
        self._started = True
        return [event, *self._prompt_taken(), *self._release()]

    def _accept_action(self, event: ActionEvent, now: float) -> list[UntetherEvent]:
        if not event.action.id:
            event = self._numbered(event)
        if event.phase == "completed":
            self._open.pop(event.action.id, None)
        else:
            since = self._open[event.action.id][1] if event.action.id in self._open else now
            self._open[event.action.id] = (event, since)
        return self._hold_back(event)

    def _accept_completed(self, event: CompletedEvent, now: float) -> list[UntetherEvent]:
        stream = self.stream
        # Nothing may come after this event, so a step without an end is closed, with an outcome that nobody knows.
        unfinished = [] if stream.followup_turns else self._close_actions(now, ok=None)
        stream.did_emit_completed = True
        event = msgspec.structs.replace(
            event,
            prompts=event.prompts or ((self._prompt_id,) if self._prompt_id else ()),
            resume=event.resume or stream.expected_session or stream.found_session,
        )
        taken = [] if self._ending else self._prompt_taken()
        return [*unfinished, *self._release(), *taken, event]

    def _accept_later(self, event: CompletedEvent) -> list[UntetherEvent]:
        """A further result of a process that goes on is the end of a turn."""
        started = [] if self._turn_open else [self._events.turn_started()]
        self._turn_open = False
        usage = event.usage
        turn = self._events.turn_completed(
            event.ok,
            event.answer,
            event.error,
            usage if isinstance(usage, Usage) else None,
            outcome="" if event.outcome == "blocked" else event.outcome,
            raw_error=event.raw_error,
            advice=event.advice,
            prompts=event.prompts,
            detail=None if usage is None or isinstance(usage, Usage) else {"usage": usage},
        )
        return [*started, turn]

    def _finish(self, produced: list[UntetherEvent], now: float) -> list[UntetherEvent]:
        """The last events in their order: what the runner has to say, what is still open, the completed event."""
        completed = [event for event in produced if isinstance(event, CompletedEvent)]
        others = [event for event in produced if not isinstance(event, CompletedEvent)]
        events = self._accept_all(others, now) + self._close_actions(now, ok=False)
        return events + self._accept_all(completed[:1], now)

    def _close_turn(self, error: str, outcome: Literal["stopped", "ended_early"], now: float) -> list[UntetherEvent]:
        events = self._close_actions(now, ok=False)
        if self._turn_open:
            events += self._accept(self._events.turn_completed(False, error=error, outcome=outcome), now)
        return events

    def _close_actions(self, now: float, *, ok: bool | None) -> list[UntetherEvent]:
        closed: list[UntetherEvent] = []
        for event, _ in list(self._open.values()):
            closed += self._accept(msgspec.structs.replace(event, phase="completed", ok=ok, message=""), now)
        return closed

    def _hold_back(self, event: UntetherEvent) -> list[UntetherEvent]:
        """The started event comes first, as far as an agent that never starts leaves room to keep what came before."""
        if self._early is None:
            return [event]
        self._early.append(event)
        return self._release() if len(self._early) >= _MOST_EARLY else []

    def _release(self) -> list[UntetherEvent]:
        early, self._early = self._early, None
        return early or []

    def _prompt_taken(self) -> list[UntetherEvent]:
        if not self._prompt_id or self._taken:
            return []
        self._taken = True
        return [self._events.prompt(self._prompt_id, "taken")]

    def _numbered(self, event: ActionEvent) -> ActionEvent:
        kind = event.action.kind
        self._numbers[kind] = number = self._numbers.get(kind, 0) + 1
        action = msgspec.structs.replace(event.action, id=f"{self._hooks.engine}.{kind}.{number}")
        return msgspec.structs.replace(event, action=action)

    def _check_engine(self, token: ResumeToken) -> None:
        if token.engine != self._hooks.engine:
            raise ForeignSession(f"{self._hooks.engine} named a session of {token.engine}.")

    def _note_ignored(self) -> None:
        if not self.stream.ignored_after_completed:
            self.stream.ignored_after_completed = True
            log.info("jsonl.ignored_after_completed", engine=self._hooks.engine, seq=self.stream.jsonl_seq)


def shown_line(line: str) -> str:
    """A line of an agent, short enough for the detail of a warning."""
    return line if len(line) <= _SHOWN_OF_LINE else line[: _SHOWN_OF_LINE - 1] + "…"


def _as_ended(event: UntetherEvent, exit: ProcessExit) -> UntetherEvent:
    """A completed event of a hook, with what the end of the process adds to it."""
    if not isinstance(event, CompletedEvent):
        return event
    if exit.stopped:
        return msgspec.structs.replace(event, ok=False, error="The run was stopped.", outcome="stopped", advice="")
    if event.ok:
        return event
    raw = event.raw_error or "\n".join(part for part in (exit.note, exit.stderr_tail.strip()) if part)
    return msgspec.structs.replace(event, raw_error=raw, outcome=event.outcome or "ended_early")


def _type_of(data: Any) -> str:
    """The name of a frame for diagnosis: its `type`, or the name of the struct that it was decoded into."""
    name = data.get("type") if isinstance(data, dict) else type(data).__name__
    return name if isinstance(name, str) else ""
