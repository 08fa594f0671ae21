"""The plan gate: which text a person sees before a plan is approved, and the outline that may have to come first.

A plan is taken from the request, else from `get_plan` (2.1.332), else from the plan file, else it is the last long text
of the agent. After "outline first", ExitPlanMode is refused until the agent has written at least 200 characters that a
person can read, in one piece or as its plan; then the request is held open, with that text.

When the outline is there and the agent ends its turn instead of asking again, the outline is offered by itself. Such an
approval is kept for the next ExitPlanMode, over one turn boundary at most; and the agent is told to go on.
"""

from __future__ import annotations

import uuid
from typing import Literal, NamedTuple

from ...model import Choice, Content
from ...schemas.claude import CanUseTool, ControlResponse, JsonObject, decode_plan
from ...session import CallResult, ReadFile, StartFacts
from . import frames
from .gate import Gate
from .modes import TABLE
from .output import Output

OUTLINE_CHARS = 200
PLAN_FILE_BYTES = 256 * 1024
PATIENCE_S = 5.0  # for `get_plan` and the plan file, which take milliseconds

ASKED_OUTLINE = (
    "The user wants to read an outline before deciding. Stay in plan mode and write the plan as visible text now, in "
    "at least 15 lines: which files change and how, in which order, what could go wrong, and how it is checked. The "
    "user cannot see tool calls or the plan file. Then call ExitPlanMode again."
)
NO_OUTLINE_YET = (
    "The outline that the user asked for is not there yet. Write it as visible text first, in at least 15 lines: "
    "files, changes, order, risks. Text in tool calls is not visible. Only then call ExitPlanMode again."
)
WAIT = (
    "The user agrees with this plan in principle, but it must not be started yet. Stay in plan mode, change nothing, "
    "do not call ExitPlanMode again for now, and wait for the next message of the user."
)
DISCUSS = (
    "The user wants to talk about this plan before deciding. Ask what they think of it and answer in plain text. Do "
    "not call ExitPlanMode again before the user has said how to go on."
)
GO_ON = "I have read the outline and approve the plan. Call ExitPlanMode now and carry it out."

MESSAGES = {"outline": ASKED_OUTLINE, "wait": WAIT, "discuss": DISCUSS}
CHOICES = (
    Choice("accept_edits", "Approve, accept edits", style="success"),
    Choice("revise", "Revise…", decides="deny", wants_text=True),
    Choice("outline", "Outline first", decides="deny"),
    Choice("wait", "Approve, but wait", decides="deny"),
)
AFTER_OUTLINE = (Choice("discuss", "Let's discuss", decides="deny"),)

_RESUMES = (
    "Plan mode resumes when this reply ends, or after the background agents it starts have finished.",
    "Plan mode resumes with your next message.",
)
_CUT = "The plan file is longer than 256 KiB; this is its beginning."


class Waiting(NamedTuple):
    """A request whose plan is being looked for, with its input decoded, and when it came."""

    request: CanUseTool
    input: JsonObject
    asked_by: str
    since: float


class Found(NamedTuple):
    """A plan request that can be shown."""

    waiting: Waiting
    plan: str
    note: str = ""


class Plans:
    """The plans of one process. `pending`: an outline was asked for and is not decided on."""

    def __init__(self, output: Output, gate: Gate) -> None:
        self._output = output
        self._gate = gate
        self._process = ""
        self._folder = ""
        self._file = ""  # the plan file that the agent wrote last
        self._waiting: dict[str, Waiting] = {}  # by request id
        self._lookups: dict[str, str] = {}  # by id of the question that was asked for it: the request id
        self._written: list[str] = []
        self._before = ""  # the plan when the outline was asked for
        self._offered = 0  # how much text was there when the outline was offered by itself
        self._number = 0
        self._asked = 0
        self._approval: int | None = None  # turn boundaries that the stored approval outlives
        self.pending = False

    def begin(self, start: StartFacts) -> None:
        self._process = start.process_id
        config = str(start.settings.get("config_dir") or "").rstrip("/")
        self._folder = f"{config}/plans/" if config else ""

    # ------------------------------------------------------------------------------------------------- plan's text

    def wrote_file(self, input: JsonObject) -> None:
        """The agent writes or edits a file: perhaps its plan."""
        path = input.get("file_path")
        if isinstance(path, str) and self._is_plan(path):
            self._file = path

    def look_for(self, id: str, waiting: Waiting) -> Found | None:
        """The plan of a request; None when it is being asked for, and `answered` or `read` will tell."""
        self.wrote_file({"file_path": waiting.input.get("planFilePath")})
        if plan := plan_of(waiting.input):
            return Found(waiting, plan)
        self._waiting[id] = waiting
        self._asked += 1
        question = f"ut_get_plan_{self._asked}"
        self._lookups[question] = id
        self._output.writes.append(frames.control_request(question, "get_plan"))
        return None

    def answered(self, frame: ControlResponse) -> tuple[bool, tuple[str, Found] | None]:
        """An answer to `get_plan`; older releases refuse it. Whether it is one, and the request that can be shown."""
        if (id := self._lookups.pop(frame.response.request_id, None)) is None:
            return False, None
        if id not in self._waiting:
            return True, None
        told = decode_plan(frame.response.response)
        if told.content.strip():
            return True, (id, Found(self._waiting.pop(id), told.content.strip()))
        self.wrote_file({"file_path": told.path})
        if not self._file:
            return True, (id, self._without_plan(id))
        call = f"plan/{id}"
        self._lookups[call] = id
        self._output.call(ReadFile(call, self._file, PLAN_FILE_BYTES + 1, within=self._folder))
        return True, None

    def read(self, call_id: str, result: CallResult) -> tuple[str, Found] | None:
        """The plan file was read, or could not be."""
        id = self._lookups.pop(call_id, "")
        if id not in self._waiting:
            return None
        if result.error or not result.text.strip():
            return id, self._without_plan(id)
        note = _CUT if len(result.text.encode()) > PLAN_FILE_BYTES else ""
        return id, Found(self._waiting.pop(id), result.text.strip(), note)

    def give_up(self, id: str) -> Found | None:
        """Do without the plan of a request that is still being looked for."""
        return self._without_plan(id) if id in self._waiting else None

    def overdue(self, now: float) -> list[str]:
        """Requests that have waited long enough."""
        return [id for id, waiting in self._waiting.items() if now >= waiting.since + PATIENCE_S]

    @property
    def deadline(self) -> float | None:
        """When a request is shown without its plan, in epoch seconds."""
        return min((waiting.since + PATIENCE_S for waiting in self._waiting.values()), default=None)

    def withdraw(self, id: str) -> None:
        self._waiting.pop(id, None)

    def looking(self) -> list[str]:
        """Requests whose plan is being looked for."""
        return list(self._waiting)

    def _without_plan(self, id: str) -> Found:
        return Found(self._waiting.pop(id), "")

    def _is_plan(self, path: str) -> bool:
        return bool(self._folder) and path.startswith(self._folder) and ".." not in path.split("/")

    # --------------------------------------------------------------------------------------------------- the outline

    def wrote(self, text: str) -> None:
        """The main agent wrote something that a person can read."""
        if self.pending and text.strip():
            self._written.append(text.strip())

    def first_outline(self, plan: str) -> None:
        """A person wants an outline before deciding on `plan`."""
        self.pending, self._before = True, plan
        self._written.clear()
        self._offered = 0

    def settled(self) -> None:
        """A person decided on the plan, in whatever way."""
        self.pending = False
        self._written.clear()

    def outlined(self, plan: str) -> bool:
        """True when enough was written since the outline was asked for; a plan counts when it is another one."""
        written = max((len(text) for text in self._written), default=0)
        return max(written, len(plan) if plan != self._before else 0) >= OUTLINE_CHARS

    def body(self, plan: str) -> tuple[Content, ...]:
        """What a person reads: the outline where one was asked for, then the plan; nothing when there is neither."""
        outline = "\n\n".join(self._written) if self.pending else ""
        if outline and plan and plan not in outline:
            return Content("markdown", outline, "Outline"), Content("markdown", plan, "Plan")
        text = outline or plan
        return (Content("markdown", text),) if text else ()

    def offer(self) -> str:
        """At the end of a turn: the id under which the outline is offered by itself, "" when there is none, or no news.

        The agent has stopped after writing it.
        """
        length = sum(map(len, self._written))
        if not self.pending or not self.outlined("") or length == self._offered:
            return ""
        self._offered = length
        self._number += 1
        return f"outline-{self._number}"

    # -------------------------------------------------------------------------------------------------- the approval

    def approve_next(self) -> None:
        """The outline was approved by itself: the next ExitPlanMode needs no further question."""
        self.settled()
        self._approval = 1

    def go_on(self) -> None:
        """Tell the agent, which has ended its turn, that it may carry out what was approved."""
        name = f"{self._process}/outline/{self._number}"
        self._output.writes.append(frames.user_message(str(uuid.uuid5(uuid.NAMESPACE_OID, name)), GO_ON))

    def use_approval(self) -> bool:
        """True when ExitPlanMode was approved beforehand; it counts once."""
        stored, self._approval = self._approval, None
        return stored is not None

    def turn_opens(self) -> None:
        if self._approval is not None:
            self._approval = self._approval - 1 if self._approval > 0 else None

    # --------------------------------------------------------------------------------------------------- the caption

    def note(self, rearms: Literal["turn", "message", ""]) -> str:
        """What approving does here. `rearms`: when plan mode comes back by itself."""
        row = TABLE.get(self._gate.leaves_to or self._gate.before_plan)
        after = row.leaving if row is not None else ""
        sentence = "Approving ends plan mode"
        sentence += f": the agent carries the plan out and {after}." if after else " and lets the agent begin."
        resumes = {"turn": _RESUMES[0], "message": _RESUMES[1], "": ""}[rearms]
        return f"{sentence} {resumes}".rstrip()


def plan_of(input: JsonObject) -> str:
    """The plan in the input of an ExitPlanMode, "" when there is none."""
    plan = input.get("plan")
    return plan.strip() if isinstance(plan, str) else ""
