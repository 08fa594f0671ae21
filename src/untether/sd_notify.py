"""What a service manager is told: ready, alive, stopping, and one line on how it goes (sd_notify(3), plain sockets).

The protocol is one datagram of `NAME=VALUE` lines to the Unix socket that `NOTIFY_SOCKET` names; a name that begins
with `@` is in the abstract namespace. A manager that wants signs of life says how often in `WATCHDOG_USEC`, and for
which process in `WATCHDOG_PID`. Nothing here fails: a bridge without a manager, or with one that has gone, works on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, MutableMapping

import structlog

from .clock import Clock

log = structlog.get_logger(__name__)

_STATUS_LIMIT = 400  # characters; it is one line in `systemctl status`

# What a service manager puts into the environment for the service itself (systemd.exec(5), launchd). Whoever gets
# these speaks for the service, writes into its part of the log, or takes its sockets.
_NAMES = frozenset(
    (
        "NOTIFY_SOCKET",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "MAINPID",
        "MANAGERPID",
        "MANAGERPIDFDID",
        "SYSTEMD_EXEC_PID",
        "CREDENTIALS_DIRECTORY",
        "RUNTIME_DIRECTORY",
        "STATE_DIRECTORY",
        "CACHE_DIRECTORY",
        "LOGS_DIRECTORY",
        "CONFIGURATION_DIRECTORY",
        "XPC_SERVICE_NAME",
        "XPC_FLAGS",
    )
)
_PREFIXES = ("WATCHDOG_", "LISTEN_", "FDSTORE", "MEMORY_PRESSURE_", "SUPERVISOR_")


def is_managers(name: str) -> bool:
    """Whether a variable of this name is a service manager's word to the service alone."""
    return name in _NAMES or name.startswith(_PREFIXES)


class Notifier:
    """The way to the service manager. Without an `address` nothing is sent anywhere.

    `watchdog` is how long, in seconds, the manager waits for a sign of life; None when it wants none.
    """

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._failed = False

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str], pid: int | None = None) -> Notifier:
        """Read what the manager says, and take all of its variables out of `environ`, so that no child has them."""
        address = environ.get("NOTIFY_SOCKET", "")
        usec, watched = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        for name in [name for name in environ if is_managers(name)]:
            del environ[name]
        if not address.startswith(("/", "@")):  # vsock and the like are of machines, not of services
            return cls()
        meant = watched in ("", str(os.getpid() if pid is None else pid))
        wants = meant and usec.isascii() and usec.isdigit() and int(usec) > 0
        return cls(address, int(usec) / 1e6 if wants else None)

    def ready(self, status: str = "") -> None:
        """The start is over: what depends on the service may go on."""
        self._send("READY=1", *_status(status))

    def stopping(self, status: str = "") -> None:
        self._send("STOPPING=1", *_status(status))

    def status(self, status: str) -> None:
        self._send(*_status(status))

    async def keep_alive(self, clock: Clock, status: Callable[[], str]) -> None:
        """Give signs of life until cancelled, twice as often as asked for, with the status when it has changed.

        It returns at once when nobody asked. It runs in the event loop, so that a loop that hangs gives no sign.
        """
        if self.watchdog is None:
            return
        told = ""
        while True:
            now = status()
            self._send("WATCHDOG=1", *(_status(now) if now != told else ()))
            told = now
            await clock.sleep(self.watchdog / 2)

    def _send(self, *lines: str) -> None:
        if not self._address or not lines:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except OSError as error:
            if not self._failed:
                log.warning("service.manager_not_told", lines=lines, error=str(error))
            self._failed = True
        else:
            self._failed = False


def _status(text: str) -> tuple[str, ...]:
    line = " ".join(text.split())[:_STATUS_LIMIT]
    return (f"STATUS={line}",) if line else ()
