"""What becomes of a request to use a tool: answered at once, or put before a person, and what their decision brings.

`gate` says which, `plan` has the word on ExitPlanMode, `rearm` sets plan mode again after it.
"""

from __future__ import annotations

from ...model import Allow, Decision, Deny, Interaction
from ...schemas.claude import CanUseTool, ControlResponse, decode_object
from ...session import CallResult, StartFacts
from ..tool_actions import tool_call
from . import frames, plan, scopes
from .asked import Scene, describe
from .background import Background
from .gate import Gate, Ruling
from .interactions import OWN, Interactions, Open, sound_input
from .modes import EXIT_PLAN
from .output import Output
from .plan import Found, Plans, Waiting
from .rearm import Rearm
from .turns import Turns

_LONGEST_LABEL = 200


class Permissions:
    """The permissions of one process."""

    def __init__(
        self, output: Output, interactions: Interactions, background: Background, turns: Turns, name: str
    ) -> None:
        self._output = output
        self._interactions = interactions
        self._turns = turns
        self._root = ""
        self.gate = Gate(output, name)
        self.plans = Plans(output, self.gate)
        self.rearm = Rearm(output, self.gate, background, name)

    def begin(self, start: StartFacts) -> None:
        """Raises ValueError for a permission mode that does not exist."""
        self.gate.begin(start)
        self.plans.begin(start)
        self.rearm.begin(start)

    # ------------------------------------------------------------------------------------------------------- requests

    def request(self, id: str, request: CanUseTool, *, root: str, asked_by: str, now: float) -> None:
        """A repeat of a request is not asked again."""
        if not self._interactions.fresh(id) or self._interactions.joined(id, request):
            return
        self._root = root
        if request.tool_name == EXIT_PLAN:
            self._exit_plan(id, Waiting(request, decode_object(request.input), asked_by, now))
            return
        ruling = self.gate.ruling(request)
        if ruling.answer == "ask":
            self._ask(id, request, asked_by, now)
        else:
            self._answer(id, request, ruling)

    def _answer(self, id: str, request: CanUseTool, ruling: Ruling) -> None:
        """Answer without asking."""
        if ruling.answer == "allow":
            self._output.writes.append(frames.allow(id, sound_input(bytes(request.input))))
            return
        self._output.writes.append(frames.deny(id, ruling.reason))
        if not self.gate.attended:
            label = self._label(request)
            self.gate.refuse(label)
            self._output.warning(f"Refused, since nobody is there to ask: {label}")
        else:
            self._output.note(self._output.new_id("note"), "note", "A question was sent back: questions are off")

    def _label(self, request: CanUseTool) -> str:
        _, title, _ = tool_call(request.tool_name, decode_object(request.input), self._root)
        title = " ".join(title.split())
        label = title if request.tool_name in title else f"{request.tool_name}: {title}"
        return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"

    def _ask(self, id: str, request: CanUseTool, asked_by: str, now: float) -> None:
        asked = describe(request, decode_object(request.input), Scene(self._root, self._turns.long_text))
        choices = scopes.choices(
            request.permission_suggestions,
            root=self._root,
            planning=self.gate.reported == "plan",
            rules=request.suppress_always_allow_rule is not True,
        )
        interaction = Interaction(
            id,
            asked.kind,
            asked.act,
            asked.body,
            choices,
            asked.note,
            asked_by,
            request.tool_use_id,
            asked.questions,
            asked.editable,
            ("deny",) if asked.questions else ("allow", "deny"),
        )
        self._interactions.ask(Open(interaction, request, now))

    # ----------------------------------------------------------------------------------------------------------- plans

    def _exit_plan(self, id: str, waiting: Waiting) -> None:
        ruling, shown = self.gate.ruling(waiting.request), plan.plan_of(waiting.input)
        if ruling.answer == "allow" or self.plans.use_approval():
            mode = self.gate.leaves_to
            update = scopes.to_mode(mode) if mode else None
            self._output.writes.append(frames.allow(id, sound_input(bytes(waiting.request.input)), update))
            self.plans.settled()
            self.gate.approved_exit(mode)
            self._withdraw_offer()
            title = "Plan approved without asking" if ruling.answer == "allow" else "Plan approved beforehand"
            self._output.note(self._output.new_id("note"), "note", title, detail={"plan": shown})
        elif ruling.answer == "deny":
            self._answer(id, waiting.request, ruling)
        elif self.plans.pending and not self.plans.outlined(shown):
            self._output.writes.append(frames.deny(id, plan.NO_OUTLINE_YET))
            note = "Sent back: the outline is not written yet"
            self._output.note(self._output.new_id("note"), "note", note)
        elif (found := self.plans.look_for(id, waiting)) is not None:
            self._open_plan(id, found)

    def _open_plan(self, id: str, found: Found) -> None:
        self._withdraw_offer()
        request, input, asked_by, since = found.waiting
        asked = describe(request, input, Scene(self._root, self._turns.long_text))
        body = self.plans.body(found.plan)
        note = " ".join(filter(None, (found.note if body else asked.note, self.plans.note(self.rearm.comes_back()))))
        choices = plan.AFTER_OUTLINE if self.plans.pending else plan.CHOICES
        body = body + asked.body[1:] if body else asked.body  # the first piece of `asked` is its plan
        interaction = Interaction(id, "plan", asked.act, body, choices, note, asked_by, request.tool_use_id)
        self._interactions.ask(Open(interaction, request, since, plan=found.plan))

    def _offer(self, now: float) -> None:
        """The outline is written, and the agent did not ask again: offer it by itself."""
        if not self.plans.looking() and (id := self.plans.offer()):
            self._withdraw_offer()
            note = "The agent has stopped after its outline. Approving lets it go on, without another question."
            body = self.plans.body("")
            interaction = Interaction(id, "plan", "Approve the outline?", body, plan.AFTER_OUTLINE, note)
            self._interactions.ask(Open(interaction, None, now))

    def _withdraw_offer(self) -> None:
        self._interactions.withdraw_where(agent=OWN, reason="It was asked for anew.")

    # ------------------------------------------------------------------------------------------------------- decisions

    def decide(self, id: str, decision: Decision, *, idle: bool) -> bool:
        """A person decided. False when the request is not open, or when the decision makes no sense for it."""
        if (found := self.plans.give_up(id)) is not None:
            self._open_plan(id, found)
        taken = self._interactions.decide(id, decision, leaves_to=self.gate.leaves_to)
        if taken is None:
            return False
        if taken.pending.interaction.kind != "plan":
            if taken.update is not None and taken.update.get("type") == "setMode":
                self.gate.granted_mode(str(taken.update.get("mode")))
        elif isinstance(decision, Deny):
            if decision.choice == "outline":
                self.plans.first_outline(taken.pending.plan)
            else:
                self.plans.settled()
        elif isinstance(decision, Allow):
            mode = str(taken.update["mode"]) if taken.update else ""
            self._approved(taken.pending, mode, lent=bool(decision.scope), idle=idle)
        return True

    def _approved(self, pending: Open, mode: str, *, lent: bool, idle: bool) -> None:
        if pending.ids:
            self.plans.settled()
            self.gate.approved_exit(mode, lent=lent)
            return
        self.plans.approve_next()
        if idle:
            self.plans.go_on()
            self._turns.expected = "the outline was approved"

    def withdraw(self, id: str) -> None:
        """Claude Code no longer wants an answer."""
        self.plans.withdraw(id)
        self._interactions.withdraw(id)

    # ----------------------------------------------------------------------------------------------- answers to our own

    def response(self, frame: ControlResponse) -> bool:
        """An answer of Claude Code; True when it was to a question of ours about plans."""
        if self.rearm.answered(frame):
            return True
        owned, found = self.plans.answered(frame)
        if found is not None:
            self._open_plan(*found)
        return owned

    def read(self, call_id: str, result: CallResult) -> None:
        """The plan file was read, or could not be."""
        if (found := self.plans.read(call_id, result)) is not None:
            self._open_plan(*found)

    # ------------------------------------------------------------------------------------------------------------- time

    @property
    def deadline(self) -> float | None:
        """When `tick` is wanted, in epoch seconds."""
        return min((at for at in (self.plans.deadline, self.rearm.deadline) if at is not None), default=None)

    def tick(self, now: float, session: str, *, idle: bool) -> None:
        for id in self.plans.overdue(now):
            if (found := self.plans.give_up(id)) is not None:
                self._open_plan(id, found)
        self.rearm.tick(now, session, idle=idle)

    # ------------------------------------------------------------------------------------------------------------ turns

    def turn_opens(self, now: float) -> None:
        self.gate.turn_opens()
        self.plans.turn_opens()
        self.rearm.turn_opens(now)

    def turn_closes(self, now: float, session: str, *, ok: bool) -> None:
        """Before the event that closes the turn."""
        for id in self.plans.looking():
            self.plans.withdraw(id)
        self.rearm.turn_closes(now, session)
        if ok:
            self._offer(now)

    def withdraw_all(self, reason: str) -> None:
        for id in self.plans.looking():
            self.plans.withdraw(id)
        self._interactions.withdraw_all(reason)
