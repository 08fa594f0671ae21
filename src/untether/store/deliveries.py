"""The owner of `deliveries`: everything that must arrive, in order within its group, and what became of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ..model import Record
from ..transport import Card, ChatRef, FileOut, Priority
from . import moves

Role = Literal["status", "answer", "interaction", "notice"]
Act = Literal["send", "edit", "delete"]
MAX_ATTEMPTS = 2  # a send whose fate is unknown is repeated once, never more
MAX_REPEATS = 10  # an edit or a deletion may be repeated without harm


class Delivery(Record, frozen=True):
    """One call to make on a transport: a part to send, or an edit or deletion of the part `target`."""

    id: int
    group: int
    chat: ChatRef
    act: Act
    role: Role
    priority: int
    card: Card | None
    target: int | None
    run_id: int | None
    interaction: str | None
    state: str
    attempts: int
    message_id: str | None
    created: float  # epoch seconds


_SELECT = (
    "SELECT id, grp, transport, chat, thread, act, role, priority, card, target, run_id, interaction, state, attempts,"
    " message_id, created FROM deliveries"
)
_CARD = msgspec.json.Decoder(Card)


def _delivery(row: Any) -> Delivery:
    card = None if row[8] is None else _CARD.decode(row[8])
    return Delivery(row[0], row[1], ChatRef(row[2], row[3], row[4]), row[5], row[6], row[7], card, *row[9:])


def _insert(conn: sqlite3.Connection, chat: ChatRef, now: float, *, group: int | None = None, **values: Any) -> int:
    """Add a row, as the first of a group of its own when none is given, and return its id."""
    card = values.pop("card", None)
    if (new := moves.all_of(conn, chat.transport).get(chat.chat)) is not None:  # it moved while the agent worked
        if card is not None and card.reply_to:
            card = msgspec.structs.replace(card, reply_to=moves.message_id(chat.chat, card.reply_to))
        chat = msgspec.structs.replace(chat, chat=new)
    columns = {
        "transport": chat.transport,
        "chat": chat.chat,
        "thread": chat.thread,
        "card": None if card is None else msgspec.json.encode(card),
        "created": now,
        "grp": group or 0,
        **values,
    }
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    cursor = conn.execute(f"INSERT INTO deliveries ({names}) VALUES ({marks})", tuple(columns.values()))
    assert cursor.lastrowid is not None
    if group is None:
        conn.execute("UPDATE deliveries SET grp = id WHERE id = ?", (cursor.lastrowid,))
    return cursor.lastrowid


def add_send(
    conn: sqlite3.Connection,
    chat: ChatRef,
    parts: Sequence[Card],
    role: Role,
    now: float,
    *,
    priority: int | None = None,
    run_id: int | None = None,
    interaction: str | None = None,
) -> list[int]:
    """Add the parts of one message as a group and return their ids."""
    if priority is None:
        priority = {"interaction": Priority.INTERACTION, "answer": Priority.ANSWER}.get(role, Priority.NOTICE)
    ids: list[int] = []
    for part in parts:
        ids.append(
            _insert(
                conn,
                chat,
                now,
                group=ids[0] if ids else None,
                act="send",
                role=role,
                priority=priority,
                card=part,
                run_id=run_id,
                interaction=interaction,
            )
        )
    return ids


def add_file(
    conn: sqlite3.Connection,
    chat: ChatRef,
    file: FileOut,
    role: Role,
    now: float,
    *,
    below: Sequence[Card] = (),
    reply_to: str = "",
    run_id: int | None = None,
    interaction: str | None = None,
) -> list[int]:
    """Add a file and the parts that come after it, such as its buttons, as a group; return their ids.

    `file` is a copy that `outfiles.keep` has made: it is sent from there, and removed when it has left.
    """
    first = Card((), silent=bool(below), reply_to=reply_to, file=file)
    return add_send(conn, chat, [first, *below], role, now, run_id=run_id, interaction=interaction)


def add_edit(conn: sqlite3.Connection, target: int, card: Card, now: float, *, priority: int) -> int | None:
    """Replace a sent part; it leaves when the part has a message id. An edit not sent yet is replaced by this one."""
    sent = get(conn, target)
    if sent is None or sent.state == "failed":
        return None
    conn.execute("DELETE FROM deliveries WHERE act = 'edit' AND target = ? AND state = 'pending'", (target,))
    return _insert(
        conn,
        sent.chat,
        now,
        act="edit",
        role=sent.role,
        priority=priority,
        card=card,
        target=target,
        run_id=sent.run_id,
        interaction=sent.interaction,
    )


def show(conn: sqlite3.Connection, target: int, card: Card, now: float) -> None:
    """Let a part of ours show another card, unless it does: one that has not left yet leaves as that."""
    (shown,) = conn.execute(
        "SELECT card FROM deliveries WHERE (id = ? AND act = 'send') OR (target = ? AND act = 'edit')"
        " ORDER BY id DESC LIMIT 1",
        (target, target),
    ).fetchone() or (None,)
    encoded = msgspec.json.encode(card)
    if shown == encoded:
        return
    cursor = conn.execute(
        "UPDATE deliveries SET card = ? WHERE id = ? AND state = 'pending' AND attempts = 0", (encoded, target)
    )
    if cursor.rowcount == 0:
        add_edit(conn, target, card, now, priority=Priority.NOTICE)


def add_delete(conn: sqlite3.Connection, target: int, now: float) -> int | None:
    """Remove a sent part, and its copies. A part that has not left yet is dropped instead."""
    sent = get(conn, target)
    if sent is None or sent.state == "failed":
        return None
    if sent.state == "pending" and sent.attempts == 0:
        conn.execute("UPDATE deliveries SET state = 'failed', error = 'no longer needed' WHERE id = ?", (target,))
        return None
    for copy in copies(conn, target):
        add_delete(conn, copy, now)
    conn.execute("DELETE FROM deliveries WHERE act = 'edit' AND target = ? AND state = 'pending'", (target,))
    return _insert(
        conn, sent.chat, now, act="delete", role=sent.role, priority=Priority.DELETE, target=target, run_id=sent.run_id
    )


def get(conn: sqlite3.Connection, delivery_id: int) -> Delivery | None:
    row = conn.execute(f"{_SELECT} WHERE id = ?", (delivery_id,)).fetchone()
    return None if row is None else _delivery(row)


def chats_with_pending(conn: sqlite3.Connection) -> list[tuple[str, str]]:
    """(transport, chat) pairs that have something to send."""
    rows = conn.execute("SELECT DISTINCT transport, chat FROM deliveries WHERE state IN ('pending', 'sending')")
    return [(row[0], row[1]) for row in rows]


def next_of_chat(conn: sqlite3.Connection, transport: str, chat: str) -> Delivery | None:
    """What leaves next: the best priority, the oldest group, the first open part; an edit waits for its target."""
    row = conn.execute(
        f"{_SELECT} AS d WHERE transport = ? AND chat = ? AND state IN ('pending', 'sending')"
        " AND (target IS NULL OR"
        " (SELECT t.state FROM deliveries t WHERE t.id = d.target) NOT IN ('pending', 'sending'))"
        " ORDER BY priority, grp, id LIMIT 1",
        (transport, chat),
    ).fetchone()
    return None if row is None else _delivery(row)


def sending(conn: sqlite3.Connection, delivery_id: int) -> Delivery | None:
    """About to leave: the row as it is now, for it may have been replaced since it was looked up.

    None when it must not leave: it was dropped, or its fate was unknown too often (then it is given up as `unknown`).
    """
    row = get(conn, delivery_id)
    if row is None or row.state not in ("pending", "sending"):
        return None
    state = "sending" if row.attempts < (MAX_ATTEMPTS if row.act == "send" else MAX_REPEATS) else "unknown"
    conn.execute("UPDATE deliveries SET state = ?, attempts = attempts + 1 WHERE id = ?", (state, delivery_id))
    return row if state == "sending" else None


def not_sent(conn: sqlite3.Connection, delivery_id: int) -> None:
    """It certainly did not leave; the attempt does not count."""
    conn.execute(
        "UPDATE deliveries SET state = 'pending', attempts = MAX(attempts - 1, 0) WHERE id = ?", (delivery_id,)
    )


def sent(conn: sqlite3.Connection, delivery_id: int, message_id: str | None, now: float) -> None:
    conn.execute(
        "UPDATE deliveries SET state = 'sent', message_id = COALESCE(?, message_id), sent = ? WHERE id = ?",
        (message_id, now, delivery_id),
    )


def failed(conn: sqlite3.Connection, delivery_id: int, error: str) -> None:
    conn.execute("UPDATE deliveries SET state = 'failed', error = ? WHERE id = ?", (error, delivery_id))


def drop_rest(conn: sqlite3.Connection, group: int, error: str) -> None:
    """Parts of a group that have not left yet never will."""
    conn.execute(
        "UPDATE deliveries SET state = 'failed', error = ? WHERE grp = ? AND act = 'send' AND state = 'pending'",
        (error, group),
    )


def fail_chat(conn: sqlite3.Connection, transport: str, chat: str, error: str) -> int:
    """Nothing will arrive in this chat: give up what is open, and return how much that was."""
    cursor = conn.execute(
        "UPDATE deliveries SET state = 'failed', error = ?"
        " WHERE transport = ? AND chat = ? AND state IN ('pending', 'sending')",
        (error, transport, chat),
    )
    return cursor.rowcount


def move(conn: sqlite3.Connection, transport: str, old: str, new: str) -> None:
    """A chat got a new id: what is open leaves there, and what was sent belongs there (see `moves`)."""
    where = (transport, old)
    for row in conn.execute(
        "SELECT id, card FROM deliveries WHERE transport = ? AND chat = ? AND state IN ('pending', 'sending')", where
    ).fetchall():
        card = None if row[1] is None else _CARD.decode(row[1])
        if card is not None and card.reply_to:
            answering = msgspec.structs.replace(card, reply_to=moves.message_id(old, card.reply_to))
            conn.execute("UPDATE deliveries SET card = ? WHERE id = ?", (msgspec.json.encode(answering), row[0]))
    conn.execute(
        "UPDATE deliveries SET chat = ?, message_id = ? || '/' || message_id WHERE transport = ? AND chat = ?",
        (new, old, *where),
    )


def is_last_part(conn: sqlite3.Connection, row: Delivery) -> bool:
    """Whether no further part of its group comes after it."""
    later = conn.execute(
        "SELECT 1 FROM deliveries WHERE grp = ? AND act = 'send' AND target IS NULL AND id > ?", (row.group, row.id)
    )
    return later.fetchone() is None


def waited(conn: sqlite3.Connection, run_id: int) -> tuple[float, float] | None:
    """When the message of a run was written and when the run began, in epoch seconds; None without a message."""
    row = conn.execute(
        "SELECT m.created, r.started FROM runs r JOIN messages m ON m.id = r.message_id WHERE r.id = ?", (run_id,)
    ).fetchone()
    return None if row is None else (row[0], row[1])


def files_to_send(conn: sqlite3.Connection) -> set[str]:
    """The paths of the copies that have not left yet."""
    rows = conn.execute(
        "SELECT card FROM deliveries WHERE act = 'send' AND card IS NOT NULL AND state IN ('pending', 'sending')"
    )
    return {card.file.path for card in (_CARD.decode(row[0]) for row in rows) if card.file is not None}


def uncertain(conn: sqlite3.Connection, transport: str, chat: str) -> list[Delivery]:
    """The newest parts of a chat that may have arrived without our knowing, or more than once."""
    rows = conn.execute(
        f"{_SELECT} WHERE transport = ? AND chat = ? AND act = 'send' AND card IS NOT NULL"
        " AND (state = 'unknown' OR attempts > 1) ORDER BY id DESC LIMIT 100",
        (transport, chat),
    )
    return [_delivery(row) for row in rows]


def adopt(conn: sqlite3.Connection, delivery_id: int, message_id: str, now: float) -> bool:
    """A part turned up as a message that we did not know of: its fate was unknown. False when we knew it."""
    part = get(conn, delivery_id)
    if part is None or of_message(conn, part.chat, message_id) is not None:
        return False
    if part.message_id is None:
        sent(conn, delivery_id, message_id, now)
    else:  # it was repeated, and both copies arrived
        copy = _insert(
            conn,
            part.chat,
            now,
            act="send",
            role=part.role,
            priority=part.priority,
            target=delivery_id,
            run_id=part.run_id,
            interaction=part.interaction,
        )
        sent(conn, copy, message_id, now)
    return True


def copies(conn: sqlite3.Connection, delivery_id: int) -> list[int]:
    """Further copies of a part that turned up."""
    return [
        row[0] for row in conn.execute("SELECT id FROM deliveries WHERE target = ? AND act = 'send'", (delivery_id,))
    ]


def of_message(conn: sqlite3.Connection, chat: ChatRef, message_id: str) -> Delivery | None:
    """The part that was sent as a message of a chat."""
    row = conn.execute(
        f"{_SELECT} WHERE transport = ? AND chat = ? AND message_id = ? AND act = 'send' ORDER BY id DESC LIMIT 1",
        (chat.transport, chat.chat, message_id),
    ).fetchone()
    return None if row is None else _delivery(row)


def status_of_run(conn: sqlite3.Connection, run_id: int) -> Delivery | None:
    """The status message of a run, when it has one."""
    row = conn.execute(
        f"{_SELECT} WHERE run_id = ? AND role = 'status' AND act = 'send' ORDER BY id DESC LIMIT 1", (run_id,)
    ).fetchone()
    return None if row is None else _delivery(row)
