"""The requests that wait for a person: what is open, and how a decision is written to Claude Code.

Requests are told apart by their id only: parallel sub-agents ask at the same time, and background agents also after
the result (claude-protocol §5). One that repeats the tool call of an open one is the same request: it is shown once,
and the decision answers both. A request waits for ever; the CLI itself withdraws it when it no longer matters.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...model import Allow, Answers, Decision, Deny, Interaction, InteractionEvent, InteractionKind, Wait
from ...schemas.claude import CanUseTool, JsonObject, decode_object
from . import frames, plan, scopes
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
OWN = "\0ours"
"""The agent of an interaction that Claude Code did not ask for: it ends with no turn and no sub-agent."""


class Open:
    """An open request. `input` is the tool's input exactly as it came; `agent` the task id of the sub-agent.

    `ids` are the requests that its decision answers, none for an interaction of our own.
    """

    def __init__(self, interaction: Interaction, request: CanUseTool | None, now: float, *, plan: str = "") -> None:
        self.interaction = interaction
        self.since = now
        self.plan = plan
        self.tool = request.tool_name if request is not None else ""
        self.agent = (request.agent_id or "") if request is not None else OWN
        self.raw = bytes(request.input) if request is not None else b"{}"
        self.input = sound_input(self.raw)
        self.suggestions = request.permission_suggestions if request is not None else []
        self.ids = [interaction.id] if request is not None else []


class Taken(NamedTuple):
    """A request that was decided on. `update` is the permission update that went with an allow, None without one."""

    pending: Open
    update: JsonObject | None = None


class Interactions:
    """The open requests, by id, in the order in which they were made."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._seen: dict[str, None] = {}
        self.open: dict[str, Open] = {}

    def fresh(self, id: str) -> bool:
        """False for a request that came before."""
        if id in self._seen:
            return False
        self._seen[id] = None
        return True

    def joined(self, id: str, request: CanUseTool) -> bool:
        """True when the request repeats the tool call of an open one, and is answered with it."""
        for pending in self.open.values():
            same = request.tool_use_id and pending.interaction.step_id == request.tool_use_id
            if same and pending.tool == request.tool_name and pending.raw == bytes(request.input):
                pending.ids.append(id)
                return True
        return False

    def ask(self, pending: Open) -> None:
        self.open[pending.interaction.id] = pending
        self._output.events.append(InteractionEvent(self._output.engine, pending.interaction, "opened"))

    def decide(self, id: str, decision: Decision, *, leaves_to: str = "") -> Taken | None:
        """Answer a request. None when it is not open, or when the decision makes no sense for it.

        `leaves_to`: the mode that a plainly approved plan leads to, "" for the one that Claude Code came from.
        """
        pending = self.open.get(id)
        if pending is None:
            return None
        kind = pending.interaction.kind
        update: JsonObject | None = None
        match decision:
            case Allow(scope, changed):
                if scope and (update := self._update(pending, scope)) is None:
                    return None
                if kind == "plan" and not scope and leaves_to:
                    update = scopes.to_mode(leaves_to)
                input = pending.input if changed is None else frames.encode(decode_object(pending.input) | changed)
                lines, reason = [frames.allow(each, input, update) for each in pending.ids], "approved"
            case Deny(text, interrupt, choice):
                message = text.strip() or plan.MESSAGES.get(choice) or _REFUSALS[kind]
                lines, reason = [frames.deny(each, message, interrupt=interrupt) for each in pending.ids], "denied"
            case Answers(by_question):
                if kind != "question":
                    return None
                answered = frames.encode(decode_object(pending.input) | {"answers": by_question})
                lines, reason = [frames.allow(each, answered) for each in pending.ids], "answered"
        self._output.writes += lines
        self._close(id, "resolved", reason)
        return Taken(pending, update)

    def _update(self, pending: Open, scope: str) -> JsonObject | None:
        """The permission update of a choice that the request offers."""
        if not any(choice.id == scope for choice in pending.interaction.choices):
            return None
        if pending.interaction.kind == "plan":
            return scopes.to_mode("acceptEdits")
        return scopes.update(scope, pending.suggestions)

    def withdraw(self, id: str, reason: str = "") -> None:
        """The CLI no longer wants an answer. Unknown ids (hooks are withdrawn too) are passed over."""
        for key, pending in list(self.open.items()):
            if id in pending.ids:
                pending.ids.remove(id)
                if not pending.ids:
                    self._close(key, "withdrawn", reason)

    def withdraw_where(self, *, step: str = "", agent: str | None = None, reason: str) -> None:
        """Withdraw the requests of a tool call that is over, or of an agent that has ended ("" is the main one)."""
        for id, pending in list(self.open.items()):
            if (step and pending.interaction.step_id == step) or (agent is not None and pending.agent == agent):
                self._close(id, "withdrawn", reason)

    def withdraw_all(self, reason: str) -> None:
        for id in list(self.open):
            self._close(id, "withdrawn", reason)

    def _close(self, id: str, phase: Literal["resolved", "withdrawn"], reason: str) -> None:
        interaction = self.open.pop(id).interaction
        self._output.events.append(InteractionEvent(self._output.engine, interaction, phase, reason))

    def steps(self) -> frozenset[str]:
        """The tool calls that wait for a person."""
        return frozenset(pending.interaction.step_id for pending in self.open.values())

    def main_is_asking(self) -> bool:
        return any(not pending.agent for pending in self.open.values())

    def waits(self) -> list[Wait]:
        return [Wait("human", pending.since, None, pending.interaction.act, id) for id, pending in self.open.items()]


def sound_input(raw: bytes) -> bytes:
    """The input to send back: as it came, unless it is no object or not sound UTF-8, which the CLI would not take."""
    try:
        sound = raw.decode().lstrip().startswith("{")
    except UnicodeDecodeError:
        sound = False
    return raw if sound else frames.encode(decode_object(raw))
