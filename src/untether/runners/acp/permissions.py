"""The open permission requests, and how a decision is written to the agent.

Requests are told apart by their JSON-RPC ids, which may be 0 or text; an interaction has an id of ours. The protocol
has no place for a reason: words that come with a denial are the next message of the turn. An agent that ends its turn
because of a denial is told in the same way to go on.
"""

from __future__ import annotations

from typing import Literal

from ...model import Allow, Answers, Decision, Deny, Interaction, InteractionEvent, Wait
from ...schemas import jsonrpc
from ...schemas.acp import PermissionRequest
from ..claude.output import Output
from .agents import Agent
from .asked import Options, describe
from .steps import Step
from .wire import Wire

_NOBODY = (
    "Nobody is there to approve what you asked for: the run is unattended. It was refused. Go on without it, and say "
    "in your answer what was left out."
)

_GO_ON = "Go on without it, or say why it is needed and ask what to do instead."


class Open:
    """An open request."""

    def __init__(
        self, id: jsonrpc.Id, interaction: Interaction, options: Options, since: float, *, ends_turn: bool
    ) -> None:
        self.ends_turn = ends_turn  # by a denial, which is not what a person means by it
        self.request = id
        self.interaction = interaction
        self.options = options
        self.since = since


class Permissions:
    def __init__(self, output: Output, wire: Wire) -> None:
        self._output = output
        self._wire = wire
        self._count = 0
        self.open: dict[str, Open] = {}
        self.attended = True
        self.words = ""  # what is to be said to the agent about its denied requests
        self.denied = False  # nothing has come since the latest denial
        self.nudged = False  # the agent was told in this turn that nobody is there

    def ask(
        self, id: jsonrpc.Id, request: PermissionRequest, step: Step, agent: Agent, now: float, *, asked_by: str
    ) -> None:
        """A new request. One that repeats the id of an open one is the same, and is answered once."""
        if any(pending.request == id and type(pending.request) is type(id) for pending in self.open.values()):
            return
        self._count += 1
        options = Options(request.options)
        interaction = describe(
            f"permission-{self._count}", step.call, options, agent=agent, step_id=step.id, asked_by=asked_by
        )
        if not self.attended:
            self._select(id, options.deny)
            self.denied = True
            if agent.reject == "ends" and not self.nudged:
                self.words, self.nudged = _NOBODY, True
            what = step.shown.title if step.shown else interaction.act
            self._output.warning(f"Denied, since nobody is there to be asked: {what}")
            return
        self.open[interaction.id] = Open(id, interaction, options, now, ends_turn=agent.reject == "ends")
        self._output.events.append(InteractionEvent(self._output.engine, interaction, "opened"))

    def decide(self, id: str, decision: Decision) -> bool:
        """Answer a request; True when the turn is to end as well. What makes no sense for it changes nothing."""
        pending = self.open.get(id)
        if pending is None:
            return False
        options = pending.options
        match decision:
            case Allow(scope):
                option = options.picked(scope, "allow") if scope else options.approve
                if not option:
                    return False
                self._select(pending.request, option)
                self._close(id, "resolved", "approved")
                return False
            case Deny(reason, interrupt, choice):
                option = options.picked(choice, "deny") if choice else options.deny
                self._select(pending.request, option)
                self._close(id, "resolved", "denied")
                self.denied = True
                told = reason.strip() or (_GO_ON if pending.ends_turn and option else "")
                if told and not interrupt:
                    self._say(pending.interaction, told)
                return interrupt or not option
            case Answers():
                return False

    def _say(self, interaction: Interaction, reason: str) -> None:
        what = next((piece.text.splitlines()[0] for piece in interaction.body if piece.text.strip()), "")
        words = f"I refused this: {what}\n{reason}" if what else f"I refused what you wanted to do. {reason}"
        self.words = f"{self.words}\n\n{words}".strip()

    def cancel_all(self, reason: str) -> None:
        """The turn is cancelled or over: the protocol wants each open request answered as cancelled."""
        for id, pending in list(self.open.items()):
            self._select(pending.request, "")
            self._close(id, "withdrawn", reason)

    def withdraw_all(self, reason: str) -> None:
        """The agent has ended."""
        for id in list(self.open):
            self._close(id, "withdrawn", reason)

    def take_words(self) -> str:
        words, self.words = self.words, ""
        return words

    def steps(self) -> frozenset[str]:
        """The ids of the actions that wait for a person."""
        return frozenset(pending.interaction.step_id for pending in self.open.values())

    def waits(self) -> list[Wait]:
        return [Wait("human", pending.since, None, pending.interaction.act, id) for id, pending in self.open.items()]

    def _select(self, id: jsonrpc.Id, option: str) -> None:
        outcome = {"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"}
        self._wire.answer(id, {"outcome": outcome})

    def _close(self, id: str, phase: Literal["resolved", "withdrawn"], reason: str) -> None:
        interaction = self.open.pop(id).interaction
        self._output.events.append(InteractionEvent(self._output.engine, interaction, phase, reason))
