"""The owner of `kv`: single facts that must survive a restart."""

from __future__ import annotations

import sqlite3


def get(conn: sqlite3.Connection, key: str) -> str | None:
    row = conn.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def put(conn: sqlite3.Connection, key: str, value: str) -> None:
    conn.execute("INSERT INTO kv VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value))


def add(conn: sqlite3.Connection, key: str, value: str) -> bool:
    """Set a fact that is not set yet. False when it is: it stays as it was."""
    return conn.execute("INSERT OR IGNORE INTO kv VALUES (?, ?)", (key, value)).rowcount == 1


def remove(conn: sqlite3.Connection, key: str) -> None:
    conn.execute("DELETE FROM kv WHERE key = ?", (key,))


def count(conn: sqlite3.Connection, key: str) -> int:
    """Raise a counter by one, from 0, and return it."""
    conn.execute(
        "INSERT INTO kv VALUES (?, '1') ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1", (key,)
    )
    return int(get(conn, key) or 0)
