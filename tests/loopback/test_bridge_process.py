"""The bridge as a process, with the demo agent: starts, stops, and what it says when something is in its way."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from fake_telegram import FakeTelegram
from tests.support.bridge import AsyncBridge, Bridge

pytestmark = pytest.mark.anyio


def environment(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}


def bridge_in(folder: Path, text: str = "") -> Bridge:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "untether.toml"
    if text:
        config.write_text(text)
    return Bridge(config, env=environment(folder))


def run_cli(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**environment(folder), "UNTETHER_CONFIG_PATH": str(folder / "untether.toml")}
    return subprocess.run(
        [sys.executable, "-m", "untether", *arguments], env=env, cwd=folder, capture_output=True, text=True, timeout=60
    )


ANY_PORT = "[transports.web]\nport = 0\n"


def telegram_table(server: Any, chat: int) -> str:
    return (
        f'[transports.telegram]\nbot_token = "{server.token}"\nchat_id = {chat}\nallowed_user_ids = [{chat}]\n'
        f'api_base_url = "{server.url}"\nsession_mode = "chat"\n[demo]\nenv = {{ UNTETHER_DEMO_SPEED = "0" }}\n'
    )


@asynccontextmanager
async def telegram_world(tmp_path: Path) -> AsyncIterator[tuple[Any, Any, AsyncBridge]]:
    async with FakeTelegram(limits="off") as server:
        ann = await server.ctl.user(first_name="Ann")
        bridge = bridge_in(tmp_path, telegram_table(server, ann.chat) + ANY_PORT)
        async with AsyncBridge(bridge) as running:
            yield server, ann, running


def test_the_first_screen_without_any_configuration(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with bridge_in(tmp_path, ANY_PORT) as bridge:
            link = bridge.wait_for_line(r"console +(http://127\.0\.0\.1:\d+/pair\?code=\S+)")
            bridge.wait_for_line(r"engines +claude not found; install it with: npm install .* demo \(default\)")
            bridge.wait_for_line(r"Telegram +not connected; \S*untether pair")
            assert link[1]
            assert bridge.stop() == 0


def test_a_second_bridge_prints_the_link_of_the_first_and_exits(tmp_path: Path) -> None:
    with bridge_in(tmp_path, ANY_PORT) as bridge:
        link = bridge.wait_for_line(r"console +(http://\S+?)/pair")[1]
        second = run_cli(tmp_path)
        assert second.returncode == 3
        assert link in second.stderr


def test_a_taken_port_is_said_and_the_next_one_used(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with bridge_in(tmp_path, f"[transports.web]\nport = {port}\n") as bridge:
            bridge.wait_for_line(f"Port {port} is taken; the console is on the next free one")
            assert bridge.wait_for_line(r"console +http://127\.0\.0\.1:(\d+)/")[1] != str(port)


def test_a_broken_configuration_names_file_line_and_key(tmp_path: Path) -> None:
    tmp_path.joinpath("untether.toml").write_text('default_engin = "claude"\n[transports.web]\nport = "x"\n')
    done = run_cli(tmp_path)
    assert done.returncode == 2
    assert str(tmp_path / "untether.toml") in done.stderr
    assert "default_engin" in done.stderr
    assert "default_engine" in done.stderr
    assert re.search(r"line 3.*transports\.web\.port", done.stderr)
    assert "Traceback" not in done.stderr


def test_an_unknown_command_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "docter")
    assert done.returncode == 2
    assert "Did you mean doctor?" in done.stderr


def test_version_and_module(tmp_path: Path) -> None:
    assert re.fullmatch(r"untether \d+\.\d+\.\d+\n", run_cli(tmp_path, "--version").stdout)


def test_doctor_without_telegram_is_content(tmp_path: Path) -> None:
    tmp_path.joinpath("untether.toml").write_text(ANY_PORT)
    done = run_cli(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ Python" in done.stdout
    assert re.search(r"✓ Demo agent[^:]*: starts and answers", done.stdout)
    assert "untether pair connects it" in done.stdout


def test_doctor_exits_1_when_the_chosen_agent_is_missing(tmp_path: Path) -> None:
    tmp_path.joinpath("untether.toml").write_text('default_engine = "claude"\n' + ANY_PORT)
    done = run_cli(tmp_path, "doctor")
    assert done.returncode == 1
    assert "npm install -g @anthropic-ai/claude-code" in done.stdout


async def test_a_missing_agent_is_named_with_the_install_command(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as (_, ann, _bridge):
        await ann.text("/claude hello")
        failed = await ann.wait("was not found", timeout=15)
        assert "npm install -g @anthropic-ai/claude-code" in failed["text"]


async def test_a_refused_token_is_said_once_and_the_console_works(tmp_path: Path) -> None:
    async with FakeTelegram(limits="off") as server:
        table = telegram_table(server, 1001).replace(server.token, "1:" + "x" * 35)
        async with AsyncBridge(bridge_in(tmp_path, table + ANY_PORT)) as bridge:
            await bridge.wait_for_line(r"token", timeout=20)
            address = (await bridge.wait_for_line(r"console +(http://\S+?)/pair"))[1]
            done = await bridge.wait_until(lambda: _get(f"{address}/health"), "the console")
            assert "ok" in done
            assert len([line for line in bridge.sync.lines() if "refused" in line]) == 1


def _get(url: str) -> str:
    import urllib.request

    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


async def test_a_message_sent_while_down_and_a_repeat(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as (server, ann, bridge):
        await bridge.kill()
        await ann.text("hello from the gap")
        await bridge.start()
        await ann.wait("hello from the gap", timeout=15)
        await server.ctl.duplicate(count=1, same_id=True)
        await ann.text("and again")
        await ann.wait("and again", timeout=15)
        shown = [m for m in await ann.shows(sender="bot") if "hello from the gap" in m["text"]]
        assert len(shown) == 1


async def test_the_database_locked_confirms_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as (_, ann, bridge):
        await ann.text("first")
        await ann.wait("first", timeout=15)
        lock = sqlite3.connect(tmp_path / "untether.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            await ann.text("second")
            await bridge.wait_for_line(r"poll.*(locked|store)|store.*locked", timeout=30)
        finally:
            lock.execute("ROLLBACK")
            lock.close()
        await ann.wait("second", timeout=40)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_confirms_nothing_and_loses_nothing(small_disk: Path) -> None:
    filler = small_disk / "filler"
    async with telegram_world(small_disk) as (_, ann, bridge):
        await ann.text("first")
        await ann.wait("first", timeout=15)
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        await ann.text("second, " + "with much to store " * 200)
        await bridge.wait_for_line(r"(?i)disk|full|space", timeout=30)
        filler.unlink()
        await ann.wait("second", timeout=60)


def test_sigterm_and_sigusr1(tmp_path: Path) -> None:
    bridge = bridge_in(tmp_path, ANY_PORT)
    with bridge:
        first = bridge.wait_for_line(r"console +(http://\S+)")[1]
        assert bridge.process is not None
        bridge.process.send_signal(signal.SIGUSR1)
        bridge.wait_until(
            lambda: [
                m for line in bridge.lines() if (m := re.search(r"console +(http://\S+)", line)) and m[1] != first
            ],
            "a new link",
        )
        assert bridge.stop() == 0


def test_replay_prints_events_and_writes(tmp_path: Path) -> None:
    recording = Path(__file__).parent.parent / "transcripts" / "claude-2.1.332" / "tools_default.jsonl"
    done = run_cli(tmp_path, "replay", "--engine", "claude", str(recording))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [row["event"]["type"] for row in rows if "event" in row]
    assert kinds.count("completed") == 1
    assert kinds[0] == "started"
    assert any("write" in row for row in rows)


def test_init_adds_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "My Shop"
    folder.mkdir()
    env = {**environment(tmp_path), "UNTETHER_CONFIG_PATH": str(tmp_path / "untether.toml")}
    command = [sys.executable, "-m", "untether", "init", "--default"]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    assert "my-shop" in done.stdout
    text = (tmp_path / "untether.toml").read_text()
    assert "[projects.my-shop]" in text
    assert 'default_project = "my-shop"' in text
    assert os.stat(tmp_path / "untether.toml").st_mode & 0o077 == 0


async def test_status_and_runs_beside_the_bridge(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as (_, ann, _bridge):
        await ann.text("hello there")
        await ann.wait("hello there", timeout=15)
        await ann.text("permission please")
        await ann.wait(r"Run a command\?", button="Approve", timeout=15)
        status = await to_thread.run_sync(run_cli, tmp_path, "status")
        assert re.search(r"⏸ +2 .* Run a command\?", status.stdout), status
        runs = await to_thread.run_sync(run_cli, tmp_path, "runs", "--json")
        rows = [json.loads(line) for line in runs.stdout.splitlines()]
        assert [(row["run"], row["state"]) for row in rows] == [(2, "running"), (1, "done")]


def test_chat_id_and_pair_do_not_need_what_they_find_out(tmp_path: Path) -> None:
    table = '[transports.telegram]\nbot_token = "123:abc"\napi_base_url = "http://127.0.0.1:9"\n'
    tmp_path.joinpath("untether.toml").write_text(table)
    for command in ("pair", "chat-id"):
        done = run_cli(tmp_path, command)
        assert done.returncode == 1
        assert "Telegram cannot be reached" in done.stderr
        assert "allowed_user_ids" not in done.stderr


async def test_a_restart_from_the_chat_leaves_the_run_alone(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as (_, ann, running):
        await ann.text("permission please")
        asked = await ann.wait(r"Run a command\?", button="Approve")
        pid = running.sync.pid
        await ann.text("/restart")
        await ann.wait("✓ Restarted")
        assert running.sync.pid == pid
        tapped = await ann.press("Approve", message_id=asked["id"], wait=15)
        assert tapped["answer"]["text"] == "Approved"
        await ann.wait(r"✓ \d")
        assert not [shown for shown in await ann.shows(sender="bot") if "Interrupted" in shown["text"]]
        assert await running.stop() == 0


async def test_a_run_is_stopped_from_a_terminal_without_a_bridge(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as (_, ann, running):
        await ann.text("silent")
        await ann.wait("▸ demo", button="Stop")
        await running.stop()
        shown = await to_thread.run_sync(run_cli, tmp_path, "runs", "--json")
        assert json.loads(shown.stdout)["state"] == "running"
        stopped = await to_thread.run_sync(run_cli, tmp_path, "stop", "1")
        assert stopped.stdout.startswith("Stopped: it ended at")
        again = await to_thread.run_sync(run_cli, tmp_path, "stop", "1")
        assert again.stdout == "The agent of run 1 is not at work (running).\n"
        await running.start()
        await ann.wait("■ Stopped after")
        told = await to_thread.run_sync(run_cli, tmp_path, "replay", "1")
        assert '"outcome":"stopped"' in told.stdout
        raw = await to_thread.run_sync(run_cli, tmp_path, "replay", "1", "--raw")
        assert {json.loads(line)["dir"] for line in raw.stdout.splitlines()} == {"meta", "in"}


def test_what_is_not_there_cannot_be_stopped_or_restarted(tmp_path: Path) -> None:
    assert "There is no run 7" in run_cli(tmp_path, "stop", "7").stderr
    assert "No bridge is running" in run_cli(tmp_path, "restart").stderr
    assert "There is no file 'nothing'" in run_cli(tmp_path, "replay", "nothing").stderr


async def test_a_second_bridge_on_one_bot_is_refused(tmp_path: Path) -> None:
    async with telegram_world(tmp_path / "first") as (server, ann, first):
        await first.wait_for_line(r"Telegram ")  # it has the lock
        second = bridge_in(tmp_path / "second", telegram_table(server, ann.chat) + ANY_PORT)
        second.env["HOME"] = str(tmp_path / "first" / "home")
        async with AsyncBridge(second) as running:
            assert await running.wait() == 3
            await running.wait_for_line(r"Another Untether on this machine uses this bot \(process \d+\)")
