"""Twins: messages of ours that we did not know to have arrived, and what becomes of them when a person uses one.

A send whose fate was unknown may have arrived unseen, or twice. Messengers do not tell a bot what it wrote, so we hear
of such a message only when somebody taps a button of it or replies to it. (Those of requests: `requests.turned_up`.)
"""

from __future__ import annotations

import sqlite3

from ..store import deliveries, runs
from ..store.deliveries import Delivery
from ..text.blocks import to_plain
from ..transport import ChatRef, ReplyTo, TapIn

_ENOUGH = 60  # letters and digits that two texts must begin with to be the same
_QUOTED = 12  # so many must a quoted part have to say whose it is


def tapped(conn: sqlite3.Connection, tap: TapIn, now: float) -> None:
    """A job: a button was tapped; its message is recognised by the button."""

    def has_it(row: Delivery) -> bool:
        return row.card is not None and any(button.data == tap.data for line in row.card.buttons for button in line)

    for row in _unseen(conn, tap.chat, tap.message_id):
        if has_it(row):
            _learn(conn, row, tap.message_id, now)
            return


def answered(conn: sqlite3.Connection, chat: ChatRef, reply: ReplyTo, now: float) -> None:
    """A job: a message of ours was replied to; it is recognised by its text."""
    text = _letters(reply.text)
    for row in _unseen(conn, chat, reply.message_id):
        ours = _letters(to_plain(row.card.blocks)) if row.card is not None else ""
        same = text[:_ENOUGH] == ours[:_ENOUGH] if text else False
        if same or (len(text) >= _QUOTED and text in ours):
            _learn(conn, row, reply.message_id, now)
            return


def _unseen(conn: sqlite3.Connection, chat: ChatRef, message_id: str) -> list[Delivery]:
    """What an unknown message may be; nothing for one that we know."""
    if not message_id or deliveries.of_message(conn, chat, message_id) is not None:
        return []
    return deliveries.uncertain(conn, chat.transport, chat.chat)


def _learn(conn: sqlite3.Connection, row: Delivery, message_id: str, now: float) -> None:
    """From now on we know the message. One that shows a status goes when its run has ended, a second one anyway."""
    deliveries.adopt(conn, row.id, message_id, now)
    if row.role != "status":
        return
    if row.message_id is not None:
        deliveries.add_delete(conn, deliveries.copies(conn, row.id)[-1], now)
    elif (run := runs.run(conn, row.run_id or 0)) is None or run.state != "running":
        deliveries.add_delete(conn, row.id, now)


def _letters(text: str) -> str:
    return "".join(char for char in text if char.isalnum())
