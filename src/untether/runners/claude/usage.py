"""What a run cost: differences of Claude Code's running totals, and how full the conversation is.

`total_cost_usd` and `modelUsage` of a result are sums over the process, sub-agents included. In 2.1.197 they start at 0
with `--resume`; 2.1.332 goes on counting from the session (recordings resume_other_cwd, cron_after_resume), but states
the share of each result, `model_usage_since_last_result`, which is used where it comes. The context in use is the input
side of the latest call of the main conversation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ...model import Usage
from ...schemas.claude import ModelUse, Result, decode_usage


class Totals(NamedTuple):
    """Sums over the process. `input` is all that the models read, `cached` the part that came from the cache."""

    cost: float = 0.0
    input: int = 0
    output: int = 0
    cached: int = 0

    def less(self, before: Totals) -> Totals:
        return Totals(
            self.cost - before.cost,
            self.input - before.input,
            self.output - before.output,
            self.cached - before.cached,
        )


class Meter:
    """Reads the totals of the results of one process."""

    def __init__(self) -> None:
        self.model = ""
        self.latest = msgspec.Raw()  # the use of the latest call of the main conversation, as it came
        self.context_window: int | None = None
        self._before = Totals()

    def context_used(self) -> int | None:
        """Tokens of the main conversation."""
        use = decode_usage(self.latest)
        if use.input_tokens is None:
            return None
        return use.input_tokens + (use.cache_read_input_tokens or 0) + (use.cache_creation_input_tokens or 0)

    def forget_context(self) -> None:
        """The conversation was compacted or cleared: how full it is shows with the next answer."""
        self.latest = msgspec.Raw()

    def run(self, result: Result) -> Usage:
        """The part of this run, which ends with `result`."""
        total = _totals(result, self._before)
        before = self._before if all(now >= then for now, then in zip(total, self._before, strict=True)) else Totals()
        self._before = total
        self.context_window = self._window(result) or self.context_window
        share = _stated_share(result) or total.less(before)
        return Usage(
            input_tokens=share.input,
            output_tokens=share.output,
            cached_tokens=share.cached,
            cost_usd=None if result.total_cost_usd is None else round(share.cost, 9),
            context_used=self.context_used(),
            context_window=self.context_window,
            duration_s=None if result.duration_ms is None else result.duration_ms / 1000,
            turns=result.num_turns,
        )

    def _window(self, result: Result) -> int | None:
        """The window of the main model. Its key may be longer than the name in messages: `claude-opus-4-8[1m]`."""
        if exact := result.model_usage.get(self.model):
            return exact.context_window
        for name, use in result.model_usage.items():
            if self.model and (name.startswith(self.model) or self.model.startswith(name)):
                return use.context_window
        return None


def _stated_share(result: Result) -> Totals | None:
    """What a result says of its own share; None when it does not tell it all."""
    models = list(result.model_usage_since_last_result.values())
    costs = [use.cost_usd for use in models if use.cost_usd is not None]
    if not models or len(costs) != len(models):
        return None
    return _sum(sum(costs), models)


def _sum(cost: float, models: Iterable[ModelUse]) -> Totals:
    uses = list(models)
    return Totals(
        cost,
        sum(use.input_tokens + use.cache_read_input_tokens + use.cache_creation_input_tokens for use in uses),
        sum(use.output_tokens for use in uses),
        sum(use.cache_read_input_tokens for use in uses),
    )


def _totals(result: Result, before: Totals) -> Totals:
    """The sums that `result` states; where it has none of a kind, this turn's own figures are added to `before`."""
    cost = before.cost if result.total_cost_usd is None else result.total_cost_usd
    if result.model_usage:
        return _sum(cost, result.model_usage.values())
    use = result.usage
    if use is None:
        return before._replace(cost=cost)
    cached = use.cache_read_input_tokens or 0
    read = (use.input_tokens or 0) + cached + (use.cache_creation_input_tokens or 0)
    return Totals(cost, before.input + read, before.output + (use.output_tokens or 0), before.cached + cached)
