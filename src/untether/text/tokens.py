"""Parses an agent's Markdown into markdown-it tokens that every renderer can show without losing a character.

CommonMark plus tables and strikethrough, with raw HTML off. Agents write about code, and CommonMark silently eats parts
of that: `2*3*4` and `src/**/*.py` lose their stars, `__init__.py` its underscores, `Vec<std::string>` its brackets,
`[warn]: deprecated` vanishes as a link definition, cells of a row after an unescaped pipe are cut off, and what is
nested too deep is dropped. The rules here keep such text as it stands. They also settle what renderers would otherwise
each have to decide: images become links, links that lead nowhere become text with the address in code, task boxes
become ☐ and ☑.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.rules_block import StateBlock, paragraph, reference, table
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline, autolink
from markdown_it.token import Token

from .clean import clean_text

# Levels of quotes (one each) and lists (two each). Deeper text is kept, but as it stands; markdown-it itself
# would drop it at its own limit, which also bounds the recursion of links within links.
MAX_DEPTH = 30
_PARSER_DEPTH = MAX_DEPTH + 10

LinkTest = Callable[[str], bool]

_DEFINITION = re.compile(r"\[([^\[\]]*)\]:\s*(?:[a-z][a-z0-9+.-]*:|[/.#<])", re.IGNORECASE)
_MENTION = re.compile(r"\[([^\[\]]*)\](?!:)")
_AUTOLINK = re.compile(r"<(?:https?://|mailto:|[^\s<>:/@]+@)", re.IGNORECASE)
_DUNDER = re.compile(r"__[A-Za-z0-9]\w*__(?!\w)", re.ASCII)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
_TASK = re.compile(r"\[([ xX])\](?=\s|$)")


def parse(source: str, linkable: LinkTest) -> list[Token]:
    """The tokens of `source`. `linkable` tells of an address (percent-encoded) whether it may stay a link."""
    return list(_parser(linkable).parse(clean_text(source)))


def is_web_address(url: str) -> bool:
    """Whether a browser opens `url` as a page: http or https with a host."""
    return _host(url) != ""


def is_public_address(url: str) -> bool:
    """Whether Telegram keeps a link to `url`: it drops hosts without a dot, such as localhost."""
    return "." in _host(url).strip(".")


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        return (parts.hostname or "") if parts.scheme in ("http", "https") else ""
    except ValueError:  # brackets that hold no IPv6 address
        return ""


@cache
def _parser(linkable: LinkTest) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _PARSER_DEPTH}).enable(["table", "strikethrough"])
    parser.block.ruler.before("table", "too_deep", _too_deep)
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.at("reference", _definition)
    parser.inline.ruler.at("autolink", _autolink)
    parser.inline.ruler.before("emphasis", "literal_marks", _literal_marks)
    parser.core.ruler.push("task_boxes", _task_boxes)
    parser.core.ruler.push("plain_links", lambda state: _plain_links(state, linkable))
    return parser


# ---------------------------------------------------------------------------------------------- block rules


def _too_deep(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level >= MAX_DEPTH and paragraph(state, start, end, silent)


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    first = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    tokens = state.tokens[first:]
    columns = sum(token.type == "th_open" for token in tokens)
    row: list[Token] = []
    for opening, token in pairwise(tokens):
        if token.type == "tr_open":
            row = []
        elif opening.type == "td_open":
            row.append(token)
            if len(row) == columns and token.map:
                _keep_surplus(row, getLine(state, token.map[0]).strip())
    return True


def _keep_surplus(row: list[Token], line: str) -> None:
    """A row with more cells than its heading: usually a pipe in code, else the rest belongs to the last cell."""
    if line.count("|") < len(row):
        return
    cells = _cells(line)
    if len(cells) <= len(row):
        return
    within_code = _cells(_CODE_SPAN.sub(lambda span: re.sub(r"(?<!\\)\|", r"\\|", span[0]), line))
    if len(within_code) == len(row):
        cells = within_code
    for token, cell in zip(row, cells, strict=False):
        token.content = cell.strip()
    row[-1].content = " | ".join([row[-1].content, *(cell.strip() for cell in cells[len(row) :])])


def _cells(line: str) -> list[str]:
    cells = escapedSplit(line)
    return cells[cells[0] == "" : len(cells) - (cells[-1] == "")]


def _definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """What leads nowhere or is used by no link is text (a footnote, `[PR]: https://…`) and must not vanish."""
    match = _DEFINITION.match(state.src, state.bMarks[start] + state.tShift[start])
    if match is None:
        return False
    if "mentioned" not in state.env:
        state.env["mentioned"] = {normalizeReference(label) for label in _MENTION.findall(state.src)}
    footnote = match[1].startswith("^")
    used = not footnote and normalizeReference(match[1]) in state.env["mentioned"]
    return used and reference(state, start, end, silent)


# --------------------------------------------------------------------------------------------- inline rules


def _autolink(state: StateInline, silent: bool) -> bool:
    return _AUTOLINK.match(state.src, state.pos) is not None and autolink(state, silent)


def _literal_marks(state: StateInline, silent: bool) -> bool:
    """Stars of arithmetic and of file patterns, and the underscores of `__init__`, mark nothing."""
    text, start = state.src, state.pos
    mark = text[start]
    if mark == "*":
        end = start
        while end < state.posMax and text[end] == "*":
            end += 1
        literal = _is_literal_star(text[start - 1 : start], text[start:end], text[end : end + 2])
    elif mark == "_" and not _is_word(text[start - 1 : start]):
        match = _DUNDER.match(text, start, state.posMax)
        literal, end = match is not None, match.end() if match else start
    else:
        return False
    if not literal:
        return False
    if not silent:
        state.append_pending(text[start:end])
    state.pos = end
    return True


def _is_literal_star(before: str, stars: str, after: str) -> bool:
    single, following = len(stars) == 1, after[:1]
    if before == "/":  # src/**/*.py, but not the end of **src/**
        return following == "/" or _is_word(following) or (following == "." and _is_word(after[1:]))
    if single and following == "/":  # the end of a comment
        return not _is_word(before)
    if single:  # 2*3*4, a*(b)
        return (_is_word(before) or before in (")", "]")) and (_is_word(following) or following == "(")
    return _is_word(before) and following.isascii() and following.isdigit()  # x**2, but not **Note**s


def _is_word(char: str) -> bool:
    # ASCII only: scripts without spaces between words do set emphasis inside of what looks like a word.
    return char.isascii() and (char.isalnum() or char == "_")


# ----------------------------------------------------------------------------------------------- core rules


def _task_boxes(state: StateCore) -> None:
    """`[ ]` and `[x]` at the start of a list item become boxes; the item's `meta["task"]` tells so."""
    tokens = state.tokens
    for item, opening, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if item.type != "list_item_open" or opening.type != "paragraph_open" or not inline.children:
            continue
        text = inline.children[0]
        match = _TASK.match(text.content) if text.type == "text" else None
        if match:
            text.content = ("☐" if match[1] == " " else "☑") + text.content[match.end() :]
            item.meta["task"] = True


def _plain_links(state: StateCore, linkable: LinkTest) -> None:
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = list(_relinked(token.children, linkable))


def _relinked(children: list[Token], linkable: LinkTest) -> Iterator[Token]:
    """Images as links, and links that are not `linkable` as their label with the address behind it."""
    url: str | None = None  # of the link that is open
    label: list[str] = []
    for token in children:
        if token.type == "link_open":
            url, label = str(token.attrs.get("href", "")), []
            if linkable(url):
                yield token
        elif token.type == "link_close" and url is not None:
            target, url = url, None
            if not any(label) and target:
                yield _text(_shown(target))
            if linkable(target):
                yield token
            else:
                yield from _address(target, "".join(label))
        elif token.type == "image":
            alt = "".join(_alt(token)) or "image"
            label.append(alt)
            yield from _image(str(token.attrs.get("src", "")), alt, linkable) if url is None else [_text(alt)]
        else:
            label.append(token.content)
            yield token


def _image(src: str, alt: str, linkable: LinkTest) -> Iterator[Token]:
    """Never an image: a chat or browser would fetch an address that the agent's text chose."""
    if linkable(src):
        yield Token("link_open", "a", 1, attrs={"href": src})
        yield _text(alt)
        yield Token("link_close", "a", -1)
    else:
        yield _text(alt)
        yield from _address("" if src.startswith("data:") else src, alt)


def _address(url: str, label: str) -> Iterator[Token]:
    """Where a link would have led, unless its label says so or it stays on the page."""
    shown = _shown(url)
    if label and shown not in ("", label) and not shown.startswith("#"):
        yield _text(" (")
        yield Token("code_inline", "code", 0, markup="`", content=shown)
        yield _text(")")


def _shown(url: str) -> str:
    return clean_text(unquote(url).removeprefix("mailto:"))


def _alt(image: Token) -> Iterator[str]:
    """The text of an image's label, which may hold images again."""
    for token in image.children or ():
        if token.type == "image":
            yield from _alt(token)
        else:
            yield " " if token.type == "softbreak" else token.content


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
