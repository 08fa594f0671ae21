"""The owner of `awaited`: words that a person was asked for, about an open request."""

from __future__ import annotations

import sqlite3
from typing import Any, Literal

from ..model import Record
from ..transport import ChatRef

Purpose = Literal["reason", "choice", "edit", "confirm", "answer"]


class Awaited(Record, frozen=True):
    """What somebody was asked for. `about` numbers the choice or question; `text` is what waits to be confirmed.

    `delivery_id` is the message that asks for it.
    """

    id: int
    interaction: str
    chat: ChatRef
    sender: str
    purpose: Purpose
    about: int
    text: str
    delivery_id: int | None


_SELECT = "SELECT id, interaction, transport, chat, thread, sender, purpose, about, text, delivery_id FROM awaited"


def _awaited(row: Any) -> Awaited:
    return Awaited(row[0], row[1], ChatRef(row[2], row[3], row[4]), *row[5:])


def put(
    conn: sqlite3.Connection,
    chat: ChatRef,
    sender: str,
    interaction: str,
    purpose: Purpose,
    *,
    about: int = 0,
    text: str = "",
) -> int:
    """Ask somebody for words, and return the row's id. There must be nothing else that they are asked for there."""
    cursor = conn.execute(
        "INSERT INTO awaited (interaction, transport, chat, thread, sender, purpose, about, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (interaction, chat.transport, chat.chat, chat.thread, sender, purpose, about, text),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def set_delivery(conn: sqlite3.Connection, row_id: int, delivery_id: int) -> None:
    conn.execute("UPDATE awaited SET delivery_id = ? WHERE id = ?", (delivery_id, row_id))


def get(conn: sqlite3.Connection, row_id: int) -> Awaited | None:
    row = conn.execute(f"{_SELECT} WHERE id = ?", (row_id,)).fetchone()
    return None if row is None else _awaited(row)


def of_sender(conn: sqlite3.Connection, chat: ChatRef, sender: str) -> Awaited | None:
    """What somebody was asked for in a chat."""
    row = conn.execute(
        f"{_SELECT} WHERE transport = ? AND chat = ? AND thread = ? AND sender = ?",
        (chat.transport, chat.chat, chat.thread, sender),
    ).fetchone()
    return None if row is None else _awaited(row)


def of_delivery(conn: sqlite3.Connection, delivery_id: int) -> Awaited | None:
    """What one of our messages asks for."""
    row = conn.execute(f"{_SELECT} WHERE delivery_id = ?", (delivery_id,)).fetchone()
    return None if row is None else _awaited(row)


def of_interaction(conn: sqlite3.Connection, interaction: str) -> list[Awaited]:
    return [_awaited(row) for row in conn.execute(f"{_SELECT} WHERE interaction = ? ORDER BY id", (interaction,))]


def remove(conn: sqlite3.Connection, row_id: int) -> None:
    conn.execute("DELETE FROM awaited WHERE id = ?", (row_id,))
