"""Keepers in tests: started as the bridge does it, spoken to in their own protocol, and ended whatever a test did."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from untether.process import keeper
from untether.process.host import Launch
from untether.process.kept import KEEPER_COMMAND, standing

QUICK: Sequence[tuple[str, float]] = (("close_stdin", 0.1), ("SIGINT", 0.1), ("SIGTERM", 0.1), ("SIGKILL", 2.0))
FINAL = {"attached", "written", "past", "failed", "refused", "closed", "ended", "alive", "released", "error"}
PATIENCE = 15.0  # seconds for what takes some hundredths


def keep(folder: Path, launch: Launch, *, command: Sequence[str] = KEEPER_COMMAND, **plan: Any) -> dict[str, Any]:
    """Start a keeper and return what it says of its start."""
    done = subprocess.run(
        command,
        input=encoded(folder, launch, **plan),
        capture_output=True,
        cwd=folder,
        env=launch.env,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def encoded(folder: Path, launch: Launch, **plan: Any) -> bytes:
    """The plan for a keeper, and a folder for it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    plan = {
        "argv": launch.argv,
        "env": launch.env,
        "cwd": launch.cwd,
        "stdin": launch.stdin,
        "ladder": QUICK,
        "journal_cap": 2**40,
        "disk_floor": 0,
        "orphan": 3600.0,
        "retention": 60.0,
        "retry": 0.05,
    } | plan
    return json.dumps(plan).encode()


class Caller:
    """A connection to a keeper."""

    def __init__(self, folder: Path) -> None:
        self.notes: list[dict[str, Any]] = []
        self.replies: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(str(folder / "sock"))
        self._rest = b""
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, name: str, data: bytes = b"", **more: Any) -> int:
        self._number += 1
        self.send_raw(self.frame(name, data, id=self._number, **more))
        return self._number

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self, name: str, data: bytes = b"", **more: Any) -> bytes:
        size = {"size": len(data)} if data else {}
        return json.dumps({"call": name, **size, **more}).encode() + b"\n" + data

    def call(self, name: str, data: bytes = b"", **more: Any) -> dict[str, Any]:
        """Call and return the last reply."""
        return self.reply(self.send(name, data, **more))

    def write(self, place: Sequence[int], data: bytes) -> str:
        state: str = self.call("write", data, place=list(place))["state"]
        return state

    def reply(self, number: int) -> dict[str, Any]:
        """The last reply to a call."""
        self.until(lambda: any(reply["id"] == number and reply["state"] in FINAL for reply in self.replies))
        return next(reply for reply in self.replies if reply["id"] == number and reply["state"] in FINAL)

    def note(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Wait for a note."""
        wanted = {"note": kind, **facts}
        self.until(lambda: any(note.items() >= wanted.items() for note in self.notes))
        return next(note for note in self.notes if note.items() >= wanted.items())

    def end(self) -> dict[str, Any]:
        """Wait for the end of the agent; it may lie before we attached."""
        exit: dict[str, Any] = self.call("observe", version=1)["exit"] or self.note("ended")["exit"]
        return exit

    def until(self, true: Callable[[], bool]) -> None:
        while not true():
            chunk = self._socket.recv(65536)
            if not chunk:
                raise EOFError(f"the keeper hung up; notes {self.notes}, replies {self.replies}")
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for message in map(json.loads, lines):
                (self.notes if "note" in message else self.replies).append(message)

    def hung_up(self) -> bool:
        """Wait for the end of the connection."""
        try:
            self.until(lambda: False)
        except (EOFError, ConnectionResetError):
            return True
        return False


def attached(folder: Path, epoch: int = 1) -> Caller:
    caller = Caller(folder)
    assert caller.call("attach", version=1, epoch=epoch)["state"] == "attached"
    return caller


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return found


def output(folder: Path) -> bytes:
    return (folder / "out.jsonl").read_bytes()


def wait_for(true: Callable[[], object], what: str) -> None:
    """For conditions of other processes, which tell nobody."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.005)


def keeper_pid(folder: Path) -> int:
    pid: int = json.loads((folder / "started").read_text())["keeper"]
    return pid


def kill_keeper(folder: Path) -> None:
    os.kill(keeper_pid(folder), signal.SIGKILL)
    wait_for(lambda: standing(folder) != "alive", "the keeper's end")


def end_all(folder: Path) -> None:
    """End the keeper of `folder` and all that its agent has left."""
    if not (folder / "started").exists():
        return
    if standing(folder) == "alive":
        kill_keeper(folder)
    process_id = json.loads((folder / "started").read_text())["process"]
    while left := keeper.living(process_id, set(), set(), set(), {os.getpid()}):
        for process in left.values():
            keeper.send(process, signal.SIGKILL)
        time.sleep(0.01)
