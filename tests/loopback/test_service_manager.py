"""The bridge as a service: what it tells the manager that started it, and what its agents do not hear of that."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fake_telegram import FakeTelegram
from tests.loopback.test_bridge_process import ANY_PORT, bridge_in, telegram_table
from tests.support.bridge import AsyncBridge, Bridge

pytestmark = pytest.mark.anyio

WATCHDOG_S = 0.4


class Told:
    """A socket as systemd makes it, and all that came to it so far, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def lines(self) -> list[str]:
        while True:
            try:
                self._lines += self._socket.recv(65536).decode().split("\n")
            except BlockingIOError:
                return self._lines

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    with closing(Told(tmp_path / "notify")) as made:
        yield made


def as_service(bridge: Bridge, told: Told) -> Bridge:
    bridge.env |= {
        "NOTIFY_SOCKET": str(told.path),
        "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6)),
        "INVOCATION_ID": "0123456789abcdef",
        "JOURNAL_STREAM": "8:12345",
        "SYSTEMD_EXEC_PID": "1",
        "MANAGERPID": "1",
    }
    return bridge


def test_ready_then_alive_then_stopping(tmp_path: Path, told: Told) -> None:
    with as_service(bridge_in(tmp_path, ANY_PORT), told) as bridge:
        bridge.wait_until(lambda: told.lines().count("WATCHDOG=1") >= 3, "three signs of life")
        assert told.lines()[:2] == ["READY=1", "STATUS=Serving"]
        assert bridge.stop() == 0
    assert told.lines()[-1] == "STOPPING=1"
    assert told.lines().count("READY=1") == 1


def test_a_restart_from_the_chat_is_no_end_for_the_manager(tmp_path: Path, told: Told) -> None:
    with as_service(bridge_in(tmp_path, ANY_PORT), told) as bridge:
        bridge.wait_until(lambda: "WATCHDOG=1" in told.lines(), "a sign of life")
        assert bridge.process is not None
        bridge.process.send_signal(signal.SIGUSR2)
        bridge.wait_until(lambda: told.lines().count("READY=1") == 2, "READY again")
        count = len(told.lines())
        bridge.wait_until(lambda: "WATCHDOG=1" in told.lines()[count:], "a sign of life")
        assert "STOPPING=1" not in told.lines()
        assert bridge.stop() == 0


def test_a_bridge_that_hangs_gives_no_sign_of_life(tmp_path: Path, told: Told) -> None:
    with as_service(bridge_in(tmp_path, ANY_PORT), told) as bridge:
        bridge.wait_until(lambda: "WATCHDOG=1" in told.lines(), "a sign of life")
        assert bridge.process is not None
        bridge.process.send_signal(signal.SIGSTOP)
        bridge.wait_until(lambda: _state(bridge.pid) == "T", "that it stands still")
        count = len(told.lines())
        try:
            with pytest.raises(TimeoutError):
                bridge.wait_until(lambda: len(told.lines()) > count, "a sign of life", timeout=WATCHDOG_S * 2)
        finally:
            bridge.process.send_signal(signal.SIGCONT)
        bridge.wait_until(lambda: len(told.lines()) > count, "a sign of life")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_service_without_telegram_in_reach_is_ready_and_says_so(tmp_path: Path, told: Told) -> None:
    table = '[transports.telegram]\nbot_token = "123:abc"\nchat_id = 1\nallowed_user_ids = [1]\n'
    bridge = bridge_in(tmp_path, table + 'api_base_url = "http://127.0.0.1:9"\n' + ANY_PORT)
    async with AsyncBridge(as_service(bridge, told)) as running:
        await running.wait_until(lambda: "READY=1" in told.lines(), "READY")
        assert re.search("STATUS=Telegram cannot be reached since", told.lines()[1])


async def test_an_agent_gets_nothing_that_the_manager_said(tmp_path: Path, told: Told) -> None:
    agent = tmp_path / "agent"
    demo = f'"{sys.executable}" -m untether.runners.demo.agent'
    agent.write_text(f'#!/bin/sh\nenv > "{tmp_path}/agent.env"\nexec {demo} "$@"\n')
    agent.chmod(0o700)
    async with FakeTelegram(limits="off") as server:
        ann = await server.ctl.user(first_name="Ann")
        table = telegram_table(server, ann.chat).replace("[demo]\n", f"[demo]\ncommand = {json.dumps(str(agent))}\n")
        names = '"NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "WATCHDOG_USEC", "MANAGERPID"'
        allowed = f"[security]\nenv_extra_allow = [{names}]\n"
        async with AsyncBridge(as_service(bridge_in(tmp_path, table + ANY_PORT + allowed), told)) as running:
            await ann.text("hello there")
            await ann.wait("hello there", timeout=15)
            assert "READY=1" in told.lines()
            await running.stop()
    got = {line.partition("=")[0] for line in (tmp_path / "agent.env").read_text().splitlines()}
    assert "UNTETHER_PROCESS" in got
    assert not got & {"NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "MANAGERPID", "SYSTEMD_EXEC_PID"}
    assert not [name for name in got if name.startswith("WATCHDOG_")]
