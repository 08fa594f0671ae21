"""Dotted keys, and where each one stands in a TOML text."""

from __future__ import annotations

import tomllib

import pytest

from untether.settings.keys import join_key, key_lines, line_of, split_key, split_tables

TEXT = '''\
top = 1
"quoted key" = 2
text = """
[not.a.table]
not_a_key = 1
"""
one_line = """x"""
numbers = [
  1, # [not.a.table]
  ["a"],
]
inline = { a = 1, b = { c = 2 } }
fruit.apple.color = "red" # key = 1

[ transports . telegram ]   # comment
chat_id = 5
'single' = "[x]"
[projects."my.app"]
path = "x"
[transports.telegram.topics]
enabled = true
[[triggers.crons]]
id = "a"
[[triggers.crons]]
id = "b"
'''


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("transports.telegram.chat_id", ("transports", "telegram", "chat_id")),
        ('projects."my.app".path', ("projects", "my.app", "path")),
        ("projects.'my app'.path", ("projects", "my app", "path")),
        ('"with \\"quotes\\""', ('with "quotes"',)),
    ],
)
def test_keys_are_read_and_written_as_toml_does(text: str, path: tuple[str, ...]) -> None:
    assert split_key(text) == path
    assert split_key(join_key(path)) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a b", "a = 1", "a\nb", "ä", '"a', '"\\q"'])
def test_what_is_no_key_is_not_read(text: str) -> None:
    assert split_key(text) is None


def test_places_in_lists_are_written_with_brackets() -> None:
    assert join_key(("claude", "extra_args", 2)) == "claude.extra_args[2]"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 1),
        (("quoted key",), 2),
        (("text",), 3),
        (("one_line",), 7),
        (("numbers",), 8),
        (("numbers", 1), 8),
        (("inline", "b", "c"), 12),
        (("fruit", "apple"), 13),
        (("fruit", "apple", "color"), 13),
        (("transports", "telegram"), 15),
        (("transports", "telegram", "chat_id"), 16),
        (("transports", "telegram", "single"), 17),
        (("transports", "telegram", "missing"), 15),
        (("projects", "my.app", "path"), 19),
        (("transports", "telegram", "topics", "enabled"), 21),
        (("triggers", "crons", 1, "id"), 23),
        (("nowhere",), None),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_line_of_a_key_is_found(path: tuple[str | int, ...], line: int | None, newline: str) -> None:
    assert line_of(key_lines(TEXT.replace("\n", newline)), path) == line


def test_a_text_is_cut_into_its_tables() -> None:
    parts = split_tables(TEXT)

    assert "".join(part for _, part in parts) == TEXT
    assert [path for path, _ in parts] == [
        (),
        ("transports", "telegram"),
        ("projects", "my.app"),
        ("transports", "telegram", "topics"),
        ("triggers", "crons"),
        ("triggers", "crons"),
    ]
    for _, part in parts:
        tomllib.loads(part)
    assert split_tables("") == [((), "")]
