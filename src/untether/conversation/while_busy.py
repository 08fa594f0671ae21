"""What becomes of a message that is sent while its agent is busy: the choice of a chat, and the buttons under it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..process.driver import Ended
from ..session import Withdraw
from ..store import threads, updates
from ..store.threads import Busy, Message
from ..store.updates import Update
from ..transport import Card, ChatRef, TapIn
from . import cards, queue
from .scheduler import Scheduler
from .services import Services

Toast = Callable[[str], Awaitable[None]]

_LATE = {
    "queued": "It is queued",
    "handed": "Already with the agent",
    "taken": "Already with the agent",
    "answered": "Already answered",
    "withdrawn": "Already withdrawn",
}


class WhileBusy:
    BUTTONS = frozenset((cards.STEER, cards.REPLACE, cards.WITHDRAW, cards.SEND_AGAIN))

    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler

    def of_chat(self, conn: sqlite3.Connection, chat: ChatRef) -> Busy:
        """What a topic, its chat or the settings say."""
        chosen: Busy | None = threads.chosen(conn, chat, "busy")
        return chosen or self._services.options.busy

    async def choose(self, chat: ChatRef, value: str) -> Card:
        """Set what becomes of further messages of a chat or topic: a `Busy`, or "default"."""
        busy: Busy | None = value if value in ("queue", "steer", "interrupt") else None  # type: ignore[assignment]
        await self._services.db.write(lambda conn: threads.set_chat(conn, chat, busy=busy))
        in_force = self._services.db.read(lambda conn: self.of_chat(conn, chat))
        return cards.when_busy(in_force, own=busy is not None)

    async def act(self, message: Message, busy: Busy) -> None:
        """Do with a message that was just queued behind a running turn what was chosen."""
        if busy == "steer":
            await self._scheduler.steer(message)
        elif busy == "interrupt":
            await self._scheduler.stop([message.thread_id])

    async def tap(self, update: Update, tap: TapIn, what: str, message_row: int, toast: Toast) -> None:
        services = self._services
        message = services.db.read(lambda conn: threads.message(conn, message_row))
        if message is None or not self._belongs(tap, message):
            await toast("This message is not known any more")
            return
        done = {
            cards.STEER: self._steer,
            cards.REPLACE: self._replace,
            cards.WITHDRAW: self._withdraw,
            cards.SEND_AGAIN: self._send_again,
        }
        if not await done[what](update, message, toast):
            fresh = services.db.read(lambda conn: threads.message(conn, message_row))
            await toast(_LATE.get(fresh.state if fresh is not None else "", ""))
        services.outbox.kick()
        services.hub.changed()
        self._scheduler.wake(message.thread_id)

    def _belongs(self, tap: TapIn, message: Message) -> bool:
        if self._services.transports[tap.chat.transport].shows_all:
            return True
        return (tap.chat.transport, tap.chat.chat) == (message.chat.transport, message.chat.chat)

    async def _steer(self, update: Update, message: Message, toast: Toast) -> bool:
        if message.state != "queued":
            return False
        live = self._scheduler.live(message.thread_id)
        if live is None or live.busy is None:
            await toast("It is next")
            return True
        if not self._scheduler.can_steer(live.thread):
            await toast("This agent cannot be told anything while it works")
            return True
        await toast("On its way")
        await self._scheduler.steer(message)
        return True

    async def _replace(self, update: Update, message: Message, toast: Toast) -> bool:
        """The message is next, and what runs before it is stopped, after a restart too."""
        now = self._services.clock.now()

        def job(conn: sqlite3.Connection) -> bool:
            updates.done(conn, update.id)
            return queue.replace(conn, message, now)

        if not await self._services.db.write(job):
            return False
        await toast("Stopping…")
        await self._scheduler.stop([message.thread_id])
        return True

    async def _withdraw(self, update: Update, message: Message, toast: Toast) -> bool:
        live = self._scheduler.live(message.thread_id)
        if message.state == "handed" and live is not None:
            await toast("Asking the agent to give it back")  # whether it does is said under the message
            with suppress(Ended):
                await live.configure(Withdraw(message.prompt_id))
            return True
        now = self._services.clock.now()

        def job(conn: sqlite3.Connection) -> bool:
            updates.done(conn, update.id)
            return queue.withdraw(conn, message, now)

        if not await self._services.db.write(job):
            return False
        await toast("Withdrawn")
        return True

    async def _send_again(self, update: Update, message: Message, toast: Toast) -> bool:
        services = self._services
        now = services.clock.now()
        thread = services.db.read(lambda conn: threads.thread(conn, message.thread_id))
        steer = thread is not None and self._scheduler.can_steer(thread)

        def job(conn: sqlite3.Connection) -> bool:
            updates.done(conn, update.id)
            return queue.send_again(conn, message, services.new_id(), update.id, now, steer=steer)

        if not await self._services.db.write(job):
            return False
        await toast("Queued again")
        return True
