"""The ACP session: lines and inputs go in, events and lines for the agent's stdin come out, with no I/O.

One instance is one agent process with one session in it. It serves one turn after another: a message is a request
(`session/prompt`), and its answer is the end of the turn. Here are the inputs and the turns; `opening` brings the
session about, `updates` takes what the agent tells meanwhile, `prompts` are the messages on their way, `steps` the tool
calls, `permissions` the requests that wait for a person, `wire` what is said.

Nothing of the client's is offered to the agent: files and terminals are its own affair. What it asks for all the same
is answered by an error, as every method that is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from ...model import Decision, EngineId, Wait
from ...schemas import acp, jsonrpc
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
from ..claude.output import NOTHING, Output
from ..claude.turns import Turns
from . import outcomes
from .capabilities import capabilities_of
from .opening import Opening
from .outcomes import Outcome
from .permissions import Permissions
from .prompts import Prompts
from .steps import Steps
from .updates import Updates
from .usage import Meter
from .wire import Wire

_MOST_COMPLAINTS = 3
_NO_SUCH = "Untether does not offer {}: the agent uses its own files and terminals."


class AcpSession:
    """See `session.EngineSession`. `name` is what people call the agent."""

    def __init__(self, engine: str, name: str) -> None:
        self._name = name
        self._unknown: Counter[str] = Counter()
        self._output = output = Output(EngineId(engine))
        self._wire = Wire(output, self._unknown)
        self._turns = Turns(output)
        self._steps = Steps(output)
        self._permissions = Permissions(output, self._wire)
        self._prompts = Prompts(output, self._wire, self._prompt_ended)
        self._opening = Opening(output, self._wire, name, self._ready, self._failed)
        self._meter = Meter()
        self._updates = Updates(
            output, self._opening, self._turns, self._steps, self._permissions, self._meter, self._unknown, self._proved
        )
        self._now = self._sign = 0.0
        self._first = ""
        self._interrupted = False
        self._over = False
        self._complaints = 0

    @property
    def capabilities(self) -> Capabilities:
        opening = self._opening
        able = capabilities_of(opening.agent, opening.told if opening.greeted else None)
        return replace(able, set_model=bool(opening.offered_models())) if opening.ready else able

    @property
    def unknown(self) -> Mapping[str, int]:
        return dict(self._unknown)

    @property
    def waits(self) -> tuple[Wait, ...]:
        if self._over:
            return ()
        asked = self._permissions.steps()
        waits = self._permissions.waits() + self._steps.waits(asked)
        if self._working and not waits:
            waits.append(Wait("model", self._sign))
        return tuple(waits)

    @property
    def _working(self) -> bool:
        return not self._opening.ready or self._prompts.busy or self._turns.open is not None

    # ------------------------------------------------------------------------------------------------------ inputs

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        self._now = self._sign = now
        self._first = prompt.id
        self._steps.root = start.cwd.rstrip("/")
        self._permissions.attended = start.settings.get("attended") is not False
        if start.resume is not None:
            self._meter.resumed()
        self._prompts.waiting.append(prompt)
        self._opening.begin(start, now)
        return self._output.take()

    def say(self, prompt: Prompt, when: When, now: float) -> Step:
        self._now = now
        if self._over:
            self._output.prompt(prompt.id, "handed_back")
            return self._output.take()
        if when == "now" and self._opening.agent.steers and self._prompts.in_flight and not self._interrupted:
            self._prompts.steer(prompt)
            return self._output.take()
        if when == "replace":
            self._prompts.waiting.appendleft(prompt)
            if self._prompts.in_flight:
                self._cancel()
        else:
            self._prompts.waiting.append(prompt)
        self._send_next()
        return self._output.take()

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        self._now = now
        if not self._over and interaction_id in self._permissions.open:
            self._sign = now
            if self._permissions.decide(interaction_id, decision):
                self._cancel()
        return self._output.take()

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        """Before the message has left there is nothing to cancel: the run ends, and with it a process not yet ready."""
        self._now = now
        if self._over or not self._working:
            return self._output.take()
        if cancel_queued:
            self._withdraw_waiting()
        if self._prompts.in_flight:
            self._cancel()
        elif self._opening.ready:
            for prompt_id in self._prompts.not_sent():
                self._turns.begin([prompt_id], "", now)
                self._end_turn(outcomes.stopped(""), None)
        else:
            self._failed(outcomes.stopped(""))
        return self._output.take()

    def configure(self, change: SessionChange, now: float) -> Step:
        self._now = now
        opening = self._opening
        if self._over:
            return NOTHING
        match change:
            case Withdraw(prompt_id):
                if self._prompts.withdraw(prompt_id):
                    self._output.prompt(prompt_id, "withdrawn")
            case SetModel(str(model)) if opening.ready:
                opening.change("model", model)
            case SetPermissionMode(mode) if opening.ready:
                chosen = opening.asking_mode() if mode in ("default", "manual") else opening.mode_named(mode)
                if chosen in opening.offered_modes():
                    opening.change("mode", chosen)
                else:
                    self._output.warning(f"{self._name} has no mode for {mode}")
            case SetEffort(str(effort)) if opening.ready:
                opening.change("thought_level", effort)
        return self._output.take()

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        self._now = now
        if not self._over:
            self._prompts.read(call_id, result)
        return self._output.take()

    def tick(self, now: float) -> Step:
        self._now = now
        if not self._over:
            self._opening.tick()
        return self._output.take()

    # ------------------------------------------------------------------------------------------------------- lines

    def feed(self, line: bytes, now: float) -> Step:
        self._now = now
        if self._over:
            return NOTHING
        try:
            message = jsonrpc.decode(line)
        except jsonrpc.NotAMessage as problem:
            self._not_a_message(line, str(problem))
            return self._output.take()
        if not self._permissions.open:
            self._sign = now
        match message:
            case jsonrpc.Result() | jsonrpc.Failure():
                greeted = self._opening.greeted
                self._wire.answered(message)
                if not greeted:
                    self._opening.extend(now)
            case jsonrpc.Request(id, method, params):
                self._asked(id, method, params)
            case jsonrpc.Notification(method, params):
                self._updates.notified(method, params, now)
        return self._output.take()

    def skipped(self, length: int, now: float) -> Step:
        self._now = now
        self._output.warning(f"A line of {length / 1e6:.0f} MB from {self._name} was too long and is left out")
        return self._output.take()

    def _not_a_message(self, line: bytes, why: str) -> None:
        text = line.decode("utf-8", "replace").strip(" \t\r\0\ufeff")
        if not text:
            return
        self._unknown[f"line: {why}"] += 1
        self._complaints += 1
        if self._complaints <= _MOST_COMPLAINTS:
            self._output.warning(f"{self._name} printed a line that is not understood", {"line": text[:200]})

    def _asked(self, id: jsonrpc.Id, method: str, params: dict[str, object]) -> None:
        """A request of the agent's. Every one is answered."""
        if method != "session/request_permission":
            if not method.startswith(("fs/", "terminal/")):
                self._unknown[method] += 1
            self._wire.refuse(id, jsonrpc.METHOD_NOT_FOUND, _NO_SUCH.format(method))
            return
        try:
            request = acp.read(acp.PermissionRequest, params)
        except ValueError:
            self._wire.refuse(id, jsonrpc.INVALID_PARAMS, "The permission request cannot be read.")
            return
        if not self._opening.ready or self._interrupted:
            self._wire.answer(id, {"outcome": {"outcome": "cancelled"}})
            return
        self._proved()
        self._permissions.denied = False
        step = self._steps.call(request.tool_call, self._now, new=False)
        step = step or self._steps.call(request.tool_call, self._now, new=True)
        assert step is not None
        foreign = request.session_id != self._opening.session_id
        self._permissions.ask(
            id, request, step, self._opening.agent, self._now, asked_by="a sub-agent" if foreign else ""
        )

    # ------------------------------------------------------------------------------------------------------- turns

    def _ready(self) -> None:
        self._prompts.session_id = self._opening.session_id
        self._prompts.able = self._opening.told.agent_capabilities.prompt_capabilities
        self._send_next()

    def _send_next(self) -> None:
        if self._opening.ready and not self._prompts.busy and self._turns.open is None and self._prompts.waiting:
            self._meter.begin()
            self._sign = self._now
            self._prompts.next()

    def _proved(self) -> None:
        """The agent works on what was sent: the messages are taken, and their turn is open."""
        if self._turns.open is None and self._prompts.in_flight:
            taken = self._prompts.take()
            self._turns.begin(list(taken), "", self._now)
            for prompt_id in taken:
                self._output.prompt(prompt_id, "taken")

    def _cancel(self) -> None:
        """End the turn: open requests are answered as cancelled, as the protocol wants it."""
        self._permissions.cancel_all("The turn was stopped.")
        if not self._prompts.in_flight or self._interrupted:
            return
        self._interrupted = True
        self._wire.notify("session/cancel", {"sessionId": self._opening.session_id})
        if self._opening.agent.cancel_leaves_work:
            self._output.stop()

    def _prompt_ended(self, end: acp.TurnEnd | jsonrpc.Failure) -> None:
        """A request for a turn was answered. The turn is over when all are: others may have joined it."""
        denied = self._permissions.denied
        self._proved_late()
        turn = self._turns.open
        if self._prompts.in_flight or turn is None:
            return None
        words = self._permissions.take_words()
        if self._updates.broken and isinstance(end, acp.TurnEnd) and end.stop_reason == "end_turn":
            end = jsonrpc.Failure(None, jsonrpc.INTERNAL_ERROR, turn.written)
            turn.written = ""
        if isinstance(end, jsonrpc.Failure):
            agent, methods = self._opening.agent, self._opening.told.auth_methods
            if self._interrupted:
                return self._end_turn(outcomes.stopped(turn.written), None)
            failed = outcomes.failed(end, turn.written, name=self._name, agent=agent, methods=methods)
            return self._end_turn(failed, None)
        if words and not self._interrupted:
            self._steps.close()
            self._updates.new_message()
            self._prompts.say(words)
            return None
        outcome = outcomes.ended(
            end.stop_reason,
            turn.written,
            name=self._name,
            interrupted=self._interrupted,
            denied=denied,
            agent=self._opening.agent,
        )
        if outcome.ok and end.stop_reason != "end_turn":
            self._unknown[f"stop reason {end.stop_reason!r}"] += 1
        return self._end_turn(outcome, end)

    def _proved_late(self) -> None:
        """The end itself proves that what was sent was taken: into the open turn, or one that it opens."""
        taken = self._prompts.take()
        if self._turns.open is None:
            self._turns.begin(list(taken), "", self._now)
        else:
            self._turns.open.prompts += taken
        for prompt_id in taken:
            self._output.prompt(prompt_id, "taken")

    def _end_turn(self, outcome: Outcome, end: acp.TurnEnd | None) -> None:
        turn = self._turns.open
        self._permissions.cancel_all("The turn is over.")
        self._permissions.words = ""
        self._permissions.denied = self._permissions.nudged = False
        self._steps.close()
        usage = self._meter.turn(end, self._now - turn.since if turn is not None else 0.0)
        self._turns.end(outcome, self._opening.token, usage)
        self._updates.new_message()
        self._interrupted = self._updates.broken = False
        self._send_next()

    def _failed(self, outcome: Outcome) -> None:
        """No session came about, or none that may be used: the run is over, and the agent of no use."""
        self._wire.forget()
        self._over = True
        self._turns.begin([self._first], "", self._now)
        self._turns.end(outcome, self._opening.token, None)
        for prompt_id in self._prompts.left():
            if prompt_id != self._first:
                self._output.prompt(prompt_id, "handed_back")
        self._output.stop()

    def _withdraw_waiting(self) -> None:
        for prompt in list(self._prompts.waiting):
            if prompt.id != self._first or self._opening.ready:
                self._prompts.withdraw(prompt.id)
                self._output.prompt(prompt.id, "withdrawn")

    # ------------------------------------------------------------------------------------------------------- the end

    def end(self, exit: ProcessExit, now: float) -> Step:
        self._now = now
        if self._over:
            return self._output.take()
        self._permissions.withdraw_all("The agent has ended.")
        left = self._prompts.left()
        if self._turns.open is None and not self._turns.completed:
            left = [prompt_id for prompt_id in left if prompt_id != self._first]
            self._turns.begin([self._first], "", now)
        for prompt_id in left:
            self._output.prompt(prompt_id, "handed_back")
        if (turn := self._turns.open) is not None:
            self._steps.close()
            if self._interrupted:
                outcome = outcomes.stopped(turn.written)
            elif not self._opening.greeted:
                outcome = outcomes.never_greeted(self._name, exit)
            else:
                outcome = outcomes.ended_early(self._name, exit, turn.written)
            self._turns.end(outcome, self._opening.token, self._meter.turn(None, now - turn.since))
        self._over = True
        return self._output.take()
