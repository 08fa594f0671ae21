"""Engines whose login is lost: their messages wait, until one of them succeeds or somebody has logged in.

What is known is a fact in `kv` for each engine: `lost`, or `probe:ID` while the thread ID tries whether it works again.
The functions are jobs for a transaction.
"""

from __future__ import annotations

import sqlite3
from typing import Literal

from ..store import deliveries, kv, threads
from ..store.threads import Message, Thread
from . import money_cards

_LOST = "lost"


def _key(engine: str) -> str:
    return f"login_lost:{engine}"


def is_lost(conn: sqlite3.Connection, engine: str) -> bool:
    return kv.get(conn, _key(engine)) is not None


def lose(conn: sqlite3.Connection, engine: str) -> Literal["new", "still", "known"]:
    """A run found that the login is lost: that is new, a try found it so still, or it is known and told."""
    before = kv.get(conn, _key(engine))
    kv.put(conn, _key(engine), _LOST)
    return "new" if before is None else "known" if before == _LOST else "still"


def regain(conn: sqlite3.Connection, engine: str) -> None:
    """It works again."""
    kv.remove(conn, _key(engine))


def probe(conn: sqlite3.Connection, engine: str) -> None:
    """Let the messages of one thread go, to see whether it works again; without any, the next one tries."""
    for thread_id in threads.threads_with_queued(conn):
        thread = threads.thread(conn, thread_id)
        if thread is not None and thread.engine == engine and is_lost(conn, engine):
            kv.put(conn, _key(engine), f"probe:{thread_id}")
            return
    regain(conn, engine)


def holds(conn: sqlite3.Connection, thread: Thread) -> bool:
    """Whether the messages of a thread have to wait."""
    known = kv.get(conn, _key(thread.engine))
    return known is not None and known != f"probe:{thread.id}"


def show_held(conn: sqlite3.Connection, thread: Thread, now: float) -> list[Message]:
    """Say under each queued message of a thread for what it waits, if it does; those messages."""
    if not holds(conn, thread):
        return []
    queued = threads.queued(conn, thread.id)
    for message in queued:
        card = money_cards.held(thread.engine, message.id, message.message_id)
        if message.notice is not None:
            deliveries.show(conn, message.notice, card, now)
        else:
            (notice,) = deliveries.add_send(conn, message.chat, [card], "notice", now)
            threads.set_notice(conn, message.id, notice)
    return queued
