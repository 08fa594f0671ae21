"""What was said to people on the console and is in no row of the store: notices, and the words that answer a tap.

Both live in memory: they tell of the moment. Answers, requests and progress are read from the store instead.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

import anyio

from ...clock import Clock
from ...conversation import cards
from ...model import Record
from ...text.blocks import Line
from ...transport import Card

_CHATS = 64
_NOTICES = 5
_NOTICE_LIFE = 3600.0  # seconds
_TOAST_LIFE = 8.0
_TOASTS = 256

# Buttons of cards that tell of a run: its page shows the same, from the store.
_RUN_BUTTONS = (cards.STOP, cards.AGAIN, cards.RESUME, cards.DETAILS, cards.VERBOSE)


class Notice(Record, frozen=True):
    """A message of ours: a command's reply, a refusal. `thread` is that of its chat, `at` epoch seconds."""

    id: str
    thread: str
    card: Card
    at: float


def is_notice(card: Card) -> bool:
    """Whether a card says what no page shows by itself, as progress and the queue are shown."""
    if any(button.data.partition(":")[0] in _RUN_BUTTONS for row in card.buttons for button in row):
        return False
    first = card.blocks[0] if card.blocks else None
    return not (isinstance(first, Line) and first.text.startswith("⏳"))


class Notices:
    """The last notices of the last chats."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[str, deque[Notice]] = OrderedDict()

    def add(self, id: str, thread: str, card: Card) -> None:
        chat = self._chats.setdefault(thread, deque(maxlen=_NOTICES))
        self._chats.move_to_end(thread)
        chat.append(Notice(id, thread, card, self._clock.now()))
        if len(self._chats) > _CHATS:
            self._chats.popitem(last=False)

    def replace(self, id: str, card: Card) -> None:
        for chat in self._chats.values():
            for index, notice in enumerate(chat):
                if notice.id == id:
                    chat[index] = Notice(id, notice.thread, card, notice.at)

    def remove(self, id: str) -> None:
        for thread, chat in self._chats.items():
            self._chats[thread] = deque((notice for notice in chat if notice.id != id), maxlen=_NOTICES)

    def of(self, thread: str) -> tuple[Notice, ...]:
        """Those of one chat, oldest first."""
        return tuple(self._fresh(self._chats.get(thread, deque())))

    def all(self) -> tuple[Notice, ...]:
        """The newest of all chats, oldest first."""
        found = [notice for chat in self._chats.values() for notice in self._fresh(chat)]
        return tuple(sorted(found, key=lambda notice: notice.at)[-_NOTICES:])

    def _fresh(self, chat: deque[Notice]) -> Iterator[Notice]:
        oldest = self._clock.now() - _NOTICE_LIFE
        return (notice for notice in chat if notice.at >= oldest)


class Toasts:
    """The words that answer a tap: they go to the request that waits for them, then to the session's next pages."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, tuple[anyio.Event, list[str]]] = {}
        self._shown: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def expect(self, token: str) -> None:
        """A tap with this token is on its way."""
        self._waiting[token] = (anyio.Event(), [])

    async def wait(self, token: str, seconds: float) -> str | None:
        """What a tap was answered; None when nothing came in time."""
        event, texts = self._waiting[token]
        with anyio.move_on_after(seconds):
            await event.wait()
        return texts[0] if texts else None

    def forget(self, token: str) -> None:
        """Whatever is answered from now on comes too late."""
        self._waiting.pop(token, None)

    def answer(self, token: str, text: str) -> bool:
        """Answer a tap. False when nobody waits for it any more."""
        if (waiting := self._waiting.get(token)) is None:
            return False
        event, texts = waiting
        texts.append(text)
        event.set()
        return True

    def show(self, session: str, text: str) -> None:
        """Show words on the pages of a session, for some seconds."""
        self._shown[session] = (text, self._clock.monotonic() + _TOAST_LIFE)
        self._shown.move_to_end(session)
        if len(self._shown) > _TOASTS:
            self._shown.popitem(last=False)

    def shown(self, session: str) -> str:
        text, until = self._shown.get(session, ("", 0.0))
        return text if self._clock.monotonic() < until else ""
