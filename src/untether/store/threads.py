"""The owner of `chats`, `threads` and `messages`: conversations of ours, and the messages on their way to agents."""

from __future__ import annotations

import sqlite3
from typing import Any, Literal

import msgspec

from ..model import Record
from ..transport import ChatRef


class Chat(Record, frozen=True):
    """What is set for a chat or topic. `current` is the thread that the next message continues.

    `permission_mode` and `ask_questions` are for its runs; None leaves them to what is set elsewhere.
    """

    project: str | None = None
    branch: str | None = None
    current: int | None = None
    permission_mode: str | None = None
    ask_questions: bool | None = None


def place_name(cwd: str, project: str | None, branch: str | None) -> str:
    """What to call a place where agents work: the project and branch, else the folder's name."""
    name = project or cwd.rstrip("/").rsplit("/", 1)[-1] or cwd
    return f"{name} @{branch}" if branch else name


class Thread(Record, frozen=True):
    """A conversation of ours. `session` is the engine's id of it, None before the agent has told one."""

    id: int
    chat: ChatRef
    engine: str
    session: str | None
    project: str | None
    branch: str | None
    cwd: str

    @property
    def where(self) -> str:
        return place_name(self.cwd, self.project, self.branch)


class Message(Record, frozen=True):
    """A message on its way to an agent. `chat` is where it was written and where it is answered, which may be another
    one than its thread's; `message_id` is its id there. `created` is in epoch seconds."""

    id: int
    thread_id: int
    chat: ChatRef
    prompt_id: str
    message_id: str
    sender: str
    text: str
    state: str
    created: float
    notice: int | None = None  # the part that says that it is queued
    options: dict[str, Any] = {}


# -------------------------------------------------------------------------------------------------------- chats


def chat(conn: sqlite3.Connection, ref: ChatRef) -> Chat:
    row = conn.execute(
        "SELECT project, branch, current, permission_mode, ask_questions FROM chats"
        " WHERE transport = ? AND chat = ? AND thread = ?",
        (ref.transport, ref.chat, ref.thread),
    ).fetchone()
    return Chat() if row is None else Chat(row[0], row[1], row[2], row[3], None if row[4] is None else bool(row[4]))


def set_chat(conn: sqlite3.Connection, ref: ChatRef, **values: Any) -> None:
    """Set columns of a chat: the fields of `Chat`."""
    names = [name for name in Chat.__struct_fields__ if name in values]
    conn.execute(
        "INSERT OR IGNORE INTO chats (transport, chat, thread) VALUES (?, ?, ?)", (ref.transport, ref.chat, ref.thread)
    )
    conn.execute(
        f"UPDATE chats SET {', '.join(f'{name} = ?' for name in names)}"
        " WHERE transport = ? AND chat = ? AND thread = ?",
        (*(values[name] for name in names), ref.transport, ref.chat, ref.thread),
    )


def chosen(conn: sqlite3.Connection, ref: ChatRef, name: Literal["permission_mode", "ask_questions"]) -> Any:
    """What a topic, or else its chat, has chosen; None for nothing."""
    own = getattr(chat(conn, ref), name)
    if own is None and ref.thread:
        return getattr(chat(conn, ChatRef(ref.transport, ref.chat)), name)
    return own


# ------------------------------------------------------------------------------------------------------ threads

_THREAD = "SELECT id, transport, chat, thread, engine, session, project, branch, cwd FROM threads"


def _thread(row: Any) -> Thread:
    return Thread(row[0], ChatRef(row[1], row[2], row[3]), *row[4:])


def thread(conn: sqlite3.Connection, thread_id: int) -> Thread | None:
    row = conn.execute(f"{_THREAD} WHERE id = ?", (thread_id,)).fetchone()
    return None if row is None else _thread(row)


def of_session(conn: sqlite3.Connection, engine: str, session: str) -> Thread | None:
    """The newest thread with an engine's session."""
    row = conn.execute(
        f"{_THREAD} WHERE engine = ? AND session = ? ORDER BY id DESC LIMIT 1", (engine, session)
    ).fetchone()
    return None if row is None else _thread(row)


def of_message(conn: sqlite3.Connection, ref: ChatRef, message_id: str) -> Thread | None:
    """The thread that a message of a chat belongs to, ours (an answer, a status) or a person's."""
    row = (
        conn.execute(
            "SELECT r.thread_id FROM deliveries d JOIN runs r ON r.id = d.run_id"
            " WHERE d.transport = ? AND d.chat = ? AND d.message_id = ? ORDER BY d.id DESC LIMIT 1",
            (ref.transport, ref.chat, message_id),
        ).fetchone()
        or conn.execute(
            "SELECT thread_id FROM messages WHERE transport = ? AND chat = ? AND message_id = ?"
            " ORDER BY id DESC LIMIT 1",
            (ref.transport, ref.chat, message_id),
        ).fetchone()
    )
    return None if row is None else thread(conn, row[0])


def add_thread(
    conn: sqlite3.Connection,
    ref: ChatRef,
    *,
    engine: str,
    cwd: str,
    project: str | None,
    branch: str | None,
    session: str | None,
    now: float,
) -> Thread:
    cursor = conn.execute(
        "INSERT INTO threads (transport, chat, thread, engine, session, project, branch, cwd, created)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (ref.transport, ref.chat, ref.thread, engine, session, project, branch, cwd, now),
    )
    assert cursor.lastrowid is not None
    return Thread(cursor.lastrowid, ref, engine, session, project, branch, cwd)


def set_session(conn: sqlite3.Connection, thread_id: int, session: str) -> None:
    conn.execute("UPDATE threads SET session = ? WHERE id = ?", (session, thread_id))


# ----------------------------------------------------------------------------------------------------- messages

_MESSAGE = (
    "SELECT id, thread_id, transport, chat, topic, prompt_id, message_id, sender, text, state, created, notice, options"
    " FROM messages"
)


def _message(row: Any) -> Message:
    values = dict(row)
    chat = ChatRef(values.pop("transport"), values.pop("chat"), values.pop("topic"))
    return Message(**{**values, "chat": chat, "options": msgspec.json.decode(row["options"])})


def add_message(
    conn: sqlite3.Connection,
    *,
    thread_id: int,
    chat: ChatRef,
    update_id: int | None,
    prompt_id: str,
    message_id: str,
    sender: str,
    text: str,
    now: float,
    options: dict[str, Any],
) -> Message:
    cursor = conn.execute(
        "INSERT INTO messages (thread_id, transport, chat, topic, update_id, prompt_id, message_id, sender, text,"
        " options, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            thread_id,
            chat.transport,
            chat.chat,
            chat.thread,
            update_id,
            prompt_id,
            message_id,
            sender,
            text,
            msgspec.json.encode(options).decode(),
            now,
        ),
    )
    assert cursor.lastrowid is not None
    return Message(cursor.lastrowid, thread_id, chat, prompt_id, message_id, sender, text, "queued", now, None, options)


def message(conn: sqlite3.Connection, message_row: int) -> Message | None:
    row = conn.execute(f"{_MESSAGE} WHERE id = ?", (message_row,)).fetchone()
    return None if row is None else _message(row)


def queued(conn: sqlite3.Connection, thread_id: int, limit: int = -1) -> list[Message]:
    """The queued messages of a thread, in order; the first `limit` of them when it is not negative."""
    rows = conn.execute(f"{_MESSAGE} WHERE thread_id = ? AND state = 'queued' ORDER BY id LIMIT ?", (thread_id, limit))
    return [_message(row) for row in rows]


def count_queued(conn: sqlite3.Connection, thread_id: int) -> int:
    (count,) = conn.execute(
        "SELECT COUNT(*) FROM messages WHERE thread_id = ? AND state = 'queued'", (thread_id,)
    ).fetchone()
    return int(count)


def threads_with_queued(conn: sqlite3.Connection) -> list[int]:
    return [row[0] for row in conn.execute("SELECT DISTINCT thread_id FROM messages WHERE state = 'queued'")]


def set_message(conn: sqlite3.Connection, message_row: int, state: str) -> None:
    conn.execute("UPDATE messages SET state = ? WHERE id = ?", (state, message_row))


def hand_over(conn: sqlite3.Connection, message_row: int) -> bool:
    """A queued message goes to an agent. False when it is no longer queued."""
    cursor = conn.execute("UPDATE messages SET state = 'handed' WHERE id = ? AND state = 'queued'", (message_row,))
    return cursor.rowcount == 1


def set_notice(conn: sqlite3.Connection, message_row: int, delivery_id: int) -> None:
    conn.execute("UPDATE messages SET notice = ? WHERE id = ?", (delivery_id, message_row))


def set_prompt(conn: sqlite3.Connection, prompt_id: str, state: str) -> None:
    """Move the message of a prompt to `state`, but never back from an end state."""
    conn.execute(
        "UPDATE messages SET state = ? WHERE prompt_id = ? AND state NOT IN ('answered', 'withdrawn')",
        (state, prompt_id),
    )


def withdraw_queued(conn: sqlite3.Connection, thread_ids: list[int], before_update: int) -> list[Message]:
    """Withdraw the queued messages of threads that came before an update."""
    withdrawn: list[Message] = []
    for thread_id in thread_ids:
        rows = conn.execute(
            f"{_MESSAGE} WHERE thread_id = ? AND state = 'queued' AND COALESCE(update_id, 0) < ? ORDER BY id",
            (thread_id, before_update),
        )
        withdrawn += [_message(row) for row in rows]
    for message in withdrawn:
        set_message(conn, message.id, "withdrawn")
    return withdrawn


def threads_of_chat(conn: sqlite3.Connection, ref: ChatRef) -> list[int]:
    """The threads that began in a chat, and those of other chats that it goes on with."""
    where = (ref.transport, ref.chat, ref.thread)
    rows = conn.execute(
        "SELECT id FROM threads WHERE transport = ? AND chat = ? AND thread = ?"
        " UNION SELECT thread_id FROM messages WHERE transport = ? AND chat = ? AND topic = ?"
        " AND state IN ('queued', 'handed', 'taken')",
        (*where, *where),
    )
    return [row[0] for row in rows]
