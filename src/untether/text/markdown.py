"""Turns an agent's Markdown into formatted text for a chat: what was written stays, only the marks become formatting.

Blocks keep the spacing of the source. What chats cannot nest or show is written out: list bullets and numbers with
indentation, tables in a monospaced block, a bar for a quote within a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from markdown_it.token import Token

from .names import split_file_names
from .rich import EntityKind, RichBuilder, RichText, Style, styled
from .tables import Cell, render_table
from .tokens import is_public_address, parse

# Characters. Longer Markdown is better sent as a file: it would be more than a dozen messages.
LIMIT = 64_000

# A quote beyond one of these is folded by the chat until it is tapped.
EXPANDABLE_LINES = 8
EXPANDABLE_LENGTH = 600

BULLETS = ("•", "◦", "▪")
BAR = "│ "
RULE = "──────────"
TAB = 4  # Telegram turns a tab into one space, so code is indented with spaces

_INLINE_STYLES: dict[str, EntityKind] = {"strong": "bold", "em": "italic", "s": "strike"}
# ||hidden||, but neither a || b nor (a||b) or (c||d)
_SPOILER = re.compile(r"(?<![\w|)\]])\|\|(?=[^\s|])([^|\n]+)(?<=\S)\|\|(?![\w|(\[])")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")


def markdown_to_rich(source: str) -> RichText:
    """`source` as formatted text. Takes any input, in time linear to its length; beyond `LIMIT` send a file instead."""
    return _Renderer().render(parse(source, is_public_address))


def is_long_quote(text: str) -> bool:
    return text.count("\n") >= EXPANDABLE_LINES or len(text) > EXPANDABLE_LENGTH


def code_block(text: str, language: str = "") -> RichText:
    """`text` as a monospaced block; without the blank lines at its ends, which chats cut off."""
    code = "\n".join(line.expandtabs(TAB) for line in text.rstrip().strip("\n").split("\n"))
    return RichBuilder().append(code, Style("pre", language)).build()


def append_text(out: RichBuilder, text: str, *styles: Style | EntityKind) -> None:
    """Append literal text, with file names that a chat would make into links as code."""
    for piece, is_name in split_file_names(text):
        out.append(piece, *styles, *(("code",) if is_name else ()))


@dataclass(slots=True)
class _Container:
    """A list item or an inner quote: what stands before the first line of its content and before the others.

    `line` is where it begins in the source.
    """

    marker: str
    indent: str
    line: int
    used: bool = False

    def take(self) -> str:
        prefix = self.indent if self.used else self.marker
        self.used = True
        return prefix


@dataclass(slots=True)
class _Leaf:
    """A rendered block that holds no others, with the lines of the source it came from (end exclusive)."""

    rich: RichText
    first: int
    end: int


class _Renderer:
    def __init__(self) -> None:
        self._leaves: list[_Leaf] = []
        self._containers: list[_Container] = []
        self._lists: list[int | None] = []  # the next number of each open list, None for bullets
        self._quotes: list[tuple[list[_Leaf], list[_Container]]] = []  # what surrounds each open quote

    def render(self, tokens: list[Token]) -> RichText:
        style: EntityKind | None = None
        at = 0
        while at < len(tokens):
            token = tokens[at]
            match token.type:
                case "heading_open":
                    style = "bold"
                case "paragraph_open":
                    style = None
                case "inline":
                    self._paragraph(token, style)
                case "fence" | "code_block":
                    language = _LANGUAGE.match(token.info.strip())
                    self._block(code_block(token.content, language[0] if language else ""), token)
                case "hr":
                    self._add(RichText("".join(c.take() for c in self._containers) + RULE), token)
                case "table_open":
                    close = next(i for i in range(at, len(tokens)) if tokens[i].type == "table_close")
                    self._block(_table(tokens[at:close]), token)
                    at = close
                case "bullet_list_open":
                    self._lists.append(None)
                case "ordered_list_open":
                    self._lists.append(int(token.attrs.get("start", 1)))
                case "bullet_list_close" | "ordered_list_close":
                    self._lists.pop()
                case "list_item_open":
                    self._open_item(token)
                case "list_item_close":
                    self._close_item()
                case "blockquote_open":
                    self._open_quote(token)
                case "blockquote_close":
                    self._close_quote()
            at += 1
        return _joined(self._leaves)

    # ------------------------------------------------------------------------------------------- leaves

    def _add(self, rich: RichText, source: Token) -> None:
        first, end = source.map or [0, 0]
        self._leaves.append(_Leaf(rich, first, end))

    def _paragraph(self, token: Token, style: EntityKind | None) -> None:
        out = RichBuilder().append("".join(c.take() for c in self._containers))
        indent = "".join(c.indent for c in self._containers)
        _append_inline(out, token.children or [], style, "\n" + indent)
        self._add(out.build(), token)

    def _block(self, rich: RichText, token: Token) -> None:
        """A block that spans whole lines: it starts on its own line and is not indented."""
        if rich.text.strip():
            self._flush_markers()
            self._add(rich, token)

    def _flush_markers(self) -> None:
        """Bullets and numbers that wait for their text get a line of their own."""
        if any(c.marker for c in self._containers if not c.used):
            marker = "".join(c.take() for c in self._containers)
            line = self._containers[-1].line
            self._leaves.append(_Leaf(RichText(marker.rstrip()), line, line + 1))

    # --------------------------------------------------------------------------------------- containers

    def _open_item(self, token: Token) -> None:
        number = self._lists[-1]
        if number is not None:
            marker = f"{number}{token.markup} "
            self._lists[-1] = number + 1
        elif token.meta.get("task"):
            marker = ""  # the box is the bullet
        else:
            depth = sum(1 for open_list in self._lists if open_list is None)
            marker = BULLETS[min(depth, len(BULLETS)) - 1] + " "
        self._containers.append(_Container(marker, " " * (len(marker) or 2), _first_line(token)))

    def _close_item(self) -> None:
        self._flush_markers()
        self._containers.pop()

    def _open_quote(self, token: Token) -> None:
        if self._quotes:
            self._quotes.append((self._leaves, self._containers))
            self._containers = [*self._containers, _Container(BAR, BAR, _first_line(token), used=True)]
            return
        self._flush_markers()
        self._quotes.append((self._leaves, self._containers))
        self._leaves, self._containers = [], []

    def _close_quote(self) -> None:
        inner = self._leaves
        self._leaves, self._containers = self._quotes.pop()
        if not self._quotes and inner:
            rich = _joined(inner)
            kind: EntityKind = "expandable_quote" if is_long_quote(rich.text) else "quote"
            self._leaves.append(_Leaf(styled(rich, kind), inner[0].first, inner[-1].end))


def _first_line(token: Token) -> int:
    return token.map[0] if token.map else 0


def _joined(leaves: list[_Leaf]) -> RichText:
    """The blocks under each other, with a blank line where the source has one."""
    out = RichBuilder()
    for number, leaf in enumerate(leaves):
        if number:
            out.append("\n\n" if leaf.first > leaves[number - 1].end else "\n")
        out.extend(leaf.rich)
    return out.build()


# --------------------------------------------------------------------------------------------------- inline


def _append_inline(out: RichBuilder, children: list[Token], style: EntityKind | None, newline: str) -> None:
    """Append inline tokens; `newline` is a line break with the indentation that follows it."""
    depth: dict[Style, int] = {Style(style): 1} if style else {}  # of each open style, outer ones first
    link = Style("link")
    for token in children:
        if token.type == "text":
            for piece, hidden in _spoilers(token.content.replace("\n", " ")):
                append_text(out, piece, *depth, *(("spoiler",) if hidden else ()))
        elif token.type == "code_inline":
            out.append(token.content, *depth, "code")
        elif token.type in ("softbreak", "hardbreak"):
            out.append(newline, *depth)
        elif token.type == "link_open":
            link = Style("link", str(token.attrs.get("href", "")))
            depth[link] = 1
        elif token.type == "link_close":
            del depth[link]
        elif token.tag in _INLINE_STYLES:
            mark = Style(_INLINE_STYLES[token.tag])
            depth[mark] = depth.get(mark, 0) + token.nesting
            if not depth[mark]:
                del depth[mark]
        else:  # a token type of a newer parser: its text is better than nothing
            out.append(token.content, *depth)


def _spoilers(text: str) -> Iterator[tuple[str, bool]]:
    """Cut `text` into pieces; True marks what stands between double bars."""
    done = 0
    for match in _SPOILER.finditer(text):
        yield text[done : match.start()], False
        yield match[1], True
        done = match.end()
    yield text[done:], False


# --------------------------------------------------------------------------------------------------- tables


def _table(tokens: list[Token]) -> RichText:
    rows: list[list[Cell]] = []
    for opening, token in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            out = RichBuilder()
            _append_inline(out, token.children or [], None, " ")
            rows[-1].append(Cell(out.build(), str(opening.attrs.get("style", "")).removeprefix("text-align:")))
    return render_table(rows)
