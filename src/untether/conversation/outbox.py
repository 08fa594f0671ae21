"""The outbox: sends what must arrive, one call at a time for each chat, and remembers what became of it.

A row is marked before its request leaves. So after a crash, or when a connection dies with the answer, its fate is
unknown; such a send is repeated once, never more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import anyio
import anyio.abc
import structlog

from ..clock import Clock
from ..store import deliveries
from ..store.database import Database, StoreError
from ..store.deliveries import Delivery
from ..transport import Card, SendFailed, Transport
from . import cards
from .hub import Hub
from .persistence import persist

log = structlog.get_logger(__name__)

_LOOK_AGAIN_S = 2.0
_PAUSE_MIN, _PAUSE_MAX = 1.0, 60.0


class Outbox:
    def __init__(self, db: Database, transports: Mapping[str, Transport], clock: Clock, hub: Hub) -> None:
        self._db = db
        self._transports = transports
        self._clock = clock
        self._hub = hub
        self._kick = anyio.Event()
        self._busy: set[tuple[str, str]] = set()
        self._some_settled = anyio.Event()

    def kick(self) -> None:
        """There may be new rows."""
        self._kick.set()

    async def run(self) -> None:
        """Send until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._kick = anyio.Event()
                try:
                    for chat in self._db.read(deliveries.chats_with_pending):
                        if chat not in self._busy and chat[0] in self._transports:
                            self._busy.add(chat)
                            tasks.start_soon(self._serve, chat)
                except StoreError as error:
                    log.error("outbox.store_failed", error=str(error))
                    await self._clock.sleep(_PAUSE_MIN)
                    continue
                await self._kick.wait()

    async def flush(self, seconds: float) -> None:
        """Give what is pending a last chance to leave."""
        with anyio.move_on_after(seconds):
            while self._db.read(deliveries.chats_with_pending):
                self.kick()
                await self._clock.sleep(0.05)

    async def message_id(self, delivery_id: int) -> str | None:
        """Wait until a part was sent, and return its message id; None when it never will be."""
        while True:
            row = self._db.read(lambda conn: deliveries.get(conn, delivery_id))
            if row is None or row.state not in ("pending", "sending"):
                return row.message_id if row is not None and row.state == "sent" else None
            # Looked at again now and then: a part that never left may be dropped by others.
            with anyio.move_on_after(_LOOK_AGAIN_S):
                await self._some_settled.wait()

    async def _serve(self, chat: tuple[str, str]) -> None:
        """Send all that a chat has pending, then go."""
        pause = _PAUSE_MIN
        try:
            while True:
                try:
                    row = self._db.read(lambda conn: deliveries.next_of_chat(conn, *chat))
                    if row is None:
                        return
                    wait = await self._deliver(row)
                except StoreError as error:
                    log.error("outbox.store_failed", chat=chat, error=str(error))
                    wait = _PAUSE_MIN
                if wait is None:
                    pause = _PAUSE_MIN
                else:
                    await self._clock.sleep(max(wait, pause))
                    pause = min(pause * 2, _PAUSE_MAX)
        finally:
            self._busy.discard(chat)
            self.kick()

    async def _deliver(self, found: Delivery) -> float | None:
        """Make the call of one row. Returns seconds to wait before the next try, None when it is dealt with."""
        transport = self._transports[found.chat.transport]
        row = await self._db.write(lambda conn: deliveries.sending(conn, found.id))
        if row is None:
            log.info("outbox.dropped", delivery=found.id, role=found.role, act=found.act)
            self._settled()
            return None
        try:
            message_id = await self._call(transport, row)
        except SendFailed as failure:
            return await self._failed(row, failure)
        except StoreError:
            raise
        except Exception as error:
            # A defect in one rendering must not stop everything else that waits for this chat.
            log.exception("outbox.defect", delivery=row.id, role=row.role)
            await self._give_up(row, SendFailed("refused", f"{type(error).__name__}: {error}"))
            return None
        now = self._clock.now()
        # It has left: while this cannot be stored nothing else may leave, or it would leave twice.
        await persist(self._db, self._clock, lambda conn: deliveries.sent(conn, row.id, message_id, now))
        self._settled()
        return None

    async def _call(self, transport: Transport, row: Delivery) -> str | None:
        if row.act == "send":
            assert row.card is not None
            return await transport.send(row.chat, row.card, row.priority)
        target = self._db.read(lambda conn: deliveries.get(conn, row.target or 0))
        if target is None or target.message_id is None:
            raise SendFailed("gone", "the message was never sent")
        if row.act == "edit":
            assert row.card is not None
            await transport.edit(row.chat, target.message_id, row.card, row.priority)
        else:
            await transport.delete(row.chat, target.message_id)
        return None

    async def _failed(self, row: Delivery, failure: SendFailed) -> float | None:
        if failure.kind == "later":
            await persist(self._db, self._clock, lambda conn: deliveries.not_sent(conn, row.id))
            return failure.retry_after
        if failure.kind == "unknown":
            return 0.0  # the row stays as it is: the next attempt is the last
        level = log.info if row.act != "send" else log.warning
        level(
            "outbox.not_delivered",
            delivery=row.id,
            role=row.role,
            act=row.act,
            kind=failure.kind,
            detail=failure.detail,
        )
        await self._give_up(row, failure)
        return None

    async def _give_up(self, row: Delivery, failure: SendFailed) -> None:
        """It will never arrive. Where a person would miss it, that is told instead."""
        told = _instead(row, failure)

        def job(conn: sqlite3.Connection) -> None:
            deliveries.failed(conn, row.id, failure.detail)
            if row.role == "interaction" and row.act == "send":
                deliveries.drop_rest(conn, row.group, "a part before it was not delivered")
            if told is not None:
                deliveries.add_send(conn, row.chat, [told], "notice", self._clock.now(), run_id=row.run_id)

        await persist(self._db, self._clock, job)
        self._settled()

    def _settled(self) -> None:
        self._some_settled.set()
        self._some_settled = anyio.Event()
        self._hub.changed()


def _instead(row: Delivery, failure: SendFailed) -> Card | None:
    """What to send when a part is refused: buttons never come without the whole content, and no answer goes missing."""
    if row.act == "edit" and row.role == "status":
        return row.card  # that a run was interrupted must be seen, also when its status message is gone
    if row.act != "send" or failure.kind == "gone":
        return None
    if row.role == "interaction":
        return cards.notice(
            f"✗ A request of the agent could not be shown here: {failure.detail}.",
            "Answer it in the web console, or stop the run with /cancel.",
        )
    if row.role == "answer":
        return cards.notice(
            f"✗ An answer could not be shown here: {failure.detail}.", "It is kept, and the web console shows it."
        )
    return None
