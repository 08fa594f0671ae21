"""The gate: which permission mode the session is in, and what follows from it for each request.

The mode that the owner asked for and the one that Claude Code reports should agree. Where they do not, and no decision
explains it, the difference is told, and a request is asked as soon as one of the two would ask.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...model import Record
from ...schemas.claude import CanUseTool
from ...session import StartFacts
from .modes import BYPASS, DEFAULT, EXIT_PLAN, PLAN_MODES, QUESTION, READ_ONLY, TABLE, asked_mode, must_ask, ruling
from .output import Output

UNATTENDED = (
    "Nobody is there to approve this: the run is unattended, and nothing in it waits for an answer. It was refused. Go "
    "on without it, and say at the end what you could not do."
)
_NOT_NOW = {
    EXIT_PLAN: (
        "Nobody is there to approve this plan: the run is unattended, and nothing in it waits for an answer. Stay in "
        "plan mode, do not call ExitPlanMode again, and end with the whole plan as your answer."
    ),
    QUESTION: (
        "Nobody is there to answer: the run is unattended, and nothing in it waits for an answer. Decide yourself, and "
        "state your assumptions."
    ),
}
NO_QUESTIONS = "Questions are switched off in this chat. Decide yourself and state your assumptions."
_REFUSED = "Nobody could be asked, so this was refused:"


class Ruling(NamedTuple):
    """What becomes of a request. `reason` is what the agent is told with a deny."""

    answer: Literal["ask", "allow", "deny"]
    reason: str = ""


class _Change(Record, frozen=True):
    """A change of the mode that was sent and not yet answered: what to return to when it is refused."""

    asked: str
    expected: str | None


class Gate:
    """`asked` is the mode that the owner wants, `reported` the last that Claude Code named.

    `expected` is the mode that Claude Code should be in, None when it decides that itself (a plan was approved).
    `exited`: ExitPlanMode was approved in this turn. `before_plan` is the mode that leaving plan mode goes back to.
    """

    def __init__(self, output: Output, name: str) -> None:
        self._output = output
        self._name = name
        self._changes: list[_Change] = []
        self._told: str | None = None
        self._lent = ""  # a mode that came with the approval of a plan, for that turn
        self._auto: frozenset[str] = frozenset()
        self._questions = True
        self.launched_in_bypass = False
        self.attended = True
        self.asked = DEFAULT
        self.expected: str | None = DEFAULT
        self.reported = ""
        self.exited = False
        self.rearming = False  # plan mode was asked for again, and the answer is out
        self.seen_plan = False
        self.before_plan = DEFAULT
        self.refused: list[str] = []

    def begin(self, start: StartFacts) -> None:
        """Raises ValueError for a mode that does not exist."""
        settings = start.settings
        self.asked = asked_mode(settings)
        self.expected = TABLE[self.asked].cli
        # 2.1.197 then lets everything run in plan mode too (measured).
        self.launched_in_bypass = self.asked == BYPASS
        self.attended = settings.get("attended") is not False
        self._questions = settings.get("ask_questions") is not False
        self._auto = READ_ONLY.intersection(settings.get("auto_approve") or ())

    # ------------------------------------------------------------------------------------------------------- requests

    def ruling(self, request: CanUseTool) -> Ruling:
        """What becomes of a request, the plan gate apart (see `plan`)."""
        answers = {ruling(mode, request, exited=self.exited) for mode in self._modes()}
        if answers == {"allow"} or (request.tool_name in self._auto and not must_ask(request)):
            return Ruling("allow")
        if request.tool_name == QUESTION and not self._questions:
            return Ruling("deny", NO_QUESTIONS)
        if not self.attended:
            return Ruling("deny", _NOT_NOW.get(request.tool_name, UNATTENDED))
        return Ruling("ask")

    def _modes(self) -> list[str]:
        """The modes that have a say: the asked one, and the reported one where it is another than expected."""
        agreed = not self.reported or self.expected in (None, self.reported)
        return [self.asked] if agreed else [self.asked, self.reported]

    def refuse(self, what: str) -> None:
        """Note what was refused because nobody is there."""
        self.refused.append(what)

    def with_refused(self, answer: str) -> str:
        """An answer with the list of what was refused in its turn."""
        if not self.refused:
            return answer
        listed = "\n".join([_REFUSED, *(f"- {what}" for what in self.refused)])
        self.refused.clear()
        return f"{answer}\n\n{listed}".lstrip()

    # ---------------------------------------------------------------------------------------------------------- modes

    def report(self, mode: str) -> None:
        """Claude Code names the mode it is in."""
        mode = TABLE[mode].cli if mode in TABLE else mode
        first = not self.reported
        if mode == "plan":
            self.seen_plan = True
        else:
            self.before_plan = mode
        self.reported = mode
        if self.expected is None:
            self.expected = mode
        if mode == self.expected:
            self._told = None
        elif not self._changes and not self.rearming and self._told != mode and (first or mode != "plan"):
            self._told = mode  # an agent may go into plan mode by itself: that is stricter, and not told
            self._warn(mode)

    def _warn(self, mode: str) -> None:
        detail = {"asked": self.asked, "reported": mode}
        self._output.warning(
            f"{self._name} runs in permission mode {mode!r}, not in {self.asked!r}; the stricter of the two counts",
            detail,
        )

    def change(self, mode: str) -> None:
        """The owner wants another mode, and Claude Code is told so."""
        self._changes.append(_Change(self.asked, self.expected))
        self.asked, self.expected = mode, TABLE[mode].cli
        self._lent = ""

    def changed(self, *, ok: bool) -> None:
        """Claude Code answered the oldest change. One that it refused counts as never made."""
        if self._changes:
            before = self._changes.pop(0)
            if not ok and self._changes:
                self._changes[0] = before
            elif not ok:
                self.asked, self.expected = before.asked, before.expected

    def approved_exit(self, mode: str = "", *, lent: bool = False) -> None:
        """A plan was approved: Claude Code goes to `mode`, or back to where it came from. `lent`: for this turn."""
        self.exited = True
        self.expected = mode or None
        self._lent = mode if lent else ""

    @property
    def leaves_to(self) -> str:
        """Where an approved plan has to send Claude Code, "" for back to where it came from.

        It would go back to the mode that was lent with an earlier approval, which counted for its own turn only.
        """
        return DEFAULT if self.planning and self._lent and self._lent == self.before_plan else ""

    def granted_mode(self, mode: str) -> None:
        """A person chose a mode along with an approval."""
        self.expected = mode

    def turn_opens(self) -> None:
        """An approval counts for the turn that it was given in."""
        self.exited = False

    @property
    def planning(self) -> bool:
        """True in a chat that plans first."""
        return self.asked in PLAN_MODES
