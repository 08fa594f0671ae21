"""Gathers what is one message though it came as several: a text that was cut, an album, a series of forwards.

What is gathered are stored updates that nobody has dealt with, and they become dealt with together, in the
transaction that stores the message. So a stop in the middle loses nothing: the next start gathers them anew.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..clock import Clock
from ..store.threads import Part
from ..store.updates import Update
from ..transport import MessageIn
from .directives import command

PROBABLY_CUT = 4000  # characters; messengers cut what is longer than about that into several messages
_DATES_ARE_WHOLE_S = 1.0

Following = Callable[[MessageIn, int], tuple[Update, MessageIn] | None]


class Gathered(msgspec.Struct, frozen=True):
    """The first message with the text and the files of all, the parts as they were written, and the other updates."""

    message: MessageIn
    parts: tuple[Part, ...]
    others: tuple[Update, ...] = ()


async def gather(first: MessageIn, update: Update, following: Following, clock: Clock, patience: float) -> Gathered:
    """Take along what belongs to a message; where more is to be expected, wait for it, `patience` seconds each time.

    An edit that came before its message was routed replaces the text. `following` gives what waits after an update.
    """
    pieces, others, last = [first], list[Update](), update.id
    while True:
        found = following(first, last)
        if found is None and _expects_more(pieces[-1]):
            await clock.sleep(patience)
            found = following(first, last)
        if found is None or not _take(pieces, found[1], patience):
            return _gathered(pieces, others)
        others.append(found[0])
        last = found[0].id


def whole(parts: tuple[Part, ...] | list[Part]) -> str:
    """The text of several parts."""
    said = [part for part in parts if part.text.strip()]
    return "".join(part.text + (part.glue if place < len(said) else "") for place, part in enumerate(said, 1))


def part_of(message: MessageIn) -> Part:
    """A message as a part; only what messengers cut goes on without a gap."""
    return Part(message.message_id, printable(message.text), "" if _cut(message) else "\n\n")


def printable(text: str) -> str:
    """Text that every agent can take: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _gathered(pieces: list[MessageIn], others: list[Update]) -> Gathered:
    parts = tuple(part_of(piece) for piece in pieces)
    files = tuple(file for piece in pieces for file in piece.files)
    message = msgspec.structs.replace(pieces[0], text=whole(parts), files=files)
    return Gathered(message, parts, tuple(others))


def _cut(message: MessageIn) -> bool:
    return len(message.text) >= PROBABLY_CUT


def _expects_more(last: MessageIn) -> bool:
    return _cut(last) or bool(last.album) or last.forwarded


def _take(pieces: list[MessageIn], message: MessageIn, patience: float) -> bool:
    """Add a message to those that it belongs to. False when it stands for itself."""
    if message.edited:
        for place, piece in enumerate(pieces):
            if piece.message_id == message.message_id:
                pieces[place] = msgspec.structs.replace(piece, text=message.text)
                return True
        return False
    if not _belongs(pieces[-1], message, patience):
        return False
    pieces.append(message)
    return True


def _belongs(last: MessageIn, message: MessageIn, patience: float) -> bool:
    if message.album and message.album == last.album:
        return True
    if message.reply_to is not None or (command(message.text) is not None and not message.forwarded):
        return False
    # With a comment, forwards follow it at once.
    at_once = message.date - last.date <= patience + _DATES_ARE_WHOLE_S
    return _cut(last) or (message.forwarded and at_once)
