"""The folders of processes on the disk: how large and how old they are, and their removal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import structlog

from ..model import Record

if sys.platform != "win32":
    import fcntl

log = structlog.get_logger(__name__)

_LOCK = "lock"  # a keeper holds it (flock) as long as it lives; see process/keeper.py


class Folder(Record, frozen=True):
    """The folder of one process. `size` in bytes; `changed` is when anything in it last was, in epoch seconds."""

    path: Path
    size: int
    changed: float

    @property
    def process_id(self) -> str:
        return self.path.name


def folders(root: Path) -> list[Folder]:
    """The folders below `root`; none when there is no such folder. Links are passed over, whatever they lead to."""
    try:
        entries = [Path(entry.path) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    found = []
    for path in entries:
        stats = list(_stats(path))
        changed = max((stat.st_mtime for stat in stats), default=0.0)
        found.append(Folder(path, sum(stat.st_size for stat in stats), changed))
    return found


def size_of(folder: Path) -> int:
    """Bytes in all files below a folder; what cannot be read, or goes meanwhile, does not count."""
    return sum(stat.st_size for stat in _stats(folder))


def remove(folder: Folder) -> bool:
    """Remove it, unless a keeper is at work in it. False when it is still there, or a part of it."""
    if _is_held(folder.path / _LOCK):
        return False
    try:
        shutil.rmtree(folder.path)
    except OSError as error:
        log.warning("journal.not_removed", path=str(folder.path), error=str(error))
        return False
    return True


def _is_held(lock: Path) -> bool:
    if sys.platform == "win32":  # no keepers
        return False
    try:
        fd = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not ours to judge
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _stats(folder: Path) -> Iterator[os.stat_result]:
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(os.path.join(where, name), follow_symlinks=False)
            except OSError:
                continue
