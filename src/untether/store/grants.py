"""The owner of `grants`: rules that a person allowed for good, in a project or, without one, in a folder."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..model import Record
from .threads import Thread, place_name


class Grant(Record, frozen=True):
    """A rule in the engine's own words, such as `Bash(touch *)`.

    `folder` is "" when it holds in a project; `place` is what people call either; `granted` is in epoch seconds.
    """

    id: int
    place: str
    project: str
    folder: str
    engine: str
    rule: str
    granted_by: str
    granted: float

    def holds_in(self, thread: Thread) -> bool:
        """Whether agents that work for a thread are given it."""
        return (self.engine, self.project, self.folder) == (thread.engine, *_where(thread))


_SELECT = "SELECT id, place, project, folder, engine, rule, granted_by, granted FROM grants"


def _grant(row: Any) -> Grant:
    return Grant(*row)


def _where(thread: Thread) -> tuple[str, str]:
    """Project and folder: every worktree of a project shares its grants."""
    return (thread.project, "") if thread.project else ("", thread.cwd)


def add(conn: sqlite3.Connection, thread: Thread, rule: str, by: str, now: float) -> None:
    """Keep a rule for where a thread works; one that is kept already stays as it is."""
    project, folder = _where(thread)
    conn.execute(
        "INSERT OR IGNORE INTO grants (place, project, folder, engine, rule, granted_by, granted)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (place_name(thread.cwd, project or None, None), project, folder, thread.engine, rule, by, now),
    )


def rules(conn: sqlite3.Connection, thread: Thread) -> list[str]:
    """The rules for agents that work for a thread, oldest first."""
    rows = conn.execute(
        "SELECT rule FROM grants WHERE project = ? AND folder = ? AND engine = ? ORDER BY id",
        (*_where(thread), thread.engine),
    )
    return [row[0] for row in rows]


def all_(conn: sqlite3.Connection) -> list[Grant]:
    """All of them, by place."""
    return [_grant(row) for row in conn.execute(f"{_SELECT} ORDER BY place, engine, id")]


def get(conn: sqlite3.Connection, grant_id: int) -> Grant | None:
    row = conn.execute(f"{_SELECT} WHERE id = ?", (grant_id,)).fetchone()
    return None if row is None else _grant(row)


def revoke(conn: sqlite3.Connection, grant_id: int) -> bool:
    """False when it was revoked before."""
    return conn.execute("DELETE FROM grants WHERE id = ?", (grant_id,)).rowcount == 1
