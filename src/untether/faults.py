"""Named places at which a test may stop, kill or fail the running program; nothing happens there otherwise.

When the environment variable `UNTETHER_FAULTS` names a Unix socket at import, each `point` connects to it, sends its
name and a newline, and waits for one line:

    go      go on (also what a closed connection means)
    kill    end this process with SIGKILL, here
    raise   raise `InjectedFault`, here

The caller is blocked meanwhile, its event loop included, which is what such a test wants. Any thread may pass a point.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Final

import structlog

_SOCKET: Final = os.environ.get("UNTETHER_FAULTS")

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
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(f"{name}\n".encode())
            with connection.makefile(encoding="utf-8") as lines:
                return lines.readline().strip()
    except OSError as exc:  # the test has gone: end as a program without faults would
        log.warning("faults.unreachable", point=name, error=str(exc))
        return "go"


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
