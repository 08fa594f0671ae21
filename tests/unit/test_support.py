"""The recordings' reader and the bridge's harness do what the tests that use them rely on."""

from __future__ import annotations

import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.bridge import AsyncBridge, Bridge, bridge_env, is_alive, make_project, write_config
from tests.support.transcripts import recording, recordings


def test_every_recording_is_listed_and_readable() -> None:
    every = recordings("claude")
    assert {str(one) for one in every} >= {"2.1.197/text_answer", "2.1.332/text_answer", "2.1.332/workflow_tool"}
    assert len({str(one) for one in every}) == len(every)
    for one in every:
        rows = list(one.rows())
        assert rows[0].event == "spawn"
        assert any(row.event == "exit" for row in rows)
        assert all((row.frame is None) != (row.raw is None) for row in rows if row.dir in ("in", "out"))


def test_rows_give_lines_frames_and_notes() -> None:
    one = recording("text_answer", "2.1.197")
    assert one.argv[:3] == ["claude", "--output-format", "stream-json"]
    frames = [msgspec.json.decode(line) for line in one.lines()]
    assert frames[0]["subtype"] == "init"
    assert frames[-1]["type"] == "result"
    prompt = next(row for row in one.rows() if row.dir == "in")
    assert prompt.line == b'{"type":"user","message":{"role":"user","content":"say hello"}}'
    bad = recording("bad_stdin_not_json", "2.1.197")
    assert any(row.raw is not None and row.line == row.raw.encode() for row in bad.rows() if row.dir == "in")
    with pytest.raises(LookupError, match="no_such"):
        recording("no_such", "2.1.197")


@dataclass
class Server:
    url: str = "http://127.0.0.1:8081"
    token: str = "123456:TEST"


def test_the_config_has_the_documented_shape(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        telegram=Server(),
        claude="/usr/bin/claude",
        model_url="http://127.0.0.1:8899",
        project=Path("/srv/demo"),
        claude_env={},
        extra="[transports.web]\nport = 0\n",
    )
    assert path == tmp_path / "untether.toml"
    assert tomllib.loads(path.read_text()) == {
        "default_engine": "claude",
        "default_project": "demo",
        "transports": {
            "telegram": {
                "bot_token": "123456:TEST",
                "chat_id": 1001,
                "allowed_user_ids": [1001],
                "api_base_url": "http://127.0.0.1:8081",
                "session_mode": "chat",
            },
            "web": {"port": 0},
        },
        "claude": {
            "command": "/usr/bin/claude",
            "permission_mode": "default",
            "use_api_billing": True,
            "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8899"},
        },
        "security": {"env_extra_allow": ["CLAUDE_CONFIG_DIR"]},
        "projects": {"demo": {"path": "/srv/demo"}},
    }


def test_the_project_is_a_repository_of_its_own(tmp_path: Path) -> None:
    project = make_project(tmp_path / "demo")
    assert (project / ".git" / "refs" / "heads" / "main").exists()


DUMMY = textwrap.dedent(
    """
    import os, signal, subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    def stop(*_):
        print("stopping", file=sys.stderr, flush=True)
        child.kill()
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    if "fail" in sys.argv:
        child.kill()
        sys.exit("no such key: colour")
    print("config", os.environ["UNTETHER_CONFIG_PATH"], flush=True)
    print(f"ready child={child.pid} key={os.environ['ANTHROPIC_API_KEY']}", file=sys.stderr, flush=True)
    while True:
        signal.pause()
    """
)


@pytest.fixture
def dummy(tmp_path: Path, claude_home: dict[str, str]) -> Iterator[Bridge]:
    config = tmp_path / "state" / "untether.toml"
    config.parent.mkdir()
    bridge = Bridge(config, env=bridge_env(claude_home), command=[sys.executable, "-c", DUMMY])
    yield bridge
    bridge.close()


def test_a_bridge_starts_says_its_lines_and_stops(dummy: Bridge) -> None:
    dummy.start()
    assert dummy.wait_for_line(r"config (\S+)")[1] == str(dummy.config)
    assert dummy.wait_for_line(r"ready .*key=(\S+)")[1] == "sk-ant-test-dummy"
    assert dummy.stop() == 0
    assert dummy.stderr.read_text().endswith("stopping\n")
    assert not dummy.running


def test_a_killed_bridge_starts_again_and_its_agents_are_cleaned_up(dummy: Bridge) -> None:
    dummy.start()
    child = psutil.Process(int(dummy.wait_for_line(r"ready child=(\d+)")[1]))
    first = dummy.pid
    dummy.kill()
    assert is_alive(child)  # only the bridge dies
    dummy.start()
    assert int(dummy.wait_for_line(r"ready child=(\d+)")[1]) != child.pid  # lines of the first start do not count
    assert dummy.pid != first
    assert len(dummy.lines(all_starts=True)) == 4
    dummy.close()
    assert not is_alive(child)


def test_a_bridge_that_exits_is_told_with_its_last_words(dummy: Bridge) -> None:
    dummy.start("fail")
    with pytest.raises(RuntimeError, match=r"exited with 1 before .*\n.*no such key: colour"):
        dummy.wait_for_line("ready")
    assert dummy.wait() == 1


def test_waiting_ends(dummy: Bridge) -> None:
    dummy.start()
    dummy.wait_for_line("ready")
    with pytest.raises(TimeoutError, match=r"'never' was not seen within 0\.1 s\n(.*\n)*.*ready"):
        dummy.wait_for_line("never", timeout=0.1)
    with pytest.raises(RuntimeError, match="running already"):
        dummy.start()


@pytest.mark.anyio
async def test_the_asynchronous_bridge(dummy: Bridge) -> None:
    async with AsyncBridge(dummy) as bridge:
        await bridge.wait_for_line("ready")
        await bridge.restart()
        await bridge.wait_for_line("ready")
        assert await bridge.wait_until(lambda: dummy.descendants(), "a child")
        await bridge.kill()
        assert await bridge.wait() == -9
    assert not dummy.running
