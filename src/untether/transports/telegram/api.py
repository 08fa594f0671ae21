"""The Bot API calls that we make, over python-telegram-bot's `Bot`, with our own results and errors.

Requests are plain names and values, as in https://core.telegram.org/bots/api: a field that the library does not know
yet needs no new release of it. Nothing here retries, waits or paces. The token is part of every address, so no
exception of the libraries below is passed on, and their loggers stay quiet.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

import httpx
from telegram import Bot, InputFile
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from ...redact import MASK
from .errors import ApiError, ApiErrorKind, from_answer

ALLOWED_UPDATES: Final = ("message", "edited_message", "callback_query")
MAX_TOAST: Final = 200  # UTF-16 units

Json = dict[str, Any]

_POLL_GRACE_S = 10.0  # how much longer than the server we wait for the end of a long poll
_QUICK_S = 5.0  # for a toast: later it is of no use
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class BotInfo(NamedTuple):
    id: int
    username: str
    name: str


class ChatInfo(NamedTuple):
    """`type` is private, group, supergroup or channel; `title` is a person's name in a private chat."""

    id: int
    type: str
    title: str


class BotApi:
    """One bot. Every method raises ApiError and nothing else; `aclose` lets go of the connections.

    Ids of chats and messages are strings, as in the rest of the program. Entities and keyboards are the objects of
    the Bot API as dicts. `base_url` is that of the server, without `/bot`.
    """

    def __init__(self, token: str, base_url: str = "https://api.telegram.org") -> None:
        for name in ("httpx", "httpcore", "telegram"):
            logging.getLogger(name).setLevel(logging.WARNING)  # below it they log addresses
        self._token = token
        self._file_url = f"{base_url}/file/bot{token}"
        self._base_url = base_url
        self._tls = httpx.create_ssl_context()
        self._retired: list[_Request] = []
        self._connect()
        self._closed = False

    def _connect(self) -> None:
        """Make the pools of connections; none is opened before it is needed."""
        kept: Json = {"limits": httpx.Limits(max_connections=64, keepalive_expiry=30.0), "verify": self._tls}
        self._requests = _Request(
            connect_timeout=10.0,
            read_timeout=30.0,
            write_timeout=30.0,
            media_write_timeout=120.0,
            pool_timeout=30.0,
            httpx_kwargs=kept,
        )
        self._polling = _Request(
            connection_pool_size=1, connect_timeout=10.0, pool_timeout=10.0, httpx_kwargs={"verify": self._tls}
        )
        # Of its own, so that a toast never waits for a connection that something slow holds.
        self._hurried = _Request(
            read_timeout=_QUICK_S, connect_timeout=_QUICK_S, pool_timeout=_QUICK_S, httpx_kwargs=kept
        )
        self._bot = self._bot_over(self._requests)
        self._quick_bot = self._bot_over(self._hurried)

    def _bot_over(self, requests: _Request) -> _Bot:
        return _Bot(
            self._token,
            base_url=f"{self._base_url}/bot",
            base_file_url=f"{self._base_url}/file/bot",
            request=requests,
            get_updates_request=self._polling,
        )

    @property
    def bot_id(self) -> int:
        """The bot's user id, which is the first part of its token; 0 when the token is none."""
        number = self._token.partition(":")[0]
        return int(number) if number.isdecimal() else 0

    async def aclose(self) -> None:
        """Close the connections. Later calls fail as `later`."""
        self._closed = True
        for pool in (self._polling, self._requests, self._hurried, *self._retired):
            await pool.shutdown()

    async def renew(self) -> None:
        """Use fresh connections from now on: after a sleep or on another network the old ones may be dead without
        saying so. Calls under way keep theirs. Nobody may be polling."""
        for pool in (self._polling, *self._retired):
            await pool.shutdown()
        self._retired = [self._requests, self._hurried]
        self._connect()

    # ------------------------------------------------------------------------------------------- receiving

    async def get_updates(self, offset: int | None, seconds: int) -> list[tuple[int, bytes]]:
        """Up to 100 updates from `offset` on as (update id, JSON); empty after `seconds` without one.

        What lies before a positive offset is confirmed: the server forgets it.
        """
        result = await self._call(
            "getUpdates",
            {"offset": offset, "timeout": seconds, "allowed_updates": ALLOWED_UPDATES},
            read_timeout=seconds + _POLL_GRACE_S,
        )
        with _reading():
            # ASCII keeps halves of surrogate pairs as they came: UTF-8 has no place for them.
            return [(int(update["update_id"]), json.dumps(update).encode("ascii")) for update in result]

    async def delete_webhook(self) -> str:
        """Make long polling possible; what waits for us is kept. Returns the host of a webhook that was set, or ""."""
        found = await self._call("getWebhookInfo", {})
        with _reading():
            host = urlsplit(str(found.get("url") or "")).hostname or ""
        await self._call("deleteWebhook", {"drop_pending_updates": False})
        return host

    async def download(self, file_id: str, limit: int) -> bytes:
        """The content of a file that came in. A file of more than `limit` bytes is refused."""
        found = await self._call("getFile", {"file_id": file_id})
        with _reading():
            path, size = str(found["file_path"]), int(found.get("file_size") or 0)
        if size > limit:
            raise ApiError("refused", f"the file is larger than {limit:,} bytes")
        try:
            content: bytes = await self._requests.retrieve(f"{self._file_url}/{path}")
        except _Refused as refusal:
            error = self._refusal(refusal, repeatable=True)
            if error.kind in ("unauthorized", "not_found"):
                error = ApiError("gone", "the file is no longer on the server")
            raise error from None
        except TelegramError as failure:
            self._fail(failure, repeatable=True)
        if len(content) > limit:
            raise ApiError("refused", f"the file is larger than {limit:,} bytes")
        return content

    # --------------------------------------------------------------------------------------------- sending

    async def send_message(
        self,
        chat: str,
        text: str,
        *,
        entities: Sequence[Json] = (),
        keyboard: Json | None = None,
        thread: str = "",
        reply_to: str = "",
        silent: bool = False,
    ) -> str:
        """Send a text of at most 4096 UTF-16 units and return its message id."""
        data = {"text": text, "entities": entities or None, "link_preview_options": {"is_disabled": True}}
        return await self._send("sendMessage", chat, data, keyboard, thread, reply_to, silent)

    async def send_document(
        self,
        chat: str,
        name: str,
        content: bytes,
        *,
        caption: str = "",
        entities: Sequence[Json] = (),
        keyboard: Json | None = None,
        thread: str = "",
        reply_to: str = "",
        silent: bool = False,
    ) -> str:
        """Send a file with a caption of at most 1024 UTF-16 units and return its message id."""
        data = {
            "document": InputFile(content, filename=name),
            "caption": caption or None,
            "caption_entities": entities or None,
            "disable_content_type_detection": True,
        }
        return await self._send("sendDocument", chat, data, keyboard, thread, reply_to, silent)

    async def _send(
        self, method: str, chat: str, data: Json, keyboard: Json | None, thread: str, reply_to: str, silent: bool
    ) -> str:
        if reply_to.isdecimal():  # anything else is no message of Telegram's
            # A message that was deleted meanwhile must not keep the answer to it from arriving.
            data["reply_parameters"] = {"message_id": int(reply_to), "allow_sending_without_reply": True}
        data |= {
            "chat_id": chat,
            "message_thread_id": int(thread) if thread else None,
            "reply_markup": keyboard,
            "disable_notification": silent or None,
        }
        result = await self._call(method, data, repeatable=False)
        with _reading("unknown"):
            return str(result["message_id"])

    async def edit_text(
        self, chat: str, message_id: str, text: str, *, entities: Sequence[Json] = (), keyboard: Json | None = None
    ) -> None:
        """Replace text and buttons. A message that looks like that already is fine."""
        data = {
            "chat_id": chat,
            "message_id": int(message_id),
            "text": text,
            "entities": entities or None,
            "reply_markup": keyboard,
            "link_preview_options": {"is_disabled": True},
        }
        try:
            await self._call("editMessageText", data)
        except ApiError as error:
            if error.kind != "not_modified":
                raise

    async def delete_message(self, chat: str, message_id: str) -> None:
        await self._call("deleteMessage", {"chat_id": chat, "message_id": int(message_id)})

    async def answer_callback(self, query_id: str, text: str = "") -> None:
        """Answer a tap; `text` is shown for a moment. `gone` when it is too late (some 15 s after the tap)."""
        data = {"callback_query_id": query_id, "text": text or None}
        await self._call("answerCallbackQuery", data, bot=self._quick_bot)

    # ---------------------------------------------------------------------------------------- bot and chats

    async def get_me(self) -> BotInfo:
        found = await self._call("getMe", {}, bot=self._quick_bot)
        with _reading():
            return BotInfo(int(found["id"]), str(found.get("username") or ""), str(found.get("first_name") or ""))

    async def get_chat(self, chat: str) -> ChatInfo:
        found = await self._call("getChat", {"chat_id": chat})
        with _reading():
            return ChatInfo(int(found["id"]), str(found.get("type") or ""), title_of(found))

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """The command menu, as (name, description)."""
        menu = [{"command": name, "description": description} for name, description in commands]
        await self._call("setMyCommands", {"commands": menu})

    # ---------------------------------------------------------------------------------------------- calling

    async def _call(
        self, method: str, data: Json, *, repeatable: bool = True, bot: _Bot | None = None, **timeouts: Any
    ) -> Any:
        """Make one call and return its result. `repeatable` as in `from_answer`."""
        if self._closed:
            raise ApiError("later", "the connections are closed")
        try:
            return await (bot or self._bot).call(method, data, **timeouts)
        except _Refused as refusal:
            raise self._refusal(refusal, repeatable=repeatable) from None
        except TelegramError as failure:
            self._fail(failure, repeatable=repeatable)

    def _refusal(self, refusal: _Refused, *, repeatable: bool) -> ApiError:
        description, parameters = refusal.read()
        if not description and refusal.code < 500 and refusal.code != 413:
            # Not the Bot API: a proxy, or the login page of a network. (413 is its own front end: a file too large.)
            return ApiError("later", f"HTTP {refusal.code}")
        description = self._masked(description) or f"HTTP {refusal.code}"
        return from_answer(refusal.code, description, parameters, repeatable=repeatable)

    def _fail(self, failure: TelegramError, *, repeatable: bool) -> NoReturn:
        """Raise what an exchange without a readable answer means."""
        cause = failure.__cause__
        detail = self._masked(f"{type(cause).__name__}: {cause}" if cause else str(failure)).removesuffix(": ")
        if isinstance(cause, _NOT_SENT):
            raise ApiError("later", detail) from None
        if isinstance(cause, ValueError | TypeError | httpx.InvalidURL):
            raise ApiError("refused", detail) from None  # it cannot be encoded
        raise ApiError("later" if repeatable else "unknown", detail) from None

    def _masked(self, text: str) -> str:
        return text.replace(self._token, MASK)


@contextmanager
def _reading(kind: ApiErrorKind = "later") -> Iterator[None]:
    """Read a result; one of another shape than the documented one becomes an ApiError."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ApiError(kind, "the server sent something unexpected") from None


class _Bot(Bot):
    """The library's bot, with one method for every call: `do_api_request` warns about the methods that it knows."""

    __slots__ = ()

    async def call(self, method: str, data: Json, **timeouts: Any) -> Any:
        return await self._post(method, data, **timeouts)


class _Request(HTTPXRequest):
    """The library's request, which keeps the code of a refusal: the library's own errors are coarser."""

    __slots__ = ()

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        code, payload = await super().do_request(*args, **kwargs)
        if 200 <= code <= 299:
            return code, payload
        raise _Refused(code, payload)

    @staticmethod
    def parse_json_payload(payload: bytes) -> Json:
        answer = _object(payload)
        if "result" not in answer:
            raise _Unreadable("the server sent something that is no answer of the Bot API")
        return answer


class _Refused(TelegramError):
    def __init__(self, code: int, payload: bytes) -> None:
        super().__init__(f"HTTP {code}")
        self.code = code
        self.payload = payload

    def read(self) -> tuple[str, Mapping[str, Any]]:
        """The description ("" when this is no answer of the Bot API) and the parameters."""
        answer = _object(self.payload)
        parameters = answer.get("parameters")
        return str(answer.get("description") or ""), parameters if isinstance(parameters, dict) else {}


class _Unreadable(TelegramError):
    pass


def _object(payload: bytes) -> Json:
    """A JSON object; empty for anything else."""
    try:
        value = json.loads(payload.decode("utf-8", "replace"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def title_of(chat: Mapping[str, Any]) -> str:
    """The title of a group, or the name of a person (a `Chat` or a `User` of the Bot API)."""
    if title := chat.get("title"):
        return str(title)
    return " ".join(str(part) for part in (chat.get("first_name"), chat.get("last_name")) if part)
