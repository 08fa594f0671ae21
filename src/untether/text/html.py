"""Renders an agent's Markdown as safe HTML for the web console.

Safe means: no HTML of the agent passes, no address other than http, https and mailto is a link, nothing is fetched
(images are links), and no inline style or script is made, so that a strict content security policy holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token

from .tokens import is_web_address, parse

_ADDRESS = re.compile(r"https?://[^\s<>\"'`]+", re.IGNORECASE)
_SENTENCE_END = ".,:;!?)]}*"


def markdown_to_html(source: str) -> str:
    """`source` as HTML blocks. Bare web addresses become links as well."""
    renderer = _renderer()
    html: str = renderer.renderer.render(list(_prepared(parse(source, _is_link))), renderer.options, {})
    return html


def paragraph_html(text: str) -> str:
    """Literal text: escaped, with its line breaks."""
    return escape(text).replace("\n", "<br>\n")


def code_html(text: str, language: str = "") -> str:
    """Code as a block, with its language as the class `language-…`."""
    css = f' class="language-{escape(language)}"' if language else ""
    return f"<pre><code{css}>{escape(text)}</code></pre>"


def _is_link(url: str) -> bool:
    return is_web_address(url) or url.lower().startswith("mailto:")


@cache
def _renderer() -> MarkdownIt:
    # An agent that breaks a line means it: chats show the break, and so does the console.
    return MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": False})


def _prepared(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        align = token.attrs.pop("style", None)
        if align:  # the policy of the console forbids inline styles
            token.attrSet("align", str(align).removeprefix("text-align:"))
        if token.meta.get("task"):
            token.attrSet("class", "task")
        if token.children:
            token.children = list(_linked(token.children))
        yield token


def _linked(children: Sequence[Token]) -> Iterator[Token]:
    in_link = False
    for token in children:
        if token.type == "link_open":
            in_link = True
            _protect(token)
        elif token.type == "link_close":
            in_link = False
        if token.type == "text" and not in_link:
            yield from _bare_addresses(token.content)
        else:
            yield token


def _bare_addresses(text: str) -> Iterator[Token]:
    done = 0
    for match in _ADDRESS.finditer(text):
        url = _without_sentence_end(match[0])
        if not is_web_address(url):
            continue
        yield Token("text", "", 0, content=text[done : match.start()])
        yield _protect(Token("link_open", "a", 1, attrs={"href": url}))
        yield Token("text", "", 0, content=url)
        yield Token("link_close", "a", -1)
        done = match.start() + len(url)
    yield Token("text", "", 0, content=text[done:])


def _without_sentence_end(url: str) -> str:
    """`url` without the punctuation after it; a bracket that was opened within the address belongs to it."""
    end = len(url)
    surplus = url.count(")") - url.count("(")
    while end and url[end - 1] in _SENTENCE_END:
        if url[end - 1] == ")":
            if surplus <= 0:
                break
            surplus -= 1
        end -= 1
    return url[:end]


def _protect(link: Token) -> Token:
    link.attrSet("rel", "noopener noreferrer")
    link.attrSet("target", "_blank")
    return link
