"""Directives at the start of a message: `/engine`, `/project` and `@branch` say who works where."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from ..model import Record
from ..store.threads import Busy

_TOKEN = re.compile(r"\s*(?:/(?P<slash>[A-Za-z0-9_][A-Za-z0-9_.-]*)(?:@\w+)?|@(?P<branch>[^\s@]+))(?=\s|$)")


class Directives(Record, frozen=True):
    engine: str | None = None
    project: str | None = None
    branch: str | None = None
    text: str = ""


def parse(
    text: str, engines: Collection[str], projects: Collection[str], is_file: Callable[[str], bool] = lambda name: False
) -> Directives:
    """Read directives from the first line that is not empty; the first other token ends them.

    `@name` is no branch when `is_file` says that it names a file: agents take `@file` as something to read.
    Names compare without regard to case. A second engine, project or branch is no directive but part of the text.
    """
    found: dict[str, str] = {}
    # A project is named by its owner, so it comes before an engine of the same name; said again it means the engine.
    known = {
        "project": {name.lower(): name for name in projects},
        "engine": {name.lower(): name for name in engines},
    }
    rest = text.lstrip()
    line_end = rest.find("\n")
    limit = len(rest) if line_end < 0 else line_end
    position = 0
    while match := _TOKEN.match(rest, position, limit):
        if match["branch"] is not None:
            if is_file(match["branch"]):
                break
            kind, value = "branch", match["branch"]
        else:
            word = match["slash"].lower()
            kind = next((kind for kind, names in known.items() if word in names and kind not in found), "")
            if not kind:
                break
            value = known[kind][word]
        if kind in found:
            break
        found[kind] = value
        position = match.end()
    return Directives(**found, text=rest[position:].strip() if found else text.strip())


def one_off(text: str) -> tuple[Busy, str] | None:
    """A message that says for itself what becomes of it while the agent is busy: `/steer TEXT` or `/queue TEXT`."""
    match command(text):
        case ("steer" | "queue" as busy, rest) if rest:
            return busy, rest
    return None


def command(text: str) -> tuple[str, str] | None:
    """A message that begins with `/word` (or `/word@bot`): the word in lower case and the rest."""
    match = re.match(r"\s*/([A-Za-z0-9_][A-Za-z0-9_-]*)(?:@\w+)?(?:\s+|$)", text)
    return None if match is None else (match[1].lower(), text[match.end() :].strip())
