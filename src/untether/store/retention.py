"""What is removed after a time: journals by age and size, and the bulk of old rows. Conversations stay.

A reply to a message of any age finds its thread, so the rows by which it is found stay for ever and only become thin:
a delivery loses its card, a message and a run their texts. What something open still needs is not touched: the
processes that have not ended, requests without a decision, deliveries that have not left, and of a thread's last run
the texts that its buttons (Try again, Details) go back to.

Journals go first: removing a file frees space on a full disk, where a change of a row may not be possible. Rows change
in small transactions, so nothing else waits long for the writer.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import structlog
from anyio import to_thread

from ..clock import Clock
from ..model import Record
from . import journals, threads
from .database import Database, StoreError
from .journals import Folder

log = structlog.get_logger(__name__)

DAY_S = 86_400.0
_BEGIN_S = 5.0  # what was cut off by the last stop is taken up first
_EVERY_S = 6 * 3600.0
_AGAIN_S = 600.0  # after the store had no room
_MARGIN_S = 3600.0  # an end as new as this is left alone: its keeper may still be about to leave
_BATCH = 200  # rows in one transaction

_IDS = "(SELECT value FROM json_each(?))"
# Of a run `r`: the newest of its thread; whether something of it has not left yet.
_LAST = "(SELECT MAX(x.id) FROM runs x WHERE x.thread_id = r.thread_id)"
_UNSENT = "EXISTS (SELECT 1 FROM deliveries u WHERE u.run_id = r.id AND u.state IN ('pending', 'sending'))"
# Of a process `p`: everything is over.
_FINISHED = (
    "p.ended IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM interactions i WHERE i.process_id = p.id AND i.state = 'open')"
    f" AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.process_id = p.id AND (r.state = 'running' OR {_UNSENT}))"
)


class Policy(Record, frozen=True):
    """How long things are kept: seconds, and for all journals together bytes."""

    journals: float
    journal_bytes: int
    messages: float
    runs: float


class Pruned(Record, frozen=True):
    """What one round did: folders and bytes removed, rows deleted or made thin."""

    folders: int = 0
    freed: int = 0
    rows: int = 0


class _Ended(Record, frozen=True):
    ended: float
    last: bool


class Retention:
    """Removes what is old from the database and from `folder`, where each process has a folder of its own."""

    def __init__(self, db: Database, folder: Path, policy: Policy, clock: Clock) -> None:
        self._db = db
        self._folder = folder
        self._policy = policy
        self._clock = clock

    async def run(self) -> None:
        """Prune soon after the start and every six hours, until cancelled. It never fails: what did not work waits."""
        await self._clock.sleep(_BEGIN_S)
        while True:
            pause = _EVERY_S
            try:
                pruned = await self.prune()
                if pruned != Pruned():
                    log.info("retention.pruned", **msgspec.structs.asdict(pruned))
            except (StoreError, OSError) as error:
                log.warning("retention.waits", error=str(error))
                pause = _AGAIN_S
            await self._clock.sleep(pause)

    async def prune(self) -> Pruned:
        """One round. Raises StoreError when the store has no room; what was done until then stays done."""
        folders, freed = await self._prune_journals()
        now, policy = self._clock.now(), self._policy
        freed += await self._remove_files(now - policy.messages)
        rows = await self._delete_inputs(now - _MARGIN_S)
        rows += await self._in_batches(partial(_old_updates, before=now - policy.messages), _delete_updates)
        rows += await self._in_batches(partial(_old_edits, before=now - policy.messages), _delete_deliveries)
        rows += await self._in_batches(partial(_old_cards, before=now - policy.messages), _drop_cards)
        rows += await self._in_batches(partial(_old_runs, before=now - policy.runs), _drop_run_texts)
        rows += await self._in_batches(partial(_old_messages, before=now - policy.runs), _drop_message_texts)
        return Pruned(folders, freed, rows)

    async def _remove_files(self, before: float) -> int:
        """Remove files that came with messages of old, unless one that is open has them. How many bytes."""
        wanted = await self._db.read_in_thread(threads.open_files)
        return await to_thread.run_sync(_remove_old, self._folder.with_name("incoming"), wanted, before)

    # -------------------------------------------------------------------------------------------------- journals

    async def _prune_journals(self) -> tuple[int, int]:
        """Remove journals that are too old, then the oldest until the rest is small enough. How many, and bytes."""
        found = await to_thread.run_sync(journals.folders, self._folder)
        ended, known = await self._db.read_in_thread(partial(_ended, ids=[folder.process_id for folder in found]))
        now, policy = self._clock.now(), self._policy
        removable: list[tuple[bool, float, Folder]] = []  # the last runs of threads go last, the oldest first
        for folder in found:
            if (process := ended.get(folder.process_id)) is not None:
                removable.append((process.last, process.ended, folder))
            elif folder.process_id not in known:  # the database was put back to an older state
                removable.append((False, folder.changed, folder))
        removable.sort(key=lambda entry: entry[:2])
        total, count, freed = sum(folder.size for folder in found), 0, 0
        for last, when, folder in removable:
            is_old = when < now - (max(policy.runs, policy.journals) if last else policy.journals)
            is_too_much = total - freed > policy.journal_bytes
            if not (is_old or is_too_much) or when > now - _MARGIN_S:
                continue
            if await to_thread.run_sync(journals.remove, folder):
                count, freed = count + 1, freed + folder.size
        return count, freed

    async def _delete_inputs(self, before: float) -> int:
        """The inputs of processes whose journal is gone: without the output they tell nothing. How many."""
        there = {folder.name for folder in self._folder.iterdir()} if self._folder.is_dir() else set()
        rows, batch = 0, list[str]()
        counts = await self._db.read_in_thread(partial(_with_inputs, before=before))
        for process_id, count in counts.items():
            if process_id in there:
                continue
            rows += count
            batch.append(process_id)
            if sum(map(counts.__getitem__, batch)) >= _BATCH:
                await self._db.write(partial(_apply, change=_drop_inputs, ids=batch))
                batch = []
        if batch:
            await self._db.write(partial(_apply, change=_drop_inputs, ids=batch))
        return rows

    # ------------------------------------------------------------------------------------------------------ rows

    async def _in_batches(
        self,
        find: Callable[[sqlite3.Connection], list[int]],
        change: Callable[[sqlite3.Connection, str], None],
    ) -> int:
        """Find rows beside the writer, and change them in small transactions. How many."""
        ids = iter(await self._db.read_in_thread(find))
        rows = 0
        while batch := list(islice(ids, _BATCH)):
            await self._db.write(partial(_apply, change=change, ids=batch))
            rows += len(batch)
        return rows


# ------------------------------------------------------------------------------------------------- what is not needed


def _ended(conn: sqlite3.Connection, ids: Sequence[str]) -> tuple[dict[str, _Ended], set[str]]:
    """Of some processes, those with which everything is over; and those that there are."""
    wanted = msgspec.json.encode(ids).decode()
    known = {row[0] for row in conn.execute(f"SELECT id FROM processes WHERE id IN {_IDS}", (wanted,))}
    rows = conn.execute(
        f"SELECT p.id, p.ended, EXISTS (SELECT 1 FROM runs r WHERE r.process_id = p.id AND r.id = {_LAST})"
        f" FROM processes p WHERE p.id IN {_IDS} AND {_FINISHED}",
        (wanted,),
    )
    return {row[0]: _Ended(row[1], bool(row[2])) for row in rows}, known


def _with_inputs(conn: sqlite3.Connection, before: float) -> dict[str, int]:
    """How many inputs there are of each process with which everything is over."""
    rows = conn.execute(
        "SELECT n.process_id, n.count FROM (SELECT process_id, COUNT(*) AS count FROM inputs GROUP BY process_id) n"
        f" JOIN processes p ON p.id = n.process_id WHERE p.ended < ? AND {_FINISHED}",
        (before,),
    )
    return {row[0]: row[1] for row in rows}


def _old_updates(conn: sqlite3.Connection, before: float) -> list[int]:
    """Updates that were dealt with, unless their message is still on its way to an agent."""
    return _found(
        conn,
        "SELECT u.id FROM updates u WHERE u.state <> 'stored' AND u.received < ? AND NOT EXISTS (SELECT 1 FROM"
        " messages m WHERE m.update_id = u.id AND m.state NOT IN ('answered', 'withdrawn')) ORDER BY u.id",
        before,
    )


def _old_edits(conn: sqlite3.Connection, before: float) -> list[int]:
    """Edits and deletions that are over. Those of requests stay: they tell that the decision was shown."""
    return _found(
        conn,
        "SELECT d.id FROM deliveries d WHERE d.act <> 'send' AND d.state IN ('sent', 'failed', 'unknown')"
        " AND d.created < ? AND NOT EXISTS (SELECT 1 FROM interactions i WHERE i.delivery_id = d.target) ORDER BY d.id",
        before,
    )


def _old_cards(conn: sqlite3.Connection, before: float) -> list[int]:
    """Deliveries whose content nothing comes back to: not a part of a group that still goes on, nor of an open
    request, nor of a last run that can be tried again or resumed, which changes its message."""
    return _found(
        conn,
        "SELECT d.id FROM deliveries d WHERE d.card IS NOT NULL AND d.state IN ('sent', 'failed', 'unknown')"
        " AND d.created < ?"
        " AND d.grp NOT IN (SELECT grp FROM deliveries WHERE state IN ('pending', 'sending'))"
        " AND d.id NOT IN (SELECT target FROM deliveries WHERE state IN ('pending', 'sending') AND target IS NOT NULL)"
        " AND NOT EXISTS (SELECT 1 FROM interactions i WHERE i.key = d.interaction AND i.state = 'open')"
        " AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = d.run_id AND r.state NOT IN ('done', 'stopped')"
        f" AND r.id = {_LAST}) ORDER BY d.id",
        before,
    )


def _old_runs(conn: sqlite3.Connection, before: float) -> list[int]:
    return _found(
        conn,
        "SELECT r.id FROM runs r WHERE r.ended < ? AND (r.answer <> '' OR r.raw_error <> '')"
        f" AND r.id <> {_LAST} AND NOT {_UNSENT} ORDER BY r.id",
        before,
    )


def _old_messages(conn: sqlite3.Connection, before: float) -> list[int]:
    return _found(
        conn,
        "SELECT m.id FROM messages m WHERE m.state IN ('answered', 'withdrawn') AND m.text <> '' AND m.created < ?"
        f" AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.message_id = m.id AND (r.id = {_LAST} OR {_UNSENT}))"
        " ORDER BY m.id",
        before,
    )


def _found(conn: sqlite3.Connection, query: str, before: float) -> list[int]:
    return [row[0] for row in conn.execute(query, (before,))]


# ------------------------------------------------------------------------------------------------------- the changes


def _apply(
    conn: sqlite3.Connection, change: Callable[[sqlite3.Connection, str], None], ids: Sequence[int] | Sequence[str]
) -> None:
    change(conn, msgspec.json.encode(ids).decode())


def _drop_inputs(conn: sqlite3.Connection, ids: str) -> None:
    conn.execute(f"DELETE FROM inputs WHERE process_id IN {_IDS}", (ids,))


def _delete_updates(conn: sqlite3.Connection, ids: str) -> None:
    conn.execute(f"UPDATE messages SET update_id = NULL WHERE update_id IN {_IDS}", (ids,))
    conn.execute(f"DELETE FROM updates WHERE id IN {_IDS}", (ids,))


def _delete_deliveries(conn: sqlite3.Connection, ids: str) -> None:
    conn.execute(f"DELETE FROM deliveries WHERE id IN {_IDS}", (ids,))


def _drop_cards(conn: sqlite3.Connection, ids: str) -> None:
    conn.execute(f"UPDATE deliveries SET card = NULL WHERE id IN {_IDS}", (ids,))


def _drop_run_texts(conn: sqlite3.Connection, ids: str) -> None:
    conn.execute(f"UPDATE runs SET answer = '', raw_error = '' WHERE id IN {_IDS}", (ids,))


def _drop_message_texts(conn: sqlite3.Connection, ids: str) -> None:
    conn.execute(f"UPDATE messages SET text = '', inlined = '', options = '{{}}' WHERE id IN {_IDS}", (ids,))
    conn.execute(f"DELETE FROM message_parts WHERE message IN {_IDS}", (ids,))


def _remove_old(incoming: Path, wanted: Collection[str], before: float) -> int:
    """Remove the folders that were not changed since `before` and hold none of the `wanted` files. How many bytes."""
    freed = 0
    for folder in incoming.glob("*/"):
        files = list(folder.iterdir())
        if folder.stat().st_mtime >= before or any(str(file) in wanted for file in files):
            continue
        freed += sum(file.stat().st_size for file in files)
        shutil.rmtree(folder)
    return freed
