"""The web console as a transport: it stores what a browser sends, shows what the store holds, and decides nothing.

Every conversation that begins here is a chat of its own, so that each has its own session. Progress, requests and
answers are read from the store; what is sent here and shown nowhere else, the replies to commands, is kept as notices.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from datetime import tzinfo
from typing import Final

import anyio
import msgspec
import structlog
from starlette.types import ASGIApp

from ...clock import Clock
from ...conversation.hub import Hub
from ...settings.model import Web
from ...transport import Card, ChatRef, FileIn, Inbound, Inbox, MessageIn, Priority, ReplyTo, Sender, SendFailed, TapIn
from .access import Addresses, MemoryStore, Pairing, Sessions, SessionStore, random_code, random_token
from .app import Console, Shown
from .said import Notices, Toasts, is_notice
from .screens import Choices, Screens
from .server import bind, serve

log = structlog.get_logger(__name__)

NAME: Final = "web"
_CHAT: Final = "console"
_PERSON: Final = Sender("console", "console")
_WILDCARDS: Final = ("0.0.0.0", "::")


class WebTransport:
    """Make it, `attach` what it shows, `bind`, print the `pairing_link`, `run`.

    `store` keeps the sessions of paired browsers; without one they end with the program. The random sources give a
    cookie or key, and a code to type.
    """

    name: Final = NAME
    shows_all: Final = True

    def __init__(
        self,
        options: Web,
        *,
        clock: Clock,
        zone: tzinfo | None = None,
        store: SessionStore | None = None,
        random_token: Callable[[], str] = random_token,
        random_code: Callable[[], str] = random_code,
    ) -> None:
        self._options = options
        self._zone = zone
        self._clock = clock
        self._pairing = Pairing(clock, random_code)
        self._sessions = Sessions(store or MemoryStore(), clock, random_token)
        self._notices = Notices(clock)
        self._toasts = Toasts(clock)
        self._shown: tuple[Shown, Hub, Choices] | None = None
        self._socket: socket.socket | None = None
        self._port = options.port
        self._serving = False

    # -------------------------------------------------------------------------------------------- setting up

    def attach(self, views: Shown, hub: Hub, choices: Choices) -> None:
        """Give what is shown, the notices of change, and what can be chosen for a new conversation."""
        self._shown = (views, hub, choices)

    def bind(self) -> str:
        """Take the port, the next free one when it is taken, and return the console's address on this machine.

        :raises OSError: when no port can be had
        """
        self._socket = bind(self._options.host, self._options.port)
        self._port = self._socket.getsockname()[1]
        return self.base_url

    @property
    def base_url(self) -> str:
        """The address on this machine, such as `http://127.0.0.1:8420`."""
        host = "127.0.0.1" if self._options.host in _WILDCARDS else self._options.host
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    def pairing_link(self) -> str:
        """A link that pairs one browser, good for ten minutes. While its code is unused, it stays the same."""
        return f"{self._options.public_url or self.base_url}/pair?code={self._pairing.code()}"

    def new_code(self) -> str:
        """Make a new pairing code; the one before is void."""
        return self._pairing.new_code()

    def app(self, inbox: Inbox) -> ASGIApp:
        """The console as an ASGI application. `run` serves it; tests call it."""
        return self._console(inbox, anyio.Event()).app()

    def _console(self, inbox: Inbox, stopping: anyio.Event) -> Console:
        if self._shown is None:
            raise RuntimeError("attach() comes before the console is served")
        views, hub, choices = self._shown
        options = self._options
        return Console(
            views=views,
            hub=hub,
            choices=choices,
            sender=_Sender(inbox, self._clock),
            clock=self._clock,
            addresses=Addresses(options.host, self._port, options.public_url, allow_insecure=options.allow_insecure),
            pairing=self._pairing,
            sessions=self._sessions,
            notices=self._notices,
            toasts=self._toasts,
            screens=Screens(self._clock, self._zone),
            new_key=_key,
            stopping=stopping,
            started=_key(),
        )

    # ---------------------------------------------------------------------------------------------- Transport

    async def run(self, inbox: Inbox) -> None:
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        stopping = anyio.Event()
        self._serving = True
        log.info("web.serving", address=self.base_url)
        try:
            await serve(self._console(inbox, stopping).app(), self._socket, stopping)
        finally:
            self._serving = False
            self._socket.close()
            self._socket = None

    def decode(self, raw: bytes) -> Inbound | None:
        """Raises ValueError for what no version of ours wrote."""
        try:
            return msgspec.json.decode(raw, type=MessageIn | TapIn)
        except msgspec.DecodeError as error:
            raise ValueError(f"not an update of the console: {error}") from error

    def may_act(self, inbound: Inbound) -> bool:
        """Everything that was stored came from a paired browser."""
        return True

    def parts(self, card: Card) -> list[Card]:
        return [card]

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        message_id = f"web:{_key()}"
        if priority == Priority.NOTICE and is_notice(card):
            self._notices.add(message_id, chat.thread, card)
        return message_id

    async def edit(self, chat: ChatRef, message_id: str, card: Card, priority: int) -> None:
        self._notices.replace(message_id, card)

    async def delete(self, chat: ChatRef, message_id: str) -> None:
        self._notices.remove(message_id)

    def paint(self, chat: ChatRef, message_id: str, card: Card) -> None:
        """Pages read progress where it is made."""

    async def toast(self, tap: TapIn, text: str) -> bool:
        return self._toasts.answer(tap.token, text)

    async def fetch(self, file: FileIn, limit: int) -> bytes:
        raise SendFailed("refused", "the console takes no files yet")

    def health(self) -> str:
        return "" if self._serving else "the console is not served"


class _Sender:
    """Stores what a browser sends as updates of ours."""

    def __init__(self, inbox: Inbox, clock: Clock) -> None:
        self._inbox = inbox
        self._clock = clock

    async def message(self, text: str, *, thread: str, run_id: int | None) -> None:
        key = _key()
        reply = None if run_id is None else ReplyTo(f"run:{run_id}", ours=True)
        chat = ChatRef(NAME, _CHAT, thread)
        await self._store(key, MessageIn(chat, _PERSON, f"m:{key}", text, self._clock.now(), reply))

    async def tap(self, data: str, *, thread: str, token: str) -> None:
        key = _key()
        chat = ChatRef(NAME, _CHAT, thread)
        await self._store(key, TapIn(chat, _PERSON, f"t:{key}", data, token, self._clock.now()))

    async def _store(self, key: str, inbound: Inbound) -> None:
        await self._inbox.store(NAME, [(key, msgspec.json.encode(inbound))])


def _key() -> str:
    """A random key of 16 letters and digits."""
    return secrets.token_hex(8)
