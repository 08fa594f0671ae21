"""Open the database file safely: its settings, the schema it must have, copies of it, and whether it is sound.

A schema is a row of numbered SQL scripts, `schema/NNNN_name.sql`, each applied once in a transaction of its own. The
number reached is the file's `user_version`; when each was applied is in the table `schema_migrations`. Before a script
changes a database that holds something, the file is copied to `<name>.before-NNNN`.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import structlog

log = structlog.get_logger(__name__)

KEPT_COPIES: Final = 3
_WAL_LIMIT: Final = 16 * 1024 * 1024  # bytes; a burst or a long read does not leave a larger log behind for ever
_SHOWN_PROBLEMS: Final = 20
_SCRIPT: Final = re.compile(r"(\d{4})_(\w+)\.sql")

StoreErrorKind: TypeAlias = Literal["full", "locked", "io", "corrupt", "newer", "migration"]

# What happened, and what to do about it.
_WORDS: Final[dict[StoreErrorKind, tuple[str, str]]] = {
    "full": ("The disk is full", "Free some space; Untether goes on by itself."),
    "locked": (
        "Another program has locked the database",
        "Close what has untether.db open; Untether goes on by itself.",
    ),
    "io": ("A file cannot be read or written", "Check the disk and the permissions of the folder."),
    "corrupt": (
        "The database is damaged",
        "It was left as it is. Put a copy of it in its place (one named untether.db.before-… may lie beside it), "
        "or move it away to start afresh.",
    ),
    "newer": (
        "The database was written by a newer version of Untether",
        "It was left as it is. Install that version again, or put back the copy that was made before the upgrade.",
    ),
    "migration": (
        "The database could not be brought to this version",
        "It was left as it is. Install the previous version again, and report this text.",
    ),
}

# SQLite's primary result codes (sqlite.org/rescode.html) that tell of the file and its disk, not of the statement.
_KINDS: Final[dict[int, StoreErrorKind]] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_PROTOCOL: "locked",
    sqlite3.SQLITE_IOERR: "io",
    sqlite3.SQLITE_CANTOPEN: "io",
    sqlite3.SQLITE_READONLY: "io",
    sqlite3.SQLITE_PERM: "io",
    sqlite3.SQLITE_NOLFS: "io",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
}


class StoreError(Exception):
    """The store cannot do its work now; nothing of what was asked for is stored. Its text can be shown to a person."""

    def __init__(self, kind: StoreErrorKind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind: StoreErrorKind = kind
        self.detail = detail

    def __str__(self) -> str:
        happened, remedy = _WORDS[self.kind]
        return f"{happened}: {self.detail}. {remedy}"


def store_error(exc: BaseException, where: str = "") -> StoreError | None:
    """The `StoreError` that an error of SQLite or of the file system amounts to; None when it is about something else.

    `where` names the file, for the text.
    """
    kind: StoreErrorKind | None = None
    if isinstance(exc, sqlite3.Error):
        kind = _KINDS.get(getattr(exc, "sqlite_errorcode", 0) & 0xFF)
    elif isinstance(exc, OSError):
        kind = "full" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else "io"
    if kind is None:
        return None
    error = StoreError(kind, f"{where}: {exc}" if where else str(exc))
    error.__cause__ = exc
    return error


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into `StoreError`s that name `path`; other errors pass."""
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        if error := store_error(exc, str(path)):
            raise error from exc
        raise


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema. `sql` may hold many statements, but no transaction: it gets one."""

    number: int
    name: str
    sql: str

    def __str__(self) -> str:
        return f"{self.number:04d}_{self.name}"


def load_migrations(folder: Traversable | None = None) -> list[Migration]:
    """The scripts of a folder, ours by default, in order. Other files are passed over.

    :raises ValueError: when they are not numbered 0001, 0002, … without a gap
    """
    folder = folder or resources.files("untether.store").joinpath("schema")
    migrations = [
        Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if (match := _SCRIPT.fullmatch(entry.name))
    ]
    migrations.sort(key=lambda migration: migration.number)
    _check_numbers(migrations)
    return migrations


def _check_numbers(migrations: Sequence[Migration]) -> None:
    numbers = [migration.number for migration in migrations]
    if numbers != list(range(1, len(numbers) + 1)):
        raise ValueError(f"migrations must be numbered 1, 2, 3, …, not {numbers}")


def open_migrated(path: Path, migrations: Sequence[Migration], *, busy_timeout: float = 5.0) -> sqlite3.Connection:
    """The writing connection to a database that has exactly the schema of `migrations`; the file is made if missing.

    `busy_timeout` is in seconds.

    :raises StoreError: of any kind; the file is then as it was, or holds the schema of an earlier migration, complete
    """
    _check_numbers(migrations)
    latest = len(migrations)
    with storage_errors(path):
        if not path.exists():
            _create_private(path)
        connection = connect(path, busy_timeout=busy_timeout)
        try:
            version = _version(connection)
            if version > latest:
                raise _newer(path, version, latest)
            _set_journal(connection)
            if 0 < version < latest:  # never build upon damage
                _quick_check(connection, path)
            for migration in migrations[version:]:
                if version > 0:  # there was something before
                    _copy_before(connection, path, migration)
                _apply(connection, migration)
            connection.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()
            raise
    return connection


def reopen(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """The writing connection to a database that this process has opened and migrated before.

    :raises StoreError: when that is not possible (again)
    """
    with storage_errors(path):
        connection = connect(path, busy_timeout=busy_timeout)
        try:
            _set_journal(connection)
            connection.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()
            raise
    return connection


def connect(path: Path, *, read_only: bool = False, busy_timeout: float = 5.0) -> sqlite3.Connection:
    """A connection to an existing file, without Python's own transaction handling, for one thread at a time."""
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.row_factory = sqlite3.Row
    return connection


def backup(source: Path, target: Path) -> None:
    """Copy the database to `target`, whole and consistent, while others use it. An older file there is replaced.

    :raises StoreError: no file is left half-written then
    """
    with storage_errors(target), closing(connect(source, read_only=True)) as connection:
        _copy(connection, target)


def integrity_check(path: Path) -> list[str]:
    """What is wrong inside the database, in SQLite's words, at most 20 lines of each sort; empty when it is sound.

    It reads the whole file and changes nothing; a running bridge may go on.

    :raises StoreError: when the file cannot be read (`io`) or is locked
    """
    try:
        with storage_errors(path), closing(connect(path, read_only=True)) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({_SHOWN_PROBLEMS})").fetchall()
            problems = [str(row[0]) for row in rows if row[0] != "ok"]
            return problems + _dangling(connection)
    except StoreError as error:
        if error.kind != "corrupt":
            raise
        return [error.detail]


def newer_schema(path: Path, migrations: Sequence[Migration]) -> StoreError | None:
    """The error with which this version would refuse to open the file, when a newer version wrote it.

    :raises StoreError: when the file cannot be read
    """
    with storage_errors(path), closing(connect(path, read_only=True)) as connection:
        version = _version(connection)
    return _newer(path, version, len(migrations)) if version > len(migrations) else None


def _newer(path: Path, version: int, latest: int) -> StoreError:
    return StoreError("newer", f"{path} has schema {version}, this version knows {latest}")


def _version(connection: sqlite3.Connection) -> int:
    """The schema number of the file. Reading the schema, too, shows now whether this is a database at all."""
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _set_journal(connection: sqlite3.Connection) -> None:
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError("io", f"its file system does not allow a write-ahead log (journal mode {mode})")
    connection.execute("PRAGMA synchronous=FULL")  # survives a power cut, not only a crash
    connection.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT}")


def _quick_check(connection: sqlite3.Connection, path: Path) -> None:
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise StoreError("corrupt", f"{path}: {verdict}")


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    """Foreign keys are off here and checked at the end, so a script may rebuild a table others refer to."""
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{migration.sql}\n;")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations"
            " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
        )
        connection.execute(
            "INSERT INTO schema_migrations VALUES (?, ?, CAST(strftime('%s', 'now') AS INTEGER))",
            (migration.number, migration.name),
        )
        connection.execute(f"PRAGMA user_version={migration.number:d}")
        if problems := _dangling(connection):
            raise StoreError("migration", f"{migration}: {problems[0]}")
        connection.execute("COMMIT")
    except sqlite3.Error as exc:
        _roll_back(connection)
        raise store_error(exc, str(migration)) or StoreError("migration", f"{migration}: {exc}") from exc
    except StoreError:
        _roll_back(connection)
        raise
    log.info("store.migrated", migration=str(migration))


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # the error that led here is the one to tell; closing rolls back too
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _dangling(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("PRAGMA foreign_key_check").fetchmany(_SHOWN_PROBLEMS)
    return [f"row {row['rowid']} of {row['table']} refers to a missing row of {row['parent']}" for row in rows]


def _copy_before(connection: sqlite3.Connection, path: Path, migration: Migration) -> None:
    prefix = f"{path.name}.before-"
    target = path.with_name(f"{prefix}{migration.number:04d}")
    _copy(connection, target)
    log.info("store.copied", path=str(target))
    copies = sorted(entry for entry in path.parent.iterdir() if re.fullmatch(re.escape(prefix) + r"\d{4}", entry.name))
    for old in copies[:-KEPT_COPIES]:
        old.unlink(missing_ok=True)


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    _create_private(part)
    try:
        with closing(connect(part)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # else who only looks at it leaves files beside it
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _create_private(path: Path) -> None:
    """Make an empty file for the owner's eyes only; SQLite gives the files beside it the same permissions."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
