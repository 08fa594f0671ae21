"""The queue of a thread as people see it: a line under each message that waits, kept right until it is taken.

The functions are jobs for a transaction, so that a message and what is said of it never disagree. What moves a
message (`hand_over`, `withdraw`, …) also sees to its line and to the places of those behind it.
"""

from __future__ import annotations

import sqlite3

from ..session import Attachment, Prompt
from ..store import deliveries, runs, threads
from ..store.threads import Message
from . import cards


class Withdrawn(Exception):
    """The message was withdrawn or changed before it could be handed over."""


def prompt_of(message: Message) -> Prompt:
    """A message as its agent gets it."""
    files = tuple(Attachment(file.path, file.name, file.mime) for file in message.attachments)
    return Prompt(message.prompt_id, message.text, files)


def announce(conn: sqlite3.Connection, message: Message, now: float, *, steer: bool) -> None:
    """Say under a message that it waits. `steer`: its agent can be told it in the running turn."""
    place = [other.id for other in threads.queued(conn, message.thread_id)].index(message.id) + 1
    card = cards.queued(place, message.message_id, message.id, steer=steer)
    (notice,) = deliveries.add_send(conn, message.chat, [card], "notice", now)
    threads.set_notice(conn, message.id, notice)


def hand_over(conn: sqlite3.Connection, message: Message, now: float, *, steered: bool = False) -> None:
    """A queued message goes to the agent. Raises Withdrawn.

    The line under it goes away; when it is `steered` into a running turn it stays until the agent has taken it.
    """
    if not threads.hand_over(conn, message):
        raise Withdrawn
    if not steered:
        _clear(conn, message.prompt_id, now)
    elif (fresh := threads.message(conn, message.id)) is not None and fresh.notice is not None:
        deliveries.show(conn, fresh.notice, cards.steering(message.message_id, message.id), now)
    _renumber(conn, message.thread_id, now)


def withdraw(conn: sqlite3.Connection, message: Message, now: float) -> bool:
    """Take a message out of the queue. False when it is not there any more."""
    if not threads.withdraw(conn, message.id):
        return False
    withdrawn(conn, message, now)
    return True


def withdrawn(conn: sqlite3.Connection, message: Message, now: float) -> None:
    """A message was taken out of the queue: say so, and let those behind it move up."""
    if message.notice is not None:
        deliveries.show(conn, message.notice, cards.withdrawn(message.message_id, message.id), now)
    _renumber(conn, message.thread_id, now)


def send_again(
    conn: sqlite3.Connection, message: Message, prompt_id: str, update_id: int, now: float, *, steer: bool
) -> bool:
    """Put a withdrawn message at the end of the queue. False when it is not withdrawn.

    It gets a new `prompt_id`: an agent that gave it back would take the old one for a repetition.
    """
    if not threads.queue_again(conn, message, prompt_id, update_id):
        return False
    if message.notice is None:
        announce(conn, message, now, steer=steer)
    else:
        _number(conn, message, len(threads.queued(conn, message.thread_id)), now, steer=steer)
    return True


def replace(conn: sqlite3.Connection, message: Message, now: float) -> bool:
    """A queued message is to be next, and what runs before it to be stopped. False when it is not queued any more."""
    fresh = threads.message(conn, message.id)
    if fresh is None or fresh.state != "queued":
        return False
    threads.put_first(conn, message)
    runs.ask_stop(conn, [message.thread_id])
    _renumber(conn, message.thread_id, now)
    return True


def moved(conn: sqlite3.Connection, prompt_id: str, state: str, now: float) -> None:
    """The agent took a message, gave it back, or has dealt with it: note that, and say what is to be said."""
    threads.set_prompt(conn, prompt_id, state)
    message = threads.of_prompt(conn, prompt_id)
    if message is None or message.state != state:
        return
    if state == "taken" and message.notice is not None:
        deliveries.show(conn, message.notice, cards.taken(message.message_id), now)
    elif state == "queued":
        _renumber(conn, message.thread_id, now)
    elif state == "withdrawn":
        withdrawn(conn, message, now)
    elif state == "answered":
        _clear(conn, prompt_id, now)


def _clear(conn: sqlite3.Connection, prompt_id: str, now: float) -> None:
    """The line under a message has served."""
    message = threads.of_prompt(conn, prompt_id)
    if message is not None and message.notice is not None:
        deliveries.add_delete(conn, message.notice, now)
        threads.set_notice(conn, message.id, None)


def _renumber(conn: sqlite3.Connection, thread_id: int, now: float) -> None:
    """Let each line tell the place that its message has now."""
    for place, message in enumerate(threads.queued(conn, thread_id), 1):
        if message.notice is not None:
            _number(conn, message, place, now)


def _number(conn: sqlite3.Connection, message: Message, place: int, now: float, *, steer: bool | None = None) -> None:
    assert message.notice is not None
    if steer is None:
        sent = deliveries.get(conn, message.notice)
        steer = sent is not None and sent.card is not None and cards.can_steer(sent.card)
    card = cards.queued(place, message.message_id, message.id, steer=steer)
    deliveries.show(conn, message.notice, card, now)
