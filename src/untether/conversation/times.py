"""When to remind of an open request, and when to be quiet."""

from __future__ import annotations

from datetime import datetime, time, tzinfo

from ..model import Record
from ..store.interactions import Pending


class ReminderTimes(Record, frozen=True):
    """When to remind, in seconds after a request was made and after the last reminder; 0 for never.

    `quiet` is from when to when there is silence, in the reader's zone; what came due in it comes after.
    """

    first_s: float = 600.0
    every_s: float = 1800.0
    quiet: tuple[time, time] | None = None

    def is_due(self, pending: Pending, now: float) -> bool:
        wait = self.first_s if pending.reminded is None else self.every_s
        since = pending.opened if pending.reminded is None else pending.reminded
        return bool(self.first_s and wait) and now >= since + wait

    def is_quiet(self, now: float, zone: tzinfo | None) -> bool:
        if self.quiet is None:
            return False
        start, end = self.quiet
        at = datetime.fromtimestamp(now, zone).time()
        return start <= at < end if start <= end else at >= start or at < end
