"""A run once more: its message is sent again, or its agent told to go on. Each run is repeated once."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..store import kv, threads
from ..store.runs import Run
from ..store.threads import Message
from ..transport import ChatRef
from .services import Services
from .spending import OVER_BUDGET

CONTINUE = "You were interrupted. Go on where you stopped."


def again(
    conn: sqlite3.Connection,
    services: Services,
    run: Run,
    *,
    goes_on: bool,
    chat: ChatRef,
    sender: str = "",
    update_id: int | None = None,
    options: dict[str, Any] | None = None,
) -> Message | None:
    """Queue what repeats a run, as a job of a transaction. None when it was repeated before.

    `goes_on`: the agent had taken the message, so it is in its session, and sending it again would do it twice. `chat`
    and `sender` count when there was no message; `options` come on top of those of the message.
    """
    if not kv.add(conn, f"repeated:{run.id}", str(update_id or "by itself")):
        return None
    message = threads.message(conn, run.message_id) if run.message_id is not None else None
    thread = threads.thread(conn, run.thread_id)
    known = thread is not None and thread.session is not None
    kept = {name: value for name, value in message.options.items() if name != OVER_BUDGET} if message else {}
    sent = message if not (goes_on and known) else None
    return threads.add_message(
        conn,
        thread_id=run.thread_id,
        chat=message.chat if message is not None else chat,
        update_id=update_id,
        prompt_id=services.new_id(),
        message_id=message.message_id if message is not None else "",
        sender=sender or (message.sender if message is not None else ""),
        text=sent.text if sent is not None else CONTINUE,
        now=services.clock.now(),
        options={**kept, **(options or {})},
        inlined=sent.inlined if sent is not None else "",
        attachments=sent.attachments if sent is not None else (),
    )
