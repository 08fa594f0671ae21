"""Named places at which a test may stop, kill or fail the running program, and its clock; nothing happens otherwise.

When the environment variable `UNTETHER_FAULTS` names a Unix socket at import, each `point` connects to it, sends its
name and a newline, and waits for one line:

    go      go on (also what a closed connection means)
    kill    end this process with SIGKILL, here
    raise   raise `InjectedFault`, here

The caller is blocked meanwhile, its event loop included, which is what such a test wants. Any thread may pass a point.

The bridge opens one more connection at its start, which stays: it sends `clock`, and gets one line with the seconds
by which its wall time is to be ahead of the machine's. After that each line is a command, answered with `done`:

    advance SECONDS    time passes: what sleeps until then wakes now
    jump SECONDS       the wall time is set forward or back, as after a suspend; nobody wakes
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Final

import anyio
import structlog

from .clock import Clock, SteeredClock, SystemClock

_SOCKET: Final = os.environ.get("UNTETHER_FAULTS")
_CLOCK: Final = "clock"

log = structlog.get_logger(__name__)


class InjectedFault(Exception):
    """What a test asked this place to raise."""


def point(name: str) -> None:
    """Mark a place where the program may die in a test.

    :raises InjectedFault: when the test says so
    :raises ValueError: for a reply that is none of the three
    """
    if _SOCKET:
        _obey(name, _ask(_SOCKET, name))


def _ask(path: str, name: str) -> str:
    try:
        with _connected(path, name) as connection:
            return _line(connection)
    except OSError as exc:  # the test has gone: end as a program without faults would
        log.warning("faults.unreachable", point=name, error=str(exc))
        return "go"


def _connected(path: str, name: str) -> socket.socket:
    """A connection that has told its name. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        connection.sendall(f"{name}\n".encode())
    except BaseException:
        connection.close()
        raise
    return connection


def _line(connection: socket.socket) -> str:
    """The next line, read without taking more; "" at the end of the connection. Raises OSError."""
    data = b""
    while not data.endswith(b"\n") and (byte := connection.recv(1)):
        data += byte
    return data.decode().strip()


def _obey(name: str, reply: str) -> None:
    match reply:
        case "go" | "":
            return
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # the signal may reach another thread first; this one does not go on
        case "raise":
            raise InjectedFault(name)
        case _:
            raise ValueError(f"unknown reply {reply!r} at the point {name!r}; use go, kill or raise")


class Steering:
    """The program's clock: the machine's, unless a test has a hand on it. Serve `run` beside the program."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        self._steered: SteeredClock | None = None
        self._connection: socket.socket | None = None
        if _SOCKET:
            try:
                self._connection = _connected(_SOCKET, _CLOCK)
                self._steered = self.clock = SteeredClock(float(_line(self._connection) or 0))
            except OSError as exc:
                log.warning("faults.unreachable", point=_CLOCK, error=str(exc))

    async def run(self) -> None:
        """Obey until the test hangs up. Raises ValueError for what is no command."""
        if self._connection is None or self._steered is None:
            return
        with self._connection as connection:
            connection.setblocking(False)
            rest = b""
            while True:
                await anyio.wait_readable(connection)
                data = connection.recv(4096)
                if not data:
                    return
                *commands, rest = (rest + data).split(b"\n")
                for command in commands:
                    await self._move(self._steered, command.decode())
                    connection.sendall(b"done\n")

    @staticmethod
    async def _move(clock: SteeredClock, command: str) -> None:
        match command.split():
            case ["advance", seconds]:
                await clock.advance(float(seconds))
            case ["jump", seconds]:
                clock.jump(float(seconds))
            case _:
                raise ValueError(f"unknown command {command!r} for the clock; use advance or jump")
