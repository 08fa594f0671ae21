"""The plan gate: a plan that Codex proposed waits for a person before anything is done.

In the collaboration mode `plan` the model ends its turn with a plan (an item `plan`; recording as_plan_mode), and Codex
asks nobody. So the run is kept open: approving begins a turn in the mode `default` that implements it, sending it back
begins another one in plan mode, and denying ends the run with the plan as its answer.
"""

from __future__ import annotations

from typing import Literal

from ...model import Allow, Choice, Content, Decision, Deny, Interaction, InteractionEvent, Wait
from ..output import Output
from .policies import AFTER_PLAN, DEFAULT

IMPLEMENT = "Implement the plan."  # what Codex's own interface says for its user
_CHOICES = (
    Choice("accept_edits", "Approve, accept edits", "Then files in the project change without asking.", "success"),
    Choice("revise", "Revise…", decides="deny", wants_text=True),
)


class PlanGate:
    """`text` is the plan of the turn at hand; `open` the request while a person looks at it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.text = ""
        self.open: Interaction | None = None
        self._since = 0.0

    def take(self) -> str:
        """The plan of the turn that ends."""
        text, self.text = self.text, ""
        return text

    def ask(self, text: str, now: float) -> None:
        id = self._output.new_id("plan")
        body = (Content("markdown", text),)
        self.open = Interaction(id, "plan", "Carry out this plan?", body, _CHOICES)
        self._since = now
        self._output.events.append(InteractionEvent(self._output.engine, self.open, "opened"))

    def close(self, phase: Literal["resolved", "withdrawn"], reason: str = "") -> None:
        if self.open is not None:
            interaction, self.open = self.open, None
            self._output.events.append(InteractionEvent(self._output.engine, interaction, phase, reason))

    def waits(self) -> list[Wait]:
        return [Wait("human", self._since, None, self.open.act, self.open.id)] if self.open is not None else []


def following(decision: Decision) -> tuple[str, str | None]:
    """What a decision on a plan lets follow: the message for the agent, "" to end the run, and the mode it goes into
    (None: it stays in plan mode)."""
    match decision:
        case Allow(scope):
            return IMPLEMENT, AFTER_PLAN if scope == "accept_edits" else DEFAULT
        case Deny(reason, interrupt) if reason.strip() and not interrupt:
            return reason.strip(), None
        case _:
            return "", None
