"""File changes of Codex as diffs: hunks of an update, bare contents of files that are added or deleted."""

from __future__ import annotations

from collections.abc import Sequence

from ...model import Content
from ...schemas.codex_items import FileUpdate
from ...text.diff import FileDiff

_VERBS = {"add": "Write", "delete": "Delete"}


def relative(path: str, root: str) -> str:
    """A path as people know it: without the project's folder in front."""
    return path.removeprefix(root + "/") if root else path


def diff(change: FileUpdate, root: str) -> FileDiff:
    """One changed file, whole."""
    path = relative(change.path, root)
    if change.kind.move_path:
        path += f" → {relative(change.kind.move_path, root)}"
    text = change.diff.removesuffix("\n")
    sign = {"add": "+", "delete": "-"}.get(change.kind.type)
    lines = text.split("\n") if text else []
    if sign:
        lines = [sign + line for line in lines]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return FileDiff(path, "\n".join(lines), added, removed)


def contents(changes: Sequence[FileUpdate], root: str) -> tuple[Content, ...]:
    """All changes, for a person who is to decide on them."""
    found = []
    for change in changes:
        shown = diff(change, root)
        verb = _VERBS.get(change.kind.type)
        label = f"{verb} {shown.path}" if verb else shown.path
        found.append(Content("diff", shown.unified, label, added=shown.added, removed=shown.removed))
    return tuple(found)


def verb(changes: Sequence[FileUpdate]) -> str:
    """One word for what is done to the files."""
    verbs = {_VERBS.get(change.kind.type, "Edit") for change in changes}
    return verbs.pop() if len(verbs) == 1 else "Edit"
