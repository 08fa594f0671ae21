"""The inbox: stores what comes in, then routes it, in order within a chat and side by side across chats.

Taps and control commands do not wait behind messages. An update whose routing was cut three times is parked.
`Route` is a function of the router that takes a stored update and the record it holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import anyio
import anyio.abc
import structlog

from ..clock import Clock
from ..store import updates
from ..store.database import Database, StoreError
from ..store.updates import Update
from ..transport import ChatRef, Inbound, MessageIn, TapIn, Transport

log = structlog.get_logger(__name__)

_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 30.0

Route = Callable[[Update, Inbound], Awaitable[None]]


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
    ) -> None:
        self._db = db
        self._transports = transports
        self._clock = clock
        self._route = route
        self._parked = parked
        self._failed = failed
        self._is_urgent = is_urgent
        self._arrived = anyio.Event()
        self._lanes: dict[ChatRef, list[tuple[Update, Inbound]]] = {}

    async def store(self, transport: str, items: Sequence[tuple[str, bytes]]) -> None:
        now = self._clock.now()
        await self._db.write(lambda conn: updates.store(conn, transport, items, now))
        self._arrived.set()

    async def run(self) -> None:
        """Route until cancelled, the backlog of the last stop first."""
        seen = 0
        async with anyio.create_task_group() as tasks:
            while True:
                self._arrived = anyio.Event()
                for update in self._db.read(partial(updates.waiting, after=seen)):
                    seen = update.id
                    await self._sort(update, tasks)
                await self._arrived.wait()

    async def _sort(self, update: Update, tasks: anyio.abc.TaskGroup) -> None:
        transport = self._transports.get(update.transport)
        if transport is None:
            return  # a transport that is switched off now: its updates wait for it
        try:
            inbound = transport.decode(update.raw)
        except ValueError as error:
            log.warning("inbox.unreadable", update=update.key, error=str(error))
            inbound = None
        if inbound is None or not transport.may_act(inbound):
            try:
                await self._db.write(lambda conn: updates.done(conn, update.id))
            except StoreError as error:
                log.error("inbox.not_stored", update=update.key, error=str(error))  # looked at again at the next start
            return
        if isinstance(inbound, TapIn) or self._is_urgent(inbound):
            tasks.start_soon(self._handle, update, inbound)
            return
        lane = self._lanes.get(inbound.chat)
        if lane is None:
            self._lanes[inbound.chat] = [(update, inbound)]
            tasks.start_soon(self._work_off, inbound.chat)
        else:
            lane.append((update, inbound))

    async def _work_off(self, chat: ChatRef) -> None:
        lane = self._lanes[chat]
        while lane:
            await self._handle(*lane[0])
            lane.pop(0)
        del self._lanes[chat]

    def following(self, inbound: MessageIn) -> MessageIn | None:
        """The message that waits behind the one of this chat that is being routed, when it is of the same sender."""
        lane = self._lanes.get(inbound.chat, [])
        if len(lane) > 1 and isinstance(lane[1][1], MessageIn) and lane[1][1].sender.id == inbound.sender.id:
            return lane[1][1]
        return None

    async def take_following(self, inbound: MessageIn) -> None:
        """Mark that message as handled: its text went with the one before it."""
        update, _ = self._lanes[inbound.chat].pop(1)
        await self._db.write(lambda conn: updates.done(conn, update.id))

    async def _handle(self, update: Update, inbound: Inbound) -> None:
        """Route one update. While nothing can be stored it is tried again; that does not count as an attempt."""
        pause, begun = _PAUSE_MIN_S, False
        while True:
            try:
                if self._db.read(lambda conn: updates.is_done(conn, update.id)):
                    return  # withdrawn while it waited
                if not begun and not await self._db.write(lambda conn: updates.begin(conn, update.id)):
                    log.error("inbox.parked", update=update.key)
                    await self._parked(update, inbound)
                    return
                begun = True
                await self._route(update, inbound)
                await self._db.write(lambda conn: updates.done(conn, update.id))
                return
            except StoreError as error:
                log.error("inbox.not_stored", update=update.key, error=str(error), next_try_s=pause)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _PAUSE_MAX_S)
            except anyio.get_cancelled_exc_class():
                raise
            except Exception:
                # One message that we cannot handle must not stop the ones behind it. It stays stored: it is tried
                # again at the next start, and set aside after three times.
                log.exception("inbox.routing_failed", update=update.key)
                await self._tell(self._failed, update, inbound)
                return

    async def _tell(self, tell: Route, update: Update, inbound: Inbound) -> None:
        try:
            await tell(update, inbound)
        except StoreError as error:
            # Nothing can be stored, a notice neither; the transports pause and say so.
            log.error("inbox.not_told", update=update.key, error=str(error))
