"""A transport for measurements: one person in each chat, who approves what is asked; it notes when cards arrive."""

from __future__ import annotations

import itertools
import random
import re
import time

import anyio
import anyio.abc
import msgspec

from untether.text.blocks import to_plain
from untether.transport import Card, ChatRef, FileIn, Inbound, Inbox, MessageIn, Priority, Sender, TapIn

_ASKED = re.compile(r"\bask (\d+) (\d+\.\d+)")
_HEARD = re.compile(r"\b(\d+):(\d+\.\d+)")
_PERSON = Sender("7", "Ann")


class People:
    """Implements `Transport`. `think` is about how many seconds a person takes to tap; message ids begin at `first`."""

    name = "bench"
    shows_all = False

    def __init__(self, tasks: anyio.abc.TaskGroup, think: float = 0.03, first: int = 1) -> None:
        self.requests: list[float] = []  # seconds from the agent's line to the call of `send`
        self.taps: list[float] = []  # seconds from the tap to the agent's reading of its line
        self.painted = 0
        self._tasks = tasks
        self._think = think
        self._chance = random.Random(1)
        self._ids = itertools.count(first)
        self._inbox: Inbox | None = None
        self._tapped: dict[tuple[str, str], float] = {}  # by chat and number of the question
        self._answered: dict[str, anyio.Event] = {}

    async def ask(self, inbox: Inbox, chat: str) -> None:
        """Send a message, and wait for the answer to it."""
        self._inbox = inbox
        answered = self._answered[chat] = anyio.Event()
        id = str(next(self._ids))
        message = MessageIn(ChatRef(self.name, chat), _PERSON, id, "Do it.", time.time())
        await inbox.store(self.name, [(id, msgspec.json.encode(message))])
        await answered.wait()

    async def _tap(self, chat: ChatRef, message_id: str, card: Card, number: str) -> None:
        await anyio.sleep(self._chance.uniform(0.5, 1.5) * self._think)
        tap = TapIn(chat, _PERSON, message_id, card.buttons[0][0].data, "token")
        raw = msgspec.json.encode(tap)
        assert self._inbox is not None
        self._tapped[chat.chat, number] = time.time()
        await self._inbox.store(self.name, [(f"t{next(self._ids)}", raw)])

    # ---------------------------------------------------------------------------------------------------- Transport

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        now = time.time()
        message_id = str(next(self._ids))
        if priority == Priority.INTERACTION:
            number, left = _ASKED.findall(to_plain(card.blocks))[0]
            self.requests.append(now - float(left))
            self._tasks.start_soon(self._tap, chat, message_id, card, number)
        elif priority == Priority.ANSWER and (heard := _HEARD.findall(to_plain(card.blocks))):
            self.taps += [float(at) - self._tapped[chat.chat, number] for number, at in heard]
            self._answered[chat.chat].set()
        return message_id

    async def edit(self, chat: ChatRef, message_id: str, card: Card, priority: int) -> None:
        pass

    async def delete(self, chat: ChatRef, message_id: str) -> None:
        pass

    def paint(self, chat: ChatRef, message_id: str, card: Card) -> None:
        self.painted += 1

    async def run(self, inbox: Inbox) -> None:
        await anyio.sleep_forever()

    def decode(self, raw: bytes) -> Inbound | None:
        return msgspec.json.decode(raw, type=Inbound)

    def may_act(self, inbound: Inbound) -> bool:
        return True

    def parts(self, card: Card) -> list[Card]:
        return [card]

    async def toast(self, tap: TapIn, text: str) -> bool:
        return True

    async def fetch(self, file: FileIn, limit: int) -> bytes:
        return b""

    def health(self) -> str:
        return ""
