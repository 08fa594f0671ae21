"""Runs and turns: what is gathered while one is open, and the events that open and close it.

The first one of a process ends in the run's `CompletedEvent`; each later one is a `TurnEvent` pair.
"""

from __future__ import annotations

from typing import Any

from ...model import CompletedEvent, ResumeToken, TurnEvent, Usage
from .output import Output
from .results import Outcome

_NO_TEXT = "(no content)"  # what 2.1.197 writes for a command without output
_LONG = 200  # characters: more than a remark on the way


class Turn:
    """One open turn. `prompts` are the messages it answers, `reason` why it began when nobody asked."""

    def __init__(self, prompts: list[str], reason: str, now: float) -> None:
        self.prompts = prompts
        self.reason = reason
        self.since = now
        self.written = ""  # the last text of the main agent
        self.api_error = ""
        self.message_id = ""  # of the latest model call of the main conversation
        self.writing = ""  # of the one whose pieces come now, with partial messages
        self.detail: dict[str, Any] = {}


class Turns:
    """The turns of one process."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.open: Turn | None = None
        self.completed = False  # the run's CompletedEvent is out
        self.long_text = ""
        self.expected = ""  # why the next turn begins, when we brought it about ourselves

    @property
    def is_first(self) -> bool:
        """True until the run's CompletedEvent is out."""
        return not self.completed

    def begin(self, prompts: list[str], reason: str, now: float, detail: dict[str, Any] | None = None) -> Turn:
        turn = self.open = Turn(prompts, reason, now)
        turn.detail = detail or {}
        if self.completed:
            self._output.events.append(
                TurnEvent(self._output.engine, "started", prompts=tuple(prompts), reason=reason, detail=turn.detail)
            )
        self._output.show()
        return turn

    def wrote(self, text: str, turn: Turn) -> None:
        """The main agent wrote something: so far the answer, and the latest long text when it is long."""
        if text != _NO_TEXT:
            turn.written = text
            if len(text) >= _LONG:
                self.long_text = text

    def end(self, outcome: Outcome, resume: ResumeToken | None, usage: Usage | None) -> None:
        """Close the open turn, or the run when none was open yet."""
        turn, self.open = self.open, None
        prompts = tuple(turn.prompts) if turn is not None else ()
        output = self._output
        output.show()
        output.hide()
        if self.completed:
            output.events.append(
                TurnEvent(
                    output.engine,
                    "completed",
                    ok=outcome.ok,
                    answer=outcome.answer,
                    error=outcome.error,
                    usage=usage,
                    outcome=outcome.outcome,
                    raw_error=outcome.raw_error,
                    advice=outcome.advice,
                    prompts=prompts,
                    reason=turn.reason if turn is not None else "",
                    detail={**(turn.detail if turn is not None else {}), **outcome.detail},
                )
            )
            return
        self.completed = True
        output.events.append(
            CompletedEvent(
                output.engine,
                outcome.ok,
                outcome.answer,
                None if outcome.lost else resume,
                outcome.error,
                usage,
                outcome.outcome,
                outcome.raw_error,
                outcome.advice,
                prompts,
                dict(outcome.detail),
            )
        )
