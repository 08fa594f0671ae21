"""Points at which a test stops the program."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from untether.store.database import Database
from untether.store.migrate import Migration

SCHEMA = [Migration(1, "notes", "CREATE TABLE notes (text TEXT)")]

THREE_POINTS = """
from untether import faults
for name in ("one", "two", "three"):
    faults.point(name)
    print(name, flush=True)
"""

THREE_WRITES = """
import sys
from pathlib import Path
import anyio
from untether.store.database import Database
from untether.store.migrate import Migration

async def main():
    schema = [Migration(1, "notes", "CREATE TABLE notes (text TEXT)")]
    async with Database(Path(sys.argv[1]), migrations=schema) as db:
        for text in ("one", "two", "three"):
            await db.write(lambda connection: connection.execute("INSERT INTO notes VALUES (?)", (text,)))
            print(text, flush=True)

anyio.run(main)
"""


class Controller:
    """The test's end of the socket: notes each point and answers with `reply`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reply: Callable[[str], str] = lambda name: "go"
        self.passed: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rw", encoding="utf-8") as lines:
                name = lines.readline().strip()
                self.passed.append(name)
                lines.write(self.reply(name) + "\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the path of a socket must be short
        controller = Controller(Path(folder) / "faults")
        yield controller
        controller.close()


def run(script: str, *arguments: str, socket_path: Path | None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "UNTETHER_FAULTS"}
    if socket_path:
        env["UNTETHER_FAULTS"] = str(socket_path)
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False)


def test_nothing_happens_without_the_variable() -> None:
    assert run(THREE_POINTS, socket_path=None).stdout == "one\ntwo\nthree\n"


def test_each_point_is_reported_and_passed(controller: Controller) -> None:
    assert run(THREE_POINTS, socket_path=controller.path).stdout == "one\ntwo\nthree\n"
    assert controller.passed == ["one", "two", "three"]


def test_the_program_dies_where_it_is_told_to(controller: Controller) -> None:
    controller.reply = lambda name: "kill" if name == "two" else "go"
    result = run(THREE_POINTS, socket_path=controller.path)
    assert result.returncode == -signal.SIGKILL
    assert result.stdout == "one\n"


def test_the_program_fails_where_it_is_told_to(controller: Controller) -> None:
    controller.reply = lambda name: "raise" if name == "three" else "go"
    result = run(THREE_POINTS, socket_path=controller.path)
    assert result.stdout == "one\ntwo\n"
    assert result.stderr.endswith("untether.faults.InjectedFault: three\n")


def test_a_misspelt_reply_is_no_reply(controller: Controller) -> None:
    controller.reply = lambda name: "kil" if name == "one" else "go"
    assert "unknown reply 'kil' at the point 'one'" in run(THREE_POINTS, socket_path=controller.path).stderr


def test_the_program_goes_on_when_the_test_has_gone(tmp_path: Path) -> None:
    result = run(THREE_POINTS, socket_path=tmp_path / "nobody")
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1] == "three"


def test_a_kill_before_a_commit_loses_that_write_and_no_other(controller: Controller, tmp_path: Path) -> None:
    path = tmp_path / "untether.db"
    controller.reply = lambda name: "kill" if len(controller.passed) == 3 else "go"
    result = run(THREE_WRITES, str(path), socket_path=controller.path)
    assert result.returncode == -signal.SIGKILL
    assert result.stdout.splitlines()[-2:] == ["one", "two"]

    async def stored() -> list[str]:
        async with Database(path, migrations=SCHEMA) as db:
            return db.read(lambda connection: [row["text"] for row in connection.execute("SELECT text FROM notes")])

    assert anyio.run(stored) == ["one", "two"]
