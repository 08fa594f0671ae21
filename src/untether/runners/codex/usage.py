"""What a run cost in tokens: differences of the totals of its threads, and how full the conversation is.

`total` is a thread's sum since it began, so a resumed one starts high (recording as_resume_2). A thread's first total
less its `last` call is where it stood before this process. Sub-agents are threads of their own and count to the run.
"""

from __future__ import annotations

from ...model import Action, ActionEvent, Usage
from ...schemas.codex import Tokens, TokenUsage
from ..output import Output


class _Thread:
    """`now` is the latest total, `before` the one at the end of the run before."""

    def __init__(self, before: Tokens, now: Tokens) -> None:
        self.before = before
        self.now = now


class Meter:
    """Reads the totals of the threads of one process."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._threads: dict[str, _Thread] = {}
        self._context: tuple[int, int | None] | None = None  # tokens used, and the window

    def read(self, thread: str, usage: TokenUsage, *, main: bool, working: bool) -> None:
        """Totals of a thread. `working`: a run is open; else they tell how a resumed one stands."""
        known = self._threads.get(thread)
        if known is None:
            before = _less(usage.total, usage.last) if working else usage.total
            self._threads[thread] = _Thread(before, usage.total)
        else:
            known.now = usage.total
            if not working:
                known.before = usage.total
        if main:
            self._context = usage.last.total_tokens, usage.model_context_window
            figures = {"context_used": self._context[0], "context_window": self._context[1]}
            action = Action("context", "telemetry", "Context in use", figures)
            self._output.action(ActionEvent(self._output.engine, action, "updated"))

    def run(self, duration_s: float | None) -> Usage | None:
        """The part of the run that ends now; None when nothing was told of it."""
        shares = []
        for thread in self._threads.values():
            shares.append(_less(thread.now, thread.before))
            thread.before = thread.now
        if not shares:
            return None
        used, window = self._context or (None, None)
        return Usage(
            input_tokens=sum(share.input_tokens for share in shares),
            output_tokens=sum(share.output_tokens for share in shares),
            cached_tokens=sum(share.cached_input_tokens for share in shares),
            context_used=used,
            context_window=window,
            duration_s=duration_s,
        )


def _less(total: Tokens, part: Tokens) -> Tokens:
    return Tokens(
        max(0, total.total_tokens - part.total_tokens),
        max(0, total.input_tokens - part.input_tokens),
        max(0, total.cached_input_tokens - part.cached_input_tokens),
        max(0, total.output_tokens - part.output_tokens),
    )
