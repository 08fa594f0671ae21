"""The tool calls that are under way."""

from __future__ import annotations

from typing import NamedTuple

from ...model import Action, ActionEvent, Wait
from ...schemas import pi as schema
from ..output import Output
from ..tool_actions import tool_call

_LONGEST_MESSAGE = 500


class Steps:
    """Tool calls by id, in the order of their start."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._open: dict[str, _Open] = {}
        self.root = ""

    def start(self, frame: schema.ToolStart, now: float) -> None:
        if frame.tool_call_id in self._open:
            return
        kind, title, detail = tool_call(frame.tool_name, frame.args, self.root)
        step = self._open[frame.tool_call_id] = _Open(Action(frame.tool_call_id, kind, title, detail), now)
        self._output.action(ActionEvent(self._output.engine, step.action, "started"))

    def finish(self, frame: schema.ToolEnd) -> None:
        """An end without a start is a call that never ran, of a tool that does not exist."""
        step = self._open.pop(frame.tool_call_id, None)
        action = step.action if step is not None else Action(frame.tool_call_id, "tool", frame.tool_name or "tool")
        message = shortened(schema.result_text(frame.result)) if frame.is_error else ""
        self._output.action(ActionEvent(self._output.engine, action, "completed", not frame.is_error, message))

    def close(self) -> None:
        """The turn is over: what was under way was cut."""
        for step in self._open.values():
            self._output.action(ActionEvent(self._output.engine, step.action, "completed", False))
        self._open.clear()

    def waits(self, asked: frozenset[str]) -> list[Wait]:
        """Tools at work; those in `asked` wait for a person instead."""
        return [
            Wait("tool", step.since, None, step.action.title, id) for id, step in self._open.items() if id not in asked
        ]


class _Open(NamedTuple):
    action: Action
    since: float


def shortened(text: str) -> str:
    """The end of a text, where a command says what went wrong."""
    text = text.strip()
    return text if len(text) <= _LONGEST_MESSAGE else "…" + text[1 - _LONGEST_MESSAGE :]
