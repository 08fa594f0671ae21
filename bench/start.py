"""Start and rest of the bridge as a process, with the console and a fake Telegram: time, memory, processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psutil

from .figures import Figure, median

T = TypeVar("T")

_FAKE = Path(__file__).resolve().parents[1] / "tests" / "fakes" / "fake_telegram.py"
_TOKEN = "123456789:FAKE-token_for-tests"
_STARTS, _VERSIONS = 5, 10
_REST_S = 5.0
_FIRST_AGENTS, _MORE_AGENTS = 2, 8
_PATIENCE_S = 60.0
_MB = 1 << 20


def measure() -> list[Figure]:
    group = "start"
    versions = median([_version() for _ in range(_VERSIONS)])
    starts: list[float] = []
    used: list[float] = []
    with TemporaryDirectory(prefix="untether-bench-") as folder, _fake_telegram(Path(folder)) as telegram:
        for number in range(_STARTS):
            state = Path(folder) / f"state{number}"
            with _bridge(state, telegram) as (bridge, spawned):
                starts.append(telegram.first_poll_after(spawned) - spawned)
                used.append(_processor(bridge))
                if number == _STARTS - 1:
                    rest = _at_rest(bridge) + _with_agents(state, telegram)
    return [
        Figure(group, f"untether --version, median of {_VERSIONS}", 1000 * versions, "ms"),
        Figure(group, f"spawn → first poll, median of {_STARTS}", median(starts), "s", "≤ 1.3 s"),
        Figure(group, "processor time for that, median", median(used), "s"),
        *rest,
    ]


class Telegram:
    """The fake server in a process of its own, and a person `chat` who uses the bot."""

    def __init__(self, url: str, journal: Path) -> None:
        self.url = url
        self._journal = journal
        self.chat = int(self.control("add_user", first_name="Ann")["chat"])
        self._stranger = int(self.control("add_user", first_name="Eve")["chat"])

    def control(self, name: str, **arguments: Any) -> Any:
        body = json.dumps(arguments).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/__control__/op/{name}", body, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the machine has
        with opener.open(request) as answer:
            return json.load(answer)["result"]

    def say(self, text: str) -> None:
        self.control("send_text", chat=self.chat, text=text)

    def first_poll_after(self, moment: float) -> float:
        """When the first poll after `moment` began, in epoch seconds.

        A poll is in the journal once it ended, so an update that concerns nobody is sent to end it.
        """
        _until(lambda: self.control("state")["polling"], pause=0.25)
        self.control("send_text", chat=self._stranger, text="hello")

        def found() -> float | None:
            calls = map(json.loads, self._journal.read_text().splitlines())
            polls = (call["start"] for call in calls if call.get("method", "").lower() == "getupdates")
            return next((start for start in polls if start >= moment), None)

        return _until(found)


@contextmanager
def _fake_telegram(folder: Path) -> Iterator[Telegram]:
    journal = folder / "telegram.jsonl"
    command = [sys.executable, str(_FAKE), "--limits", "off", "--token", _TOKEN, "--journal", str(journal)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Telegram(json.loads(process.stdout.readline())["url"], journal)
        finally:
            process.terminate()


@contextmanager
def _bridge(folder: Path, telegram: Telegram) -> Iterator[tuple[psutil.Process, float]]:
    """The bridge with new state in `folder`, and when it was spawned."""
    folder.mkdir()
    config = folder / "untether.toml"
    config.write_text(
        'default_engine = "demo"\n[transports.web]\nport = 0\n[transports.telegram]\n'
        f'bot_token = "{_TOKEN}"\nchat_id = {telegram.chat}\nallowed_user_ids = [{telegram.chat}]\n'
        f'api_base_url = "{telegram.url}"\nsession_mode = "stateless"\n'
        '[demo]\nenv = { UNTETHER_DEMO_SPEED = "0" }\n'
    )
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "UNTETHER_CONFIG_PATH": str(config)}
    output = (folder / "output.txt").open("wb")
    spawned = time.time()
    command = [sys.executable, "-m", "untether"]
    with output, subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield psutil.Process(process.pid), spawned
        finally:
            process.terminate()
            process.wait(30)
            for left in _family(folder):
                left.kill()


def _version() -> float:
    before = time.perf_counter()
    subprocess.run([sys.executable, "-m", "untether", "--version"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before


def _processor(process: psutil.Process) -> float:
    """Seconds of processor time so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _at_rest(bridge: psutil.Process) -> list[Figure]:
    time.sleep(_REST_S)
    before = _processor(bridge)
    time.sleep(_REST_S)
    used = _processor(bridge) - before
    return [
        Figure("at rest", "memory (RSS)", bridge.memory_info().rss / _MB, "MB", "≤ 80 MB"),
        Figure("at rest", f"processor, over {_REST_S:.0f} s", 100 * used / _REST_S, "%", "< 0.5 %"),
    ]


def _with_agents(folder: Path, telegram: Telegram) -> list[Figure]:
    """What each further agent costs besides itself: what the bridge grows by, and helper processes."""
    few = _memory_with(folder, telegram, _FIRST_AGENTS, _FIRST_AGENTS)
    many = _memory_with(folder, telegram, _MORE_AGENTS, _FIRST_AGENTS + _MORE_AGENTS)
    each = (many - few) / _MORE_AGENTS / _MB
    return [Figure("at rest", "memory for each live agent, besides the agent", each, "MB", "≤ 20 MB")]


def _memory_with(folder: Path, telegram: Telegram, more: int, agents: int) -> float:
    for _ in range(more):
        telegram.say("hello")
    _until(lambda: sum(map(_is_agent, _family(folder))) >= agents)
    telegram.control("wait_quiet", quiet=2.0, timeout=_PATIENCE_S)
    return float(sum(process.memory_info().rss for process in _family(folder) if not _is_agent(process)))


def _family(folder: Path) -> list[psutil.Process]:
    """The bridge of a state folder and all that it started, wherever their parent is: they have that home."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME") == str(folder) or str(folder) in " ".join(process.cmdline()):
                found.append(process)
    return found


def _is_agent(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        words = " ".join(process.cmdline())
        return "demo" in words and "keeper" not in words
    return False


def _until(look: Callable[[], T | None], pause: float = 0.05) -> T:
    """What `look` returns as soon as that is something. Raises TimeoutError."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {_PATIENCE_S:.0f} s in vain")
        time.sleep(pause)
    return found
