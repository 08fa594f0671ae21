"""The outbox: sends what must arrive, one call at a time for each chat, and remembers what became of it.

A row is marked before its request leaves. So after a crash, or when a connection dies with the answer, its fate is
unknown; such a send is repeated once, never more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import msgspec
import structlog

from ..clock import Clock, happens
from ..faults import point
from ..store import deliveries, outfiles
from ..store.database import Database, StoreError
from ..store.deliveries import Delivery
from ..transport import Card, SendFailed, Transport
from . import cards, moves
from .hub import Hub
from .persistence import persist

log = structlog.get_logger(__name__)

_LOOK_AGAIN_S = 2.0
_PAUSE_MIN, _PAUSE_MAX = 1.0, 30.0
_KEPT_WITHOUT_ROW_S = 3600.0  # a copy is made before its row


class Outbox:
    """`dated_after_s`: an answer that is older when it leaves, or that was waited for longer, carries its date.

    `files` is the folder of the copies that `outfiles.keep` makes; what no row needs there is removed at the start.
    `random` gives numbers from 0 to 1, by which pauses get up to a quarter shorter.
    """

    def __init__(
        self,
        db: Database,
        transports: Mapping[str, Transport],
        clock: Clock,
        hub: Hub,
        *,
        dated_after_s: float = 3600.0,
        files: Path | None = None,
        random: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._db = db
        self._transports = transports
        self._clock = clock
        self._hub = hub
        self._dated_after = dated_after_s
        self._files = files
        self._random = random
        self._kick = anyio.Event()
        self._busy: set[tuple[str, str]] = set()
        self._next_try: dict[tuple[str, str], float] = {}  # monotonic, of chats that wait before they go on
        self._some_settled = anyio.Event()

    def kick(self) -> None:
        """There may be new rows."""
        self._kick.set()

    async def run(self) -> None:
        """Send until cancelled."""
        if self._files is not None:
            self._remove_old_copies(self._files)
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
        """Give what is pending a last chance to leave. What cannot leave in that time is not waited for."""
        end = self._clock.monotonic() + seconds
        while self._clock.monotonic() < end and self._leaves_before(end):
            self.kick()
            await self._clock.sleep(0.05)

    def _leaves_before(self, end: float) -> bool:
        return any(
            transport in self._transports and self._next_try.get((transport, chat), 0.0) < end
            for transport, chat in self._db.read(deliveries.chats_with_pending)
        )

    async def message_id(self, delivery_id: int) -> str | None:
        """Wait until a part was sent, and return its message id; None when it never will be."""
        while True:
            row = self._db.read(lambda conn: deliveries.get(conn, delivery_id))
            if row is None or row.state not in ("pending", "sending"):
                return row.message_id if row is not None and row.state == "sent" else None
            # Looked at again now and then: a part that never left may be dropped by others.
            await happens(self._some_settled, _LOOK_AGAIN_S, self._clock)

    def _remove_old_copies(self, folder: Path) -> None:
        try:
            wanted = self._db.read(deliveries.files_to_send)
            removed = outfiles.remove_others(folder, wanted, self._clock.now() - _KEPT_WITHOUT_ROW_S)
        except (OSError, StoreError) as error:
            log.warning("outbox.old_copies_kept", error=str(error))
            return
        if removed:
            log.info("outbox.old_copies_removed", count=removed)

    # ------------------------------------------------------------------------------------------------- a chat

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
                    wait = 0.0
                if wait is None:
                    pause = _PAUSE_MIN
                    continue
                if wait <= 0:  # nobody said how long
                    wait, pause = pause * (1 - self._random() / 4), min(pause * 2, _PAUSE_MAX)
                self._next_try[chat] = self._clock.monotonic() + wait
                await self._clock.sleep(wait)
                del self._next_try[chat]
        finally:
            self._next_try.pop(chat, None)
            self._busy.discard(chat)
            self.kick()

    async def _deliver(self, found: Delivery) -> float | None:
        """Make the call of one row. Returns seconds to wait before the next try, 0 when that is up to us, None when
        it is dealt with."""
        transport = self._transports[found.chat.transport]
        if found.act == "send" and found.id != found.group:
            point("outbox.between_parts")
        row = await self._db.write(partial(self._mark, found=found))
        if row is None:
            log.info("outbox.dropped", delivery=found.id, role=found.role, act=found.act)
            self._settled()
            return None
        point("outbox.marked")
        card, remark = self._dated(transport, row)
        try:
            message_id = await self._call(transport, row, card)
        except SendFailed as failure:
            return await self._failed(row, failure)
        except StoreError:
            raise
        except Exception as error:
            # A defect in one rendering must not stop everything else that waits for this chat.
            log.exception("outbox.defect", delivery=row.id, role=row.role)
            await self._give_up(row, SendFailed("refused", f"{type(error).__name__}: {error}"))
            return None
        point("outbox.requested")
        now = self._clock.now()

        def job(conn: sqlite3.Connection) -> None:
            deliveries.sent(conn, row.id, message_id, now)
            if remark is not None:
                deliveries.add_send(conn, row.chat, [remark], "notice", now, run_id=row.run_id)

        # It has left: while this cannot be stored nothing else may leave, or it would leave twice.
        await persist(self._db, self._clock, job)
        self._done_with(row)
        return None

    def _mark(self, conn: sqlite3.Connection, found: Delivery) -> Delivery | None:
        """About to leave. What may have been lost twice is not sent a third time: that is told."""
        row = deliveries.sending(conn, found.id)
        given_up = row is None and (now := deliveries.get(conn, found.id)) is not None and now.state == "unknown"
        if given_up and found.act == "send" and found.role in ("answer", "interaction"):
            told = cards.notice(
                "✗ It is not known whether the message before this one arrived.",
                "The web console shows all of this chat.",
            )
            deliveries.add_send(conn, found.chat, [told], "notice", self._clock.now(), run_id=found.run_id)
        return row

    async def _call(self, transport: Transport, row: Delivery, card: Card | None) -> str | None:
        if row.act == "send":
            assert card is not None
            return await transport.send(row.chat, card, row.priority)
        target = self._db.read(lambda conn: deliveries.get(conn, row.target or 0))
        if target is None or target.message_id is None:
            raise SendFailed("gone", "the message was never sent")
        if row.act == "edit":
            assert card is not None
            await transport.edit(row.chat, target.message_id, card, row.priority)
        else:
            await transport.delete(row.chat, target.message_id)
        return None

    def _dated(self, transport: Transport, row: Delivery) -> tuple[Card | None, Card | None]:
        """The card of a row, with the date under an answer that comes late; without room there, a card to follow it."""
        card, run_id = row.card, row.run_id
        if row.act != "send" or row.role != "answer" or card is None or run_id is None:
            return card, None
        now = self._clock.now()
        waited = self._db.read(lambda conn: deliveries.waited(conn, run_id))
        asked = waited[0] if waited is not None and waited[1] - waited[0] > self._dated_after else None
        made = row.created if now - row.created > self._dated_after else None
        date = cards.date_line(made, asked, now)
        if date is None or not self._db.read(lambda conn: deliveries.is_last_part(conn, row)):
            return card, None
        dated = msgspec.structs.replace(card, blocks=(*card.blocks, date))
        if len(transport.parts(dated)) == 1:
            return dated, None
        return card, Card((date,), silent=True)

    # ---------------------------------------------------------------------------------------------- failures

    async def _failed(self, row: Delivery, failure: SendFailed) -> float | None:
        match failure.kind:
            case "later":
                await persist(self._db, self._clock, lambda conn: deliveries.not_sent(conn, row.id))
                return failure.retry_after
            case "unknown":
                return 0.0  # the row stays as it is: the next attempt is the last
            case "moved":
                await persist(self._db, self._clock, partial(self._move, row, failure.moved_to))
                return None
            case "no_chat":
                await self._give_up_chat(row, failure)
                return None
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

    def _move(self, row: Delivery, new: str, conn: sqlite3.Connection) -> None:
        deliveries.not_sent(conn, row.id)
        moves.chat_moved(conn, row.chat.transport, row.chat.chat, new, self._clock.now())

    async def _give_up_chat(self, row: Delivery, failure: SendFailed) -> None:
        """Nothing arrives in this chat any more: all that waits for it is given up, and said once."""
        where = (row.chat.transport, row.chat.chat)
        count = await persist(self._db, self._clock, lambda conn: deliveries.fail_chat(conn, *where, failure.detail))
        log.warning("outbox.chat_gone", transport=where[0], chat=where[1], given_up=count, detail=failure.detail)
        self._done_with(row)

    async def _give_up(self, row: Delivery, failure: SendFailed) -> None:
        """It will never arrive. Where a person would miss it, that is told instead."""

        def job(conn: sqlite3.Connection) -> None:
            deliveries.failed(conn, row.id, failure.detail)
            if row.role == "interaction" and row.act == "send":
                deliveries.drop_rest(conn, row.group, "a part before it was not delivered")
            if (told := _instead(conn, row, failure)) is not None:
                deliveries.add_send(conn, row.chat, [told], "notice", self._clock.now(), run_id=row.run_id)

        await persist(self._db, self._clock, job)
        self._done_with(row)

    def _done_with(self, row: Delivery) -> None:
        if row.act == "send" and row.card is not None:
            outfiles.remove(row.card.file)
        self._settled()

    def _settled(self) -> None:
        self._some_settled.set()
        self._some_settled = anyio.Event()
        self._hub.changed()


def _instead(conn: sqlite3.Connection, row: Delivery, failure: SendFailed) -> Card | None:
    """What to send when a call is refused: buttons never come without the whole content, no answer goes missing, and
    an edit becomes a message when what it says must be seen."""
    if row.act == "edit":
        return _edit_as_message(conn, row)
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


def _edit_as_message(conn: sqlite3.Connection, row: Delivery) -> Card | None:
    """That a run was interrupted, and the outcome of a request: the edit that takes its buttons away. Copies are not
    told of."""
    assert row.card is not None
    target = deliveries.get(conn, row.target or 0)
    if target is None or target.target is not None:
        return None
    if row.role == "status":
        return row.card
    if row.role == "interaction" and not row.card.buttons:
        return msgspec.structs.replace(row.card, silent=True)
    return None
