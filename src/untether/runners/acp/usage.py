"""What a turn cost, from an agent that may tell it in one of several ways, or not at all.

Tokens come with the end of the turn, as `usage` or in `_meta.quota` (Gemini CLI). Costs are told as the sum of the
session, so a turn's is a difference; the first turn of a resumed session has no figure to start from.
"""

from __future__ import annotations

from typing import Any

from ...model import Usage
from ...schemas.acp import TurnEnd, TurnUsage, UsageUpdate


class Meter:
    def __init__(self) -> None:
        self._used: int | None = None
        self._window: int | None = None
        self._cost: float | None = None  # of the session, so far
        self._before: float | None = 0.0  # the same when the turn began; None: not known

    def resumed(self) -> None:
        """What the session has cost before is not known until the agent tells it."""
        self._before = None

    def update(self, told: UsageUpdate) -> None:
        self._used = told.used if told.used is not None else self._used
        self._window = told.size or self._window
        if told.cost is not None and told.cost.amount is not None and told.cost.currency in ("USD", ""):
            self._cost = told.cost.amount

    def begin(self) -> None:
        """A turn begins: what was told before belongs to earlier ones."""
        if self._cost is not None:
            self._before = self._cost

    def context(self) -> dict[str, int]:
        known = {"context_used": self._used, "context_window": self._window}
        return {name: value for name, value in known.items() if value}

    def turn(self, end: TurnEnd | None, duration: float) -> Usage:
        """The usage of the turn that ends, which took `duration` seconds."""
        tokens = _tokens(end)
        cost = None
        if self._cost is not None and self._before is not None:
            cost = round(max(0.0, self._cost - self._before), 9)
        if self._cost is not None:
            self._before = self._cost
        return Usage(
            input_tokens=_all_input(tokens),
            output_tokens=tokens.output_tokens,
            cached_tokens=tokens.cached_read_tokens,
            cost_usd=cost,
            context_used=self._used,
            context_window=self._window,
            duration_s=duration,
        )


def _tokens(end: TurnEnd | None) -> TurnUsage:
    if end is None:
        return TurnUsage()
    if end.usage is not None:
        return end.usage
    quota = end.meta.get("quota")
    counts: Any = quota.get("token_count") if isinstance(quota, dict) else None
    if not isinstance(counts, dict):
        return TurnUsage()

    def count(*names: str) -> int | None:
        found = next((counts[name] for name in names if isinstance(counts.get(name), int)), None)
        return int(found) if found is not None else None

    return TurnUsage(
        input_tokens=count("input_tokens", "inputTokens"),
        output_tokens=count("output_tokens", "outputTokens"),
        cached_read_tokens=count("cached_tokens", "cachedInputTokens"),
    )


def _all_input(tokens: TurnUsage) -> int | None:
    """All that the model read. The total tells whether the cached part is counted in or beside."""
    if tokens.input_tokens is None:
        return None
    cached = (tokens.cached_read_tokens or 0) + (tokens.cached_write_tokens or 0)
    beside = tokens.total_tokens == tokens.input_tokens + cached + (tokens.output_tokens or 0)
    return tokens.input_tokens + cached if beside else tokens.input_tokens
