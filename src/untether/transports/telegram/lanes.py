"""One lane for each chat: calls leave one after another, the important ones first, at the pace that Telegram allows.

Pace is counted in windows: at most so many calls in any so many seconds, for a chat, and for all chats together. What
a chat is told (messages, edits, deletions) takes its turn; who has none waits in line, and the best priority goes
first. Paints are what is left over: they take no place that something else might need in a moment, only the newest of
each message is kept, and one that fails is dropped.

A chat that Telegram asks to pause is closed for that long; calls that come meanwhile fail as `later`, so that they
wait where they are stored and not here. Other chats go on.

Some calls do not wait: toasts, and questions about bot and files. They count all the same.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar

import anyio
import anyio.abc
import structlog

from ...clock import Clock
from ...transport import Priority
from .errors import ApiError

log = structlog.get_logger(__name__)

T = TypeVar("T")
Paint: TypeAlias = Callable[[], Awaitable[None]]

# https://core.telegram.org/bots/faq: about one message a second in a chat, in short bursts more; 20 a minute in a
# group; 30 a second in all. Edits count like messages.
CHAT_CALLS, CHAT_SECONDS = 3, 3.0
ALL_CALLS, ALL_SECONDS = 30, 1.0
_MINUTE = 60.0
_MARGIN_S = 0.5  # calls may travel at different speeds, and the window of a group has no slack
_WIDEST = 8.0  # how much slower than usual paints get after floods


class Window:
    """At most `limit` calls in any `seconds`."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._room = limit
        self._spare = max(1, limit // 4)  # places that are not for paints
        self._seconds = seconds
        self._times: deque[float] = deque(maxlen=limit)

    @property
    def paint_gap(self) -> float:
        """Seconds between paints that use up what is for paints, evenly."""
        return self._seconds / max(1, self._room - self._spare)

    def wait(self, now: float, *, painting: bool = False) -> float:
        """Seconds until one more call may leave, 0 or less for at once. All times are monotonic."""
        room = max(1, self._room - self._spare) if painting else self._room
        return self._times[-room] + self._seconds - now if len(self._times) >= room else 0.0

    def note(self, now: float) -> None:
        self._times.append(now)


class Lane:
    """The calls of one chat."""

    def __init__(self, clock: Clock, windows: list[Window]) -> None:
        self._clock = clock
        self._windows = windows
        self._order = itertools.count()
        self._line: list[tuple[int, int]] = []  # who waits, as (priority, arrival), sorted
        self._busy = False
        self._changed = anyio.Event()
        self._open_at = 0.0  # monotonic; the chat is paused until then
        self._paints: dict[str, Paint] = {}
        self._painting = False
        self._last_paint = float("-inf")
        self._wider = 1.0

    @property
    def paused(self) -> float:
        """Seconds that the chat is still paused; 0 or less when it is not."""
        return self._open_at - self._clock.monotonic()

    async def do(self, call: Callable[[], Awaitable[T]], priority: int) -> T:
        """Make a call when it is its turn. ApiErrors pass through; `later` when the chat is paused."""
        async with self._turn(priority, self._wait_of_call):
            return await call()

    def add_paint(self, message_id: str, paint: Paint) -> bool:
        """Keep the newest paint of a message. True when somebody must start `paint_all`."""
        self._paints[message_id] = paint
        begin, self._painting = not self._painting, True
        return begin

    def forget_paint(self, message_id: str) -> None:
        self._paints.pop(message_id, None)

    async def paint_all(self) -> None:
        """Show what there is to paint, oldest message first, until nothing is left."""
        try:
            while self._paints:
                try:
                    async with self._turn(Priority.PROGRESS + 1, self._wait_of_paint):
                        await self._paint_next()
                except ApiError as error:
                    log.debug("telegram.paint_dropped", kind=error.kind, detail=error.detail)
        finally:
            self._painting = False

    async def _paint_next(self) -> None:
        if self._paints:  # it may have been forgotten while it waited
            message_id = next(iter(self._paints))
            self._last_paint = self._clock.monotonic()
            await self._paints.pop(message_id)()
            self._wider = max(1.0, self._wider * 0.9)

    @asynccontextmanager
    async def _turn(self, priority: int, wait: Callable[[], float]) -> AsyncIterator[None]:
        """Wait in line until `wait` says 0 and nobody better is there; leave room for the next at the end."""
        ticket = (priority, next(self._order))
        insort(self._line, ticket)
        try:
            # A wait only ever gets longer, through the calls of others. So nobody sleeps past their turn.
            while (seconds := wait()) > 0 or self._busy or self._line[0] != ticket:
                if seconds > 0:
                    await self._clock.sleep(seconds)
                else:
                    await self._changed.wait()
            self._busy = True
        finally:
            self._line.remove(ticket)
            self._wake()
        try:
            for window in self._windows:
                window.note(self._clock.monotonic())
            yield
        except ApiError as error:
            if error.kind == "later" and error.retry_after > 0:
                self._open_at = self._clock.monotonic() + error.retry_after
                self._wider = min(self._wider * 2, _WIDEST)
            raise
        finally:
            self._busy = False
            self._wake()

    def _wait_of_call(self) -> float:
        if (seconds := self.paused) > 0:
            raise ApiError("later", "Telegram asked to pause this chat", retry_after=seconds)
        now = self._clock.monotonic()
        return max(window.wait(now) for window in self._windows)

    def _wait_of_paint(self) -> float:
        now = self._clock.monotonic()
        gap = self._wider * max(window.paint_gap for window in self._windows)
        room = max(window.wait(now, painting=True) for window in self._windows)
        return max(self.paused, self._last_paint + gap - now, room)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Lanes:
    """All chats. `group_rps` is calls a second in a group, on average over a minute; 0 does not pace groups."""

    def __init__(self, clock: Clock, *, group_rps: float = 0.3333) -> None:
        self._clock = clock
        self._group_rps = group_rps
        self._all = Window(ALL_CALLS, ALL_SECONDS)
        self._lanes: dict[str, Lane] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Paint until cancelled. Calls do not need this."""
        async with anyio.create_task_group() as self._tasks:
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    async def do(self, chat: str, call: Callable[[], Awaitable[T]], priority: int) -> T:
        """Make a call when it is its turn in the lane of `chat`. ApiErrors pass through."""
        return await self._lane(chat).do(call, priority)

    def note(self) -> None:
        """A call that does not wait its turn is made: for all chats together it counts."""
        self._all.note(self._clock.monotonic())

    def paint(self, chat: str, message_id: str, paint: Paint) -> None:
        """Make this call when there is room, unless a newer one of the same message comes first."""
        lane = self._lane(chat)
        if self._tasks is not None and lane.add_paint(message_id, paint):
            self._tasks.start_soon(self._painter, lane)

    def forget_paint(self, chat: str, message_id: str) -> None:
        """What waits to be painted in this message is out of date."""
        self._lane(chat).forget_paint(message_id)

    def paused(self) -> dict[str, float]:
        """The chats that Telegram asked to pause, with the epoch seconds at which they go on."""
        now = self._clock.now()
        return {chat: now + lane.paused for chat, lane in self._lanes.items() if lane.paused > 0}

    @staticmethod
    async def _painter(lane: Lane) -> None:
        try:
            await lane.paint_all()
        except Exception:
            # A defect in showing progress must not end the receiving of messages, which runs beside it.
            log.exception("telegram.paint_failed")

    def _lane(self, chat: str) -> Lane:
        if (lane := self._lanes.get(chat)) is None:
            windows = [self._all, Window(CHAT_CALLS, CHAT_SECONDS)]
            if chat.startswith("-") and self._group_rps > 0:
                calls = max(1, round(self._group_rps * _MINUTE))
                windows.append(Window(calls, calls / self._group_rps + _MARGIN_S))
            lane = self._lanes[chat] = Lane(self._clock, windows)
        return lane
