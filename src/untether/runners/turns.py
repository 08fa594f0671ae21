"""Runs and turns of a live session: what is gathered while one is open, and the events that open and close it.

The first turn of a process ends in the run's `CompletedEvent`; each later one is a `TurnEvent` pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ..exit_text import how_it_ended, last_words
from ..model import CompletedEvent, ResumeToken, TurnEvent, Usage
from ..session import ProcessExit
from .output import Output

LONGEST_RAW = 4_000  # characters of an engine's own words that are kept


class Outcome(NamedTuple):
    """How a turn ended, in the terms of `CompletedEvent` and `TurnEvent`. `lost` when the session does not exist."""

    ok: bool
    answer: str = ""
    error: str | None = None
    advice: str = ""
    raw_error: str = ""
    outcome: Literal["", "stopped", "ended_early"] = ""
    lost: bool = False
    detail: Mapping[str, Any] = {}


def stopped(written: str) -> Outcome:
    return Outcome(False, written, "The run was stopped.", outcome="stopped")


def ended_early(name: str, exit: ProcessExit, written: str) -> Outcome:
    """The process ended in the middle of a turn."""
    if exit.stopped:
        return stopped(written)
    how, words = how_it_ended(exit), last_words(exit.stderr_tail)
    error = f"{name} ended before it answered" + (f" ({how})" if how else "")
    return Outcome(
        False,
        written,
        f"{error}: {words}" if words else f"{error}.",
        "Try again. If it stays so, start the agent in a terminal on the machine to see why.",
        exit.stderr_tail[-LONGEST_RAW:],
        "ended_early",
    )


class Turn:
    """One open turn. `prompts` are the messages it answers, `reason` why it began when nobody asked."""

    def __init__(self, prompts: list[str], reason: str, now: float) -> None:
        self.prompts = prompts
        self.reason = reason
        self.since = now
        self.written = ""  # the answer so far


class Turns:
    """The turns of one process."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.open: Turn | None = None
        self.completed = False  # the run's CompletedEvent is out

    def begin(self, prompts: list[str], reason: str, now: float) -> Turn:
        turn = self.open = Turn(prompts, reason, now)
        if self.completed:
            self._output.events.append(TurnEvent(self._output.engine, "started", prompts=tuple(prompts), reason=reason))
        self._output.show()
        return turn

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
                    detail=dict(outcome.detail),
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
