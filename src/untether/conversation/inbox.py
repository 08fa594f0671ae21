"""The inbox: stores what comes in, then routes it, in order within a chat and side by side across chats.

Taps and control commands do not wait behind messages, but messages wait for the commands that came before them, or
along with them: a command acts on what was sent before it, also when both were sent while nobody was here. An update
whose routing was cut three times is parked.
`Route` is a function of the router that takes a stored update and the record it holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import anyio
import anyio.abc
import structlog

from ..clock import Clock
from ..faults import point
from ..store import deliveries, updates
from ..store.database import Database, StoreError
from ..store.updates import Update
from ..transport import ChatRef, Inbound, MessageIn, TapIn, Transport
from . import cards, moves
from .persistence import Backoff

log = structlog.get_logger(__name__)

Route = Callable[[Update, Inbound], Awaitable[None]]


class _Waiting(NamedTuple):
    """A message in the lane of its chat, and the commands that go first and are not done yet."""

    update: Update
    inbound: Inbound
    ahead: tuple[anyio.Event, ...]


class StoredInbox:
    """`store` is for transports; `run` hands what is stored to `route`."""

    def __init__(
        self,
        db: Database,
        transports: Mapping[str, Transport],
        clock: Clock,
        *,
        route: Route,
        parked: Route,
        failed: Route,
        is_urgent: Callable[[Inbound], bool],
        kick: Callable[[], None],
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_caught_up` is called when the commands that the last stop left are done."""
        self._db = db
        self._transports = transports
        self._clock = clock
        self._route = route
        self._parked = parked
        self._failed = failed
        self._is_urgent = is_urgent
        self._kick = kick  # of the outbox
        self._on_caught_up: Callable[[], None] | None = on_caught_up
        self._arrived = anyio.Event()
        self._lanes: dict[ChatRef, list[_Waiting]] = {}
        self._urgent: dict[ChatRef, list[anyio.Event]] = {}  # the commands under way

    async def store(self, transport: str, items: Sequence[tuple[str, bytes]]) -> None:
        now = self._clock.now()
        await self._db.write(lambda conn: updates.store(conn, transport, items, now))
        self._arrived.set()

    async def moved(self, transport: str, old: str, new: str) -> None:
        now = self._clock.now()
        await self._db.write(lambda conn: moves.chat_moved(conn, transport, old, new, now))
        self._kick()

    async def tell(self, chat: ChatRef, *lines: str) -> None:
        card, now = cards.notice(*lines), self._clock.now()
        await self._db.write(lambda conn: deliveries.add_send(conn, chat, [card], "notice", now))
        self._kick()

    async def run(self) -> None:
        """Route until cancelled, the backlog of the last stop first."""
        seen, backoff = 0, Backoff()
        async with anyio.create_task_group() as tasks:
            while True:
                self._arrived = anyio.Event()
                try:
                    arrived = self._db.read(partial(updates.waiting, after=seen))
                except StoreError as error:
                    pause = backoff.next()
                    log.error("inbox.not_read", error=str(error), next_try_s=pause)
                    await self._clock.sleep(pause)
                    continue
                backoff.reset()
                seen = arrived[-1].id if arrived else seen
                await self._sort(arrived, tasks)
                if self._on_caught_up is not None:
                    tasks.start_soon(self._catch_up, self._on_caught_up)
                    self._on_caught_up = None
                await self._arrived.wait()

    async def _catch_up(self, then: Callable[[], None]) -> None:
        for command in [command for commands in self._urgent.values() for command in commands]:
            await command.wait()
        then()

    async def _sort(self, arrived: Sequence[Update], tasks: anyio.abc.TaskGroup) -> None:
        """Start what does not wait, then put the messages behind it into the lanes of their chats."""
        messages: list[tuple[Update, Inbound]] = []
        for update in arrived:
            try:
                inbound = await self._read(update)
            except StoreError as error:
                log.error("inbox.not_stored", update=update.key, error=str(error))  # the next start looks again
                continue
            if inbound is None:
                continue
            if isinstance(inbound, TapIn):
                tasks.start_soon(self._handle, update, inbound)
            elif self._is_urgent(inbound):
                done = anyio.Event()
                self._urgent.setdefault(inbound.chat, []).append(done)
                tasks.start_soon(self._handle_urgent, update, inbound, done)
            else:
                messages.append((update, inbound))
        for update, inbound in messages:
            waiting = _Waiting(update, inbound, tuple(self._urgent.get(inbound.chat, ())))
            lane = self._lanes.setdefault(inbound.chat, [])
            lane.append(waiting)
            if len(lane) == 1:
                tasks.start_soon(self._work_off, inbound.chat)

    async def _read(self, update: Update) -> Inbound | None:
        """What an update says; None, and it is dealt with, when that is nothing for us. Raises StoreError."""
        transport = self._transports.get(update.transport)
        if transport is None:
            return None  # a transport that is switched off now: its updates wait for it
        try:
            inbound = transport.decode(update.raw)
            concerns_us = inbound is not None and transport.may_act(inbound)
        except Exception:
            # Whatever the outside sent, or a defect of ours: it must not stop what came behind it. It is kept.
            log.exception("inbox.unreadable", update=update.key)
            await self._db.write(lambda conn: updates.park(conn, update.id))
            return None
        if inbound is not None and concerns_us:
            return inbound
        await self._db.write(lambda conn: updates.done(conn, update.id))
        return None

    async def _handle_urgent(self, update: Update, inbound: Inbound, done: anyio.Event) -> None:
        try:
            await self._handle(update, inbound)
        finally:
            done.set()
            self._urgent[inbound.chat].remove(done)
            if not self._urgent[inbound.chat]:
                del self._urgent[inbound.chat]

    async def _work_off(self, chat: ChatRef) -> None:
        lane = self._lanes[chat]
        while lane:
            for command in lane[0].ahead:
                await command.wait()
            await self._handle(lane[0].update, lane[0].inbound)
            lane.pop(0)
        del self._lanes[chat]

    def following(self, inbound: MessageIn, after: int) -> tuple[Update, MessageIn] | None:
        """The next message of the same sender behind the one of this chat that is being routed: the first one whose
        update is later than `after`."""
        for update, other, _ in self._lanes.get(inbound.chat, ()):
            if update.id > after and isinstance(other, MessageIn) and other.sender.id == inbound.sender.id:
                return update, other
        return None

    async def _handle(self, update: Update, inbound: Inbound) -> None:
        """Route one update. While nothing can be stored it is tried again; that does not count as an attempt."""
        backoff, begun = Backoff(), False
        while True:
            try:
                if self._db.read(lambda conn: updates.is_done(conn, update.id)):
                    return  # withdrawn while it waited
                if not begun and not await self._db.write(lambda conn: updates.begin(conn, update.id)):
                    log.error("inbox.parked", update=update.key)
                    await self._parked(update, inbound)
                    return
                begun = True
                point("inbox.routing")
                await self._route(update, inbound)
                await self._db.write(lambda conn: updates.done(conn, update.id))
                return
            except StoreError as error:
                pause = backoff.next()
                log.error("inbox.not_stored", update=update.key, error=str(error), next_try_s=pause)
                await self._clock.sleep(pause)
            except Exception:
                # One message that we cannot handle must not stop the ones behind it. It stays stored: it is tried
                # again at the next start, and set aside after three times.
                log.exception("inbox.routing_failed", update=update.key)
                await self._tell_failed(update, inbound)
                return

    async def _tell_failed(self, update: Update, inbound: Inbound) -> None:
        try:
            await self._failed(update, inbound)
        except Exception as error:
            # Nothing can be stored, a notice neither (the transports pause and say so), or it cannot be worded.
            log.error("inbox.not_told", update=update.key, error=str(error))
