"""The service manager is told what it asks for, in its own protocol, and nobody else gets its variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from untether.clock import ManualClock
from untether.sd_notify import Notifier

pytestmark = pytest.mark.anyio


class Manager:
    """The end of the socket that a service manager holds."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def told(self) -> list[list[str]]:
        """The lines of each datagram that has come since the last call."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(65536).decode().split("\n"))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "file" else f"@untether-test-{os.getpid()}"
    with closing(Manager(address)) as made:
        yield made


def test_states_are_told_with_a_status_of_one_line(manager: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.address})
    notifier.ready("Serving\nTelegram ✓")
    notifier.status("Telegram cannot be reached since 14:02")
    notifier.stopping()
    assert manager.told() == [
        ["READY=1", "STATUS=Serving Telegram ✓"],
        ["STATUS=Telegram cannot be reached since 14:02"],
        ["STOPPING=1"],
    ]


async def test_signs_of_life_come_twice_as_often_as_they_are_asked_for(manager: Manager) -> None:
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}
    notifier, clock, status = Notifier.from_environment(environ), ManualClock(), "Serving"
    assert notifier.watchdog == 20
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.keep_alive, clock, lambda: status)
        await clock.wait_for_sleepers()
        assert manager.told() == [["WATCHDOG=1", "STATUS=Serving"]]
        await clock.advance(9.9)
        assert manager.told() == []
        await clock.advance(0.1)
        assert manager.told() == [["WATCHDOG=1"]]
        status = "Telegram is gone"
        await clock.advance(20)
        assert manager.told() == [["WATCHDOG=1", "STATUS=Telegram is gone"], ["WATCHDOG=1"]]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"},
    ],
)
async def test_no_signs_of_life_where_nobody_waits_for_ours(environ: dict[str, str], tmp_path: Path) -> None:
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        notifier = Notifier.from_environment({**environ, "NOTIFY_SOCKET": manager.address})
        assert notifier.watchdog is None
        with anyio.fail_after(5):
            await notifier.keep_alive(ManualClock(), lambda: "Serving")
        assert manager.told() == []


def test_all_that_the_manager_says_is_taken_out_of_the_environment() -> None:
    managers = {
        "NOTIFY_SOCKET": "/nowhere",
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "1",
        "INVOCATION_ID": "a",
        "JOURNAL_STREAM": "8:1",
        "SYSTEMD_EXEC_PID": "1",
        "MANAGERPID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": "x",
        "CREDENTIALS_DIRECTORY": "/run/credentials",
        "XPC_SERVICE_NAME": "untether",
    }
    environ = {"PATH": "/bin", "XDG_RUNTIME_DIR": "/run/user/1000", **managers}
    Notifier.from_environment(environ)
    assert environ == {"PATH": "/bin", "XDG_RUNTIME_DIR": "/run/user/1000"}


@pytest.mark.parametrize("address", ["", "/no/such/socket", "vsock:2:1234", "@nobody-listens-here"])
def test_a_manager_that_is_not_there_is_no_trouble(address: str) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": address})
    notifier.ready("Serving")
    notifier.stopping()


def test_a_manager_that_does_not_read_does_not_hold_us_up(manager: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.address})
    for number in range(3000):  # more than any queue takes
        notifier.status(f"state {number}")
    assert manager.told()[0] == ["STATUS=state 0"]
