"""The agent's steps: tool calls and their results become action events."""

from __future__ import annotations

import msgspec

from ...model import Action, ActionEvent, Wait
from ...schemas.claude import ResultPart, ToolResult, ToolUse
from ..tool_actions import tool_call
from .output import Output

_LONGEST_MESSAGE = 500
_GOES_ON = "Goes on in the background."


class Open(msgspec.Struct, frozen=True, gc=False):
    """A step that is under way; `parent` is the sub-agent step it belongs to."""

    action: Action
    parent: str
    since: float
    call: ToolUse

    @property
    def asked_behind(self) -> bool:
        """True when the agent wants it to go on in the background."""
        return self.call.input.get("run_in_background") is True


class Actions:
    """The steps that are under way, by tool call, in the order of their start.

    They start and end only while a run or turn is open, so that their events need not be held back.
    """

    def __init__(self, output: Output) -> None:
        self._events = output.events
        self._engine = output.engine
        self.root = ""
        self.open: dict[str, Open] = {}

    def start(self, call: ToolUse, parent: str, now: float) -> None:
        id = call.id
        if id in self.open:
            return
        kind, title, detail = tool_call(call.name, call.input, self.root)
        action = Action(id, kind, title, detail)
        self.open[id] = Open(action, parent, now, call)
        self._events.append(ActionEvent(self._engine, action, "started", None, "", parent))

    def finish(self, result: ToolResult, goes_on: bool) -> None:
        """A result that belongs to no open step is passed over: its turn is gone. `goes_on`: in the background."""
        step = self.open.pop(result.tool_use_id, None)
        if step is not None:
            content = result.content
            if goes_on:
                message = _GOES_ON
            elif content.__class__ is str and len(content) <= _LONGEST_MESSAGE:
                message = content
            else:
                message = shown(content)
            self._events.append(
                ActionEvent(self._engine, step.action, "completed", not result.is_error, message, step.parent)
            )

    def progress(self, id: str, message: str) -> None:
        """What a sub-agent does right now."""
        step = self.open.get(id)
        if step is not None and message:
            self._events.append(ActionEvent(self._engine, step.action, "updated", None, message, step.parent))

    def close(self) -> None:
        """The turn is over: its open steps were cut off, those of background agents go on where nobody looks."""
        for step in self.open.values():
            cut = not step.parent or step.parent in self.open
            message = "" if cut else _GOES_ON
            self._events.append(
                ActionEvent(self._engine, step.action, "completed", False if cut else None, message, step.parent)
            )
        self.open.clear()

    def main_is_busy(self) -> bool:
        """True when the main agent waits for a tool."""
        return any(not step.parent for step in self.open.values())

    def waits(self, asked: frozenset[str]) -> list[Wait]:
        """Tools at work for the main agent; those in `asked` wait for a person instead."""
        return [
            Wait("tool", step.since, None, step.action.title, id)
            for id, step in self.open.items()
            if id not in asked and (not step.parent or step.parent in self.open)
        ]


def shown(content: str | list[ResultPart] | None) -> str:
    """The beginning of a tool's output, as text."""
    if content is None:
        return ""
    if not isinstance(content, str):
        content = "\n".join(part.text for part in content if part.text)
    return content if len(content) <= _LONGEST_MESSAGE else content[: _LONGEST_MESSAGE - 1] + "…"
