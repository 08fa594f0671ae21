"""Turns a card into messages that Telegram accepts: parts that fit, and a part as text, entities and buttons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...text.blocks import Block, Copyable, Formatted, Line, Markdown, to_rich
from ...text.clean import clean_text
from ...text.markdown import LIMIT
from ...text.rich import RichText, Utf16Entity, join, to_utf16
from ...text.split import MAX_LENGTH, split
from ...transport import Button, Card, FileOut, Rows

Json = dict[str, Any]

MAX_CAPTION = 1024  # UTF-16 units
MAX_COPY = 256  # characters
MAX_PARTS = 10  # messages that one card may become
PREVIEW = 700  # characters of a content that comes as a file
_PREVIEW_LENGTH = 3500  # UTF-16 units of a preview with all that stands around it
_SHORT = 300  # characters; a line of more is content that may be cut

_ENTITY_TYPES = {
    "strike": "strikethrough",
    "link": "text_link",
    "quote": "blockquote",
    "expandable_quote": "expandable_blockquote",
}


class Message(NamedTuple):
    """A part as Telegram takes it; with a file, `text` is its caption. Entities and keyboard as in the Bot API."""

    text: str
    entities: list[Json]
    keyboard: Json | None
    file: FileOut | None


# ---------------------------------------------------------------------------------------------------- parts


def parts(card: Card, most: int = MAX_PARTS) -> list[Card]:
    """The messages that a card becomes, in order, each within Telegram's limits.

    What would be more than `most` messages is shown as far as they go, and attached whole.
    """
    if card.file is not None:
        return _file_parts(card)
    if _size(card.blocks) <= LIMIT:
        pieces = split(to_rich(card.blocks))
        if len(pieces) <= 1:
            return [card]
        if card.whole == "split" and len(pieces) <= most:
            return _in_pieces(card, pieces)
    return _attached(card) if card.whole == "attach" else _continued_in_file(card, most)


def _in_pieces(card: Card, pieces: Sequence[RichText]) -> list[Card]:
    """One part for each piece: only the first one sounds and replies, only the last one has the buttons."""
    last = len(pieces) - 1
    return [
        msgspec.structs.replace(
            card,
            blocks=(Formatted.of(piece),),
            buttons=card.buttons if number == last else (),
            silent=card.silent or number > 0,
            reply_to=card.reply_to if number == 0 else "",
        )
        for number, piece in enumerate(pieces)
    ]


def _file_parts(card: Card) -> list[Card]:
    """A document; what is too long for its caption follows as messages, with the buttons under the last."""
    if _size(card.blocks) <= LIMIT and len(split(to_rich(card.blocks), MAX_CAPTION)) <= 1:
        return [card]
    alone = msgspec.structs.replace(card, blocks=(), buttons=(), silent=True)
    return [alone, *parts(msgspec.structs.replace(card, file=None, reply_to=""))]


def _attached(card: Card) -> list[Card]:
    """The content as a file, then its beginning and the buttons.

    The file holds all there is. Only when there is a single code block or document with short lines around it, and
    these are shown whole, it stands for itself: with them a diff would be invalid.
    """
    long = [block for block in card.blocks if _may_be_cut(block)]
    preview = _shortened(card.blocks, PREVIEW)
    pieces = split(to_rich(preview), _PREVIEW_LENGTH)
    alone = len(long) == 1 and not isinstance(long[0], Line | Copyable) and len(pieces) == 1
    content = _text(long[0]) if alone else _source(card.blocks)
    hint = Line(
        f"This is the beginning. The whole, {len(content):,} characters, is in {card.file_name} above.", "quiet"
    )
    cut = (Formatted.of(join((pieces[0], to_rich((hint,))), "\n…\n")),)
    file = FileOut(card.file_name, content if content.endswith("\n") else content + "\n")
    return [
        Card((), silent=True, reply_to=card.reply_to, file=file),
        msgspec.structs.replace(card, blocks=(*preview, hint) if len(pieces) == 1 else cut, reply_to=""),
    ]


def _continued_in_file(card: Card, most: int) -> list[Card]:
    """As much as fits into the first messages, then the whole as a file, with what stands below it and the buttons."""
    end = len(card.blocks)
    while end > 1 and not _may_be_cut(card.blocks[end - 1]):
        end -= 1
    body, tail = card.blocks[:end], card.blocks[end:]
    content = _source(body)
    hint = Line(f"That is not all: the whole, {len(content):,} characters, is in the file {card.file_name}.")
    file = FileOut(card.file_name, content)
    final = msgspec.structs.replace(card, blocks=(hint, *tail), file=file, silent=True, reply_to="")
    below = _file_parts(final)
    shown = split(to_rich(_shortened(body, LIMIT)))[: max(1, most - len(below))]
    return [*_in_pieces(msgspec.structs.replace(card, buttons=()), shown), *below]


# --------------------------------------------------------------------------------------------------- blocks


def _may_be_cut(block: Block) -> bool:
    return not isinstance(block, Line | Copyable) or len(block.text) > _SHORT


def _text(block: Block) -> str:
    return block.source if isinstance(block, Markdown) else block.text


def _size(blocks: Sequence[Block]) -> int:
    return sum(len(_text(block)) for block in blocks)


def _source(blocks: Sequence[Block]) -> str:
    """The text of all blocks as it was written."""
    return "\n\n".join(_text(block) for block in blocks if _text(block).strip())


def _shortened(blocks: Sequence[Block], budget: int) -> tuple[Block, ...]:
    """The blocks with the first `budget` characters of what may be cut."""
    kept: list[Block] = []
    for block in blocks:
        if not _may_be_cut(block):
            kept.append(block)
            continue
        text = _text(block)
        if len(text) > budget:
            line_end = text.rfind("\n", budget // 2, budget)
            text = text[: line_end if line_end > 0 else budget].rstrip() + "\n…" if budget > 0 else ""
        budget -= len(text)
        if text:
            field = "source" if isinstance(block, Markdown) else "text"
            kept.append(msgspec.structs.replace(block, **{field: text}))
    return tuple(kept)


# -------------------------------------------------------------------------------------------------- message


def message(card: Card) -> Message:
    """A part as Telegram takes it. Content that is too long, as an edit may have, is cut with a sign."""
    limit = MAX_LENGTH if card.file is None else MAX_CAPTION
    rich = to_rich(card.blocks if _size(card.blocks) <= LIMIT else _shortened(card.blocks, limit))
    pieces = split(rich, limit)
    if not pieces:
        rich = RichText("…" if card.file is None else "")
    elif len(pieces) == 1:
        rich = pieces[0]
    else:
        rich = split(rich, limit - 2)[0] + RichText("\n…")
    return Message(rich.text, [_entity(entity) for entity in to_utf16(rich)], keyboard(card.buttons), card.file)


def _entity(entity: Utf16Entity) -> Json:
    found: Json = {
        "type": _ENTITY_TYPES.get(entity.kind, entity.kind),
        "offset": entity.offset,
        "length": entity.length,
    }
    if entity.value:
        found["url" if entity.kind == "link" else "language"] = entity.value
    return found


def keyboard(rows: Rows) -> Json | None:
    """An inline keyboard; None when there are no buttons. What cannot be copied by a button has none."""
    found = [[_button(button) for button in row if len(button.copy) <= MAX_COPY] for row in rows]
    return {"inline_keyboard": [row for row in found if row]} if any(found) else None


def _button(button: Button) -> Json:
    found: Json = {"text": clean_text(button.label)}
    if button.style != "plain":
        found["style"] = button.style
    if button.copy:
        found["copy_text"] = {"text": button.copy}
    elif button.url:
        found["url"] = button.url
    else:
        found["callback_data"] = button.data
    return found
