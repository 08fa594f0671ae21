"""Directives at the start of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untether.conversation.directives import Directives, command, parse

ENGINES = ["claude", "demo"]
PROJECTS = ["shop", "Web-Site"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fix the bug", Directives(text="fix the bug")),
        ("/claude fix it", Directives(engine="claude", text="fix it")),
        ("/demo /shop @fix-cart do it", Directives("demo", "shop", "fix-cart", "do it")),
        ("@fix/cart /shop\ndo it\nnow", Directives(project="shop", branch="fix/cart", text="do it\nnow")),
        ("\n\n  /shop go", Directives(project="shop", text="go")),
        ("/SHOP go", Directives(project="shop", text="go")),
        ("/web-site go", Directives(project="Web-Site", text="go")),
        ("/claude@my_bot go", Directives(engine="claude", text="go")),
        ("/compact please", Directives(text="/compact please")),  # not ours: the agent's own command
        ("go /claude", Directives(text="go /claude")),
        ("/claude /demo go", Directives(engine="claude", text="/demo go")),  # a second one is text
        ("/etc/hosts looks wrong", Directives(text="/etc/hosts looks wrong")),
        ("/shop /shop", Directives(project="shop", text="/shop")),
        ("/shop", Directives(project="shop", text="")),
        (
            "/shop\n/demo is a word of the second line",
            Directives(project="shop", text="/demo is a word of the second line"),
        ),
        ("user@example.com wrote", Directives(text="user@example.com wrote")),
    ],
)
def test_directives(text: str, expected: Directives) -> None:
    assert parse(text, ENGINES, PROJECTS) == expected


def test_a_project_comes_before_an_engine_of_its_name() -> None:
    assert parse("/demo fix it", ENGINES, ["demo"]) == Directives(project="demo", text="fix it")
    assert parse("/demo /demo hi", ENGINES, ["demo"]) == Directives("demo", "demo", text="hi")


def test_a_file_is_no_branch() -> None:
    found = parse("@README.md summarize this", ENGINES, PROJECTS, lambda name: name == "README.md")
    assert found == Directives(text="@README.md summarize this")
    assert parse("/shop @a.txt @b", ENGINES, PROJECTS, lambda name: name == "a.txt").text == "@a.txt @b"


@given(st.text())
def test_text_without_directives_is_kept(text: str) -> None:
    found = parse(text, [], [])
    if found.branch is None:
        assert found.text == text.strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/cancel", ("cancel", "")),
        ("  /New  ", ("new", "")),
        ("/ctx@my_bot set shop", ("ctx", "set shop")),
        ("/ctx set shop\n@x", ("ctx", "set shop\n@x")),
        ("cancel", None),
        ("/", None),
        ("/etc/hosts", None),
    ],
)
def test_command(text: str, expected: tuple[str, str] | None) -> None:
    assert command(text) == expected
