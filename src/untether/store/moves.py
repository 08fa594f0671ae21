"""The owner of what is known of chats that got a new id: all that is kept for such a chat goes on under the new one.

Messages of the old chat keep their ids, which mean nothing in the new one: there they are called OLD/ID.
"""

from __future__ import annotations

import sqlite3

import msgspec

from . import kv


def message_id(old: str, number: str) -> str:
    """What a message of a chat that moved is called in the new one."""
    return f"{old}/{number}"


def all_of(conn: sqlite3.Connection, transport: str) -> dict[str, str]:
    """The new ids of the chats of a transport that moved, by their old ones."""
    stored = kv.get(conn, f"moved:{transport}")
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, str])


def former(conn: sqlite3.Connection, transport: str, chat: str) -> list[str]:
    """The ids that a chat had before."""
    return [old for old, new in all_of(conn, transport).items() if new == chat]


def move(conn: sqlite3.Connection, transport: str, old: str, new: str) -> bool:
    """Carry over what is kept for a chat, except what we send (`deliveries.move`). False when it was done before."""
    known = all_of(conn, transport)
    if known.get(old) == new or old == new:
        return False
    known = {chat: new if to == old else to for chat, to in known.items()} | {old: new}
    kv.put(conn, f"moved:{transport}", msgspec.json.encode(known).decode())
    where = (new, transport, old)
    conn.execute(
        "UPDATE message_parts SET message_id = ? || '/' || message_id WHERE message_id <> ''"
        " AND message IN (SELECT id FROM messages WHERE transport = ? AND chat = ?)",
        (old, transport, old),
    )
    conn.execute(
        "UPDATE messages SET chat = ?, message_id = CASE message_id WHEN '' THEN '' ELSE ? || '/' || message_id END"
        " WHERE transport = ? AND chat = ?",
        (new, old, transport, old),
    )
    # Somebody may have written in the new chat already: what is set there is newer.
    set_there = [name for name in _columns(conn, "chats") if name not in ("transport", "chat", "thread")]
    names = ", ".join(set_there)
    kept = ", ".join(f"{name} = COALESCE({name}, excluded.{name})" for name in set_there)
    conn.execute(
        f"INSERT INTO chats (transport, chat, thread, {names}) SELECT transport, ?, thread, {names} FROM chats"
        f" WHERE transport = ? AND chat = ? ON CONFLICT DO UPDATE SET {kept}",
        where,
    )
    conn.execute("DELETE FROM chats WHERE transport = ? AND chat = ?", (transport, old))
    for table in _tables(conn):
        if table not in ("chats", "messages", "deliveries") and {"transport", "chat"} <= set(_columns(conn, table)):
            conn.execute(f"UPDATE OR REPLACE {table} SET chat = ? WHERE transport = ? AND chat = ?", where)
    return True


def _tables(conn: sqlite3.Connection) -> list[str]:
    return [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _columns(conn: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
