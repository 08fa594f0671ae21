"""The owner of `outbox/` in the state folder: copies of files that must arrive, made when their row is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import uuid4

from ..transport import FileOut

_CHUNK: Final = 1 << 20


def keep(source: Path, folder: Path, name: str = "") -> FileOut:
    """Copy a file, to the disk, so that it leaves as it is now; blocks. `name` is what the chat calls it.

    Call it before the transaction that adds the row: a copy without a row is removed at the next start.

    :raises OSError: it cannot be read or copied; nothing is left behind then
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / uuid4().hex
    digest = hashlib.sha256()
    try:
        with source.open("rb") as reading, open(path, "xb", opener=_private) as writing:
            while chunk := reading.read(_CHUNK):
                digest.update(chunk)
                writing.write(chunk)
            writing.flush()
            os.fsync(writing.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return FileOut(name or source.name, path=str(path), digest=digest.hexdigest())


def read(file: FileOut) -> bytes:
    """The content of a file to send; blocks.

    :raises OSError: the copy cannot be read
    :raises ValueError: it is not what was copied
    """
    if not file.path:
        return file.text.encode("utf-8", "replace")
    content = Path(file.path).read_bytes()
    if hashlib.sha256(content).hexdigest() != file.digest:
        raise ValueError(f"the copy of {file.name} was changed")
    return content


def remove(file: FileOut | None) -> None:
    """Its row is done with."""
    if file is not None and file.path:
        Path(file.path).unlink(missing_ok=True)


def remove_others(folder: Path, wanted: Iterable[str], before: float) -> int:
    """Remove the copies that no row needs and that were made `before` (epoch seconds); return how many those were."""
    kept = set(wanted)
    there = list(folder.iterdir()) if folder.is_dir() else []
    found = [path for path in there if str(path) not in kept and path.stat().st_mtime < before]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
