"""What a step brings about, gathered while a line or an input is worked off.

It keeps the run contract: nothing comes before the session is known, and the agent's steps are shown only while a run
or a turn is open. What comes too early is held until then.
"""

from __future__ import annotations

from typing import Any, Literal

from ...model import Action, ActionEvent, ActionKind, EngineId, Phase, PromptEvent, UntetherEvent
from ...session import Call, Step

NOTHING = Step()

_MOST_HELD = 100


class Output:
    """Events, lines and wishes of the step at hand."""

    def __init__(self, engine: EngineId) -> None:
        self.engine = engine
        self.events: list[UntetherEvent] = []
        self.writes: list[bytes] = []
        self.wishes = False  # something of what follows was asked for: one look at every line instead of four
        self._calls: list[Call] = []
        self._deadline: float | None = None
        self._close_stdin = False
        self._stop = False
        self._begun = False
        self._showing = False
        self._held: list[UntetherEvent] = []
        self._numbers: dict[str, int] = {}

    def take(self) -> Step:
        """The step so far; the next one begins empty."""
        events = tuple(self.events)
        self.events.clear()
        step = Step(
            events,
            tuple(self.writes),
            tuple(self._calls),
            self._deadline,
            close_stdin=self._close_stdin,
            stop=self._stop,
        )
        self.writes.clear()
        self._calls.clear()
        self._close_stdin = self._stop = False
        self.wishes = self._deadline is not None
        return NOTHING if step.empty and step.deadline is None else step

    def call(self, call: Call) -> None:
        """Ask for an outside fact."""
        self._calls.append(call)
        self.wishes = True

    def tick_at(self, deadline: float | None) -> None:
        """The session wants a tick then, in epoch seconds; it is told with every step until it changes."""
        self._deadline = deadline
        self.wishes = self.wishes or deadline is not None

    def close_stdin(self) -> None:
        """Nothing more will be said to the agent: let it end."""
        self.wishes = self._close_stdin = True

    def stop(self) -> None:
        """The process is of no use any more: have it ended."""
        self.wishes = self._stop = True

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
        if self._showing:
            self.events.append(event)
        else:
            self._put(event, at_once=False)

    def _put(self, event: UntetherEvent, *, at_once: bool) -> None:
        if at_once:
            self.events.append(event)
        elif len(self._held) < _MOST_HELD:
            self._held.append(event)

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
    ) -> None:
        """A step that is no tool: a note or a warning, complete at once unless `phase` says otherwise."""
        action = Action(id, kind, title, detail or {})
        self.action(ActionEvent(self.engine, action, phase, ok if phase == "completed" else None, message))

    def warning(self, title: str, detail: dict[str, Any] | None = None) -> None:
        """Something went wrong, and the run goes on."""
        self.note(self.new_id("warning"), "warning", title, ok=False, detail=detail)

    def new_id(self, name: Literal["warning", "note", "retry", "compaction", "limit", "schedule"]) -> str:
        """An id for a step that has none of its own, unique within the process."""
        number = self._numbers.get(name, 0) + 1
        self._numbers[name] = number
        return f"{name}-{number}"
