"""Receives by long polling: an update is confirmed to Telegram only after it is stored.

Asking with an offset confirms everything before it, so the next question is asked after the commit. When Telegram
cannot be reached, refuses the token, or serves another poller, and when nothing can be stored, the loop pauses, longer
each time. Every trouble is logged when it begins and when it is over, and can be read from `trouble` meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import tzinfo
from typing import Literal, NamedTuple, Protocol, TypeAlias

import anyio
import structlog

from ...clock import Clock
from ...store.database import StoreError
from ...text import words
from ...transport import Inbox
from .decode import TRANSPORT
from .errors import ApiError

log = structlog.get_logger(__name__)

LONG_POLL_S = 50  # the server's own limit
_LONGEST_PAUSE_S = 60.0
_LONGEST_PAUSE_TOKEN_S = 600.0
_OFFSET_GOOD_FOR_S = 86_400.0
_HURRIED_S = 1.0  # a poll that ends sooner without updates was no long poll

Problem: TypeAlias = Literal["unreachable", "conflict", "unauthorized", "storage"]


class UpdateSource(Protocol):
    """The part of `BotApi` that receives."""

    async def get_updates(self, offset: int | None, seconds: int) -> list[tuple[int, bytes]]: ...

    async def delete_webhook(self) -> None: ...


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
                    f"Another program receives the messages of this bot since {since}. Stop it, or use a bot of its own"
                )
            case "unauthorized":
                return (
                    f"Telegram refuses the bot token since {since}. Get the current one from @BotFather"
                    " and set transports.telegram.bot_token"
                )
            case "storage":
                return f"New messages cannot be stored since {since} ({self.detail}). They wait at Telegram"


class Poller:
    """`random` gives numbers from 0 to 1, for the pauses. `tell` says something in the chat without storing it."""

    def __init__(
        self,
        api: UpdateSource,
        clock: Clock,
        *,
        random: Callable[[], float],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        self._api = api
        self._clock = clock
        self._random = random
        self._tell = tell
        # Without an offset Telegram sends all that is not confirmed, and what is stored already is ignored. An offset
        # of an earlier time would be dangerous: after a quiet week update ids go on anywhere, and lower ones than the
        # offset would count as confirmed.
        self._offset: int | None = None
        self._heard = clock.monotonic()
        self._webhook_gone = False
        self._attempts = 0
        self.trouble: Trouble | None = None
        self.under_way = anyio.Event()  # Telegram has answered once, or has been found not to

    async def run(self, inbox: Inbox) -> None:
        """Receive until cancelled."""
        while True:
            try:
                batch = await self._ask()
            except ApiError as error:
                await self._failed(error)
                continue
            if self.trouble is not None and self.trouble.problem != "storage":
                self._recovered()
            if not batch:
                continue
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
            self._heard = self._clock.monotonic()
            self._offset = max(update_id for update_id, _ in batch) + 1
            if self.trouble is not None:
                self._recovered()
                await self._tell("✓ Messages can be stored again; those that waited are handled now.")

    async def _ask(self) -> list[tuple[int, bytes]]:
        if not self._webhook_gone:
            await self._api.delete_webhook()
            self._webhook_gone = True
            self.under_way.set()
        asked = self._clock.monotonic()
        if asked - self._heard > _OFFSET_GOOD_FOR_S:
            self._offset = None
        batch = await self._api.get_updates(self._offset, LONG_POLL_S)
        if not batch and self._clock.monotonic() - asked < _HURRIED_S:
            await self._clock.sleep(_HURRIED_S)
        return batch

    async def _failed(self, error: ApiError) -> None:
        problem: Problem = "unreachable"
        if error.kind == "unauthorized":
            problem = "unauthorized"
        elif error.kind == "conflict":
            problem = "conflict"
            self._webhook_gone = "webhook" not in error.detail.lower()  # one that was set since we began
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
