"""What Claude Code schedules inside its own session: cron jobs and wake-ups, which come as turns nobody asked for.

They are seen by hooks with exact tool names, registered with the greeting. So far they are recorded and shown, and the
hooks answer that they have no opinion: the job is the CLI's and goes on. It fires while the process lives, and a
resumed session brings it back (claude-protocol §9), so an open job is a wait, which keeps the process.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ...model import Wait
from ...schemas.claude import CommandLifecycle, ControlRequest, HookCallback, ToolResult, decode_object
from . import frames
from .actions import shown
from .output import Output

HOOKS = {
    "CronCreate": "ut_loop_cron_create",
    "CronDelete": "ut_loop_cron_delete",
    "ScheduleWakeup": "ut_loop_wakeup",
}
_HOOK_TIMEOUT_S = 60  # one that is not answered in time ends the call (claude-protocol §5)
_JOB = re.compile(r"\bjob ([0-9a-f]{6,})\b")
_IN_SECONDS = re.compile(r"\(in (\d+)s\)")
_LATE_S = 120.0  # a wake-up that has not come by then will not
_LONGEST_TITLE = 200


def hooks() -> dict[str, Any]:
    """The hooks of the greeting. 2.1.197 passes over `onFailure`."""
    return {
        "PreToolUse": [
            {"matcher": tool, "hookCallbackIds": [id], "timeout": _HOOK_TIMEOUT_S, "onFailure": "block"}
            for tool, id in HOOKS.items()
        ]
    }


class Job(NamedTuple):
    """`cron` is a cron expression, "" for a wake-up at `until` (epoch seconds)."""

    cron: str
    prompt: str
    recurring: bool
    since: float
    until: float | None = None


class Schedules:
    """The jobs of one session, by their ids."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._jobs: dict[str, Job] = {}
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {}  # hook and input, by tool call

    def serve(self, frame: ControlRequest, request: HookCallback) -> bool:
        """Answer a hook of ours. False when it is none."""
        if request.callback_id not in HOOKS.values():
            return False
        input = decode_object(request.input)
        call, arguments = request.tool_use_id or input.get("tool_use_id"), input.get("tool_input")
        if isinstance(call, str) and isinstance(arguments, dict):
            self.calls[call] = request.callback_id, arguments
        self._output.writes.append(frames.success(frame.request_id, {}))
        return True

    def returned(self, result: ToolResult, now: float) -> None:
        """A tool call has its result: one of those that a hook saw changed what is scheduled, unless it failed."""
        hook, input = self.calls.pop(result.tool_use_id, ("", {}))
        if not hook or result.is_error:
            return
        text = shown(result.content)
        if hook == HOOKS["CronCreate"] and (found := _JOB.search(text)):
            job = Job(str(input.get("cron") or ""), str(input.get("prompt") or ""), input.get("recurring", True), now)
            self._add(found[1], job)
        elif hook == HOOKS["CronDelete"]:
            self._remove(str(input.get("id") or ""), "Schedule removed")
        elif hook == HOOKS["ScheduleWakeup"] and (found := _IN_SECONDS.search(text)):
            self._add(
                "wakeup",
                Job("", str(input.get("prompt") or input.get("reason") or ""), False, now, now + int(found[1])),
            )

    def fired(self, frame: CommandLifecycle) -> None:
        """A wake-up came (2.1.332)."""
        if frame.wakeup_source == "loop_wakeup" and frame.state == "started":
            self._jobs.pop("wakeup", None)

    def turn_began(self) -> None:
        """A schedule opened a turn. Which one is not told; a job that fires once is over."""
        once = next((id for id, job in self._jobs.items() if job.cron and not job.recurring), None)
        if once is not None:
            del self._jobs[once]

    def waits(self, now: float) -> list[Wait]:
        """The open jobs; one that must have come by now is forgotten."""
        if not self._jobs:
            return []
        for id in [id for id, job in self._jobs.items() if job.until is not None and job.until + _LATE_S < now]:
            del self._jobs[id]
        return [Wait("wakeup", job.since, job.until, _label(job), id) for id, job in self._jobs.items()]

    def _add(self, id: str, job: Job) -> None:
        self._jobs[id] = job
        title = f"Scheduled inside Claude Code: {_label(job)}"
        facts = {"id": id, "cron": job.cron, "prompt": job.prompt, "recurring": job.recurring, "until": job.until}
        self._output.note(self._output.new_id("schedule"), "note", title, detail={"schedule": facts})

    def _remove(self, id: str, words: str) -> None:
        job = self._jobs.pop(id, None)
        if job is not None:
            facts = {"id": id, "removed": True}
            title = f"{words}: {_label(job)}"
            self._output.note(self._output.new_id("schedule"), "note", title, detail={"schedule": facts})


def _label(job: Job) -> str:
    prompt = " ".join(job.prompt.split())
    when = job.cron or "once"
    text = f"{when} · {prompt}" if prompt else when
    return text if len(text) <= _LONGEST_TITLE else text[: _LONGEST_TITLE - 1] + "…"
