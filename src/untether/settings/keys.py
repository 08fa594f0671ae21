"""Dotted keys: reading and writing them, and the line of a TOML text on which each one stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

KeyPath = tuple[str, ...]
Location = tuple[str | int, ...]
"""A key path that may go on into a list; numbers are places in it."""

_BARE = r"[A-Za-z0-9_-]+"
_PART = rf"""(?:{_BARE}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER_LINE = re.compile(rf"\s*\[\[?\s*({_KEY})\s*\]\]?\s*(?:#.*)?")
_KEY_LINE = re.compile(rf"\s*({_KEY})\s*=(.*)", re.DOTALL)
_STRING_OR_COMMENT = re.compile(r""""(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#.*""")


def split_key(text: str) -> KeyPath | None:
    """`a."b.c".d` → `("a", "b.c", "d")`; None when it is not a TOML key."""
    if not re.fullmatch(_KEY, text):
        return None
    parts = re.findall(_PART, text)
    try:
        return tuple(tomllib.loads(f"key = {part}")["key"] if part[0] in "\"'" else part for part in parts)
    except tomllib.TOMLDecodeError:
        return None


def join_key(path: Location) -> str:
    """The reverse of `split_key`; a number is the place in a list: `allowed_user_ids[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        quoted = part if re.fullmatch(_BARE, part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
        text += f".{quoted}" if text else quoted
    return text


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line (from 1) on which each table and key of a valid TOML text is first written.

    Keys inside an inline table or a list of tables have no entry of their own: ask for them with `line_of`.
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, _, is_header, path in _written_keys(text):
        if is_header:
            table = path
            found.setdefault(table, number)
        else:
            for length in range(1, len(path) + 1):
                found.setdefault(table + path[:length], number)
    return found


def split_tables(text: str) -> list[tuple[KeyPath, str]]:
    """A valid TOML text cut before every `[table]` line, each part with its table; joined they are the text again.

    The first part, of the table `()`, is always there and may be empty. Every part is valid TOML by itself.
    """
    headers = [(path, offset) for _, offset, is_header, path in _written_keys(text) if is_header]
    starts = [((), 0), *headers]
    ends = [offset for _, offset in headers] + [len(text)]
    return [(path, text[start:end]) for (path, start), end in zip(starts, ends, strict=True)]


def line_of(lines: dict[KeyPath, int], path: Location) -> int | None:
    """The line of the key, else of the nearest table or key that holds it."""
    names = [part for part in path if isinstance(part, str)]
    while names:
        if (line := lines.get(tuple(names))) is not None:
            return line
        names.pop()
    return None


def value_at(table: Any, key: Location) -> Any:
    """What nested tables hold at `key`, None when there is nothing or no table on the way."""
    for name in key:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


def _written_keys(text: str) -> Iterator[tuple[int, int, bool, KeyPath]]:
    """(line, its offset, is it a `[table]` line, the path on it) of all that opens a table or assigns a key."""
    open_string = ""  # the quotes that end the multi-line string we are in
    open_brackets = 0  # of the list or inline table we are in
    offset = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if open_string:
            if open_string in line:
                open_string = ""
        elif open_brackets:
            open_brackets += _bracket_balance(line)
        elif (header := _HEADER_LINE.fullmatch(line)) and (path := split_key(header[1])):
            yield number, offset, True, path
        elif (assignment := _KEY_LINE.fullmatch(line)) and (path := split_key(assignment[1])):
            yield number, offset, False, path
            value = assignment[2].strip()
            if value[:3] in ('"""', "'''"):
                open_string = "" if value[:3] in value[3:] else value[:3]
            else:
                open_brackets = _bracket_balance(value)
        offset += len(line) + 1


def _bracket_balance(text: str) -> int:
    plain = _STRING_OR_COMMENT.sub("", text)
    return sum(plain.count(char) for char in "[{") - sum(plain.count(char) for char in "]}")
