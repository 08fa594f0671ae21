"""Which session of Pi it is: ours by a new id, or the one that was asked for."""

from __future__ import annotations

import re

# A session file is named TIME_ID.jsonl; an id is a letter or digit at both ends, with `.`, `_` and `-` inside.
_FILE = re.compile(r"_(?P<id>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\.jsonl$")


def same_session(asked: str, told: str) -> bool:
    """Whether the session that was asked for, by id, by the beginning of one or by a file, is the one that is told."""
    file = _FILE.search(asked)
    return bool(told) and (told.startswith(asked) or (file is not None and file["id"] == told))


RESUME_LINE = re.compile(
    r"(?im)^[ \t]*`?pi[ \t]+--session(?:[ \t]+|=)(?P<quote>[\"']?)(?P<token>[^`\"'\s]+)(?P=quote)`?[ \t]*$"
)
