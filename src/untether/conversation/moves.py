"""A chat that got a new id: all that is kept for it goes on there, and people are told once what to change."""

from __future__ import annotations

import sqlite3

import structlog

from ..store import deliveries, moves
from ..transport import ChatRef
from . import cards

log = structlog.get_logger(__name__)


def chat_moved(conn: sqlite3.Connection, transport: str, old: str, new: str, now: float) -> None:
    """A job for a transaction; a move that is known already changes nothing."""
    known = not moves.move(conn, transport, old, new)
    deliveries.move(conn, transport, old, new)  # also what was added meanwhile
    if known:
        return
    log.warning("chat.moved", transport=transport, old=old, new=new, advice="set the new id in the configuration")
    card = cards.notice(
        f"This chat got a new id: {new} instead of {old}. Everything goes on here.",
        f"Set {new} as its chat_id in untether.toml.",
    )
    deliveries.add_send(conn, ChatRef(transport, new), [card], "notice", now)
