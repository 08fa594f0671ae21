"""What a run cost: the sum of the usage that Pi tells with each message of the model, each of that message alone."""

from __future__ import annotations

from ...model import Action, ActionEvent, Usage
from ...schemas import pi as schema
from ..output import Output


class Meter:
    def __init__(self, output: Output) -> None:
        self._output = output
        self._messages: list[schema.Usage] = []
        self._context = 0
        self.window: int | None = None

    def read(self, usage: schema.Usage | None) -> None:
        """The usage of one message; a call that failed tells zeros, which say nothing of the conversation."""
        if usage is None or not usage.total_tokens:
            return
        self._messages.append(usage)
        self._context = usage.total_tokens
        action = Action("context", "telemetry", "Context in use", self._fullness())
        self._output.action(ActionEvent(self._output.engine, action, "updated"))

    def _fullness(self) -> dict[str, int | None]:
        return {"context_used": self._context, "context_window": self.window}

    def run(self, duration_s: float | None) -> Usage | None:
        """The sum of the run that ends now; None when no model was called."""
        messages, self._messages = self._messages, []
        return total(messages, duration_s, self._context, self.window) if messages else None


def total(
    messages: list[schema.Usage], duration_s: float | None = None, used: int | None = None, window: int | None = None
) -> Usage:
    """The sum of the messages of a run. Input counts what was read from the cache too, as for other engines."""
    return Usage(
        input_tokens=sum(usage.input + usage.cache_read + usage.cache_write for usage in messages),
        output_tokens=sum(usage.output for usage in messages),
        cached_tokens=sum(usage.cache_read for usage in messages),
        cost_usd=round(sum(usage.cost.total for usage in messages), 9),
        context_used=used or (messages[-1].total_tokens if messages else None),
        context_window=window,
        duration_s=duration_s,
        turns=len(messages),
    )
