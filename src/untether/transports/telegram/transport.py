"""The Telegram transport: one bot, the chats it serves, and who may act in them."""

from __future__ import annotations

import random as random_module
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog

from ...clock import Clock
from ...settings.model import Telegram
from ...store import moves, outfiles
from ...text import words
from ...text.clean import clean_text
from ...text.rich import utf16_length
from ...transport import Card, ChatRef, FileIn, Inbound, Inbox, Priority, SendFailed, TapIn
from .. import Facts
from . import render
from .api import MAX_TOAST, BotApi
from .decode import TRANSPORT, decode, move_in
from .errors import ApiError
from .lanes import Lanes
from .poll import Poller

log = structlog.get_logger(__name__)

T = TypeVar("T")

_TOKEN_PAUSE_S = 60.0
_COMMANDS_PAUSE_S = 60.0
MAX_FILE = 50_000_000  # bytes, of the Bot API (https://core.telegram.org/bots/api#senddocument)


class TelegramTransport:
    """`Transport` for Telegram.

    `project_chats` are the chats that projects are bound to, beside the configured one; `commands` is the menu, as
    (name, description); `facts` survive a restart; `moved` are the new ids of groups that were upgraded, by their old
    ones. Sending works from the first moment, painting and receiving while `run` runs; `close` at the very end lets go
    of the connections.
    """

    name: Final = TRANSPORT
    shows_all: Final = False

    def __init__(
        self,
        settings: Telegram,
        *,
        clock: Clock,
        zone: tzinfo | None = None,
        project_chats: Iterable[int] = (),
        commands: Sequence[tuple[str, str]] = (),
        group_chat_rps: float = 0.3333,
        random: Callable[[], float] = random_module.random,
        facts: Facts | None = None,
        moved: Mapping[str, str] | None = None,
    ) -> None:
        self.api = BotApi(settings.bot_token.get_secret_value(), settings.api_base_url)
        self._clock = clock
        self._zone = zone
        self._users = None if settings.allow_any_user else {str(user) for user in settings.allowed_user_ids}
        self._chats = {str(chat) for chat in (settings.chat_id, *project_chats)}
        self._commands = commands
        self._most_parts = 2 if settings.message_overflow == "trim" else render.MAX_PARTS
        self._lanes = Lanes(clock, group_rps=group_chat_rps)
        self._main_chat = str(settings.chat_id)
        self._moved: dict[str, str] = {}
        for old, new in (moved or {}).items():
            self._note_move(old, new)
        self._lost_chats: dict[str, str] = {}  # those in which nothing arrives, and why
        self._lost_topics: set[tuple[str, str]] = set()
        # A request may have left without an answer, perhaps that of a bridge that crashed: the network may swallow the
        # next one as well, which may be the last try.
        self._unsure = True
        self._asking = anyio.Lock()
        self._poller = Poller(
            self.api,
            clock,
            random=random,
            tell=self._tell,
            facts=facts,
            chats=lambda: sorted(self._chats - self._moved.keys()),
        )

    async def close(self) -> None:
        await self.api.aclose()

    # ------------------------------------------------------------------------------------------- receiving

    async def run(self, inbox: Inbox) -> None:
        """Receive and paint until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lanes.run)
            if self._commands:
                tasks.start_soon(self._set_commands)
            await self._poller.run(_Noticing(inbox, self))

    async def _set_commands(self) -> None:
        while True:
            try:
                self._lanes.note()
                await self.api.set_commands(self._commands)
                return
            except ApiError as error:
                if error.kind not in ("later", "unauthorized"):
                    log.warning("telegram.no_command_menu", detail=error.detail)
                    return
                pause = max(error.retry_after, _COMMANDS_PAUSE_S)
            await self._clock.sleep(pause)

    async def _tell(self, text: str) -> None:
        """Say something when nothing can be stored; it does not matter much when it does not arrive."""
        try:
            send = partial(self.api.send_message, self._main_chat, clean_text(text))
            await self._lanes.do(self._main_chat, send, Priority.NOTICE)
        except ApiError as error:
            log.warning("telegram.not_told", text=text, detail=error.detail)

    def decode(self, raw: bytes) -> Inbound | None:
        """As `Transport.decode`. Raises ValueError for what is no update."""
        inbound = decode(raw, self.api.bot_id)
        if inbound is None:
            return None
        chat = inbound.chat
        self._lost_chats.pop(chat.chat, None)
        self._lost_topics.discard((chat.chat, chat.thread))
        if (new := self._moved.get(chat.chat)) is None:
            return inbound
        chat = msgspec.structs.replace(chat, chat=new)
        return msgspec.structs.replace(
            inbound, chat=chat, message_id=moves.message_id(inbound.chat.chat, inbound.message_id)
        )

    def note_moves(self, updates: Iterable[tuple[str, bytes]]) -> list[tuple[str, str]]:
        """The groups of ours among updates that got a new id, as (old, new). They are served there from now on."""
        found = []
        for key, raw in updates:
            try:
                move = move_in(raw)
            except ValueError as error:  # it is stored, and set aside when it is its turn
                log.warning("telegram.unreadable_update", update=key, error=str(error))
                continue
            if move is not None and move[0] in self._chats:
                self._note_move(*move)
                found.append(move)
        return found

    def _note_move(self, old: str, new: str) -> None:
        self._moved[old] = new
        if old in self._chats:
            self._chats.add(new)  # the old one stays: buttons of its messages can still be tapped
        if old == self._main_chat:
            self._main_chat = new

    def may_act(self, inbound: Inbound) -> bool:
        """An allowed user in a configured chat; a private chat with an allowed user is no configured chat by itself."""
        return inbound.chat.chat in self._chats and (self._users is None or inbound.sender.id in self._users)

    async def fetch(self, file: FileIn, limit: int) -> bytes:
        try:
            self._lanes.note()
            return await self.api.download(file.id, limit)
        except ApiError as error:
            raise SendFailed(
                error.kind if error.kind in ("later", "gone") else "refused", error.detail, error.retry_after
            ) from error

    # --------------------------------------------------------------------------------------------- sending

    def parts(self, card: Card) -> list[Card]:
        return render.parts(card, self._most_parts)

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        """Send, and give up the topic or the formatting before the message."""
        chat = self._now(chat)
        message = render.message(card)
        content = await self._content(message)
        while True:
            await self._make_sure()
            if (chat.chat, chat.thread) in self._lost_topics:
                chat = ChatRef(chat.transport, chat.chat)
            call = partial(self._send_as_it_is, chat, card, message, content)
            try:
                return await self._take_turn(chat, call, priority)
            except ApiError as error:
                if chat.thread and error.topic_gone:
                    await self._lose_topic(chat, priority)
                elif message.entities and error.kind == "refused":
                    message = message._replace(entities=[])
                else:
                    raise self._failure(chat, error) from error
                log.warning("telegram.sent_in_simpler_form", chat=chat.chat, detail=error.detail)

    async def _content(self, message: render.Message) -> bytes:
        """What a document holds; empty for a text."""
        if message.file is None:
            return b""
        try:
            content = await anyio.to_thread.run_sync(outfiles.read, message.file)
        except (OSError, ValueError) as error:
            raise SendFailed("refused", f"the file {message.file.name} cannot be read: {error}") from error
        if len(content) > MAX_FILE:
            raise SendFailed("refused", f"the file {message.file.name} is larger than Telegram takes from a bot, 50 MB")
        return content or b"\n"  # Telegram takes no empty file

    async def _send_as_it_is(self, chat: ChatRef, card: Card, message: render.Message, content: bytes) -> str:
        if message.file is None:
            return await self.api.send_message(
                chat.chat,
                message.text,
                entities=message.entities,
                keyboard=message.keyboard,
                thread=chat.thread,
                reply_to=card.reply_to,
                silent=card.silent,
            )
        return await self.api.send_document(
            chat.chat,
            clean_text(message.file.name),
            content,
            caption=message.text,
            entities=message.entities,
            keyboard=message.keyboard,
            thread=chat.thread,
            reply_to=card.reply_to,
            silent=card.silent,
        )

    async def _lose_topic(self, chat: ChatRef, priority: int) -> None:
        """A topic was closed or deleted: what must arrive goes to the general part of its chat, which is said once."""
        self._lost_topics.add((chat.chat, chat.thread))
        text = "The topic of a conversation was closed or deleted. What belongs to it arrives here now."
        try:
            await self._take_turn(chat, partial(self.api.send_message, chat.chat, text, silent=True), priority)
        except ApiError as error:  # what matters comes next, and says what is wrong
            log.info("telegram.not_told", text=text, detail=error.detail)

    async def _make_sure(self) -> None:
        """After a request without an answer: send only when the server answers. A send is repeated only once."""
        async with self._asking:  # one asks for all
            if not self._unsure:
                return
            try:
                self._lanes.note()
                await self.api.get_me()
            except ApiError as error:
                pause = _TOKEN_PAUSE_S if error.kind == "unauthorized" else error.retry_after
                raise SendFailed("later", error.detail, pause) from error
            self._unsure = False

    async def edit(self, chat: ChatRef, message_id: str, card: Card, priority: int) -> None:
        chat, message_id = self._message(chat, message_id)
        self._lanes.forget_paint(chat.chat, message_id)
        message = render.message(card)
        while True:
            try:
                return await self._take_turn(chat, partial(self._edit, chat, message_id, message), priority)
            except ApiError as error:
                if not (message.entities and error.kind == "refused"):
                    raise self._failure(chat, error) from error
                message = message._replace(entities=[])
                log.warning("telegram.sent_in_simpler_form", chat=chat.chat, detail=error.detail)

    async def _edit(self, chat: ChatRef, message_id: str, message: render.Message) -> None:
        await self.api.edit_text(
            chat.chat, message_id, message.text, entities=message.entities, keyboard=message.keyboard
        )

    async def delete(self, chat: ChatRef, message_id: str) -> None:
        chat, message_id = self._message(chat, message_id)
        self._lanes.forget_paint(chat.chat, message_id)
        try:
            await self._take_turn(chat, partial(self.api.delete_message, chat.chat, message_id), Priority.DELETE)
        except ApiError as error:
            raise self._failure(chat, error) from error

    def paint(self, chat: ChatRef, message_id: str, card: Card) -> None:
        chat, message_id = self._message(chat, message_id)

        async def paint() -> None:  # rendered when it leaves: most paints never do
            await self._edit(chat, message_id, render.message(card))

        self._lanes.paint(chat.chat, message_id, paint)

    async def toast(self, tap: TapIn, text: str) -> bool:
        """Answer a tap, past all queues. False when it did not get there in time."""
        if utf16_length(text) > MAX_TOAST:
            text = words.one_line(text, MAX_TOAST // 2)
        for last_try in (False, True):
            try:
                self._lanes.note()
                await self.api.answer_callback(tap.token, clean_text(text))
                return True
            except ApiError as error:
                if last_try or error.kind != "later" or error.retry_after:
                    log.info("telegram.toast_failed", kind=error.kind, detail=error.detail)
                    return False
        return False

    async def _take_turn(self, chat: ChatRef, call: Callable[[], Awaitable[T]], priority: int) -> T:
        """Make a call in the lane of its chat. ApiErrors pass through."""
        result = await self._lanes.do(chat.chat, call, priority)
        self._unsure = False
        self._lost_chats.pop(chat.chat, None)
        return result

    def _now(self, chat: ChatRef) -> ChatRef:
        """Where a chat is now."""
        new = self._moved.get(chat.chat)
        return chat if new is None else msgspec.structs.replace(chat, chat=new)

    def _message(self, chat: ChatRef, message_id: str) -> tuple[ChatRef, str]:
        """A message as Telegram knows it: one that was sent before its chat moved belongs to the old id."""
        old, _, number = message_id.rpartition("/")
        return (msgspec.structs.replace(chat, chat=old), number) if old else (chat, message_id)

    def _failure(self, chat: ChatRef, error: ApiError) -> SendFailed:
        match error.kind:
            case "unknown":
                self._unsure = True
                return SendFailed("unknown", error.detail)
            case "moved" if self._moved.get(chat.chat) is not None or error.migrate_to is None:
                return SendFailed("gone", error.detail)  # a message of before the move
            case "moved":
                new = str(error.migrate_to)
                self._note_move(chat.chat, new)
                return SendFailed("moved", error.detail, moved_to=new)
            case "no_chat":
                self._lost_chats[chat.chat] = error.detail
                return SendFailed("no_chat", error.detail)
            case "gone" | "refused" | "later":
                return SendFailed(error.kind, error.detail, error.retry_after)
            case "unauthorized":
                return SendFailed("later", error.detail, _TOKEN_PAUSE_S)  # it waits until the token is set right
            case _:
                return SendFailed("refused", error.detail)

    # ---------------------------------------------------------------------------------------------- health

    async def under_way(self) -> None:
        """Return when receiving has begun: Telegram has answered once, or `health` says why it does not."""
        await self._poller.under_way.wait()

    def health(self) -> str:
        now = self._clock.now()
        sentences = [self._poller.trouble.sentence(now, self._zone)] if self._poller.trouble else []
        sentences += (
            f"Telegram asked to pause chat {chat} until {words.clock_time(until, self._zone, now)}; answers wait"
            for chat, until in self._lanes.paused().items()
        )
        sentences += (f"nothing arrives in chat {chat} ({detail})" for chat, detail in self._lost_chats.items())
        return "; ".join(sentences)


class _Noticing:
    """The inbox, with an eye on what says that a group got a new id: that is carried over before what follows."""

    def __init__(self, inbox: Inbox, transport: TelegramTransport) -> None:
        self._inbox = inbox
        self._transport = transport

    async def store(self, transport: str, updates: Sequence[tuple[str, bytes]]) -> None:
        for old, new in self._transport.note_moves(updates):
            await self._inbox.moved(transport, old, new)
        await self._inbox.store(transport, updates)

    async def moved(self, transport: str, old: str, new: str) -> None:
        await self._inbox.moved(transport, old, new)

    async def tell(self, chat: ChatRef, *lines: str) -> None:
        await self._inbox.tell(chat, *lines)
