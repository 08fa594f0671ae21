"""One change in a TOML text that leaves comments, order and everything else where they are.

tomlkit edits; around it the text is cut into its tables first, because tomlkit puts a new key behind the comments that
belong to the next table, and is not reliable when a table is written in several places. `says` checks the outcome.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, MutableMapping
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.items import Item, Table

from .keys import KeyPath, join_key, split_tables, value_at


def put(text: str, key: KeyPath, value: Any) -> str:
    """`text` with one key set: in the part that has its table, else in a new table at the end.

    Anywhere else a new table could come between a comment and the table below that it speaks of.
    """
    assignment = f"{join_key(key[-1:])} = {_item(value).as_string()}\n"
    parts = split_tables(text)
    for length in reversed(range(len(key))):
        for index, (name, part) in enumerate(parts):
            if name != key[:length]:
                continue
            document = tomlkit.parse(part)
            table = value_at(document, key[:-1])
            if isinstance(table, Mapping):
                if len(document):
                    _put_into_table(table, key[-1], value)
                    part = tomlkit.dumps(document)
                else:
                    part = _with_first_key(part, assignment)
                parts[index] = (name, part)
                return _joined(parts, text)
    above = text.rstrip() + "\n\n" if text.strip() else ""
    return _joined([((), f"{above}[{join_key(key[:-1])}]\n{assignment}")], text)


def _with_first_key(part: str, assignment: str) -> str:
    """The top of a file that holds nothing but comments: the key goes below the title, which an empty line ends."""
    title = re.match(r"(?:[ \t]*#[^\n]*\n)+[ \t]*\r?\n", part)
    place = title.end() if title else 0
    below = part[place:]
    return part[:place] + assignment + ("\n" if below.strip() else "") + below


def _put_into_table(table: Any, name: str, value: Any) -> None:
    """A new key goes behind the last one: the comments after that belong to what follows the table."""
    container = table.value if isinstance(table, Table) else table
    tail: list[Any] = []
    if name not in table and isinstance(container, Container):
        last = max((index for index, (key, _) in enumerate(container.body) if key is not None), default=-1)
        tail = container.body[last + 1 :]
        del container.body[last + 1 :]
    table[name] = _item(value)
    if tail:
        container.body.extend(tail)


def remove(text: str, key: KeyPath) -> str:
    """`text` without a key or a table. Comments stay, except one on the removed line."""
    parts = split_tables(text)
    for index, (name, part) in enumerate(parts):
        if name[: len(key)] == key:
            comments = re.search(r"(?m)^(?:[ \t]*(?:#[^\n]*)?\r?\n)*\Z", part)
            parts[index] = (name, comments[0] if comments else "")
        elif key[: len(name)] == name:
            document = tomlkit.parse(part)
            table = value_at(document, key[:-1])
            if isinstance(table, MutableMapping) and key[-1] in table:
                del table[key[-1]]
                parts[index] = (name, tomlkit.dumps(document))
    return _joined(parts, text)


def _joined(parts: list[tuple[KeyPath, str]], before: str) -> str:
    """The parts as one text with the line ends of the text before."""
    text = "".join(part for _, part in parts)
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in before else text


def _item(value: Any) -> Item:
    return value if isinstance(value, Item) else tomlkit.item(value)


def apply(document: dict[str, Any], key: KeyPath, value: Any) -> None:
    """The same change on plain dicts (None removes): what the edited text must say."""
    if value is None:
        table = value_at(document, key[:-1])
        if isinstance(table, dict):
            table.pop(key[-1], None)
        return
    for name in key[:-1]:
        if not isinstance(document.get(name), dict):
            document[name] = {}
        document = document[name]
    document[key[-1]] = value.unwrap() if isinstance(value, Item) else value


def says(text: str, expected: dict[str, Any]) -> bool:
    """Whether the text is TOML in UTF-8 for these values, tables that became empty aside."""
    try:
        text.encode()
        found = tomllib.loads(text)
    except ValueError:
        return False
    return bool(_without_empty(found) == _without_empty(expected))


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _without_empty(item) for name, item in value.items()}
    return {name: item for name, item in inner.items() if item != {}}
