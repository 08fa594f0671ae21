"""Permission modes, and the one table of what is answered without asking.

Claude Code decides by itself what is allowed in a mode; the table says what becomes of the requests that it sends all
the same (claude-protocol §5, claude-protocol-332 §5). `plan-auto` is ours: Claude Code gets it as `plan`. `manual` is
the newer name of `default`, which 2.1.197 does not know and 2.1.332 still takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ...schemas.claude import CanUseTool

Answer = Literal["ask", "allow"]

DEFAULT = "default"
BYPASS = "bypassPermissions"
EXIT_PLAN = "ExitPlanMode"
QUESTION = "AskUserQuestion"


class Mode(NamedTuple):
    """One row of the table.

    `cli` is the mode's name for Claude Code. A request is answered by `tool`, and by `after_exit` once ExitPlanMode was
    approved in the same turn; ExitPlanMode itself by `exit_plan`. `leaving` says what this mode means for a person who
    approves a plan and so comes back to it.
    """

    cli: str
    tool: Answer
    after_exit: Answer
    exit_plan: Answer
    leaving: str = ""


_ASKS = "asks before what changes something"

TABLE: Mapping[str, Mode] = {
    "default": Mode("default", "ask", "ask", "ask", _ASKS),
    "manual": Mode("default", "ask", "ask", "ask", _ASKS),
    "plan": Mode("plan", "ask", "ask", "ask"),
    "plan-auto": Mode("plan", "ask", "allow", "allow"),
    "acceptEdits": Mode("acceptEdits", "ask", "ask", "ask", "edits files of the project without asking"),
    "auto": Mode("auto", "allow", "allow", "ask", "lets an automatic check decide what may run"),
    "dontAsk": Mode("dontAsk", "allow", "allow", "ask", "leaves out what needs a permission"),
    BYPASS: Mode(BYPASS, "allow", "allow", "ask", "asks for nothing more"),
}
PLAN_MODES = ("plan", "plan-auto")

# Tools that change nothing; the owner may have them approved without asking.
READ_ONLY = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "WebSearch"})

# Why Claude Code asks although it need not, in every mode: a rule of the user's own ("ask"), a hook of the user's own,
# or an automatic check that has refused three times in a row.
_ASKED_FOR = frozenset({"rule", "hook", "classifier"})


def must_ask(request: CanUseTool) -> bool:
    """True for what no mode answers without asking: a person is wanted, whatever the mode."""
    return (
        request.tool_name == QUESTION
        or request.requires_user_interaction is True
        or request.matched_ask_rule is not None
        or request.decision_reason_type in _ASKED_FOR
    )


def ruling(mode: str, request: CanUseTool, *, exited: bool) -> Answer:
    """What becomes of a request in a mode; a mode that is not in the table asks. `exited`: see `Mode.after_exit`."""
    row = TABLE.get(mode, TABLE[DEFAULT])
    if request.tool_name == EXIT_PLAN:
        return row.exit_plan
    if must_ask(request):
        return "ask"
    return row.after_exit if exited else row.tool


def asked_mode(settings: Mapping[str, Any]) -> str:
    """The mode that these settings ask for. `dangerously_skip_permissions` counts when no other mode is named.

    Raises ValueError for a mode that does not exist: 2.1.197 would take any word for one (claude-protocol §1).
    """
    mode = str(settings.get("permission_mode") or DEFAULT)
    if mode not in TABLE:
        raise ValueError(f"there is no permission mode {mode!r}; there are {', '.join(TABLE)}")
    return BYPASS if mode == DEFAULT and settings.get("dangerously_skip_permissions") else mode
