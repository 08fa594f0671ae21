"""The budget: what may be spent in a run and in a day, and what is said of it when runs start and end.

Costs come from the ledger, so they survive restarts; what a running turn costs is not known before its end. A day is
one of the reader's zone.
"""

from __future__ import annotations

import sqlite3

import structlog

from ..store import ledger
from ..store.ledger import Spent
from ..store.threads import Message
from ..text import words
from ..transport import Card
from . import money_cards
from .services import Services
from .spending import OVER_BUDGET, BudgetLimits, midnight, monday

log = structlog.get_logger(__name__)


class Budget:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._limits: BudgetLimits = services.options.budget
        self._told_unknown = False

    def today(self, conn: sqlite3.Connection, now: float) -> Spent:
        return ledger.since(conn, midnight(now, self._services.options.zone))

    def refusal(self, message: Message) -> str:
        """Why a message may not start a run now; "" when it may."""
        if not self._limits.stops or self._limits.per_day is None or message.options.get(OVER_BUDGET):
            return ""
        services = self._services
        spent = services.db.read(lambda conn: self.today(conn, services.clock.now()))
        return f"Daily limit {words.money(self._limits.per_day)} reached" if self._day_is_over(spent) else ""

    def _day_is_over(self, spent: Spent) -> bool:
        return self._limits.per_day is not None and spent.cost_usd >= self._limits.per_day

    def stops_after(self, run_id: int) -> str:
        """Why the agent of a run that has ended is to go no further by itself; "" when it may."""
        services, limits = self._services, self._limits
        if not limits.stops or (limits.per_run is None and limits.per_day is None):
            return ""
        cost = services.db.read(lambda conn: ledger.cost_of(conn, run_id))
        if limits.per_run is not None and cost >= limits.per_run:
            return "the limit of a run is reached"
        spent = services.db.read(lambda conn: self.today(conn, services.clock.now()))
        return "the daily limit is reached" if self._day_is_over(spent) else ""

    def remarks(self, conn: sqlite3.Connection, run_id: int, now: float) -> list[str]:
        """What is to be said under a run that is in the ledger now: a limit that it reached, or came near to."""
        limits = self._limits
        cost, today = ledger.cost_of(conn, run_id), self.today(conn, now)
        self._mind_unknown(today)
        lines: list[str] = []
        if limits.per_run is not None and cost > 0:
            told = f"{words.money(cost)} of {words.money(limits.per_run)}"
            if cost >= limits.per_run:
                lines.append(f"■ This run reached the limit of a run: {told}.")
            elif limits.warn_at and cost >= limits.warn_at * limits.per_run:
                lines.append(f"· {round(100 * cost / limits.per_run)} % of the limit of a run: {told}.")
        if limits.per_day is not None and cost > 0:
            lines += self._day_remarks(limits.per_day, today.cost_usd - cost, today.cost_usd)
        if limits.outlier and cost > limits.outlier:
            lines.append(f"· An expensive run: {words.money(cost)}, more than {words.money(limits.outlier)}.")
        return lines

    def _day_remarks(self, limit: float, before: float, after: float) -> list[str]:
        """Reaching the limit is said under every run, coming near to it once a day."""
        told = f"{words.money(after)} of {words.money(limit)} today"
        if after >= limit:
            then = " Further runs start only when the owner says so." if self._limits.stops else ""
            return [f"■ Daily limit reached: {told}.{then}"]
        threshold = self._limits.warn_at * limit
        return (
            [f"· {round(100 * after / limit)} % of the daily limit: {told}."]
            if 0 < threshold <= after and before < threshold
            else []
        )

    def _mind_unknown(self, today: Spent) -> None:
        """An engine that does not tell its costs is not held by a limit: that is said once, in the log."""
        if today.unknown and not self._told_unknown and (self._limits.per_day or self._limits.per_run):
            self._told_unknown = True
            log.warning("budget.costs_unknown", runs=today.unknown)

    # --------------------------------------------------------------------------------------------------- screens

    def today_line(self, now: float) -> str:
        """`today: $0.42`, with the limit when there is one."""
        spent = self._services.db.read(lambda conn: self.today(conn, now))
        limit = f" of {words.money(self._limits.per_day)}" if self._limits.per_day is not None else ""
        return f"today: {words.money(spent.cost_usd)}{limit}"

    def usage(self) -> Card:
        """`/usage`: today, this week, and where the week's went."""
        services = self._services
        now, zone = services.clock.now(), services.options.zone
        read = services.db.read
        week = monday(now, zone)
        return money_cards.usage(
            read(lambda conn: self.today(conn, now)),
            read(lambda conn: ledger.since(conn, week)),
            read(lambda conn: ledger.by_place(conn, week)),
            self._limits.per_day,
        )
