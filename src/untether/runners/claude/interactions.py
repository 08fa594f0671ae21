"""Requests for a person: `can_use_tool` is asked, decided on and answered; every other request is answered at once.

Requests are told apart by their id only: parallel sub-agents ask at the same time, and background agents also after
the result (claude-protocol §5). A request waits for ever; the CLI itself withdraws it when it no longer matters.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...model import (
    Allow,
    Answers,
    Decision,
    Deny,
    Interaction,
    InteractionEvent,
    InteractionKind,
    Wait,
)
from ...schemas.claude import CanUseTool, decode_object
from . import frames
from .asked import Scene, describe
from .output import Output

_REFUSALS: dict[InteractionKind, str] = {
    "permission": (
        "The user refused this. Do not try to reach the same in another way: say what you wanted to do and why, and "
        "ask the user what to do instead."
    ),
    "plan": (
        "The user did not approve this plan. Stay in plan mode: ask what should be changed, and do not call "
        "ExitPlanMode again before that is clear."
    ),
    "question": "The user did not want to answer this. Ask in plain text what to do, or name your assumptions.",
}


class Request(NamedTuple):
    """An open request. `input` is the tool's input exactly as it came; `agent` the task id of the sub-agent."""

    interaction: Interaction
    input: bytes
    agent: str
    since: float


class Interactions:
    """The open requests, by request id, in the order in which they were made."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._seen: dict[str, None] = {}
        self.open: dict[str, Request] = {}

    def ask(self, id: str, request: CanUseTool, scene: Scene, *, asked_by: str, now: float) -> None:
        """A repeat of a request is not asked again."""
        if id in self._seen:
            return
        self._seen[id] = None
        raw = bytes(request.input)
        input = decode_object(raw)
        asked = describe(request, input, scene)
        interaction = Interaction(
            id,
            asked.kind,
            asked.act,
            asked.body,
            note=asked.note,
            asked_by=asked_by,
            step_id=request.tool_use_id,
            questions=asked.questions,
        )
        self.open[id] = Request(interaction, _sound(raw, input), request.agent_id or "", now)
        self._output.events.append(InteractionEvent(self._output.engine, interaction, "opened"))

    def decide(self, id: str, decision: Decision) -> bool:
        """Answer a request. False when it is not open, or when the decision makes no sense for it."""
        request = self.open.get(id)
        if request is None:
            return False
        match decision:
            case Allow(updated_input=None):
                line, reason = frames.allow(id, request.input), "approved"
            case Allow(updated_input=changed):
                line, reason = (
                    frames.allow(id, frames.encode(decode_object(request.input) | (changed or {}))),
                    "approved",
                )
            case Deny(text, interrupt):
                message = text.strip() or _REFUSALS[request.interaction.kind]
                line, reason = frames.deny(id, message, interrupt=interrupt), "denied"
            case Answers(by_question):
                if request.interaction.kind != "question":
                    return False
                answered = decode_object(request.input) | {"answers": by_question}
                line, reason = frames.allow(id, frames.encode(answered)), "answered"
        self._output.writes.append(line)
        self._close(id, "resolved", reason)
        return True

    def withdraw(self, id: str, reason: str = "") -> None:
        """The CLI no longer wants an answer. Unknown ids (hooks are withdrawn too) are passed over."""
        if id in self.open:
            self._close(id, "withdrawn", reason)

    def withdraw_where(self, *, step: str = "", agent: str | None = None, reason: str) -> None:
        """Withdraw the requests of a tool call that is over, or of an agent that has ended ("" is the main one)."""
        for id, request in list(self.open.items()):
            if (step and request.interaction.step_id == step) or (agent is not None and request.agent == agent):
                self._close(id, "withdrawn", reason)

    def withdraw_all(self, reason: str) -> None:
        for id in list(self.open):
            self._close(id, "withdrawn", reason)

    def _close(self, id: str, phase: Literal["resolved", "withdrawn"], reason: str) -> None:
        interaction = self.open.pop(id).interaction
        self._output.events.append(InteractionEvent(self._output.engine, interaction, phase, reason))

    def steps(self) -> frozenset[str]:
        """The tool calls that wait for a person."""
        return frozenset(request.interaction.step_id for request in self.open.values())

    def main_is_asking(self) -> bool:
        return any(not request.agent for request in self.open.values())

    def waits(self) -> list[Wait]:
        return [Wait("human", request.since, None, request.interaction.act, id) for id, request in self.open.items()]


def _sound(raw: bytes, input: dict[str, object]) -> bytes:
    """The input to send back: as it came, unless it is no object or not sound UTF-8, which the CLI would not take."""
    try:
        sound = raw.decode().lstrip().startswith("{")
    except UnicodeDecodeError:
        sound = False
    return raw if sound else frames.encode(input)
