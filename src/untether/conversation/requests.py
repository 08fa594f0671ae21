"""Requests for a person: how one is put into a chat, and what becomes of its message when it is closed.

All are jobs for a transaction, so that a request and its message never disagree.
"""

from __future__ import annotations

import sqlite3
from datetime import tzinfo

import msgspec

from ..model import Interaction
from ..store import deliveries, interactions
from ..store.interactions import Pending
from ..transport import ChatRef, Priority
from . import cards
from .services import Services


def ask(
    conn: sqlite3.Connection,
    services: Services,
    chat: ChatRef,
    where: str,
    process_id: str,
    run_id: int,
    interaction: Interaction,
    now: float,
) -> None:
    """Open a request and send it, once: what a process asks twice is one request."""
    key = services.new_key()
    if not interactions.open_(conn, key, process_id, run_id, interaction, now):
        return
    parts = services.parts(chat, cards.asked(key, interaction, where))
    ids = deliveries.add_send(conn, chat, parts, "interaction", now, run_id=run_id, interaction=key)
    interactions.set_delivery(conn, key, ids[-1])


def withdraw(conn: sqlite3.Connection, pending: Pending, now: float) -> None:
    """Close an open request that nobody needs to decide any more."""
    if interactions.withdraw(conn, pending.key, now):
        retire(conn, msgspec.structs.replace(pending, state="withdrawn"), "", now)


def turned_up(
    conn: sqlite3.Connection, pending: Pending, message_id: str, now: float, zone: tzinfo | None = None
) -> None:
    """A request was tapped on a copy whose sending had an unknown fate: from now on we know it, and retire it too."""
    if pending.delivery_id is None or not deliveries.adopt(conn, pending.delivery_id, message_id, now):
        return
    if pending.state != "open":
        retire(conn, pending, pending.decided_by, pending.decided or now, zone=zone)


def retire(
    conn: sqlite3.Connection,
    pending: Pending,
    by: str,
    now: float,
    *,
    undelivered: bool = False,
    zone: tzinfo | None = None,
) -> None:
    """Change the message of a closed request into its outcome. Its time is shown in `zone` (None: this machine's)."""
    if pending.delivery_id is not None:
        card = cards.outcome(pending, by, now, undelivered=undelivered, zone=zone)
        for shown in (pending.delivery_id, *deliveries.copies(conn, pending.delivery_id)):
            deliveries.add_edit(conn, shown, card, now, priority=Priority.NOTICE)
