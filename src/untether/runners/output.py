"""What a step of a session brings about, gathered while a line or an input is worked off.

It keeps the run contract: nothing comes before the session is known, and the agent's steps are shown only while a run
or a turn is open. What comes too early is held until then.
"""

from __future__ import annotations

from typing import Any, Literal

from ..model import Action, ActionEvent, ActionKind, EngineId, Phase, PromptEvent, UntetherEvent
from ..session import Step

NOTHING = Step()

_MOST_HELD = 100


class Output:
    """Events, lines and wishes of the step at hand."""

    def __init__(self, engine: EngineId) -> None:
        self.engine = engine
        self.events: list[UntetherEvent] = []
        self.writes: list[bytes] = []
        self._close_stdin = False
        self._stop = False
        self._begun = False
        self._showing = False
        self._held: list[UntetherEvent] = []
        self._numbers: dict[str, int] = {}

    def take(self) -> Step:
        """The step so far; the next one begins empty."""
        if not (self.events or self.writes or self._close_stdin or self._stop):
            return NOTHING
        step = Step(tuple(self.events), tuple(self.writes), close_stdin=self._close_stdin, stop=self._stop)
        self.events.clear()
        self.writes.clear()
        self._close_stdin = self._stop = False
        return step

    def close_stdin(self) -> None:
        """Nothing more will be said to the agent: let it end."""
        self._close_stdin = True

    def stop(self) -> None:
        """The process is of no use any more: have it ended."""
        self._stop = True

    def show(self) -> None:
        """A run or turn is open: what was held comes first."""
        self._begun = self._showing = True
        self.events.extend(self._held)
        self._held.clear()

    def hide(self) -> None:
        """The run or turn is over."""
        self._showing = False

    def prompt(self, id: str, state: Literal["taken", "handed_back", "withdrawn"]) -> None:
        self._put(PromptEvent(self.engine, id, state), at_once=self._begun or state != "taken")

    def action(self, event: ActionEvent) -> None:
        self._put(event, at_once=self._showing)

    def note(
        self,
        id: str,
        kind: ActionKind,
        title: str,
        *,
        phase: Phase = "completed",
        ok: bool = True,
        detail: dict[str, Any] | None = None,
        message: str = "",
        parent: str = "",
    ) -> None:
        """A step that is no tool: a note or a warning, complete at once unless `phase` says otherwise."""
        action = Action(id, kind, title, detail or {})
        self.action(ActionEvent(self.engine, action, phase, ok if phase == "completed" else None, message, parent))

    def warning(self, title: str, detail: dict[str, Any] | None = None) -> None:
        """Something went wrong, and the run goes on."""
        self.note(self.new_id("warning"), "warning", title, ok=False, detail=detail)

    def new_id(self, name: str) -> str:
        """An id for a step that has none of its own, unique within the process."""
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        return f"{name}-{number}"

    def _put(self, event: UntetherEvent, *, at_once: bool) -> None:
        if at_once:
            self.events.append(event)
        elif len(self._held) < _MOST_HELD:
            self._held.append(event)
