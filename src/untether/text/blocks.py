"""The content of a message, neutral to engines and chats: what the conversation says and every transport renders.

A message is a sequence of blocks, stored as JSON before it is sent. Only `Markdown` is markup; the text of every other
block is literal, so nothing that an agent, a file or a person wrote can change how a message looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, TypeAlias

import msgspec

from .clean import clean_text
from .html import code_html, markdown_to_html, paragraph_html
from .markdown import append_text, code_block, markdown_to_rich
from .rich import Entity, EntityKind, RichBuilder, RichText
from .words import one_line

LineStyle: TypeAlias = Literal["plain", "bold", "quiet"]
_LINE_STYLES: dict[LineStyle, tuple[EntityKind, ...]] = {"plain": (), "bold": ("bold",), "quiet": ("italic",)}


class _Block(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="block", tag=str.lower):
    """The base of the blocks: `{"block": "line", …}` in JSON."""


class Line(_Block, frozen=True):
    """Literal text, usually one line. `quiet` is for what may be overlooked."""

    text: str
    style: LineStyle = "plain"


class Code(_Block, frozen=True):
    """A block of code, a command or a diff."""

    text: str
    language: str = ""


class Quote(_Block, frozen=True):
    """Literal text set apart; an expandable one is folded until it is tapped."""

    text: str
    expandable: bool = False


class Markdown(_Block, frozen=True):
    """What an agent wrote."""

    source: str


class Copyable(_Block, frozen=True):
    """A line with something to copy: `label`, then `text` as code."""

    label: str
    text: str


class Formatted(_Block, frozen=True):
    """Text that is formatted already: a piece of a content that was split."""

    text: str
    entities: tuple[Entity, ...] = ()

    @classmethod
    def of(cls, rich: RichText) -> Formatted:
        return cls(rich.text, rich.entities)


Block: TypeAlias = Line | Code | Quote | Markdown | Copyable | Formatted


def encode_blocks(blocks: Sequence[Block]) -> bytes:
    """`blocks` as a JSON array. Halves of surrogate pairs, which JSON cannot hold, become U+FFFD."""
    try:
        return msgspec.json.encode(blocks)
    except UnicodeEncodeError:
        return msgspec.json.encode([_cleaned(block) for block in blocks])


def decode_blocks(data: bytes | str) -> tuple[Block, ...]:
    """The inverse of `encode_blocks`. Raises msgspec.DecodeError for anything else."""
    return msgspec.json.decode(data, type=tuple[Block, ...])


def to_rich(blocks: Sequence[Block]) -> RichText:
    """`blocks` under each other as formatted text, with a blank line around Markdown. Blocks without text are left
    out, but an empty `Line` is a blank line."""
    out = RichBuilder()
    previous: Block | None = None
    for block in blocks:
        rich = _rich(block)
        if not rich.text and not isinstance(block, Line):
            continue
        if previous is not None:
            out.append("\n\n" if isinstance(block, Markdown) or isinstance(previous, Markdown) else "\n")
        out.extend(rich)
        previous = block
    return out.build()


def to_plain(blocks: Sequence[Block]) -> str:
    """`blocks` without formatting, for notifications and files; a link is followed by its address."""
    rich = to_rich(blocks)
    pieces: list[str] = []
    done = 0
    for link in rich.entities:
        if link.kind == "link" and rich.text[link.start : link.end] != link.value:
            pieces += (rich.text[done : link.end], f" ({link.value})")
            done = link.end
    return "".join(pieces) + rich.text[done:]


def to_html(blocks: Sequence[Block]) -> str:
    """`blocks` as safe HTML for the web console. Classes: `line`, `quiet`, `copy`, `markdown`, `language-…`."""
    return "\n".join(_html(block) for block in blocks)


def _rich(block: Block) -> RichText:
    out = RichBuilder()
    match block:
        case Line(text, style):
            append_text(out, clean_text(text), *_LINE_STYLES[style])
        case Code(text, language):
            return code_block(clean_text(text), language)
        case Quote(text, expandable):
            append_text(out, clean_text(text).rstrip().strip("\n"), "expandable_quote" if expandable else "quote")
        case Markdown(source):
            return markdown_to_rich(source)
        case Copyable(label, text):
            append_text(out, clean_text(label))
            out.append(" " if label else "").append(clean_text(text), "code")
        case Formatted(text, entities):
            return RichText(text, entities)
    return out.build()


def _html(block: Block) -> str:
    match block:
        case Line(text, style):
            inner = paragraph_html(clean_text(text))
            if style == "bold":
                inner = f"<strong>{inner}</strong>"
            return f'<p class="line quiet">{inner}</p>' if style == "quiet" else f'<p class="line">{inner}</p>'
        case Code(text, language):
            return code_html(clean_text(text), language)
        case Quote(text, expandable):
            quote = f"<blockquote>{paragraph_html(clean_text(text).strip())}</blockquote>"
            if not expandable:
                return quote
            return f"<details><summary>{escape(one_line(text, 80))}</summary>{quote}</details>"
        case Markdown(source):
            return f'<div class="markdown">{markdown_to_html(source)}</div>'
        case Copyable(label, text):
            code = f'<code class="copy">{escape(clean_text(text))}</code>'
            return f'<p class="line">{escape(clean_text(label))} {code}</p>'
        case Formatted(text):
            return f'<p class="line">{paragraph_html(clean_text(text))}</p>'


def _cleaned(block: Block) -> Block:
    texts = {name: clean_text(v) for name, v in msgspec.structs.asdict(block).items() if isinstance(v, str)}
    return msgspec.structs.replace(block, **texts)
