"""The steps of a turn: tool calls, the plan and the thoughts of the agent, as actions.

A tool call is known by its id. Some agents change or ask about one that they never announced: it is taken as new.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec

from ...model import Action, ActionEvent, ActionKind, Phase, Wait
from ...schemas.acp import Diff, Plan, ToolCall, ToolContent, Wrapped, blocks, text_of
from ...text.diff import FileDiff, file_diff
from ..claude.output import Output

_LONGEST_TITLE = 1_000
_LONGEST_FACT = 4_000
_LONGEST_MESSAGE = 2_000

_KINDS: dict[str, ActionKind] = {
    "read": "tool",
    "edit": "file_change",
    "delete": "file_change",
    "move": "file_change",
    "search": "tool",
    "execute": "command",
    "think": "note",
    "fetch": "web_search",
    "switch_mode": "note",
}
_VERBS = {"read": "Read", "edit": "Edit", "delete": "Delete", "move": "Move"}
_FENCE = re.compile(r"\A```\w*\n|\n```\Z")
_OVER = ("completed", "failed")


class Step:
    """One tool call: what is known of it so far. `id` is that of its action."""

    def __init__(self, id: str, since: float) -> None:
        self.id = id
        self.since = since
        self.call = ToolCall()
        self.shown: Action | None = None
        self.over = False

    def learn(self, change: ToolCall) -> None:
        """Take over what `change` tells; what it leaves out stays."""
        told = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not None}
        if told.get("title") == "":
            del told["title"]
        if self.call.raw_input and told.get("raw_input") in ({}, ""):
            del told["raw_input"]
        known = {name: getattr(self.call, name) for name in ToolCall.__struct_fields__}
        self.call = ToolCall(**{**known, **{name: told[name] for name in known if name in told}})

    def action(self, root: str) -> Action:
        call = self.call
        kind = _KINDS.get(call.kind or "", "tool")
        detail: dict[str, Any] = {"tool": call.kind or "tool"}
        if command := command_of(call):
            detail["command"] = command[:_LONGEST_FACT]
        if path := path_of(call):
            detail["path"] = path
        for diff in diffs_of(call):
            detail["added"] = detail.get("added", 0) + diff.added
            detail["removed"] = detail.get("removed", 0) + diff.removed
        title = call.title or ""
        if kind == "command":
            title = command or title
        elif kind == "file_change" and path:
            detail["verb"] = _VERBS[call.kind or "edit"]
            title = _relative(path, root)
        title = " ".join(title.split()) or _VERBS.get(call.kind or "", "") or "Tool"
        return Action(self.id, kind, title[:_LONGEST_TITLE], detail)


class Steps:
    """The steps of one session."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._open: dict[str, Step] = {}  # by the agent's id
        self._over: dict[str, int] = {}  # ids that were used up, and how often
        self._plan: Action | None = None
        self._plans = 0
        self._thought = ""
        self._thoughts = 0
        self.root = ""

    # -------------------------------------------------------------------------------------------------- tool calls

    def call(self, change: ToolCall, now: float, *, new: bool) -> Step | None:
        """A tool call was announced or has changed. None for a change of one that is over."""
        self.end_thought()
        id = change.tool_call_id
        step = self._open.get(id)
        if step is None:
            if id in self._over and not new:
                return None
            number = self._over.get(id, 0)
            step = self._open[id] = Step(f"{id}#{number + 1}" if number else id or "tool", now)
        step.learn(change)
        self._show(step, "started" if step.shown is None else "updated")
        if step.call.status in _OVER:
            self._end(id, step.call.status == "completed", outcome_text(step.call))
        return step

    def _show(self, step: Step, phase: Phase) -> None:
        action = step.action(self.root)
        if action != step.shown:
            step.shown = action
            self._output.action(ActionEvent(self._output.engine, action, phase))

    def _end(self, id: str, ok: bool, message: str) -> None:
        step = self._open.pop(id)
        step.over = True
        self._over[id] = self._over.get(id, 0) + 1
        assert step.shown is not None
        self._output.action(ActionEvent(self._output.engine, step.shown, "completed", ok, message))

    # ------------------------------------------------------------------------------------------ plans and thoughts

    def plan(self, plan: Plan) -> None:
        self.end_thought()
        entries = [entry for entry in plan.entries if entry.content.strip()]
        done = sum(entry.status == "completed" for entry in entries)
        current = next((entry.content for entry in entries if entry.status == "in_progress"), "")
        title = " ".join(f"Plan {done}/{len(entries)} {current}".split())[:_LONGEST_TITLE]
        todos = [{"content": entry.content[:_LONGEST_FACT], "status": entry.status} for entry in entries]
        phase: Phase = "updated"
        if self._plan is None:
            self._plans += 1
            phase = "started"
        self._plan = Action(f"plan-{self._plans}", "note", title, {"tool": "plan", "todos": todos})
        self._output.action(ActionEvent(self._output.engine, self._plan, phase))
        if entries and done == len(entries):
            self._end_plan(True)

    def _end_plan(self, ok: bool) -> None:
        plan, self._plan = self._plan, None
        if plan is not None:
            self._output.action(ActionEvent(self._output.engine, plan, "completed", ok))

    def think(self, text: str) -> None:
        self._thought += text

    def end_thought(self) -> None:
        """The agent does something else now: what it thought is one note."""
        text, self._thought = self._thought, ""
        lines = [line.strip(" *#") for line in text.splitlines() if line.strip(" *#")]
        if lines:
            self._thoughts += 1
            detail = {"tool": "think", "text": text.strip()[:_LONGEST_FACT]}
            self._output.note(f"thought-{self._thoughts}", "note", lines[0][:200], detail=detail)

    # ------------------------------------------------------------------------------------------------------- the rest

    def close(self) -> None:
        """The turn is over: what is open was cut off."""
        self.end_thought()
        for id in list(self._open):
            self._end(id, False, "It did not say how it ended.")
        self._end_plan(True)

    def waits(self, asked: frozenset[str]) -> list[Wait]:
        """Tools at work; those in `asked` (ids of actions) wait for a person instead."""
        return [
            Wait("tool", step.since, None, step.shown.title if step.shown else "", step.id)
            for step in self._open.values()
            if step.id not in asked
        ]


# -------------------------------------------------------------------------------------------------- facts of a call


def command_of(call: ToolCall) -> str:
    """The whole command of a call that runs one."""
    given = call.raw_input.get("command") if isinstance(call.raw_input, dict) else None
    if isinstance(given, str):
        return given.strip()
    if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        shell = len(given) == 3 and given[1] in ("-c", "-lc")
        return given[2].strip() if shell else shlex.join(given)
    return (call.title or "").strip() if call.kind == "execute" and call.raw_input is None else ""


def path_of(call: ToolCall) -> str:
    """The file that a call is about."""
    for item in blocks(call.content):
        if isinstance(item, Diff) and item.path:
            return item.path
    if call.kind != "execute":
        for location in call.locations or ():
            if location.path:
                return location.path
    return ""


def diffs_of(call: ToolCall) -> list[FileDiff]:
    """The changes of files that are told."""
    return [
        file_diff(item.path, item.old_text or "", item.new_text)
        for item in blocks(call.content)
        if isinstance(item, Diff)
    ]


def texts_of(content: list[ToolContent] | None) -> list[str]:
    """The texts in the content of a call."""
    found = [text_of(item.content) for item in blocks(content) if isinstance(item, Wrapped)]
    return [text for text in found if text.strip()]


def outcome_text(call: ToolCall) -> str:
    """The beginning of what a call gave."""
    text = "\n".join(texts_of(call.content)).strip()
    text = _FENCE.sub("", text)
    if not text and isinstance(call.raw_output, str):
        text = call.raw_output
    if not text and isinstance(call.raw_output, dict):
        told = (call.raw_output.get(name) for name in ("error", "output", "aggregated_output", "stderr"))
        text = next((value for value in told if isinstance(value, str) and value), "")
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def shown_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _relative(path: str, root: str) -> str:
    return path[len(root) + 1 :] if root and path.startswith(root + "/") else path
