"""Requests for a person: how one is put into a chat, and what becomes of its messages while and after it is open.

All are jobs for a transaction, so that a request and its messages never disagree.
"""

from __future__ import annotations

import sqlite3
from datetime import tzinfo

import msgspec

from ..model import Interaction
from ..store import awaited, deliveries, interactions, runs, threads
from ..store.interactions import Given, Pending
from ..text import words
from ..transport import Card, ChatRef, Priority
from . import asked_cards
from .services import Services


def ask(
    conn: sqlite3.Connection,
    services: Services,
    chat: ChatRef,
    where: str,
    process_id: str,
    run_id: int,
    interaction: Interaction,
    now: float,
) -> None:
    """Open a request and send it, once: what a process asks twice is one request."""
    key = services.new_key()
    if not interactions.open_(conn, key, process_id, run_id, interaction, now):
        return
    shown = _send(conn, services, chat, key, asked_cards.asked(key, interaction, where), run_id, now)
    interactions.set_delivery(conn, key, shown)
    if asked_cards.step(interaction, ()) is not None:
        interactions.set_answers(conn, key, (Given(delivery_id=shown),))


def _send(
    conn: sqlite3.Connection, services: Services, chat: ChatRef, key: str, card: Card, run_id: int, now: float
) -> int:
    """Send a message of a request and return the part with its buttons."""
    parts = services.parts(chat, card)
    return deliveries.add_send(conn, chat, parts, "interaction", now, run_id=run_id, interaction=key)[-1]


# ------------------------------------------------------------------------------------------------------ questions


def where_of(conn: sqlite3.Connection, pending: Pending) -> str:
    """What people call the place where the agent that asks works."""
    run = runs.run(conn, pending.run_id)
    thread = threads.thread(conn, run.thread_id) if run is not None else None
    return thread.where if thread is not None else ""


def repaint(conn: sqlite3.Connection, services: Services, pending: Pending, now: float) -> None:
    """Show the step at which the questions are now, in the message that they have for it."""
    shown = deliveries.get(conn, pending.delivery_id or 0)
    if shown is not None:
        card = asked_cards.asked(pending.key, pending.interaction, where_of(conn, pending), pending.answers)
        last = services.parts(shown.chat, card)[-1]  # of a content that is attached, the file stays as it is
        deliveries.add_edit(conn, shown.id, last, now, priority=Priority.INTERACTION)


def give(conn: sqlite3.Connection, services: Services, pending: Pending, at: int, given: Given, now: float) -> Pending:
    """Note the answer to one of several questions and ask the next one, or whether all are right."""
    shown = deliveries.get(conn, pending.delivery_id or 0)
    answers = (*pending.answers[:at], msgspec.structs.replace(given, done=True, delivery_id=pending.delivery_id))
    if shown is not None:
        noted = asked_cards.noted(pending.interaction, at, given)
        deliveries.add_edit(conn, shown.id, noted, now, priority=Priority.INTERACTION)
        where = where_of(conn, pending)
        card = asked_cards.asked(pending.key, pending.interaction, where, answers)
        following = _send(conn, services, shown.chat, pending.key, card, pending.run_id, now)
        interactions.set_delivery(conn, pending.key, following)
        pending = msgspec.structs.replace(pending, delivery_id=following)
        if at + 1 < len(pending.interaction.questions):
            answers = (*answers, Given(delivery_id=following))
    interactions.set_answers(conn, pending.key, answers)
    return msgspec.structs.replace(pending, answers=answers)


def back(conn: sqlite3.Connection, services: Services, pending: Pending, at: int, now: float) -> None:
    """Ask the question before the step `at` again: its message gets its buttons back, the one below goes."""
    before = pending.answers[at - 1]
    if pending.delivery_id is not None:
        deliveries.add_delete(conn, pending.delivery_id, now)
    answers = (*pending.answers[: at - 1], msgspec.structs.replace(before, done=False))
    if before.delivery_id is not None:
        interactions.set_delivery(conn, pending.key, before.delivery_id)
    interactions.set_answers(conn, pending.key, answers)
    repaint(conn, services, msgspec.structs.replace(pending, answers=answers, delivery_id=before.delivery_id), now)


# ---------------------------------------------------------------------------------------------------- typed words


def stop_waiting_for(conn: sqlite3.Connection, row: awaited.Awaited, now: float) -> None:
    """Nobody is asked for these words any more."""
    awaited.remove(conn, row.id)
    if row.delivery_id is not None:
        deliveries.add_delete(conn, row.delivery_id, now)


def want(
    conn: sqlite3.Connection,
    services: Services,
    pending: Pending,
    wanted: awaited.Awaited,
    reply_to: str,
    now: float,
) -> None:
    """Ask somebody for words, in a message of its own. What they were asked for before is no longer wanted.

    Of `wanted` all but the ids counts.
    """
    former = awaited.of_sender(conn, wanted.chat, wanted.sender)
    if former is not None:
        stop_waiting_for(conn, former, now)
    key, purpose, about = pending.key, wanted.purpose, wanted.about
    row = awaited.put(conn, wanted.chat, wanted.sender, key, purpose, about=about, text=wanted.text)
    if purpose == "confirm":
        card = asked_cards.edited(pending.interaction, key, row, wanted.text, reply_to)
    else:
        card = asked_cards.wanted(pending.interaction, key, row, purpose, about, reply_to)
    parts = services.parts(wanted.chat, card)
    ids = deliveries.add_send(
        conn, wanted.chat, parts, "notice", now, priority=Priority.INTERACTION, run_id=pending.run_id, interaction=key
    )
    awaited.set_delivery(conn, row, ids[-1])


# ------------------------------------------------------------------------------------------------------ reminders


def announce_again(conn: sqlite3.Connection, services: Services, pending: Pending, now: float) -> bool:
    """Say once more that an open request waits: a message that links to it and takes the place of the former one.

    The buttons stay where they are, on the request itself. False when there is nothing to link to, or no need, since
    the surface lists what is open by itself.
    """
    shown = deliveries.get(conn, pending.delivery_id or 0)
    transport = services.transports.get(shown.chat.transport) if shown is not None else None
    if shown is None or shown.message_id is None or transport is None or transport.shows_all:
        return False
    if pending.reminder_id is not None:
        deliveries.add_delete(conn, pending.reminder_id, now)
    card = asked_cards.reminder(pending.interaction, words.duration(now - pending.opened), shown.message_id)
    (sent,) = deliveries.add_send(
        conn, shown.chat, [card], "notice", now, run_id=pending.run_id, interaction=pending.key
    )
    interactions.set_reminder(conn, pending.key, sent, now)
    return True


# ------------------------------------------------------------------------------------------------------- the end


def withdraw(conn: sqlite3.Connection, pending: Pending, now: float) -> None:
    """Close an open request that nobody needs to decide any more."""
    if interactions.withdraw(conn, pending.key, now):
        retire(conn, msgspec.structs.replace(pending, state="withdrawn"), "", now)


def turned_up(
    conn: sqlite3.Connection, pending: Pending, message_id: str, now: float, zone: tzinfo | None = None
) -> None:
    """A request was tapped on a copy whose sending had an unknown fate: from now on we know it, and retire it too."""
    if pending.delivery_id is None or not deliveries.adopt(conn, pending.delivery_id, message_id, now):
        return
    if pending.state != "open":
        retire(conn, pending, pending.decided_by, pending.decided or now, zone=zone)


def retire(
    conn: sqlite3.Connection,
    pending: Pending,
    by: str,
    now: float,
    *,
    undelivered: bool = False,
    zone: tzinfo | None = None,
) -> None:
    """Change the message of a closed request into its outcome; what reminds of it or waits for words about it goes.

    Its time is shown in `zone` (None: this machine's).
    """
    stored = interactions.get(conn, pending.key)
    if stored is not None:  # its questions may have moved on meanwhile
        pending = msgspec.structs.replace(pending, delivery_id=stored.delivery_id, answers=stored.answers)
        if stored.reminder_id is not None:
            deliveries.add_delete(conn, stored.reminder_id, now)
            interactions.set_reminder(conn, pending.key, None, stored.reminded)
    for row in awaited.of_interaction(conn, pending.key):
        stop_waiting_for(conn, row, now)
    if pending.delivery_id is not None:
        card = asked_cards.outcome(pending, by, now, undelivered=undelivered, zone=zone)
        for shown in (pending.delivery_id, *deliveries.copies(conn, pending.delivery_id)):
            deliveries.add_edit(conn, shown, card, now, priority=Priority.NOTICE)
