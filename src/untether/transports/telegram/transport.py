"""The Telegram transport: one bot, the chats it serves, and who may act in them."""

from __future__ import annotations

import random as random_module
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import tzinfo
from functools import partial
from typing import Final, TypeVar

import anyio
import structlog

from ...clock import Clock
from ...settings.model import Telegram
from ...text import words
from ...text.clean import clean_text
from ...text.rich import utf16_length
from ...transport import Card, ChatRef, FileIn, Inbound, Inbox, Priority, SendFailed, TapIn
from . import render
from .api import MAX_TOAST, BotApi
from .decode import TRANSPORT, decode
from .errors import ApiError
from .lanes import Lanes
from .poll import Poller

log = structlog.get_logger(__name__)

T = TypeVar("T")

_TOKEN_PAUSE_S = 60.0
_COMMANDS_PAUSE_S = 60.0


class TelegramTransport:
    """`Transport` for Telegram.

    `project_chats` are the chats that projects are bound to, beside the configured one; `commands` is the menu, as
    (name, description). Sending works from the first moment, painting
    and receiving while `run` runs; `close` at the very end lets go of the connections.
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
        self._poller = Poller(self.api, clock, random=random, tell=self._tell)

    async def close(self) -> None:
        await self.api.aclose()

    # ------------------------------------------------------------------------------------------- receiving

    async def run(self, inbox: Inbox) -> None:
        """Receive and paint until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lanes.run)
            if self._commands:
                tasks.start_soon(self._set_commands)
            await self._poller.run(inbox)

    async def _set_commands(self) -> None:
        while True:
            try:
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
            await self.api.send_message(self._main_chat, clean_text(text))
        except ApiError as error:
            log.warning("telegram.not_told", text=text, detail=error.detail)

    def decode(self, raw: bytes) -> Inbound | None:
        """As `Transport.decode`. Raises ValueError for what is no update."""
        return decode(raw, self.api.bot_id)

    def may_act(self, inbound: Inbound) -> bool:
        """An allowed user in a configured chat; a private chat with an allowed user is no configured chat by itself."""
        return inbound.chat.chat in self._chats and (self._users is None or inbound.sender.id in self._users)

    async def fetch(self, file: FileIn, limit: int) -> bytes:
        try:
            return await self.api.download(file.id, limit)
        except ApiError as error:
            raise _failure(error) from error

    # --------------------------------------------------------------------------------------------- sending

    def parts(self, card: Card) -> list[Card]:
        return render.parts(card, self._most_parts)

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        message = render.message(card)
        return await self._take_turn(chat, partial(self._send, chat, card, message), priority)

    async def _send(self, chat: ChatRef, card: Card, message: render.Message) -> str:
        """Send, and give up the topic or the formatting before the message."""
        while True:
            try:
                return await self._send_as_it_is(chat, card, message)
            except ApiError as error:
                if chat.thread and error.topic_gone:
                    chat = ChatRef(chat.transport, chat.chat)
                elif message.entities and error.kind == "refused":
                    message = message._replace(entities=[])
                else:
                    raise
                log.warning("telegram.sent_in_simpler_form", chat=chat.chat, detail=error.detail)

    async def _send_as_it_is(self, chat: ChatRef, card: Card, message: render.Message) -> str:
        call = partial(
            self.api.send_message,
            chat.chat,
            message.text,
            entities=message.entities,
            keyboard=message.keyboard,
            thread=chat.thread,
            reply_to=card.reply_to,
            silent=card.silent,
        )
        if message.file is None:
            return await call()
        content = message.file.text.encode("utf-8", "replace") or b"\n"  # Telegram takes no empty file
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

    async def edit(self, chat: ChatRef, message_id: str, card: Card, priority: int) -> None:
        self._lanes.forget_paint(chat.chat, message_id)
        await self._take_turn(chat, partial(self._edit, chat, message_id, card), priority)

    async def _edit(self, chat: ChatRef, message_id: str, card: Card) -> None:
        message = render.message(card)
        await self.api.edit_text(
            chat.chat, message_id, message.text, entities=message.entities, keyboard=message.keyboard
        )

    async def delete(self, chat: ChatRef, message_id: str) -> None:
        self._lanes.forget_paint(chat.chat, message_id)
        await self._take_turn(chat, partial(self.api.delete_message, chat.chat, message_id), Priority.DELETE)

    def paint(self, chat: ChatRef, message_id: str, card: Card) -> None:
        self._lanes.paint(chat.chat, message_id, partial(self._edit, chat, message_id, card))

    async def toast(self, tap: TapIn, text: str) -> bool:
        """Answer a tap, past all queues. False when it did not get there in time."""
        if utf16_length(text) > MAX_TOAST:
            text = words.one_line(text, MAX_TOAST // 2)
        for last_try in (False, True):
            try:
                await self.api.answer_callback(tap.token, clean_text(text))
                return True
            except ApiError as error:
                if last_try or error.kind != "later" or error.retry_after:
                    log.info("telegram.toast_failed", kind=error.kind, detail=error.detail)
                    return False
        return False

    async def _take_turn(self, chat: ChatRef, call: Callable[[], Awaitable[T]], priority: int) -> T:
        try:
            return await self._lanes.do(chat.chat, call, priority)
        except ApiError as error:
            raise _failure(error) from error

    # ---------------------------------------------------------------------------------------------- health

    async def under_way(self) -> None:
        """Return when receiving has begun: Telegram has answered once, or `health` says why it does not."""
        await self._poller.under_way.wait()

    def health(self) -> str:
        now = self._clock.now()
        sentences = [self._poller.trouble.sentence(now, self._zone)] if self._poller.trouble else []
        sentences += (
            f"Telegram asked to pause chat {chat} until {words.clock_time(until, self._zone, now)}"
            for chat, until in self._lanes.paused().items()
        )
        return "; ".join(sentences)


def _failure(error: ApiError) -> SendFailed:
    match error.kind:
        case "unknown" | "gone" | "refused" | "later":
            detail = error.detail
            if error.migrate_to is not None:
                detail = f"this group got the new id {error.migrate_to}: set it as chat_id"
            return SendFailed(error.kind, detail, error.retry_after)
        case "unauthorized":
            return SendFailed("later", error.detail, _TOKEN_PAUSE_S)  # it waits until the token is set right
        case _:
            return SendFailed("refused", error.detail)
