"""The Pi session: lines and inputs go in, events and lines for its stdin come out, with no I/O.

One instance is one process of `pi --mode rpc`, which serves one session: it is asked who it is and whether our
extension is in place, and then answers one message after another until its stdin is closed. Here are the inputs and the
answers to our commands; `stream` takes the frames. Both work on parts that have one subject each: `prompts` (which
message is answered when), `requests` (what a person decides), `steps`, `notices`, `pictures`, `usage`, `results`.

A turn ends with `agent_settled` and with nothing else: `agent_end` also comes before each retry.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...events import EventFactory
from ...model import Decision, Deny, ResumeToken, Wait
from ...schemas import pi as schema
from ...session import (
    CallResult,
    Capabilities,
    ProcessExit,
    Prompt,
    SessionChange,
    SetEffort,
    SetModel,
    SetPermissionMode,
    StartFacts,
    Step,
    When,
    Withdraw,
)
from ..output import NOTHING
from ..turns import Outcome, ended_early, stopped
from . import results
from .asked import GATE_COMMAND
from .commands import Sent
from .identity import same_session
from .parts import Parts
from .pictures import Outgoing
from .policies import RPC
from .stream import Stream

COMPACT = "/compact"
_COMPACTED = "The conversation was compacted."
_HANDLED = "Done: an extension of Pi handled this."
_FOREIGN = Outcome(
    False, "", "Pi went on with another session than the one asked for.", "Try again, or start a new one with /new."
)
_NO_GATE = Outcome(
    False,
    "",
    "Pi did not load the extension that asks before tools run, so nothing was started.",
    "Run `untether doctor`, and look whether `pi --extension FILE` works on the machine.",
)


class PiSession:
    """One process of `pi --mode rpc`; see `session.EngineSession`."""

    def __init__(self, engine: str = "pi") -> None:
        self._parts = parts = Parts(engine)
        self._output = parts.output
        self._stream = Stream(parts, self._settled)
        self._settings: dict[str, Any] = {}
        self._ready = False  # the session is known, and asks before tools run
        self._interrupting = False  # the end of the turn was asked for
        self._too_early = False  # … and is to be asked for once the turn has begun
        self._compacts = False  # the turn is one that compacts
        self._changes = 0  # of the model, under way: the next message waits for them
        self._over = False  # the session cannot be used
        self._ended = False

    @property
    def capabilities(self) -> Capabilities:
        return RPC

    @property
    def unknown(self) -> dict[str, int]:
        """Names of frames and requests that have no place here, each with its count."""
        return dict(self._stream.unknown)

    @property
    def waits(self) -> tuple[Wait, ...]:
        if self._deaf:
            return ()
        parts = self._parts
        waits = parts.requests.waits() + parts.notices.waits() + parts.steps.waits(parts.requests.steps())
        if not waits and (parts.turns.open is not None or parts.ledger.waiting):
            waits.append(Wait("model", self._stream.sign))
        return tuple(waits)

    @property
    def _deaf(self) -> bool:
        """True when nothing that is said reaches the agent any more."""
        return self._ended or self._over

    def _take(self) -> Step:
        step, calls = self._output.take(), tuple(self._parts.pictures.calls)
        self._parts.pictures.calls.clear()
        deadline = self._parts.requests.deadline()
        if not calls and deadline is None:
            return step
        return msgspec.structs.replace(step, calls=calls, deadline=deadline)

    # ------------------------------------------------------------------------------------------------------ inputs

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        self._stream.now = self._stream.sign = now
        self._settings = start.settings
        self._parts.begin(start)
        self._parts.ledger.queue.append(prompt)
        self._parts.commands.send("get_commands")
        self._parts.commands.send("get_state")
        return self._take()

    def say(self, prompt: Prompt, when: When, now: float) -> Step:
        self._stream.now = now
        parts = self._parts
        busy = parts.turns.open is not None and not self._compacts
        if self._deaf:
            self._output.prompt(prompt.id, "handed_back")
        elif when == "now" and busy:
            parts.ledger.steer(prompt)
            self._send(parts.pictures.prepare(prompt, steers=True))
        elif when == "replace" and busy:
            parts.ledger.queue.insert(0, prompt)
            self._interrupt()
        else:
            parts.ledger.queue.append(prompt)
            self._next_turn()
        return self._take()

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        self._stream.now = now
        if not self._deaf and self._parts.requests.decide(interaction_id, decision):
            self._stream.sign = now
            if isinstance(decision, Deny) and decision.interrupt:
                self._interrupt()
        return self._take()

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        """Also before the turn has begun: it then ends at its start."""
        self._stream.now = now
        parts = self._parts
        if self._deaf:
            return NOTHING
        if cancel_queued:
            parts.ledger.withdraw()
        if parts.turns.open is not None:
            self._interrupt()
        elif parts.ledger.current is not None or not self._ready:
            self._interrupting = self._too_early = True
        return self._take()

    def configure(self, change: SessionChange, now: float) -> Step:
        """A mode counts at once; model and effort from the next call of the model on."""
        self._stream.now = now
        if self._deaf:
            return NOTHING
        match change:
            case SetModel(str(model)):
                self._changes += 1
                self._parts.commands.send("get_available_models", note=model)
            case SetEffort(str(effort)):
                self._parts.commands.send("set_thinking_level", level=effort)
            case SetPermissionMode(mode):
                self._parts.requests.set_mode(mode)
            case Withdraw(prompt_id):
                self._parts.ledger.withdraw(prompt_id)
        return self._take()

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        self._stream.now = now
        if not self._deaf:
            outgoing = self._parts.pictures.read(call_id, result)
            if outgoing is None or not outgoing.steers or self._parts.ledger.is_steered(outgoing.prompt.id):
                self._send(outgoing)  # else its turn is over, and it waits for one of its own
        return self._take()

    def tick(self, now: float) -> Step:
        self._stream.now = now
        self._parts.requests.expire(now)
        return self._take()

    # ------------------------------------------------------------------------------------------------------- lines

    def feed(self, line: bytes, now: float) -> Step:
        self._stream.now = now
        if self._deaf:
            return NOTHING
        try:
            frame = schema.decode(line)
        except schema.NotAFrame:
            if text := line.decode("utf-8", "replace").strip(" \t\r\0\ufeff"):
                self._output.warning("Pi printed a line that is not understood", {"line": text[:200]})
            return self._take()
        if isinstance(frame, schema.Response):
            self._answered(frame)
        else:
            self._stream.take(frame)
        if self._too_early and self._parts.turns.open is not None:
            self._interrupt()
        return self._take()

    def skipped(self, length: int, now: float) -> Step:
        self._stream.now = now
        self._output.warning(f"A line of {length / 1e6:.0f} MB from Pi was too long and is left out")
        return self._take()

    def _answered(self, frame: schema.Response) -> None:
        """An answer to a command of ours. Late, doubled and foreign ones come, and mean nothing."""
        sent = self._parts.commands.answered(frame.id)
        if sent is None:
            self._stream.count("response")
        elif frame.success:
            self._granted(sent, frame.data)
        else:
            self._refused(sent, frame.error)

    def _granted(self, sent: Sent, data: Any) -> None:
        match sent.type:
            case "get_commands":
                if not _has_gate(data):
                    self._fail(_NO_GATE)
            case "get_state":
                self._opened(schema.read_as(schema.State, data))
            case "get_available_models":
                self._choose_model(sent.note, data)
            case "set_model":
                self._model_changed()
            case "prompt" if isinstance(data, dict) and data.get("disposition") == "handled":
                self._stream.begin_turn()
                self._close_turn(Outcome(True, _HANDLED))
            case "prompt":
                self._stream.begin_turn()
            case "compact":
                self._close_turn(Outcome(True, _COMPACTED))

    def _refused(self, sent: Sent, error: str) -> None:
        match sent.type:
            case "get_state" | "get_commands":
                self._fail(results.failed(error))
            case "prompt":
                self._stream.begin_turn()
                self._close_turn(results.failed(error))
            case "compact" if self._interrupting:
                self._close_turn(stopped(""))
            case "compact":
                text = "The conversation could not be compacted."
                self._close_turn(Outcome(False, "", text, "It goes on as it is.", error))
            case "steer":
                self._parts.ledger.refused(sent.prompt_id)
                self._next_turn()
            case "set_model" | "set_thinking_level" | "get_available_models":
                self._output.warning(f"Pi did not take that: {error}"[:500])
                if sent.type != "set_thinking_level":
                    self._model_changed()

    # ------------------------------------------------------------------------------------------------ the session

    def _opened(self, state: schema.State) -> None:
        """The session is known. A stop that came before ends the run here."""
        parts = self._parts
        expected = parts.expected
        if self._deaf:
            return
        if not state.session_id or (expected is not None and not same_session(expected.value, state.session_id)):
            self._fail(_FOREIGN)
            return
        self._ready = True
        events = EventFactory(self._output.engine)
        model = state.model.id if state.model is not None else ""
        parts.meter.window = state.model.context_window if state.model is not None else None
        facts = {"model": model, "reasoning": state.thinking_level, "permission_mode": parts.requests.mode}
        token = expected or ResumeToken(self._output.engine, state.session_id)
        self._output.events.append(
            events.started(token, model or results.NAME, {name: value for name, value in facts.items() if value})
        )
        parts.token = ResumeToken(self._output.engine, state.session_id)
        if parts.token != token:
            self._output.events.append(events.session_changed(parts.token, "its whole id"))
        if self._too_early:
            self._begin_unstarted()
            self._close_turn(stopped(""))
        else:
            self._next_turn()

    def _choose_model(self, wanted: str, data: Any) -> None:
        """Pi takes a model by provider and id; people name it by its id, or as PROVIDER/ID."""
        models = data.get("models") if isinstance(data, dict) else None
        known = [schema.read_as(schema.Model, model) for model in models] if isinstance(models, list) else []
        for model in known:
            if wanted in (model.id, f"{model.provider}/{model.id}"):
                self._parts.commands.send("set_model", provider=model.provider, modelId=model.id)
                return
        names = ", ".join(f"{model.provider}/{model.id}" for model in known[:10]) or "none"
        self._output.warning(f"Pi has no model {wanted!r}. It has: {names}")
        self._model_changed()

    def _model_changed(self) -> None:
        self._changes -= 1
        self._next_turn()

    # ------------------------------------------------------------------------------------------------------- turns

    def _send(self, outgoing: Outgoing | None) -> None:
        """Hand a message to Pi, unless its pictures are still being read."""
        if outgoing is None:
            return
        images: dict[str, Any] = {"images": outgoing.images} if outgoing.images else {}
        kind = "steer" if outgoing.steers else "prompt"
        self._parts.commands.send(kind, prompt_id=outgoing.prompt.id, message=outgoing.text, **images)

    def _next_turn(self) -> None:
        """Hand over the next message that waits, when nothing is going on."""
        parts = self._parts
        busy = parts.turns.open is not None or parts.ledger.current is not None
        if not self._ready or busy or self._changes:
            return
        if not parts.ledger.queue:
            return
        self._stream.sign = self._stream.now
        prompt = parts.ledger.current = parts.ledger.queue.pop(0)
        command, _, instructions = prompt.text.strip().partition(" ")
        if command == COMPACT:
            self._compacts = True
            self._stream.begin_turn()
            parts.commands.send("compact", **({"customInstructions": instructions} if instructions else {}))
        else:
            self._send(parts.pictures.prepare(prompt, steers=False))

    def _begin_unstarted(self) -> None:
        """Open the turn of a message for which none began."""
        ledger = self._parts.ledger
        if ledger.current is None and ledger.queue and not self._parts.turns.completed:
            ledger.current = ledger.queue.pop(0)
        if ledger.current is not None:
            self._stream.begin_turn()

    def _interrupt(self) -> None:
        """Messages that Pi holds for the turn would begin another one, so they are taken back first."""
        self._interrupting, self._too_early = True, False
        self._parts.commands.send("clear_queue")
        self._parts.commands.send("abort")
        self._parts.requests.cancel_all()

    def _settled(self, frame: schema.AgentSettled) -> None:
        turn = self._parts.turns.open
        if turn is None or self._compacts:
            return
        if frame.aborted or self._interrupting:
            self._close_turn(stopped(turn.written))
        elif self._stream.error:
            self._close_turn(results.failed(self._stream.error, turn.written))
        else:
            self._close_turn(Outcome(True, turn.written))

    def _close_turn(self, outcome: Outcome) -> None:
        """The turn, or the run, is over. What was said into it and not taken waits for a turn of its own."""
        parts = self._parts
        turn = parts.turns.open
        since = turn.since if turn is not None else self._stream.now
        parts.notices.turn_ends(ok=outcome.ok)
        parts.requests.withdraw_all("The turn is over.")
        parts.steps.close()
        usage = parts.meter.run(round(self._stream.now - since, 3))
        outcome = outcome._replace(answer=parts.requests.with_refused(outcome.answer))
        parts.turns.end(outcome, parts.token or parts.expected, usage)
        self._interrupting = self._too_early = self._compacts = False
        if outcome.outcome == "stopped":
            parts.ledger.hand_back(queue=False)
        else:
            parts.ledger.again()
        if not self._deaf:
            self._next_turn()

    def _fail(self, outcome: Outcome) -> None:
        """The session cannot be used: the process is of no use."""
        if self._over:
            return
        self._over = True
        self._begin_unstarted()
        self._close_turn(outcome)
        self._parts.ledger.hand_back()
        self._output.close_stdin()

    # ------------------------------------------------------------------------------------------------------- the end

    def end(self, exit: ProcessExit, now: float) -> Step:
        parts = self._parts
        self._stream.now = now
        if not self._deaf:
            self._ended = True
            parts.pictures.drop()
            parts.requests.withdraw_all("The agent has ended.")
            if parts.turns.open is None:
                self._begin_unstarted()
            if (turn := parts.turns.open) is not None:
                self._close_turn(ended(exit, turn.written))
        parts.ledger.hand_back()
        self._ended = True
        return self._take()


def ended(exit: ProcessExit, written: str) -> Outcome:
    """The process ended in the middle of a turn. stderr tells an unknown session (recording json_resume_bad_id)."""
    if not exit.stopped and "No session found" in exit.stderr_tail:
        return results.failed(exit.stderr_tail)
    return ended_early(results.NAME, exit, written)


def _has_gate(data: Any) -> bool:
    commands = data.get("commands") if isinstance(data, dict) else None
    return isinstance(commands, list) and any(
        isinstance(command, dict) and command.get("name") == GATE_COMMAND for command in commands
    )
