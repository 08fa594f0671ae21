"""The open dialogs of extensions: asked, decided on, answered, withdrawn.

Pi does not say when a dialog is void: the end of its tool call, the end of the turn and its own timeout withdraw it
here (recording rpc_gate_abort). Nobody attends: every one is refused at once.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ...model import Allow, Answers, Decision, Deny, Interaction, InteractionEvent, Wait
from ...schemas.pi import UiRequest
from ...session import StartFacts
from ..output import Output
from .asked import SESSION, describe_call, describe_dialog, gated_call, grant, reply
from .commands import Commands
from .policies import known_mode, mode_of, ruling

UNATTENDED = (
    "Nobody is there to approve this: the run is unattended, and nothing in it waits for an answer. It was refused. Go "
    "on without it, and say at the end what you could not do."
)
NOT_ASKED = "The permission mode of this session refuses this without asking. Go on without it."
_REFUSED = "Nobody could be asked, so this was refused:"


class Request(NamedTuple):
    """An open dialog. `until` is when it is void by itself, epoch seconds."""

    interaction: Interaction
    asked: UiRequest
    since: float
    until: float | None


class Requests:
    """The open dialogs by id, in the order in which they were asked."""

    def __init__(self, output: Output, commands: Commands) -> None:
        self._output = output
        self._commands = commands
        self._seen: dict[str, None] = {}
        self._granted: dict[str, None] = {}
        self._root = ""
        self._bypass = False
        self._attended = True
        self._refused: list[str] = []
        self.open: dict[str, Request] = {}
        self.mode = ""

    def begin(self, start: StartFacts) -> None:
        self._root = start.cwd.rstrip("/")
        self._attended = start.settings.get("attended") is not False
        self._bypass = bool(start.settings.get("dangerously_skip_permissions"))
        self.mode = mode_of(start.settings)

    def set_mode(self, mode: str) -> None:
        self.mode = known_mode(mode, bypass=self._bypass)

    # ------------------------------------------------------------------------------------------------------- asked

    def ask(self, asked: UiRequest, now: float) -> None:
        """Ask a person, or answer for them by the rules. A repeat is not asked again."""
        if not asked.id or asked.id in self._seen:
            return
        self._seen[asked.id] = None
        call = gated_call(asked)
        if call is None:
            self._open(describe_dialog(asked), asked, now)
            return
        verdict = ruling(self.mode, call.tool)
        if verdict == "allow" or grant(call) in self._granted:
            self._respond(asked, Allow())
        elif verdict == "deny":
            self._respond(asked, Deny(NOT_ASKED))
        else:
            self._open(describe_call(asked.id, call, self._root), asked, now)

    def _open(self, interaction: Interaction, asked: UiRequest, now: float) -> None:
        if not self._attended:
            what = brief(interaction)
            self._refused.append(what)
            self._output.warning(f"Refused, since nobody attends this run: {what}")
            self._respond(asked, Deny(UNATTENDED))
            return
        until = now + asked.timeout / 1000 if asked.timeout else None
        self.open[asked.id] = Request(interaction, asked, now, until)
        self._output.events.append(InteractionEvent(self._output.engine, interaction, "opened"))

    def _respond(self, asked: UiRequest, decision: Decision) -> bool:
        fields: dict[str, Any] | None = reply(asked, decision)
        if fields is not None:
            self._commands.respond(asked.id, fields)
        return fields is not None

    # ----------------------------------------------------------------------------------------------------- decided

    def decide(self, id: str, decision: Decision) -> bool:
        """Answer a dialog. False when it is not open, or when the decision makes no sense for it."""
        request = self.open.get(id)
        if request is None or not self._respond(request.asked, decision):
            return False
        call = gated_call(request.asked)
        if call is not None and isinstance(decision, Allow) and decision.scope == SESSION:
            self._granted[grant(call)] = None
        reason = "denied" if isinstance(decision, Deny) else "answered" if isinstance(decision, Answers) else "approved"
        self._close(id, "resolved", reason)
        self._answer_granted()
        return True

    def _answer_granted(self) -> None:
        """What was approved for the session covers those that wait."""
        for id, request in list(self.open.items()):
            call = gated_call(request.asked)
            if call is not None and grant(call) in self._granted:
                self._respond(request.asked, Allow())
                self._close(id, "resolved", "approved")

    # ---------------------------------------------------------------------------------------------------- withdrawn

    def step_ended(self, step_id: str) -> None:
        """A tool call is over, so what was asked about it is void."""
        for id, request in list(self.open.items()):
            if step_id and request.interaction.step_id == step_id:
                self._close(id, "withdrawn", "")

    def expire(self, now: float) -> None:
        """Dialogs that Pi has given up by their own timeout."""
        for id, request in list(self.open.items()):
            if request.until is not None and request.until <= now:
                self._close(id, "withdrawn", "It was not answered in time.")

    def withdraw_all(self, reason: str) -> None:
        for id in list(self.open):
            self._close(id, "withdrawn", reason)

    def cancel_all(self) -> None:
        """The turn is to be stopped: extensions that do not watch for that must not keep it waiting."""
        for id in list(self.open):
            self._commands.respond(id, {"cancelled": True})
            self._close(id, "withdrawn", "The run was stopped.")

    def _close(self, id: str, phase: Literal["resolved", "withdrawn"], reason: str) -> None:
        interaction = self.open.pop(id).interaction
        self._output.events.append(InteractionEvent(self._output.engine, interaction, phase, reason))

    # -------------------------------------------------------------------------------------------------------- facts

    def with_refused(self, answer: str) -> str:
        """An answer with the list of what was refused in its turn because nobody attends."""
        if not self._refused:
            return answer
        listed = "\n".join([_REFUSED, *(f"- {what}" for what in self._refused)])
        self._refused.clear()
        return f"{answer}\n\n{listed}".lstrip()

    def steps(self) -> frozenset[str]:
        """The tool calls that wait for a person."""
        return frozenset(request.interaction.step_id for request in self.open.values())

    def deadline(self) -> float | None:
        return min((request.until for request in self.open.values() if request.until is not None), default=None)

    def waits(self) -> list[Wait]:
        return [
            Wait("human", request.since, request.until, request.interaction.act, id)
            for id, request in self.open.items()
        ]


def brief(interaction: Interaction) -> str:
    """What was asked, in a few words, for the list of what was refused."""
    first = next((piece.label or piece.text for piece in interaction.body), "")
    return f"{interaction.act.rstrip('?')}: {' '.join(first.split())[:200]}" if first else interaction.act.rstrip("?")
