"""Pairing: finds out which chat and which person the bot belongs to, before it is configured."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from ...clock import Clock
from ...text.clean import clean_text
from .decode import Chat, Message, User, read_update
from .errors import ApiError
from .poll import UpdateSource

_POLL_S = 10
_PAUSE_S = 2.0
_START = re.compile(r"/start(?:@\w+)?\s+(\S+)\s*")


class Paired(NamedTuple):
    chat_id: int
    user_id: int
    name: str


class Seen(NamedTuple):
    """Who wrote where. `chat_title` is the name of the person in a private chat."""

    chat_id: int
    chat_title: str
    user_id: int
    name: str


class PairingExpired(Exception):
    """Nobody sent the code in time."""


def new_code() -> str:
    """A code of 128 bits that fits into a link (at most 64 of A-Z a-z 0-9 _ -)."""
    return secrets.token_urlsafe(16)


def link(bot_username: str, code: str) -> str:
    """The address that opens the chat with the bot, with a button that sends `/start CODE`."""
    return f"https://t.me/{bot_username}?start={code}"


async def pair(api: UpdateSource, *, code: str, clock: Clock, minutes: float = 10) -> Paired:
    """Wait for `/start CODE` of a person. Everything up to it is confirmed to Telegram, so the bridge does not see it.

    Raises PairingExpired after `minutes`, and ApiError when the token is refused or another program receives.
    """
    end = clock.monotonic() + minutes * 60
    offset: int | None = None
    await api.delete_webhook()
    while (left := end - clock.monotonic()) > 0:
        try:
            batch = await api.get_updates(offset, max(1, min(_POLL_S, int(left))))
        except ApiError as error:
            if error.kind != "later":
                raise
            await clock.sleep(max(_PAUSE_S, error.retry_after))
            continue
        for update_id, raw in batch:
            offset = update_id + 1
            message = _message(raw)
            if message is not None and message.sender is not None and _is_start(message.text, code):
                with suppress(ApiError):  # else the bridge hears a /start, which does no harm
                    await api.get_updates(offset, 0)
                return Paired(message.chat.id, message.sender.id, _name(message.sender))
    raise PairingExpired("The code was not used in time. Start again for a new one.")


def _is_start(text: str, code: str) -> bool:
    match = _START.fullmatch(text)
    return match is not None and secrets.compare_digest(match[1].encode("utf-8", "replace"), code.encode())


async def seen_ids(api: UpdateSource, seconds: float, *, clock: Clock) -> list[Seen]:
    """Who wrote to the bot, now or within `seconds`; nothing is confirmed, so the bridge sees all of it later.

    Raises ApiError.
    """
    return [seen async for seen in watch_ids(api, seconds, clock=clock)]


async def watch_ids(api: UpdateSource, seconds: float, *, clock: Clock) -> AsyncIterator[Seen]:
    """As `seen_ids`, one by one as they appear."""
    end = clock.monotonic() + seconds
    known: set[Seen] = set()
    await api.delete_webhook()
    while (left := end - clock.monotonic()) > 0:
        batch = await api.get_updates(None, max(1, min(_POLL_S, int(left))))
        for _, raw in batch:
            message = _message(raw)
            if message is None or message.sender is None:
                continue
            seen = Seen(message.chat.id, _name(message.chat), message.sender.id, _name(message.sender))
            if seen not in known:
                known.add(seen)
                yield seen
        if batch:
            await clock.sleep(min(_PAUSE_S, left))  # the same updates come again at once


def _message(raw: bytes) -> Message | None:
    """The message of a person in an update."""
    try:
        message = read_update(raw).message
    except ValueError:
        return None
    return None if message is None or message.sender is None or message.sender.is_bot else message


def _name(who: Chat | User) -> str:
    title = getattr(who, "title", "") or " ".join(part for part in (who.first_name, who.last_name) if part)
    return clean_text(title)
