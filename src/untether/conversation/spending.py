"""What may be spent, and the days and weeks in which it is counted."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from ..model import Record

OVER_BUDGET = "over_budget"  # in the options of a message: the owner lets it run although the limit is reached


class BudgetLimits(Record, frozen=True):
    """In US dollars; None for no limit. `warn_at` is a share of a limit (0: never), `stops` whether reaching one keeps
    further runs from starting. A run that costs more than `outlier` is said to (0: never)."""

    per_run: float | None = None
    per_day: float | None = None
    warn_at: float = 0.7
    stops: bool = True
    outlier: float = 20.0


def midnight(now: float, zone: tzinfo | None) -> float:
    """When the day of `now` began in a zone (None: this machine's)."""
    return datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def monday(now: float, zone: tzinfo | None) -> float:
    """When the week of `now` began."""
    day = datetime.fromtimestamp(midnight(now, zone), zone)
    return (day - timedelta(days=day.weekday())).timestamp()
