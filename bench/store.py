"""What the store commits in a second: by one who waits for each, and by many at once, whose jobs share commits."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from untether.store import kv
from untether.store.database import Database
from untether.store.migrate import load_migrations

from .figures import Figure

_ONE_BY_ONE, _WRITERS, _EACH = 1_000, 200, 100


def measure() -> list[Figure]:
    with TemporaryDirectory(prefix="untether-bench-") as folder:
        alone, together = anyio.run(_measure, Path(folder))
    return [
        Figure("store", "commits, one after the other", alone, "/s"),
        Figure("store", f"jobs of {_WRITERS} writers at once", together, "/s"),
    ]


async def _measure(folder: Path) -> tuple[float, float]:
    async with Database(folder / "untether.db", migrations=load_migrations()) as db:
        began = time.perf_counter()
        for number in range(_ONE_BY_ONE):
            await db.write(_put(str(number % 50)))
        alone = _ONE_BY_ONE / (time.perf_counter() - began)

        async def write(number: int) -> None:
            for _ in range(_EACH):
                await db.write(_put(str(number)))

        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for number in range(_WRITERS):
                tasks.start_soon(write, number)
        return alone, _WRITERS * _EACH / (time.perf_counter() - began)


def _put(key: str) -> Callable[[sqlite3.Connection], None]:
    """A small job: one row."""
    return lambda conn: kv.put(conn, key, "value")
