"""What a spent quota cut and may be gone on with later: offered under the run, and given up. Jobs for a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from ..store import deliveries, schedules, threads
from ..store.schedules import Schedule
from ..text import words
from ..transport import Card, ChatRef
from . import money_cards
from .services import Services


def offer(
    conn: sqlite3.Connection,
    services: Services,
    chat: ChatRef,
    run_id: int,
    detail: dict[str, Any],
    card: Card,
    now: float,
) -> tuple[Card, int | None]:
    """The card of a failed run with what its spent quota allows, and the row's id; None when that is nothing.

    `detail` is that of the event. Set the row's delivery afterwards.
    """
    due = detail.get("resets_at") if detail.get("quota") else None
    if not isinstance(due, int | float) or due <= now:
        return card, None
    auto = threads.chosen(conn, chat, "auto_continue")
    planned = services.options.auto_continue if auto is None else bool(auto)
    schedule_id = schedules.add(conn, run_id, due, "waiting" if planned else "offered")
    decorate = money_cards.continue_planned if planned else money_cards.continue_offered
    return decorate(card, schedule_id, words.clock_time(due, services.options.zone, now)), schedule_id


def drop(conn: sqlite3.Connection, thread_ids: Sequence[int], now: float) -> int:
    """Give up what is planned in some threads; how much that was."""
    found = schedules.waiting_in(conn, thread_ids)
    for schedule in found:
        schedules.move(conn, schedule.id, "waiting", "dropped")
        show(conn, schedule, now, money_cards.not_continued)
    return len(found)


def show(conn: sqlite3.Connection, schedule: Schedule, now: float, change: Callable[[Card], Card]) -> None:
    """Change the message that offers a continuation; its content may be gone when it is very old."""
    shown = deliveries.get(conn, schedule.delivery_id) if schedule.delivery_id is not None else None
    if shown is not None and shown.card is not None:
        deliveries.show(conn, shown.id, change(shown.card), now)
