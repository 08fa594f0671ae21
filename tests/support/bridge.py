"""The bridge as a process of its own, for end-to-end tests.

``Bridge`` blocks, for tests without an event loop (the browser's); ``AsyncBridge`` does the same without blocking
the loop that a fake server runs in::

    config = write_config(tmp_path, telegram=tg, claude=claude_cli(), model_url=fake.base_url, project=project)
    async with AsyncBridge(Bridge(config, env=bridge_env(claude_home))) as bridge:
        await bridge.wait_for_line(r"polling")
        await bridge.kill()
        await bridge.start()                 # the same state folder again
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import psutil
from anyio import to_thread

T = TypeVar("T")

POLL_S = 0.02  # how often a file or a process is looked at; every wait has a deadline of its own
API_KEY = "sk-ant-test-dummy"
QUIET_CLAUDE = {
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


class TelegramServer(Protocol):
    """What is needed of the fake Telegram server: its address and the bot's token."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...


def make_project(path: Path) -> Path:
    """A git repository with one commit."""
    path.mkdir(parents=True)
    (path / "README.md").write_text("# Demo\n")
    git = ["git", "-C", str(path), "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "First"]):
        subprocess.run([*git, *command], check=True)
    return path


def write_engine_config(
    folder: Path,
    *,
    telegram: TelegramServer | None,
    engine: str,
    table: Mapping[str, object],
    project: Path,
    chat_id: int = 1001,
    allowed_user_ids: Sequence[int] = (1001,),
    session_mode: str = "chat",
    env_extra_allow: Sequence[str] = (),
    extra: str = "",
) -> Path:
    """Write ``folder/untether.toml`` and return its path; the bridge keeps its state beside it.

    ``table`` is that of ``engine``, which is the default one. ``telegram=None`` leaves Telegram out (the console
    alone). ``extra`` is TOML that is appended, tables included.
    """
    lines = [f"default_engine = {_toml(engine)}", 'default_project = "demo"']
    if telegram is not None:
        lines += [
            "[transports.telegram]",
            f"bot_token = {_toml(telegram.token)}",
            f"chat_id = {chat_id}",
            f"allowed_user_ids = {_toml(list(allowed_user_ids))}",
            f"api_base_url = {_toml(telegram.url)}",
            f"session_mode = {_toml(session_mode)}",
        ]
    lines += [f"[{engine}]", *(f"{name} = {_toml(value)}" for name, value in table.items())]
    lines += [
        "[security]",
        f"env_extra_allow = {_toml(list(env_extra_allow))}",
        "[projects.demo]",
        f"path = {_toml(str(project))}",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "untether.toml"
    path.write_text("\n".join(lines) + "\n" + extra)
    return path


def _toml(value: object) -> str:
    """A value in TOML, where strings, numbers and lists of them are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def write_config(
    folder: Path,
    *,
    claude: Path | str,
    model_url: str,
    permission_mode: str = "default",
    claude_env: Mapping[str, str] = QUIET_CLAUDE,
    env_extra_allow: Sequence[str] = ("CLAUDE_CONFIG_DIR",),
    **more: Any,
) -> Path:
    """``write_engine_config`` for Claude Code; ``more`` are its other arguments."""
    table = {
        "command": str(claude),
        "permission_mode": permission_mode,
        "use_api_billing": True,
        "env": {"ANTHROPIC_BASE_URL": model_url, **claude_env},
    }
    return write_engine_config(folder, engine="claude", table=table, env_extra_allow=env_extra_allow, **more)


def bridge_env(home: Mapping[str, str]) -> dict[str, str]:
    """The environment of a bridge whose agent lives in ``home`` (the fixture ``claude_home``)."""
    return {**home, "ANTHROPIC_API_KEY": API_KEY, "PYTHONUNBUFFERED": "1"}


def is_alive(process: psutil.Process) -> bool:
    """False for a process that ended, reaped by its parent or not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Bridge:
    """One bridge and its logs. Starts again in the same state folder as often as a test likes.

    Its standard output and error are appended to ``stdout`` and ``stderr`` (files in ``logs``), which remain when the
    process is gone. What it leaves behind (the agents of a killed bridge) is ended by ``close``.
    """

    def __init__(
        self,
        config: Path,
        *,
        env: Mapping[str, str],
        logs: Path | None = None,
        command: Sequence[str] = (sys.executable, "-m", "untether"),
        cwd: Path | None = None,
    ) -> None:
        self.config = config
        self.command = list(command)
        self.env = {**env, "UNTETHER_CONFIG_PATH": str(config)}
        self.cwd = cwd or config.parent
        logs = logs or config.parent / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.stdout = logs / "stdout.log"
        self.stderr = logs / "stderr.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._start = {self.stdout: 0, self.stderr: 0}
        self._family: dict[int, psutil.Process] = {}

    # -- life --------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process id of the last start. Raises RuntimeError before the first."""
        if self.process is None:
            raise RuntimeError("the bridge was not started")
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *arguments: str) -> None:
        """Start it. Raises RuntimeError while it runs."""
        if self.running:
            raise RuntimeError(f"the bridge is running already (pid {self.pid})")
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self._start = {self.stdout: out.tell(), self.stderr: err.tell()}
            self.process = subprocess.Popen(
                [*self.command, *arguments],
                cwd=self.cwd,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # a Ctrl-C of the test run is ours to pass on
            )

    def stop(self, timeout: float = 15) -> int:
        """Ask it to stop (SIGTERM) and return its exit code. Raises TimeoutError when it goes on running."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL, the bridge alone; its agents are not touched)."""
        self._end(signal.SIGKILL, 5)

    def restart(self, *arguments: str) -> None:
        """Stop it and start it again in the same state folder."""
        self.stop()
        self.start(*arguments)

    def wait(self, timeout: float = 15) -> int:
        """Wait until it exits by itself and return its exit code. Raises TimeoutError when it does not."""
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the bridge still runs after {timeout:g} s\n{self.tail()}") from None

    def close(self) -> None:
        """End it and every process that it left behind."""
        if self.running:
            with contextlib.suppress(TimeoutError):
                self.stop(5)
        if self.running:
            self.kill()
        self._family |= {process.pid: process for process in self.descendants()}
        for process in self._family.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                if is_alive(process):
                    process.kill()
        deadline = time.monotonic() + 5
        while any(map(is_alive, self._family.values())) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._family.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def descendants(self) -> list[psutil.Process]:
        """The processes under the bridge now, and its agents: they carry the id of their process wherever they are."""
        found: dict[int, psutil.Process] = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            found = {process.pid: process for process in psutil.Process(self.pid).children(recursive=True)}
        folder = self.config.parent / "processes"
        ids = {path.name for path in folder.iterdir()} if folder.exists() else set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("UNTETHER_PROCESS") in ids:
                    found[process.pid] = process
        return list(found.values())

    def _end(self, number: signal.Signals, timeout: float) -> int:
        # A child that outlives its parent can no longer be found through it, so it is noted before.
        self._family |= {process.pid: process for process in self.descendants()}
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait(timeout)

    # -- what it says ------------------------------------------------------

    def lines(self, *, all_starts: bool = False) -> list[str]:
        """What it printed since the last start, or since the first: standard output, then standard error."""
        return [line for file in (self.stdout, self.stderr) for line in self._read(file, 0 if all_starts else None)]

    def mark(self) -> int:
        """How many lines it has printed since the last start; for ``since``."""
        return len(self.lines())

    def tail(self, count: int = 40) -> str:
        """The last lines, for a failure message."""
        return "\n".join(f"  | {line}" for line in self.lines()[-count:])

    def wait_for_line(self, pattern: str, timeout: float = 15) -> re.Match[str]:
        """The first line since the last start in which ``pattern`` is found, printed already or to come.

        Raises TimeoutError after ``timeout`` seconds, and RuntimeError when the bridge exits without such a line.
        """
        return self._wait(lambda: next(self._matches(pattern), None), f"a line with {pattern!r}", timeout)

    def wait_until(self, test: Callable[[], T | None], what: str = "the condition", timeout: float = 15) -> T:
        """Call ``test`` until it returns something true, and return that. Raises as ``wait_for_line`` does."""
        return self._wait(test, what, timeout)

    def _matches(self, pattern: str) -> Iterator[re.Match[str]]:
        return (match for line in self.lines() if (match := re.search(pattern, line)))

    def _read(self, file: Path, offset: int | None) -> list[str]:
        with file.open("rb") as stream:
            stream.seek(self._start[file] if offset is None else offset)
            return stream.read().decode("utf-8", "replace").splitlines()

    def _wait(self, test: Callable[[], T | None], what: str, timeout: float) -> T:
        deadline = time.monotonic() + timeout
        while True:
            gone = not self.running  # before the look, so that the last words of a process count
            if found := test():
                return found
            if gone:
                code = self.process.returncode if self.process else None
                raise RuntimeError(f"the bridge exited with {code} before {what} was seen\n{self.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} was not seen within {timeout:g} s\n{self.tail()}")
            time.sleep(POLL_S)


class AsyncBridge:
    """A ``Bridge`` for asynchronous tests: each call runs in a worker thread."""

    def __init__(self, bridge: Bridge) -> None:
        self.sync = bridge

    async def start(self, *arguments: str) -> None:
        await self._run(self.sync.start, *arguments)

    async def stop(self, timeout: float = 15) -> int:
        return await self._run(self.sync.stop, timeout)

    async def kill(self) -> None:
        await self._run(self.sync.kill)

    async def restart(self, *arguments: str) -> None:
        await self._run(self.sync.restart, *arguments)

    async def wait(self, timeout: float = 15) -> int:
        return await self._run(self.sync.wait, timeout)

    async def wait_for_line(self, pattern: str, timeout: float = 15) -> re.Match[str]:
        return await self._run(self.sync.wait_for_line, pattern, timeout)

    async def wait_until(self, test: Callable[[], T | None], what: str = "the condition", timeout: float = 15) -> T:
        return await self._run(partial(self.sync.wait_until, test, what, timeout))

    async def close(self) -> None:
        await self._run(self.sync.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    @staticmethod
    async def _run(function: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(partial(function, *arguments))
