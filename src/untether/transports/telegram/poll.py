"""Receives by long polling: an update is confirmed to Telegram only after it is stored.

Asking with an offset confirms everything before it, so the next question is asked after the commit. When Telegram
cannot be reached, refuses the token, or serves another poller, and when nothing can be stored, the loop pauses, longer
each time. Every trouble is logged when it begins and when it is over, and can be read from `trouble` meanwhile.

Only a poll that was completed counts as a sign of life. One that takes too long is given up; so is
every poll and pause after the machine slept, for its connections are dead then and do not say so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import tzinfo
from typing import Literal, NamedTuple, Protocol, TypeAlias

import anyio
import structlog

from ...clock import Clock
from ...faults import point
from ...store.database import StoreError
from ...text import words
from ...transport import ChatRef, Inbox
from .. import Facts
from .decode import TRANSPORT
from .errors import ApiError

log = structlog.get_logger(__name__)

LONG_POLL_S = 30  # the server would wait 50 s; half a minute notices a dead connection sooner
DEADLINE_S = LONG_POLL_S + 15.0  # of one poll, with all that the network may add
_PROOF_POLL_S = 3  # after trouble: only a completed poll proves that it is over
_WATCH_S = 10.0
_SLEPT_S = 10.0  # wall time that passed without the machine's own: it slept, or its clock was set
_TRIES_BEFORE_RENEWAL = 3
_LONGEST_PAUSE_S = 45.0  # so that it is well within a minute of the network's return
_LONGEST_PAUSE_TOKEN_S = 600.0
_OFFSET_GOOD_FOR_S = 86_400.0
_HURRIED_S = 1.0  # a poll that ends sooner without updates was no long poll
_KEPT_AT_TELEGRAM_S = 86_400.0
_NOTE_EVERY_S = 300.0  # how often the time of the last poll is stored
_LAST_POLL = "last_poll"

Problem: TypeAlias = Literal["unreachable", "conflict", "webhook", "unauthorized", "storage"]


class UpdateSource(Protocol):
    """The part of `BotApi` that receives."""

    async def get_updates(self, offset: int | None, seconds: int) -> list[tuple[int, bytes]]: ...

    async def delete_webhook(self) -> str: ...


class PollSource(UpdateSource, Protocol):
    async def renew(self) -> None: ...


class Trouble(NamedTuple):
    """What keeps us from receiving. `since` is in epoch seconds."""

    problem: Problem
    since: float
    detail: str

    def sentence(self, now: float, zone: tzinfo | None = None) -> str:
        """With its time in `zone`; None: this machine's."""
        since = words.clock_time(self.since, zone, now)
        match self.problem:
            case "unreachable":
                return f"Telegram cannot be reached since {since} ({self.detail})"
            case "conflict":
                return (
                    f"Another program polls with this bot's token since {since} and gets its messages (Telegram says"
                    " 409 Conflict). Untether keeps trying, and goes on by itself once the other is stopped or has"
                    " a bot of its own"
                )
            case "webhook":
                return (
                    f"A webhook was set for this bot since {since}: another program wants its messages there. It is"
                    " removed each time; stop that program, or use a bot of its own"
                )
            case "unauthorized":
                return (
                    f"Telegram refuses the bot token since {since}. Get the current one from @BotFather"
                    " and set transports.telegram.bot_token"
                )
            case "storage":
                return f"New messages cannot be stored since {since} ({self.detail}). They wait at Telegram"


class Poller:
    """`random` gives numbers from 0 to 1, for the pauses. `tell` says something in the chat without storing it.

    `facts` keeps when the last poll was completed, and `chats` are those to tell of a long absence. `deadline_s` is
    the machine's time, as all timeouts of the network are.
    """

    def __init__(
        self,
        api: PollSource,
        clock: Clock,
        *,
        random: Callable[[], float],
        tell: Callable[[str], Awaitable[None]],
        facts: Facts | None = None,
        chats: Callable[[], Iterable[str]] = tuple,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._api = api
        self._clock = clock
        self._random = random
        self._tell = tell
        self._facts = facts
        self._chats = chats
        self._deadline_s = deadline_s
        # Without an offset Telegram sends all that is not confirmed, and what is stored already is ignored. An offset
        # of an earlier time would be dangerous: after a quiet week update ids go on anywhere, and lower ones than the
        # offset would count as confirmed.
        self._offset: int | None = None
        self._heard = clock.monotonic()
        self._completed: float | None = None  # wall time of the last completed poll
        self._completed_stored = 0.0
        self._step = anyio.CancelScope()  # the poll or pause under way
        self._webhook_gone = False
        self._stale = False  # the connections are to be renewed
        self._attempts = 0
        self.trouble: Trouble | None = None
        self.under_way = anyio.Event()  # Telegram has answered once, or has been found not to

    async def run(self, inbox: Inbox) -> None:
        """Receive until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            await self._receive(inbox)

    async def _watch(self) -> None:
        """Give up what goes on after the machine slept: sleeping stops its timers, so nothing else would."""
        while True:
            wall, monotonic = self._clock.now(), self._clock.monotonic()
            await self._clock.sleep(_WATCH_S)
            slept = (self._clock.now() - wall) - (self._clock.monotonic() - monotonic)
            if slept > _SLEPT_S:
                log.info("telegram.slept", seconds=round(slept))
                self._stale = True
                self._attempts = 0
                self._step.cancel()

    async def _receive(self, inbox: Inbox) -> None:
        self._remember()
        while True:
            try:
                batch = await self._ask()
            except ApiError as error:
                await self._failed(error)
                continue
            if self.trouble is not None and self.trouble.problem != "storage":
                self._recovered()
            await self._note_completed(inbox)
            if not batch:
                continue
            point("poll.received")
            try:
                await inbox.store(TRANSPORT, [(str(update_id), raw) for update_id, raw in batch])
            except StoreError as error:
                if self.trouble is None:
                    await self._tell(
                        f"✗ Your messages cannot be stored: {error} They wait at Telegram, for 24 hours, and are"
                        " handled as soon as this is mended."
                    )
                await self._pause(Trouble("storage", self._clock.now(), str(error)))
                continue
            point("poll.stored")
            self._heard = self._clock.monotonic()
            self._offset = max(update_id for update_id, _ in batch) + 1
            if self.trouble is not None:
                self._recovered()
                await self._tell("✓ Messages can be stored again; those that waited are handled now.")

    async def _ask(self) -> list[tuple[int, bytes]]:
        if self._stale:
            await self._api.renew()
            self._stale = False
        asked = self._clock.monotonic()
        if asked - self._heard > _OFFSET_GOOD_FOR_S:
            self._offset = None
        batch = await self._poll_in_time()
        if not batch and self._clock.monotonic() - asked < _HURRIED_S:
            await self._clock.sleep(_HURRIED_S)
        return batch

    async def _poll(self) -> list[tuple[int, bytes]]:
        if not self._webhook_gone:
            if host := await self._api.delete_webhook():
                log.warning("telegram.webhook_removed", host=host)
            self._webhook_gone = True
            self.under_way.set()
        return await self._api.get_updates(self._offset, _PROOF_POLL_S if self.trouble else LONG_POLL_S)

    async def _poll_in_time(self) -> list[tuple[int, bytes]]:
        with anyio.move_on_after(self._deadline_s) as self._step:
            return await self._poll()
        self._stale = True
        raise ApiError("later", "no answer in time")

    def _remember(self) -> None:
        """When the last start polled last."""
        try:
            stored = self._facts.get(_LAST_POLL) if self._facts is not None else None
            self._completed = float(stored) if stored is not None else None
        except (StoreError, ValueError) as error:
            log.warning("telegram.last_poll_unknown", error=str(error))

    async def _note_completed(self, inbox: Inbox) -> None:
        """Remember that a poll was completed, and say so when the one before was too long ago."""
        now = self._clock.now()
        away = now - self._completed if self._completed is not None else 0.0
        try:
            if away > _KEPT_AT_TELEGRAM_S:
                log.warning("telegram.away", lasted=words.duration(away))
                for chat in self._chats():
                    await inbox.tell(
                        ChatRef(TRANSPORT, chat),
                        f"↻ I was away for {_long(away)}. Telegram keeps messages for 24 hours only, so older ones may"
                        " be missing.",
                        "Send again what got no answer.",
                    )
            if self._facts is not None and abs(now - self._completed_stored) > _NOTE_EVERY_S:
                await self._facts.put(_LAST_POLL, f"{now:.0f}")
                self._completed_stored = now
        except StoreError as error:
            log.warning("telegram.poll_not_noted", error=str(error))
            return  # it is still to be said
        self._completed = now

    async def _failed(self, error: ApiError) -> None:
        problem: Problem = "unreachable"
        if error.kind == "unauthorized":
            problem = "unauthorized"
        elif error.kind == "conflict":
            self._webhook_gone = "webhook" not in error.detail.lower()  # one that was set since we began
            problem = "conflict" if self._webhook_gone else "webhook"
        await self._pause(Trouble(problem, self._clock.now(), error.detail), error.retry_after)

    async def _pause(self, trouble: Trouble, at_least: float = 0.0) -> None:
        if self.trouble is None or self.trouble.problem != trouble.problem:
            self.trouble = trouble
            self._attempts = 0
            log.warning("telegram.trouble", problem=trouble.problem, meaning=trouble.sentence(trouble.since))
        self.under_way.set()
        longest = _LONGEST_PAUSE_TOKEN_S if trouble.problem == "unauthorized" else _LONGEST_PAUSE_S
        pause = min(longest, 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        if trouble.problem == "unreachable" and self._attempts % _TRIES_BEFORE_RENEWAL == 0:
            self._stale = True
        with anyio.CancelScope() as self._step:
            await self._clock.sleep(max(at_least, pause * (1 - self._random() / 4)))

    def _recovered(self) -> None:
        assert self.trouble is not None
        log.info(
            "telegram.recovered",
            problem=self.trouble.problem,
            lasted=words.duration(self._clock.now() - self.trouble.since),
        )
        self.trouble = None
        self._attempts = 0


def _long(seconds: float) -> str:
    """`30 hours`, `2 days`."""
    return f"{seconds / 3600:.0f} hours" if seconds < 2 * 86_400 else f"{seconds / 86_400:.0f} days"
