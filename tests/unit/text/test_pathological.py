"""Inputs made to hang or break a parser end, and with the right text."""

from __future__ import annotations

import pytest

from tests.unit.text.checks import assert_parts
from untether.text.html import markdown_to_html
from untether.text.markdown import markdown_to_rich
from untether.text.split import split

PARAGRAPH = "Some **bold** text with `code` and [a](http://x.yz) link.\n\n- a\n- b\n\n"

# What is all literal text and comes out as it went in.
LITERAL = {
    "brackets": "[" * 10_000,
    "images": "![" * 5_000,
    "links": "[a](" * 8_000,
    "emphasis": "*a_" * 7_000,
    "stars": "**a " * 10_000 + "b",
    "angles": "<a " * 10_000 + "b",
    "ampersands": "&a" * 20_000,
    "bars": " ||a".join(["b"] * 10_000),
    "dunders": "__a" * 10_000,
    "comments": "/*a" * 10_000,
    "path": "a/" * 30_000 + "b",
    "dots": "." * 60_000,
    "address": "http://x.yz" + ")" * 60_000,
    "one word": "a" * 300_000,
    "accents": "a" + "\u0301" * 60_000,
}


@pytest.mark.parametrize("source", LITERAL.values(), ids=LITERAL.keys())
def test_literal_text_stays(source: str) -> None:
    rich = markdown_to_rich(source)
    assert rich.text == source
    assert_parts(split(rich), rich, 4096, 100)


@pytest.mark.parametrize(
    ("source", "word", "times"),
    [
        (">" * 5_000 + " x", "x", 1),
        ("- " * 5_000 + "x", "x", 1),
        ("".join("  " * n + "- x\n" for n in range(300)), "x", 300),
        ("[" * 3_000 + "x" + "](u)" * 3_000, "x", 1),
        ("> x\n\n" * 5_000, "x", 5_000),
        ("**x** " * 5_000, "x", 5_000),
        ("main.py " * 5_000, "main.py", 5_000),
        ("|a" * 500 + "|\n" + "|-" * 500 + "|\n" + "x\n" * 500, "x", 500),
        ("a|b\n-|-\n" + "x|y\n" * 5_000, "x", 5_000),
        ("```\n" + "  x\n" * 75_000 + "```", "x", 75_000),
        (PARAGRAPH * 4_000, "bold", 4_000),
    ],
    ids=["quotes", "items", "deep list", "nested links", "many quotes", "bold", "files", "wide table", "long table",
         "code", "300 KB"],
)  # fmt: skip
def test_nothing_is_lost(source: str, word: str, times: int) -> None:
    rich = markdown_to_rich(source)
    assert rich.text.count(word) >= times
    assert_parts(split(rich), rich, 4096, 100)


@pytest.mark.parametrize("source", [LITERAL["brackets"], LITERAL["emphasis"], LITERAL["address"], PARAGRAPH * 500])
def test_html_of_them_ends_too(source: str) -> None:
    assert markdown_to_html(source)
