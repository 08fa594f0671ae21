"""A transport for tests, with a person in one chat: what was sent is a list, and waiting is by condition."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec

from untether.clock import Clock, SystemClock
from untether.conversation.context import Project
from untether.conversation.engines import Engine, Engines
from untether.conversation.hub import Hub
from untether.conversation.office import Office
from untether.conversation.outbox import Outbox
from untether.conversation.services import Options, Services
from untether.process.environment import agent_environment
from untether.process.host import Host
from untether.process.hosts import Children
from untether.process.machine import Machine
from untether.runner import Runner
from untether.store.database import Database
from untether.store.migrate import load_migrations
from untether.text.blocks import to_plain
from untether.transport import Card, ChatRef, FileIn, Inbound, Inbox, MessageIn, ReplyTo, Sender, SendFailed, TapIn

ANN = Sender("7", "Ann")
STRANGER = Sender("666", "Eve")


class Shown(msgspec.Struct):
    """One message of ours as the chat shows it now."""

    message_id: str
    chat: ChatRef
    card: Card
    edits: int = 0
    deleted: bool = False

    @property
    def text(self) -> str:
        return to_plain(self.card.blocks)

    @property
    def labels(self) -> list[str]:
        return [button.label for row in self.card.buttons for button in row]


class FakeChat:
    """Implements `Transport`. `failures` are raised by the next sends, one each."""

    def __init__(self, name: str = "fake", *, shows_all: bool = False) -> None:
        self.name = name
        self.shows_all = shows_all
        self.messages: list[Shown] = []
        self.toasts: list[str] = []
        self.failures: list[SendFailed] = []
        self.files: dict[str, bytes] = {}
        self._changed = anyio.Event()
        self.numbers = itertools.count(1)  # of messages
        self._keys = itertools.count(1)
        self.inbox: Inbox | None = None

    # ------------------------------------------------------------------------------------------------ Transport

    async def run(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self._note()
        await anyio.sleep_forever()

    def decode(self, raw: bytes) -> Inbound | None:
        return msgspec.json.decode(raw, type=Inbound)

    def may_act(self, inbound: Inbound) -> bool:
        return inbound.sender.id == ANN.id

    def parts(self, card: Card) -> list[Card]:
        return [card]

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        if self.failures:
            raise self.failures.pop(0)
        shown = Shown(str(next(self.numbers)), chat, card)
        self.messages.append(shown)
        self._note()
        return shown.message_id

    async def edit(self, chat: ChatRef, message_id: str, card: Card, priority: int) -> None:
        self.paint(chat, message_id, card)

    async def delete(self, chat: ChatRef, message_id: str) -> None:
        self._of(message_id).deleted = True
        self._note()

    def paint(self, chat: ChatRef, message_id: str, card: Card) -> None:
        shown = self._of(message_id)
        shown.card = card
        shown.edits += 1
        self._note()

    async def toast(self, tap: TapIn, text: str) -> bool:
        if text:
            self.toasts.append(text)
            self._note()
        return True

    async def fetch(self, file: FileIn, limit: int) -> bytes:
        return self.files[file.id][:limit]

    def health(self) -> str:
        return ""

    # ------------------------------------------------------------------------------------------------ the person

    async def say(
        self,
        text: str,
        *,
        reply_to: Shown | None = None,
        by: Sender = ANN,
        chat: str = "1",
        key: str | None = None,
        files: tuple[FileIn, ...] = (),
        thread: str = "",
        album: str = "",
        forwarded: bool = False,
    ) -> str:
        """Send a message and return its id; it is stored when this returns."""
        message_id = f"u{next(self.numbers)}"
        reply = ReplyTo(reply_to.message_id, reply_to.text, ours=True) if reply_to else None
        message = MessageIn(ChatRef(self.name, chat, thread), by, message_id, text, 0.0, reply, files)
        await self._store(msgspec.structs.replace(message, album=album, forwarded=forwarded), key)
        return message_id

    async def change(self, message_id: str, text: str, *, by: Sender = ANN, chat: str = "1") -> None:
        """Edit a message that was sent."""
        await self._store(MessageIn(ChatRef(self.name, chat), by, message_id, text, edited=True), None)

    async def tap(
        self, shown: Shown, label: str, *, by: Sender = ANN, chat: str = "1", thread: str = "", key: str | None = None
    ) -> None:
        data = next(b.data for row in shown.card.buttons for b in row if b.label == label)
        await self._store(TapIn(ChatRef(self.name, chat, thread), by, shown.message_id, data, "token"), key)

    async def _store(self, inbound: Inbound, key: str | None) -> None:
        if self.inbox is None:
            await self.until(lambda: self.inbox is not None)
        assert self.inbox is not None
        await self.inbox.store(self.name, [(key or f"k{next(self._keys)}", msgspec.json.encode(inbound))])

    # ---------------------------------------------------------------------------------------------------- waiting

    async def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        with anyio.fail_after(seconds):
            while not condition():
                await self._changed.wait()

    async def shown(self, *words: str, button: str = "", after: int = 0, seconds: float = 10.0) -> Shown:
        """Wait for a message that contains all words (and has a button); the newest one counts."""

        def find() -> Shown | None:
            for shown in reversed(self.messages[after:]):
                if shown.deleted or (button and button not in shown.labels):
                    continue
                if all(word in shown.text for word in words):
                    return shown
            return None

        try:
            await self.until(find, seconds)
        except TimeoutError:
            seen = "\n---\n".join(f"{'(deleted) ' if m.deleted else ''}{m.text} {m.labels}" for m in self.messages)
            raise AssertionError(f"no message with {words} {button!r}; the chat shows:\n{seen}") from None
        found = find()
        assert found is not None
        return found

    async def follow(self, hub: Hub) -> None:
        """Look again when something inside changed, too."""
        async for _ in hub.watch():
            self._note()

    def _of(self, message_id: str) -> Shown:
        return next(shown for shown in self.messages if shown.message_id == message_id)

    def _note(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def engines_for(config: Mapping[str, Any] | None = None) -> Engines:
    """The demo agent alone, without its pauses."""
    from untether.runners.demo.backend import BACKEND

    values = {"env": {"UNTETHER_DEMO_SPEED": "0"}, **(config or {})}
    runner = BACKEND.build_runner(values, Path("untether.toml"))
    return Engines({"demo": Engine("demo", BACKEND, runner, "built in")}, "demo")


def roomy() -> Machine:
    """A machine on which memory is never short."""
    return Machine(64 << 30, 64 << 30)


def _receives(chat: FakeChat, office: Office) -> bool:
    return chat.inbox is office.inbox


@asynccontextmanager
async def office_with(
    folder: Path,
    chat: FakeChat,
    *,
    engines: Engines | None = None,
    projects: Mapping[str, Project] | None = None,
    others: Sequence[FakeChat] = (),
    host: Host | None = None,
    clock: Clock | None = None,
    machine: Callable[[], Machine] = roomy,
    **options: Any,
) -> AsyncIterator[Office]:
    """A running office on the state of `folder`; the same folder again is a restart."""
    clock, hub = clock or SystemClock(), Hub()
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "UNTETHER_DEMO_HOME": str(folder / "demo")}

    def environment(runner: Runner, process_id: str) -> dict[str, str]:
        made = agent_environment(environ, engine_names=runner.env_names, process_id=process_id)
        return {**made, "UNTETHER_DEMO_HOME": environ["UNTETHER_DEMO_HOME"]}

    async with Database(folder / "untether.db", migrations=load_migrations()) as db:
        values = {"state_dir": str(folder), "home": str(home), "min_render_interval": 0.0, "join_s": 0.05, **options}
        transports = {one.name: one for one in (chat, *others)}
        services = Services(
            db=db,
            clock=clock,
            options=Options(**values),
            projects=projects or {},
            transports=transports,
            engines=engines or engines_for(),
            outbox=Outbox(db, transports, clock, hub),
            hub=hub,
            host=host or Children(folder / "processes", clock=clock),
            environment=environment,
            machine=machine,
        )
        office = Office(services)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(office.run)
            for one in (chat, *others):
                tasks.start_soon(one.run, office.inbox)
                tasks.start_soon(one.follow, hub)
                await one.until(partial(_receives, one, office))
            yield office
            tasks.cancel_scope.cancel()
