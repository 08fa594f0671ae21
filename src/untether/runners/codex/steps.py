"""The steps that are under way, and what goes on behind a turn."""

from __future__ import annotations

import msgspec

from ...model import Action, ActionEvent, Wait
from ...schemas.codex_items import AnyItem, CommandExecution, FileChange, FileUpdate, McpToolCall
from ..output import Output
from .items import Shown

_GOES_ON = "Goes on in the background."


class Open(msgspec.Struct, frozen=True, gc=False):
    """A step that has begun. `thread` is the thread it is in, `parent` the sub-agent step that it belongs to."""

    action: Action
    thread: str
    parent: str
    since: float
    item: AnyItem | None


class Steps:
    """Steps by item id, in the order of their start. They begin and end only while a run or turn is open.

    A terminal that the model left running when it ended its turn goes on in the background (`thread/
    backgroundTerminals`); its item ends when it does.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self.open: dict[str, Open] = {}
        self._background: dict[str, Wait] = {}
        self._terminals: dict[str, str] = {}

    def start(
        self, id: str, shown: Shown, now: float, *, thread: str = "", parent: str = "", item: AnyItem | None = None
    ) -> None:
        if id in self.open:
            return
        action = Action(id, shown.kind, shown.title, shown.detail)
        self.open[id] = Open(action, thread, parent, now, item)
        self._event(self.open[id], "started")

    def update(self, id: str, message: str) -> None:
        step = self.open.get(id)
        if step is not None and message:
            self._output.action(ActionEvent(self._output.engine, step.action, "updated", None, message, step.parent))

    def finish(self, id: str, shown: Shown) -> bool:
        """The step is over. False when none of this id is open: its turn is gone, or it never began."""
        self._background.pop(id, None)
        step = self.open.pop(id, None)
        if step is None:
            return False
        action = Action(id, shown.kind, shown.title, shown.detail)
        event = ActionEvent(self._output.engine, action, "completed", shown.ok, shown.message, step.parent)
        self._output.action(event)
        return True

    def close(self, *, cut: bool, now: float) -> None:
        """The turn is over. `cut`: it did not come to its end, so what was under way was ended too."""
        for id, step in self.open.items():
            item = step.item
            terminal = item.process_id if isinstance(item, CommandExecution) and not cut else None
            goes_on = terminal is not None
            if terminal is not None:
                self._terminals[id] = terminal
                self._background[id] = Wait("background", now, None, step.action.title, id)
            self._output.action(
                ActionEvent(
                    self._output.engine,
                    step.action,
                    "completed",
                    None if goes_on or (step.parent and not cut) else False,
                    _GOES_ON if goes_on else "",
                    step.parent,
                )
            )
        self.open.clear()

    def forget_background(self) -> None:
        """The background terminals were asked to end."""
        self._background.clear()

    def terminal(self, id: str) -> str | None:
        """The process id, as Codex counts them, of a terminal in the background."""
        return self._terminals.get(id) if id in self._background else None

    def changes(self, id: str) -> tuple[FileUpdate, ...]:
        """The file changes of a patch, told when its item began."""
        step = self.open.get(id)
        return step.item.changes if step is not None and isinstance(step.item, FileChange) else ()

    def tool_of(self, server: str) -> tuple[str, str]:
        """The tool of an MCP server that was called last and is under way, and its item; both "" for none."""
        for id, step in reversed(self.open.items()):
            if isinstance(step.item, McpToolCall) and step.item.server == server:
                return step.item.tool, id
        return "", ""

    def waits(self, asked: frozenset[str]) -> list[Wait]:
        """Tools at work for the main thread; those in `asked` wait for a person instead."""
        return [
            Wait("tool", step.since, None, step.action.title, id)
            for id, step in self.open.items()
            if id not in asked and not step.parent and step.action.kind != "note"
        ]

    def background(self) -> list[Wait]:
        return list(self._background.values())

    def _event(self, step: Open, phase: str) -> None:
        self._output.action(ActionEvent(self._output.engine, step.action, phase, None, "", step.parent))  # type: ignore[arg-type]
