"""Turns a stored update into what the conversation knows: a message of a person, a tap, or nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ...store import moves
from ...text.clean import REPLACEMENT
from ...transport import ChatRef, FileIn, Inbound, MessageIn, ReplyTo, Sender, TapIn

TRANSPORT = "telegram"

# Content that is neither text nor file. It is passed on empty, so that the sender is told and not left waiting.
_OTHER_CONTENT = ("location", "contact", "poll", "dice", "story", "checklist")


class User(msgspec.Struct):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""


class Chat(msgspec.Struct):
    id: int
    type: str = ""
    title: str = ""
    first_name: str = ""
    last_name: str = ""


class _File(msgspec.Struct):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0


class _Quote(msgspec.Struct):
    text: str


class _Origin(msgspec.Struct):
    sender_user: User | None = None


class _ExternalReply(msgspec.Struct):
    """A message of another chat that is answered, as those are that were written before a group got a new id."""

    chat: Chat | None = None
    message_id: int = 0
    origin: _Origin | None = None


class Message(msgspec.Struct):
    """The part of a `Message` of the Bot API that we use, and of an `InaccessibleMessage`."""

    message_id: int
    chat: Chat
    date: int = 0
    edit_date: int = 0
    sender: User | None = msgspec.field(default=None, name="from")
    text: str = ""
    caption: str = ""
    document: _File | None = None
    photo: list[_File] = []
    voice: _File | None = None
    audio: _File | None = None
    video: _File | None = None
    video_note: _File | None = None
    sticker: _File | None = None
    location: Any = None
    contact: Any = None
    poll: Any = None
    dice: Any = None
    story: Any = None
    checklist: Any = None
    reply_to_message: Message | None = None
    external_reply: _ExternalReply | None = None
    quote: _Quote | None = None
    message_thread_id: int = 0
    is_topic_message: bool = False
    media_group_id: str = ""
    forward_origin: Any = None
    forum_topic_created: Any = None
    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None


class _CallbackQuery(msgspec.Struct):
    id: str
    sender: User = msgspec.field(name="from")
    message: Message | None = None
    data: str = ""


class Update(msgspec.Struct):
    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: _CallbackQuery | None = None


def read_update(raw: bytes) -> Update:
    """The update in `raw`. Raises ValueError. Unknown fields are ignored.

    Halves of surrogate pairs, which a stricter decoder refuses, are kept.
    """
    return msgspec.convert(json.loads(raw), Update)


def decode(raw: bytes, bot_id: int) -> Inbound | None:
    """An update as a record; None for what no person said: service messages, channel posts, other bots.

    Raises ValueError for what is no update at all.
    """
    update = read_update(raw)
    if update.callback_query is not None:
        return _tap(update.callback_query)
    if update.message is not None:
        return _message(update.message, bot_id)
    if update.edited_message is not None:
        return _message(update.edited_message, bot_id, edited=True)
    return None


def move_in(raw: bytes) -> tuple[str, str] | None:
    """The old and the new id of a group that was upgraded, when that is what an update says. Raises ValueError.

    It says so twice: in the old group (`migrate_to_chat_id`) and in the new one (`migrate_from_chat_id`).
    """
    if b"migrate_" not in raw or (message := read_update(raw).message) is None:
        return None
    if message.migrate_to_chat_id is not None:
        return str(message.chat.id), str(message.migrate_to_chat_id)
    if message.migrate_from_chat_id is not None:
        return str(message.migrate_from_chat_id), str(message.chat.id)
    return None


def _tap(query: _CallbackQuery) -> TapIn | None:
    message = query.message
    if message is None or not query.data or query.sender.is_bot:
        return None
    return TapIn(
        chat=_chat(message),
        sender=_sender(query.sender),
        message_id=str(message.message_id),
        data=_whole(query.data),
        token=query.id,
    )


def _message(message: Message, bot_id: int, *, edited: bool = False) -> MessageIn | None:
    text = message.text or message.caption
    files = _files(message)
    other = any(getattr(message, kind) is not None for kind in _OTHER_CONTENT)
    if message.sender is None or message.sender.is_bot or not (text or files or other):
        return None
    return MessageIn(
        chat=_chat(message),
        sender=_sender(message.sender),
        message_id=str(message.message_id),
        text=_whole(text),
        date=float(message.edit_date if edited else message.date),
        reply_to=_reply(message, bot_id),
        files=files,
        edited=edited,
        album=message.media_group_id,
        forwarded=message.forward_origin is not None,
    )


def _chat(message: Message) -> ChatRef:
    """Replies in a group without topics carry a thread id too, so that alone means nothing. General has none."""
    thread = str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else ""
    return ChatRef(TRANSPORT, str(message.chat.id), thread)


def _sender(user: User) -> Sender:
    name = " ".join(part for part in (user.first_name, user.last_name) if part) or user.username
    return Sender(str(user.id), _whole(name))


def _reply(message: Message, bot_id: int) -> ReplyTo | None:
    target = message.reply_to_message
    if target is None and (other := message.external_reply) is not None and other.chat is not None:
        text = message.quote.text if message.quote is not None else ""
        author = other.origin.sender_user if other.origin is not None else None
        message_id = moves.message_id(str(other.chat.id), str(other.message_id))
        return ReplyTo(message_id, _whole(text), author is not None and author.id == bot_id)
    if target is None or target.forum_topic_created is not None:
        return None
    if message.is_topic_message and target.message_id == message.message_thread_id:
        return None  # every message of a topic "replies" to the one that opened it
    text = message.quote.text if message.quote is not None else target.text or target.caption
    ours = target.sender is not None and target.sender.id == bot_id
    return ReplyTo(str(target.message_id), _whole(text), ours)


def _files(message: Message) -> tuple[FileIn, ...]:
    if message.photo:
        largest = max(message.photo, key=lambda size: size.file_size)
        return (FileIn(largest.file_id, "photo.jpg", "image/jpeg", largest.file_size),)
    named = (
        (message.document, "file"),
        (message.voice, "voice message"),
        (message.audio, "audio"),
        (message.video, "video"),
        (message.video_note, "video message"),
        (message.sticker, "sticker"),
    )
    return tuple(
        FileIn(file.file_id, _whole(file.file_name or name), file.mime_type, file.file_size)
        for file, name in named
        if file is not None
    )


def _whole(text: str) -> str:
    """`text` with each half of a surrogate pair as U+FFFD: nothing behind us can encode one."""
    return text if text.isascii() else "".join(REPLACEMENT if "\ud800" <= char <= "\udfff" else char for char in text)
