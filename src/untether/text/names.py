"""Finds file names that a chat would turn into links: `main.py` is a file here, not a site in Paraguay."""

from __future__ import annotations

import re
from collections.abc import Iterator

# File endings that are also top-level domains, which is when Telegram makes a link of the bare name. Endings that in
# an agent's text are rather a domain (com, io, dev, net, app) are left alone.
FILE_ENDINGS: frozenset[str] = frozenset({
    "ac", "am", "as", "bz", "cc", "cl", "cu", "fish", "gd", "gs", "in", "la", "map", "md", "mk", "ml", "mm", "mov",
    "nu", "pl", "pm", "properties", "ps", "pt", "pub", "py", "rs", "sc", "sh", "so", "st", "sv", "td", "tf", "zip",
})  # fmt: skip

# An address is skipped whole; anything else that may be a path, with the line it points to.
_TOKEN = re.compile(r"(?P<address>[A-Za-z][\w+.-]*://\S+|www\.\S+)|[\w./~+@-]+(?::\d+(?:[:-]\d+)?)?")
_FILE = re.compile(r"[\w~+@.-]*[\w~+@-]\.([A-Za-z]+)(?::\d+(?:[:-]\d+)?)?")
_HOST = re.compile(r"\w[\w-]*(?:\.[\w-]+)+")


def split_file_names(text: str) -> Iterator[tuple[str, bool]]:
    """Cut `text` into pieces; True marks a file name (or a path that ends in one) that a chat would link."""
    done = 0
    for match in _TOKEN.finditer(text):
        if match["address"]:
            continue
        name = match[0].rstrip(".-")  # the full stop or dash of the sentence
        if not _is_file(name):
            continue
        if match.start() > done:
            yield text[done : match.start()], False
        yield name, True
        done = match.start() + len(name)
    if done < len(text):
        yield text[done:], False


def _is_file(name: str) -> bool:
    first, *rest = name.split("/")
    file = _FILE.fullmatch(rest[-1] if rest else first)
    if file is None or file[1].lower() not in FILE_ENDINGS:
        return False
    if not rest:
        return "@" not in first  # me@example.py is mail
    # example.com/install.sh is an address without its scheme
    return _HOST.fullmatch(first) is None or first.rsplit(".", 1)[1].lower() in FILE_ENDINGS
