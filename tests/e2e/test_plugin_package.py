"""The package in examples/plugin-engine: installed by pip into an environment of its own, listed, and run in a chat."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fake_telegram import FakeTelegram
from tests.support.bridge import AsyncBridge, Bridge, make_project, write_engine_config

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin-engine"
UNREACHABLE = ("NewConnectionError", "No matching distribution found for hatchling", "Network is unreachable")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Untether and the example. Skips only when PyPI cannot be reached."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    shutil.copytree(EXAMPLE, source)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, capture_output=True)
    python = folder / "venv" / "bin" / "python"
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    places = [place for place in sys.path if place.endswith(("site-packages", "/src"))]
    Path(where, "untether-under-test.pth").write_text("\n".join(places))
    command = [str(python), "-m", "pip", "install", "--no-deps", "--quiet", "--disable-pip-version-check", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 and any(sign in done.stderr for sign in UNREACHABLE):
        pytest.skip("PyPI cannot be reached, which builds the package")
    assert done.returncode == 0, done.stderr
    return python


@asynccontextmanager
async def chat(tmp_path: Path, python: Path, extra: str = "") -> AsyncIterator[tuple[Any, AsyncBridge]]:
    async with FakeTelegram(limits="off") as telegram:
        ann = await telegram.ctl.user(first_name="Ann")
        config = write_engine_config(
            tmp_path / "state",
            telegram=telegram,
            engine="demo",
            table={},
            project=make_project(tmp_path / "project"),
            chat_id=ann.chat,
            allowed_user_ids=[ann.chat],
            extra=extra,
        )
        bridge = Bridge(config, env=environment(tmp_path, python), command=[str(python), "-m", "untether"])
        async with AsyncBridge(bridge) as running:
            yield ann, running


def environment(tmp_path: Path, python: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": f"{python.parent}:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}


def listed(tmp_path: Path, python: Path, toml: str = "") -> subprocess.CompletedProcess[str]:
    config = tmp_path / "untether.toml"
    config.write_text(toml)
    env = {**environment(tmp_path, python), "UNTETHER_CONFIG_PATH": str(config)}
    return subprocess.run(
        [python, "-m", "untether", "plugins"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_the_package_is_listed_with_its_version(installed: Path, tmp_path: Path) -> None:
    done = listed(tmp_path, installed)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["✓", "parrot", "untether-parrot", "0.1.0", "Parrot", str(installed.parent / "parrot")] in lines
    assert ["✓", "shout", "untether-parrot", "0.1.0"] in lines
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_that_is_not_allowed_is_not_there(installed: Path, tmp_path: Path) -> None:
    done = listed(tmp_path, installed, '[plugins]\nenabled = ["something-else"]\n')
    assert "parrot" not in done.stdout
    assert "Only these packages may bring plugins (plugins.enabled): something-else" in done.stdout


async def test_its_engine_and_its_command_answer_in_a_chat(installed: Path, tmp_path: Path) -> None:
    async with chat(tmp_path, installed, '[plugins.shout]\nending = "?!"\n') as (ann, _):
        await ann.text("/parrot hello pretty bird")
        answer = await ann.wait("hello pretty bird! That is 3 words", timeout=30)
        assert answer["text"].endswith("1 step · cannot ask")
        await ann.text("/shout good morning")
        await ann.wait(r"GOOD MORNING\?!", timeout=30)
        await ann.text("/shout")
        await ann.wait("Say what to shout: /shout WORDS", timeout=30)
        await ann.text("/help shout")
        await ann.wait("Example: /shout good morning", timeout=30)


async def test_a_plugin_that_fails_is_told_at_the_start_and_by_doctor(installed: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    info = broken / "untether_broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: untether-broken\nVersion: 1.0\n")
    groups = {"engine": "Bad-Id", "command": "status", "transport": "pigeon"}
    (info / "entry_points.txt").write_text(
        "\n".join(f"[untether.{group}_backends]\n{id} = nothing:BACKEND" for group, id in groups.items())
    )
    config = tmp_path / "state" / "untether.toml"
    config.parent.mkdir()
    config.write_text("[transports.web]\nport = 0\n")
    env = {**environment(tmp_path, installed), "PYTHONPATH": str(broken), "UNTETHER_CONFIG_PATH": str(config)}
    told = {
        "Bad-Id": "'Bad-Id' cannot be an engine id: use 1 to 32 of a-z, 0-9 and _.",
        "status": "'status' cannot be a command id: it is a command of Untether.",
        "pigeon": "Its code failed to load: ModuleNotFoundError: No module named 'nothing'",
    }
    for command in ("doctor", "plugins"):
        done = await anyio.run_process([str(installed), "-m", "untether", command], env=env, cwd=tmp_path, check=False)
        said = done.stdout.decode()
        assert all(message in said for message in told.values()), said
        assert done.returncode == 1
    async with AsyncBridge(Bridge(config, env=env, command=[str(installed), "-m", "untether"])) as bridge:
        shown = "\n".join(f"  plugin     ✗ {id}: {message}" for id, message in told.items())
        await bridge.wait_until(
            lambda: all(line in bridge.sync.stdout.read_text() for line in shown.splitlines()), "the first screen"
        )
