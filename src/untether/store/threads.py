"""The owner of `chats`, `threads` and `messages`: conversations of ours, and the messages on their way to agents."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from ..model import Record
from ..transport import ChatRef

Busy: TypeAlias = Literal["queue", "steer", "interrupt"]
"""What becomes of a message that is sent while the agent is busy: it waits, goes into the running turn, or ends it."""


class Chat(Record, frozen=True):
    """What is set for a chat or topic. `current` is the thread that the next message continues.

    `permission_mode` and `ask_questions` are for its runs, `busy` for its messages, `auto_continue` for what a spent
    quota cut; None leaves them to what is set elsewhere.
    """

    project: str | None = None
    branch: str | None = None
    current: int | None = None
    permission_mode: str | None = None
    ask_questions: bool | None = None
    busy: Busy | None = None
    auto_continue: bool | None = None


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


class File(Record, frozen=True):
    """A file that came with a message. `path` is on this machine."""

    path: str
    name: str
    mime: str = ""


class Part(Record, frozen=True):
    """One message of a chat that is part of a message for an agent, as it was written; `glue` joins it to the next."""

    message_id: str
    text: str
    glue: str = ""


class Message(Record, frozen=True):
    """A message on its way to an agent. `chat` is where it was written and where it is answered, which may be another
    one than its thread's; `message_id` is its id there. `created` is in epoch seconds. `text` ends with what came in
    text files (`inlined`)."""

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
    inlined: str = ""
    attachments: tuple[File, ...] = ()
    edit_told: bool = False


# -------------------------------------------------------------------------------------------------------- chats


def chat(conn: sqlite3.Connection, ref: ChatRef) -> Chat:
    row = conn.execute(
        "SELECT project, branch, current, permission_mode, ask_questions, busy, auto_continue FROM chats"
        " WHERE transport = ? AND chat = ? AND thread = ?",
        (ref.transport, ref.chat, ref.thread),
    ).fetchone()
    if row is None:
        return Chat()
    flags = {name: None if row[name] is None else bool(row[name]) for name in ("ask_questions", "auto_continue")}
    return Chat(**{**dict(row), **flags})


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


Choosable: TypeAlias = Literal["permission_mode", "ask_questions", "busy", "auto_continue"]


def chosen(conn: sqlite3.Connection, ref: ChatRef, name: Choosable) -> Any:
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
            f"SELECT thread_id FROM messages WHERE {_WRITTEN} ORDER BY id DESC LIMIT 1",
            (ref.transport, ref.chat, message_id, message_id),
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
    "SELECT id, thread_id, transport, chat, topic, prompt_id, message_id, sender, text, state, created, notice,"
    " options, inlined, attachments, edit_told FROM messages"
)
# A message of a chat is one of ours, or a part of one.
_WRITTEN = (
    "transport = ? AND chat = ?"
    " AND (message_id = ? OR id IN (SELECT message FROM message_parts WHERE message_parts.message_id = ?))"
)
_FILES = msgspec.json.Decoder(tuple[File, ...])


def _message(row: Any) -> Message:
    values = dict(row)
    chat = ChatRef(values.pop("transport"), values.pop("chat"), values.pop("topic"))
    decoded = {"options": msgspec.json.decode(row["options"]), "attachments": _FILES.decode(row["attachments"])}
    return Message(**{**values, **decoded, "chat": chat, "edit_told": bool(row["edit_told"])})


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
    inlined: str = "",
    attachments: Sequence[File] = (),
    album: str = "",
    parts: Sequence[Part] = (),
) -> Message:
    """Add a message at the end of the queue of its thread."""
    columns = {
        "thread_id": thread_id,
        "transport": chat.transport,
        "chat": chat.chat,
        "topic": chat.thread,
        "update_id": update_id,
        "prompt_id": prompt_id,
        "message_id": message_id,
        "sender": sender,
        "text": text,
        "options": msgspec.json.encode(options).decode(),
        "created": now,
        "inlined": inlined,
        "attachments": msgspec.json.encode(attachments).decode(),
        "album": album,
        "rank": _last_rank(conn, thread_id) + 1,
    }
    cursor = conn.execute(
        f"INSERT INTO messages ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    assert cursor.lastrowid is not None
    set_parts(conn, cursor.lastrowid, parts)
    added = message(conn, cursor.lastrowid)
    assert added is not None
    return added


def message(conn: sqlite3.Connection, message_row: int) -> Message | None:
    row = conn.execute(f"{_MESSAGE} WHERE id = ?", (message_row,)).fetchone()
    return None if row is None else _message(row)


def of_prompt(conn: sqlite3.Connection, prompt_id: str) -> Message | None:
    row = conn.execute(f"{_MESSAGE} WHERE prompt_id = ?", (prompt_id,)).fetchone()
    return None if row is None else _message(row)


def written(conn: sqlite3.Connection, ref: ChatRef, message_id: str) -> Message | None:
    """The newest one that a message of a chat became, alone or with others."""
    row = conn.execute(
        f"{_MESSAGE} WHERE {_WRITTEN} ORDER BY id DESC LIMIT 1", (ref.transport, ref.chat, message_id, message_id)
    ).fetchone()
    return None if row is None else _message(row)


def of_album(conn: sqlite3.Connection, ref: ChatRef, album: str) -> Message | None:
    """The newest one that messages of an album became."""
    row = conn.execute(
        f"{_MESSAGE} WHERE transport = ? AND chat = ? AND album = ? AND album <> '' ORDER BY id DESC LIMIT 1",
        (ref.transport, ref.chat, album),
    ).fetchone()
    return None if row is None else _message(row)


def latest(conn: sqlite3.Connection, ref: ChatRef) -> Message | None:
    """The newest one that was written in a chat or topic."""
    row = conn.execute(
        f"{_MESSAGE} WHERE transport = ? AND chat = ? AND topic = ? ORDER BY id DESC LIMIT 1",
        (ref.transport, ref.chat, ref.thread),
    ).fetchone()
    return None if row is None else _message(row)


def parts(conn: sqlite3.Connection, message_row: int) -> list[Part]:
    """What a message was made of, in order."""
    rows = conn.execute(
        "SELECT message_id, text, glue FROM message_parts WHERE message = ? ORDER BY place", (message_row,)
    )
    return [Part(*row) for row in rows]


def set_parts(conn: sqlite3.Connection, message_row: int, parts: Sequence[Part]) -> None:
    conn.execute("DELETE FROM message_parts WHERE message = ?", (message_row,))
    conn.executemany(
        "INSERT INTO message_parts (message, place, message_id, text, glue) VALUES (?, ?, ?, ?, ?)",
        [(message_row, place, part.message_id, part.text, part.glue) for place, part in enumerate(parts)],
    )


def set_content(
    conn: sqlite3.Connection, message_row: int, *, text: str, inlined: str, attachments: Sequence[File]
) -> None:
    """A message that no agent has is to say something else."""
    conn.execute(
        "UPDATE messages SET text = ?, inlined = ?, attachments = ? WHERE id = ?",
        (text, inlined, msgspec.json.encode(attachments).decode(), message_row),
    )


def tell_edit(conn: sqlite3.Connection, message_row: int) -> bool:
    """An edit came too late. True the first time: it is to be told."""
    cursor = conn.execute("UPDATE messages SET edit_told = 1 WHERE id = ? AND NOT edit_told", (message_row,))
    return cursor.rowcount == 1


def queued(conn: sqlite3.Connection, thread_id: int, limit: int = -1) -> list[Message]:
    """The queued messages of a thread, in order; the first `limit` of them when it is not negative."""
    rows = conn.execute(
        f"{_MESSAGE} WHERE thread_id = ? AND state = 'queued' ORDER BY rank, id LIMIT ?", (thread_id, limit)
    )
    return [_message(row) for row in rows]


def count_queued(conn: sqlite3.Connection, thread_id: int) -> int:
    (count,) = conn.execute(
        "SELECT COUNT(*) FROM messages WHERE thread_id = ? AND state = 'queued'", (thread_id,)
    ).fetchone()
    return int(count)


def threads_with_queued(conn: sqlite3.Connection) -> list[int]:
    return [row[0] for row in conn.execute("SELECT DISTINCT thread_id FROM messages WHERE state = 'queued'")]


def open_files(conn: sqlite3.Connection) -> set[str]:
    """The paths of files that belong to messages without an end."""
    rows = conn.execute("SELECT attachments FROM messages WHERE state IN ('queued', 'handed', 'taken')")
    return {file.path for row in rows for file in _FILES.decode(row[0])}


def set_message(conn: sqlite3.Connection, message_row: int, state: str) -> None:
    conn.execute("UPDATE messages SET state = ? WHERE id = ?", (state, message_row))


def hand_over(conn: sqlite3.Connection, message: Message) -> bool:
    """A queued message goes to an agent as it is here. False when it is no longer queued, or says something else."""
    cursor = conn.execute(
        "UPDATE messages SET state = 'handed' WHERE id = ? AND state = 'queued' AND text = ? AND attachments = ?",
        (message.id, message.text, msgspec.json.encode(message.attachments).decode()),
    )
    return cursor.rowcount == 1


def _last_rank(conn: sqlite3.Connection, thread_id: int) -> int:
    (rank,) = conn.execute(
        "SELECT COALESCE(MAX(rank), 0) FROM messages WHERE thread_id = ? AND state IN ('queued', 'handed')",
        (thread_id,),
    ).fetchone()
    return int(rank)


def put_first(conn: sqlite3.Connection, message: Message) -> None:
    """Bring a message to the head of its queue, before those too that may return to it."""
    conn.execute(
        "UPDATE messages SET rank = (SELECT COALESCE(MIN(rank), 0) - 1 FROM messages WHERE thread_id = ?"
        " AND state IN ('queued', 'handed')) WHERE id = ?",
        (message.thread_id, message.id),
    )


def queue_again(conn: sqlite3.Connection, message: Message, prompt_id: str, update_id: int) -> bool:
    """Put a withdrawn message at the end of its queue, because of an update. False when it is not withdrawn."""
    cursor = conn.execute(
        "UPDATE messages SET state = 'queued', rank = ?, prompt_id = ?, update_id = ?"
        " WHERE id = ? AND state = 'withdrawn'",
        (_last_rank(conn, message.thread_id) + 1, prompt_id, update_id, message.id),
    )
    return cursor.rowcount == 1


def withdraw(conn: sqlite3.Connection, message_row: int) -> bool:
    """False when it is not queued any more."""
    cursor = conn.execute("UPDATE messages SET state = 'withdrawn' WHERE id = ? AND state = 'queued'", (message_row,))
    return cursor.rowcount == 1


def set_notice(conn: sqlite3.Connection, message_row: int, delivery_id: int | None) -> None:
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
            f"{_MESSAGE} WHERE thread_id = ? AND state = 'queued' AND COALESCE(update_id, 0) < ? ORDER BY rank, id",
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
