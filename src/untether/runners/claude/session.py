"""The Claude Code session: lines and inputs go in, events and lines for its stdin come out, with no I/O.

One instance is one CLI process. It follows the frames of claude-protocol (2.1.197) and claude-protocol-332 (2.1.332);
what differs between the two is told apart by what the CLI sends, not by its version. Here are the inputs; `stream`
takes the frames. Both work on parts that have one subject each: `identity` (which session), `prompts` (which message
is answered when), `turns`, `actions`, `permissions` (requests to use a tool: `modes` and `gate`, `scopes`, `plan`,
`rearm`), `interactions` (those that wait for a person), `control` (all other requests), `background`, `notices`
(retries, compaction, limits), `results` and `usage`.

Two forms. In control mode stdin stays open, requests are answered, and the process serves one turn after another. In
the one-shot form (`interactive` false) it reads the prompt as text and ends by itself: with background work it gives
several results, some held back until the end, and the last one is the answer.
"""

from __future__ import annotations

from msgspec import DecodeError

from ...model import Decision, Deny, Wait
from ...schemas.claude import Decoded, NotAFrame, System, decode, decode_usual
from ...session import (
    AskContext,
    CallResult,
    Capabilities,
    ProcessExit,
    Prompt,
    Rewind,
    SessionChange,
    SetEffort,
    SetModel,
    SetPermissionMode,
    StartFacts,
    Step,
    StopTask,
    When,
    Withdraw,
)
from . import frames, results
from .forms import CONTROL, ONE_SHOT
from .greeting import greeting
from .messages import for_the_cli
from .modes import TABLE
from .output import NOTHING
from .parts import Parts
from .stream import Stream


class ClaudeSession:
    """One process of Claude Code, or of an agent that speaks its dialect; see `session.EngineSession`."""

    def __init__(self, engine: str = "claude", name: str = "Claude Code") -> None:
        self._parts = parts = Parts(engine, name)
        self._output = parts.output
        self._stream = Stream(parts)
        self._ended = False

    @property
    def capabilities(self) -> Capabilities:
        return CONTROL if self._parts.interactive else ONE_SHOT

    @property
    def unknown(self) -> dict[str, int]:
        """Names of frames, blocks, requests and enum members that have no place here, each with its count."""
        return dict(self._stream.unknown)

    @property
    def waits(self) -> tuple[Wait, ...]:
        if self._deaf:
            return ()
        parts, stream = self._parts, self._stream
        holding_up = parts.notices.waits() + parts.compaction.waits()
        waits = parts.interactions.waits() + holding_up + parts.limits.waits(stream.now)
        waits += parts.actions.waits(parts.interactions.steps())
        main_waits = holding_up or parts.actions.main_is_busy() or parts.interactions.main_is_asking()
        if stream.working and not main_waits:
            waits.append(Wait("model", stream.sign))
        return tuple(waits + parts.background.waits() + parts.schedules.waits(stream.now))

    @property
    def _deaf(self) -> bool:
        """True when nothing that is said reaches the agent any more."""
        return self._ended or self._stream.over

    # ------------------------------------------------------------------------------------------------------ inputs

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        parts = self._parts
        self._stream.now = self._stream.sign = now
        parts.identity.begin(start)
        parts.permissions.begin(start)
        parts.identity.know(unasked=[str(tool) for tool in _unasked(start)])
        parts.actions.root = start.cwd.rstrip("/")
        parts.interactive = start.settings.get("interactive") is not False
        parts.first_prompt = prompt.id
        prompt = for_the_cli(prompt)
        parts.ledger.hand(prompt, now)
        if parts.interactive:
            parts.control.begin(start.process_id, **greeting(start.settings))
            parts.messages.send(prompt, "now", working=False)
        else:
            self._output.writes.append(frames.plain_text(prompt))
            self._output.close_stdin()
        return self._output.take()

    def say(self, prompt: Prompt, when: When, now: float) -> Step:
        self._stream.now = now
        too_late = self._stream.closing or (self._stream.restarts and when == "next")
        if self._deaf or too_late or not self._parts.interactive:
            self._output.prompt(prompt.id, "handed_back")
            return self._output.take()
        working = self._stream.working
        if not working:
            self._stream.sign = now
            self._stream.before_message()
        prompt = for_the_cli(prompt)
        self._parts.ledger.hand(prompt, now, later=working and when == "next")
        self._parts.messages.send(prompt, when, working=working)
        return self._output.take()

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        self._stream.now = now
        working = self._stream.working
        request = self._parts.interactions.open.get(interaction_id)
        if not self._deaf and self._parts.permissions.decide(interaction_id, decision, idle=not working):
            self._stream.sign = now
            if isinstance(decision, Deny) and decision.interrupt and working:
                self._stream.interrupting |= request is None or bool(request.ids)
            self._stream.settle()
        return self._output.take()

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        """Also before the turn has begun: it then ends at its start. Idle, there would be no result."""
        self._stream.now = now
        if self._stream.working and self._parts.interactive and not self._deaf:
            self._stream.interrupt(cancel_queued=cancel_queued)
        return self._output.take()

    def configure(self, change: SessionChange, now: float) -> Step:
        """An unknown mode is not sent: 2.1.197 would take it, and so leave plan mode (claude-protocol §1)."""
        self._stream.now = now
        if self._deaf or not self._parts.interactive:
            return NOTHING
        parts = self._parts
        match change:
            case SetModel(model):
                parts.control.ask("set_model", **({"model": model} if model else {}))
            case SetPermissionMode(mode) if mode in TABLE:
                self._stream.set_mode(mode)
            case SetPermissionMode(mode):
                self._output.warning(f"There is no permission mode {mode!r}")
            case SetEffort():
                self._stream.restarts = True
                self._stream.settle()
            case StopTask(task_id):
                for task in parts.background.behind():
                    if task_id in ("", task):
                        parts.control.ask("stop_task", task_id=task)
            case Withdraw(prompt_id):
                parts.interrupts.withdraw(prompt_id)
            case Rewind(prompt_id, dry_run):
                parts.reports.rewind(prompt_id, dry_run=dry_run)
            case AskContext():
                parts.reports.context()
        return self._output.take()

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        self._stream.now = now
        if not self._deaf:
            self._parts.messages.read(call_id, result)
            self._parts.permissions.read(call_id, result)
            self._stream.settle()
        return self._output.take()

    def tick(self, now: float) -> Step:
        if self._deaf:
            return NOTHING
        self._stream.now = now
        self._stream.tick()
        return self._output.take()

    # ------------------------------------------------------------------------------------------------------- lines

    def feed(self, line: bytes, now: float) -> Step:
        stream, output = self._stream, self._output
        stream.now = now
        frame: Decoded | None
        try:
            frame = decode_usual(line)
        except (DecodeError, RecursionError):
            frame = None
        handler = stream.handlers.get(frame.__class__)
        if handler is None and (frame is None or frame.__class__ is System):
            frame = self._decode(line)
            handler = stream.handlers.get(frame.__class__)
        if handler is not None:
            handler(frame)
        if output.writes or output.wishes:
            return output.take()
        if events := output.events:
            step = Step(tuple(events))
            events.clear()
            return step
        return NOTHING

    def skipped(self, length: int, now: float) -> Step:
        self._stream.now = now
        self._output.warning(f"A line of {length / 1e6:.0f} MB from {self._parts.name} was too long and is left out")
        return self._output.take()

    def _decode(self, line: bytes) -> Decoded | None:
        """Decode what is out of the ordinary. A line that is no frame at all is told; one without text is nothing."""
        try:
            return decode(line)
        except NotAFrame:
            if text := line.decode("utf-8", "replace").strip(" \t\r\0\ufeff"):
                self._output.warning(f"{self._parts.name} printed a line that is not understood", {"line": text[:200]})
            return None

    # ------------------------------------------------------------------------------------------------------- the end

    def end(self, exit: ProcessExit, now: float) -> Step:
        parts, stream = self._parts, self._stream
        stream.now = now
        if not self._deaf:
            parts.permissions.withdraw_all("The agent has ended.")
            parts.messages.drop()
            if parts.turns.open is None:
                begun = parts.turns.completed
                owed = parts.ledger.taken_ahead() if begun else parts.ledger.unopened(parts.first_prompt)
                if owed or not begun:
                    parts.turns.begin(owed, "", now)
            parts.ledger.hand_back(parts.ledger.waiting)
            if (turn := parts.turns.open) is not None:
                outcome, result = stream.last or (results.ended_early(parts.name, exit, turn.written), None)
                stream.close_turn(outcome, result)
        parts.ledger.hand_back(parts.ledger.waiting)
        self._ended = True
        return self._output.take()


def _unasked(start: StartFacts) -> list[object]:
    """What the owner has allowed beforehand, so that it is never asked."""
    return [*(start.settings.get("allowed_tools") or ()), *(start.settings.get("auto_approve") or ())]
