"""Plan mode again after an approved plan, in a chat that plans first.

Approving a plan takes Claude Code out of plan mode for good. So plan mode is set again: in a `plan` chat when a turn
closes, before its closing event, and before a message to an idle session if it is still needed; in a `plan-auto` chat
only before such a message. One request at a time. One that is refused closes the process once it is idle, and the next
message resumes the session, in plan mode from its start.

Agents in the background take on the mode of the session at once (claude-protocol §5), so as long as agents work that
were started in the turn of the approval, plan mode is left alone: until they end, make no progress for a while, or
have taken too long. A wake-up that the CLI begins within some 20 ms of a result makes its first model call unplanned.
"""

from __future__ import annotations

from typing import Any, Literal

from ...schemas.claude import ControlResponse, decode_object
from ...session import StartFacts
from . import frames
from .background import Background
from .gate import Gate
from .output import Output

DEFERRED = "Not in plan mode: background agents of the approved plan are still at work"
_AGENTS = frozenset({"local_agent", "local_workflow", "remote_agent"})
_HOLD_S = 1_800.0
_LONGEST_S = 14_400.0


class Rearm:
    """`deferred` while agents keep plan mode from coming back; `refused` when Claude Code would not take it."""

    def __init__(self, output: Output, gate: Gate, background: Background, name: str) -> None:
        self._output = output
        self._gate = gate
        self._background = background
        self._name = name
        self._enabled = True
        self._hold = _HOLD_S
        self._longest = _LONGEST_S
        self._number = 0
        self._in_flight = ""
        self._started: dict[str, None] = {}  # agents of this turn
        self._held_by: dict[str, None] = {}  # agents that the re-arm is deferred for
        self._since = 0.0
        self._progress = 0.0
        self.deferred = False
        self.refused = False

    def begin(self, start: StartFacts) -> None:
        settings = start.settings
        self._enabled = settings.get("rearm_plan_mode") is not False and settings.get("interactive") is not False
        self._hold = _seconds(settings.get("post_result_bg_max_hold"), _HOLD_S)
        self._longest = _seconds(settings.get("live_session_max_s"), _LONGEST_S)

    def comes_back(self) -> Literal["turn", "message", ""]:
        """When plan mode will be set again after an approval."""
        if not self._enabled or not self._gate.planning:
            return ""
        return "turn" if self._gate.asked == "plan" else "message"

    @property
    def needed(self) -> bool:
        """True when the session was in plan mode and should be again."""
        gate = self._gate
        return self._enabled and gate.planning and gate.seen_plan and gate.reported != "plan"

    # --------------------------------------------------------------------------------------------- what is going on

    def turn_opens(self, now: float) -> None:
        self._started.clear()
        self._settle(now)

    def agent_started(self, task_id: str, task_type: str) -> None:
        if task_type in _AGENTS:
            self._started[task_id] = None

    def agent_acted(self, task_id: str, now: float) -> None:
        if task_id in self._held_by:
            self._progress = now

    def background_changed(self, now: float, session: str, *, idle: bool) -> None:
        """Background work began or ended."""
        if self.deferred and self._settle(now) and idle and self._gate.asked == "plan":
            self._send(session)

    def turn_closes(self, now: float, session: str) -> None:
        """Before the closing event. In the turn of the approval its agents may defer it."""
        if self._gate.exited and self.needed and not self.deferred:
            self._held_by = {id: None for id in self._started if self._at_work(id)}
            if self._held_by:
                self.deferred, self._since, self._progress = True, now, now
        if self._settle(now) and self._gate.asked == "plan":
            self._send(session)

    def before_message(self, now: float, session: str) -> None:
        """A message comes to a session that is idle."""
        if self._settle(now):
            self._send(session)

    def tick(self, now: float, session: str, *, idle: bool) -> None:
        if self.deferred and idle and self._gate.asked == "plan" and self._settle(now):
            self._send(session)

    @property
    def deadline(self) -> float | None:
        """When a deferral ends by itself, in epoch seconds."""
        return min(self._progress + self._hold, self._since + self._longest) if self.deferred else None

    # ------------------------------------------------------------------------------------------------------ requests

    def answered(self, frame: ControlResponse) -> bool:
        """Claude Code answered; False when this is no answer to a re-arm."""
        response = frame.response
        if not self._in_flight or response.request_id != self._in_flight:
            return False
        self._in_flight = ""
        self._gate.rearming = False
        if response.subtype == "error":
            self.refused = True
            self._output.warning(
                f"{self._name} did not go back to plan mode; the next message continues in a new process",
                {"request": "set_permission_mode", "error": response.error or ""},
            )
            return True
        mode = decode_object(response.response).get("mode")
        self._gate.report(mode if isinstance(mode, str) and mode else "plan")
        return True

    def _settle(self, now: float) -> bool:
        """End a deferral that has no reason any more. True when plan mode may be set now."""
        deadline = self.deadline
        if deadline is not None and (now >= deadline or not any(self._at_work(id) for id in self._held_by)):
            self.deferred = False
            self._held_by.clear()
        return not self.deferred

    def _at_work(self, task_id: str) -> bool:
        task = self._background.alive.get(task_id)
        return task is not None and task.behind

    def _send(self, session: str) -> None:
        if not self.needed or self._in_flight or self.refused:
            return
        self._number += 1
        self._in_flight = f"ut_plan_rearm_{session}_{self._number}"
        self._gate.expected, self._gate.rearming = "plan", True
        self._output.writes.append(frames.control_request(self._in_flight, "set_permission_mode", mode="plan"))


def _seconds(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else default
