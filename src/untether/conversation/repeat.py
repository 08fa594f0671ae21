"""A run once more: its message is sent again, or its agent told to go on. Each run is repeated once."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from ..store import deliveries, kv, schedules, threads, updates
from ..store.runs import Run
from ..store.threads import Message
from ..store.updates import Update
from ..transport import ChatRef, Priority, TapIn
from . import cards, money_cards
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


async def tapped(
    services: Services, update: Update, tap: TapIn, run: Run, what: str, toast: Callable[[str], Awaitable[None]]
) -> bool:
    """A tap on `Try again`, `Resume` or `Run anyway` of a run. Whether there is something new in the queue."""
    over_budget = what == money_cards.ANYWAY
    if over_budget and not services.is_owner(tap.chat, tap.sender):
        await toast("Only the owner may go over a limit")
        return False
    resume = what == cards.RESUME

    def job(conn: sqlite3.Connection) -> bool:
        added = again(
            conn,
            services,
            run,
            goes_on=resume and run.taken,
            chat=tap.chat,
            sender=tap.sender.name or tap.sender.id,
            update_id=update.id,
            options={OVER_BUDGET: True} if over_budget else None,
        )
        if added is None:
            return False
        schedules.drop_of_run(conn, run.id)
        # The button has done its work: it goes, and the message stays.
        if (shown := deliveries.of_message(conn, tap.chat, tap.message_id)) is not None and shown.card is not None:
            left = money_cards.not_continued(cards.without(shown.card, what))
            deliveries.add_edit(conn, shown.id, left, services.clock.now(), priority=Priority.NOTICE)
        updates.done(conn, update.id)
        return True

    if not await services.db.write(job):
        await toast("Already sent again")
        return False
    await toast("Resuming" if resume else "Sent again")
    services.outbox.kick()
    return True
