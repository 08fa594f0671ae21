"""The open requests for a person: asked, decided on, answered, withdrawn.

Codex asks by JSON-RPC requests, whose ids begin at 0 in every process; a request waits for ever. `serverRequest/
resolved` and the end of the turn withdraw one that is still open (recording as_exec_cancel). Nobody attends: every
request is refused at once.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from ...model import Answers, Decision, Deny, Interaction, InteractionEvent, Wait
from ...schemas.codex import Asked, RequestId, UserInput
from ..output import Output
from .asked import Scene, brief, describe
from .replies import reply
from .rpc import Rpc, text_input

UNATTENDED = (
    "Nobody is there to approve this: the run is unattended, and nothing in it waits for an answer. It was refused. Go "
    "on without it, and say at the end what you could not do."
)
UNATTENDED_QUESTION = (
    "Nobody is there to answer: the run is unattended, and nothing in it waits for an answer. Decide yourself, and "
    "state your assumptions."
)
NO_QUESTIONS = "Questions are switched off in this chat. Decide yourself and state your assumptions."
NO_ANSWER = "I do not want to answer this. Decide yourself, and state your assumptions."
_REFUSED = "Nobody could be asked, so this was refused:"


class Request(NamedTuple):
    """An open request. `wire_id` is its id as it came."""

    interaction: Interaction
    wire_id: RequestId
    asked: Asked
    since: float


class Requests:
    """The open requests by interaction id, in the order in which they were made."""

    def __init__(self, output: Output, rpc: Rpc) -> None:
        self._output = output
        self._rpc = rpc
        self._seen: dict[str, None] = {}
        self._held: dict[RequestId, tuple[RequestId, dict[str, Any]]] = {}  # replies, by the call they wait for
        self.open: dict[str, Request] = {}
        self.attended = True
        self.questions = True
        self.refused: list[str] = []  # in the turn at hand, because nobody attends

    def ask(self, wire_id: RequestId, asked: Asked, scene: Scene, *, asked_by: str, now: float) -> None:
        """Ask a person. A repeat is not asked again."""
        id = msgspec.json.encode(wire_id).decode()  # 0 and "0" are two requests
        if id in self._seen:
            return
        self._seen[id] = None
        interaction = describe(id, asked, scene, asked_by=asked_by)
        if not self.attended:
            self._refuse(wire_id, asked, interaction)
            return
        if interaction.kind == "question" and not self.questions:
            self._reply(wire_id, asked, reply(asked, Deny()) or {}, beside=NO_QUESTIONS)
            return
        self.open[id] = Request(interaction, wire_id, asked, now)
        self._output.events.append(InteractionEvent(self._output.engine, interaction, "opened"))

    def _refuse(self, wire_id: RequestId, asked: Asked, interaction: Interaction) -> None:
        self.refused.append(brief(interaction))
        self._output.warning(f"Refused, since nobody attends this run: {brief(interaction)}")
        beside = UNATTENDED_QUESTION if interaction.kind == "question" else UNATTENDED
        self._reply(wire_id, asked, reply(asked, Deny()) or {}, beside=beside)

    def decide(self, id: str, decision: Decision) -> bool:
        """Answer a request. False when it is not open, or when the decision makes no sense for it."""
        request = self.open.get(id)
        result = reply(request.asked, decision) if request is not None else None
        if request is None or result is None:
            return False
        reason, beside = "approved", ""
        if isinstance(decision, Answers):
            reason = "answered"
        elif isinstance(decision, Deny):
            reason = "denied"
            beside = "" if decision.interrupt else _beside(request.asked, decision.reason.strip())
        self._reply(request.wire_id, request.asked, result, beside=beside)
        self._close(id, "resolved", reason)
        return True

    def _reply(self, wire_id: RequestId, asked: Asked, result: dict[str, Any], *, beside: str = "") -> None:
        """Answer a request. `beside` is said to the agent that asks, for the reply has no room for it.

        The reply waits until that has been taken: else the next model call may be made without it (seen in 0.166.0).
        """
        if not beside:
            self._rpc.reply(wire_id, result)
            return
        params = {"threadId": asked.thread_id, "expectedTurnId": asked.turn_id or "", "input": [text_input(beside)]}
        self._held[self._rpc.ask("turn/steer", params)] = wire_id, result

    def told(self, call: RequestId | None) -> None:
        """What was said beside a reply was taken, or refused: the reply follows."""
        if call is not None and (held := self._held.pop(call, None)) is not None:
            self._rpc.reply(*held)

    def resolved(self, wire_id: RequestId | None) -> None:
        """Codex has an answer, ours or not."""
        id = msgspec.json.encode(wire_id).decode()
        if id in self.open:
            self._close(id, "withdrawn", "")

    def withdraw_turn(self, thread: str, reason: str) -> None:
        """The turn of a thread is over."""
        for id, request in list(self.open.items()):
            if request.asked.thread_id == thread:
                self._close(id, "withdrawn", reason)

    def withdraw_all(self, reason: str) -> None:
        for id in list(self.open):
            self._close(id, "withdrawn", reason)

    def _close(self, id: str, phase: Literal["resolved", "withdrawn"], reason: str) -> None:
        interaction = self.open.pop(id).interaction
        self._output.events.append(InteractionEvent(self._output.engine, interaction, phase, reason))

    def with_refused(self, answer: str) -> str:
        """An answer with the list of what was refused in its turn because nobody attends."""
        if not self.refused:
            return answer
        listed = "\n".join([_REFUSED, *(f"- {what}" for what in self.refused)])
        self.refused.clear()
        return f"{answer}\n\n{listed}".lstrip()

    def steps(self) -> frozenset[str]:
        """The items that wait for a person."""
        return frozenset(request.interaction.step_id for request in self.open.values())

    def waits(self) -> list[Wait]:
        return [Wait("human", request.since, None, request.interaction.act, id) for id, request in self.open.items()]


def _beside(asked: Asked, reason: str) -> str:
    """What the agent is told with a denial, since the reply has no room for it."""
    if isinstance(asked, UserInput):
        return reason or NO_ANSWER
    return f"I refused this: {reason}" if reason else ""
