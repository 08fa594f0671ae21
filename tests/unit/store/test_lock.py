"""One bridge per state folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from untether.store.lock import AlreadyRunning, StateLock
from untether.store.migrate import StoreError

HOLDER = """
import sys
from pathlib import Path
from untether.store.lock import StateLock
lock = StateLock(Path(sys.argv[1]))
lock.acquire()
lock.note(console_url="http://127.0.0.1:8420/?code=abc")
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its stdin is closed."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_start_learns_where_the_first_ones_console_is(folder: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(AlreadyRunning) as caught:
        StateLock(folder).acquire()
    assert caught.value.note is not None
    assert caught.value.note.pid == holder.pid
    assert caught.value.note.console_url == "http://127.0.0.1:8420/?code=abc"
    assert str(caught.value) == (
        f"Untether is already running here (process {holder.pid}). Its console: http://127.0.0.1:8420/?code=abc"
    )


def test_the_lock_is_free_after_a_clean_end(folder: Path, holder: subprocess.Popen[str]) -> None:
    holder.communicate(timeout=10)
    assert not (folder / "untether.lock.json").exists()
    with StateLock(folder):
        pass


def test_a_note_left_by_a_killed_bridge_means_nothing(folder: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait(timeout=10)
    note = folder / "untether.lock.json"
    note.write_text(json.dumps({"pid": os.getppid(), "started": 1.0, "console_url": "http://stale"}))  # a living pid

    with StateLock(folder):
        assert "stale" not in note.read_text()


def test_one_process_cannot_take_it_twice_either(folder: Path) -> None:
    with StateLock(folder):
        with pytest.raises(AlreadyRunning) as caught:
            StateLock(folder).acquire()
        assert str(caught.value) == (
            f"Untether is already running here (process {os.getpid()}). Use that one, or stop it first."
        )
    with StateLock(folder):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"pid": "seven"}', b"[]"])
def test_an_unreadable_note_does_not_hide_that_it_is_held(
    folder: Path, holder: subprocess.Popen[str], content: bytes
) -> None:
    (folder / "untether.lock.json").write_bytes(content)
    with pytest.raises(AlreadyRunning, match="already running here") as caught:
        StateLock(folder).acquire()
    assert caught.value.note is None


def test_the_folder_and_the_note_are_private(folder: Path) -> None:
    with StateLock(folder) as lock:
        lock.note(console_url="http://127.0.0.1:8420/?code=abc")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in [folder, *folder.iterdir()]}
    assert modes == {"state": 0o700, "untether.lock": 0o600, "untether.lock.json": 0o600}


def test_a_refused_or_released_lock_leaves_the_note_of_the_next_owner(folder: Path) -> None:
    first, second = StateLock(folder), StateLock(folder)
    first.acquire()
    first.release()
    with second:
        first.release()
        assert (folder / "untether.lock.json").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Check the disk and the permissions") as caught:
        StateLock(tmp_path / "file" / "state").acquire()
    assert caught.value.kind == "io"
