"""A world for one scenario: a real bridge under a supervisor, the fake Telegram, two people, and the demo agent."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import psutil
from anyio import to_thread

from fake_telegram import FakeTelegram
from tests.chaos.faults import Faults
from tests.support.bridge import AsyncBridge, Bridge, is_alive

T = TypeVar("T")

AGENT = Path(__file__).with_name("agent.py")
PATIENCE_S = 20.0  # for whatever must happen; a scenario that needs it has failed
LOOK_S = 0.05
HURRY = 8.0  # how much faster the bridge's time goes: pace and pauses cost the suite little
QUIET = 61.0  # an idle agent is let go after 60 s


@dataclass(frozen=True)
class Engine:
    """The agents of a world: `command` is the demo agent with its witness when it is not given.

    `table` is TOML for the engine's table, `env` is for agents, `bridge_env` for the bridge.
    """

    id: str = "demo"
    command: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    bridge_env: Mapping[str, str] = field(default_factory=dict)
    table: str = ""


DEMO = Engine(env={"UNTETHER_DEMO_SPEED": "0"})


@dataclass
class World:
    folder: Path
    telegram: Any
    ann: Any
    bob: Any
    faults: Faults
    bridge: AsyncBridge
    problems: list[str] = field(default_factory=list)
    in_doubt: int = 0  # messages that were on their way when the bridge died: each may stand there twice

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def stdin_log(self) -> Path:
        return self.folder / "stdin"

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Rows of the bridge's database, as another process sees them."""
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/untether.db?mode=ro", uri=True)) as conn:
            conn.row_factory = sqlite3.Row
            return list(conn.execute(query, values))

    def touch(self, name: str) -> None:
        """Make a file where agents work: some of them wait for one."""
        for place in ("here", "there"):
            self.folder.joinpath(place, name).touch()

    def tap_waits(self) -> bool:
        """Whether a tap waits at Telegram for a bridge."""
        return any(update["type"] == "callback_query" for update in self.telegram.queue)

    def processes(self) -> dict[int, str]:
        """All that lives and was started for an agent of this world: pid and command, the bridge left out."""
        mine = f"CHAOS_LOG={self.stdin_log}".encode()
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if mine in environ and is_alive(process):
                    found[process.pid] = " ".join(process.cmdline())[:200]
        return found

    async def until(self, test: Callable[[], T | None], what: str, timeout: float = PATIENCE_S) -> T:
        """Wait for `test`, whether the bridge lives or not."""
        with anyio.move_on_after(timeout):
            while True:
                with contextlib.suppress(sqlite3.OperationalError):
                    if found := await to_thread.run_sync(test):
                        return found
                await anyio.sleep(LOOK_S)
        raise TimeoutError(f"{what} was not seen within {timeout:g} s\n{await self.story()}")

    async def advance(self, seconds: float) -> None:
        await to_thread.run_sync(self.faults.advance, seconds)

    async def settle(self, timeout: float = PATIENCE_S) -> None:
        """Let agents become idle and go, and wait until every row is closed and no process is left."""

        def settled() -> bool:
            self.faults.advance(QUIET)
            return not open_rows(self) and not self.processes()

        try:
            await self.until(settled, "an end of all work", timeout)
        except TimeoutError:
            self.problems += [f"left open: {row}" for row in open_rows(self)]
            self.problems += [f"left alive: {pid} {command}" for pid, command in self.processes().items()]

    async def supervise(self) -> None:
        """Start the bridge again whenever it was killed; any other end is a problem."""
        while True:
            process = self.bridge.sync.process
            assert process is not None
            await to_thread.run_sync(process.wait, abandon_on_cancel=True)
            if process.returncode != -signal.SIGKILL:
                self.problems.append(f"the bridge ended by itself with {process.returncode}")
                return
            self._count_doubts()
            await self.bridge.start()

    async def kill(self) -> None:
        """SIGKILL, at no special point."""
        await self.bridge.kill()
        self._count_doubts()

    def _count_doubts(self) -> None:
        with contextlib.suppress(sqlite3.OperationalError):  # it died before there was a database
            self.in_doubt += len(self.rows("SELECT id FROM deliveries WHERE act = 'send' AND state = 'sending'"))

    async def story(self) -> str:
        """What was seen, for a failure message."""
        told = []
        for person in (self.ann, self.bob):
            told.append(str(await self.telegram.op("text", chat=person.chat)))
        log = self.bridge.sync.lines(all_starts=True)[-60:]
        return "\n".join([*filter(None, told), f"deaths: {self.faults.deaths}", *(f"  | {line}" for line in log)])


def open_rows(world: World) -> list[str]:
    """Rows that say that something is not finished."""
    tables = {
        "updates": "state <> 'done'",
        "messages": "state IN ('queued', 'handed', 'taken')",
        "runs": "state = 'running'",
        "interactions": "state = 'open'",
        "deliveries": "state IN ('pending', 'sending')",
        "processes": "ended IS NULL",
    }
    return [
        f"{table} {dict(row)}"
        for table, condition in tables.items()
        for row in world.rows(f"SELECT * FROM {table} WHERE {condition}")
    ]


def program(folder: Path, name: str, *command: str | Path) -> Path:
    """A program that runs `command` with the arguments that it gets."""
    made = folder / name
    made.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    made.chmod(0o755)
    return made


def write_config(folder: Path, telegram: Any, ann: Any, bob: Any, engine: Engine, mode: str, extra: str) -> Path:
    for name in ("state", "stdin", "home", "here", "there"):
        folder.joinpath(name).mkdir(exist_ok=True)
    env = {"CHAOS_LOG": str(folder / "stdin"), "CHAOS_STATE": str(folder / "state"), **engine.env}
    config = folder / "state" / "untether.toml"
    config.write_text(
        f"""\
default_engine = "{engine.id}"
default_project = "here"
[transports.telegram]
bot_token = "{telegram.token}"
chat_id = {ann.chat}
allowed_user_ids = [{ann.chat}, {bob.chat}]
api_base_url = "{telegram.url}"
session_mode = "{mode}"
[transports.web]
port = 0
[{engine.id}]
command = "{engine.command or program(folder, "agent", sys.executable, AGENT)}"
env = {{ {", ".join(f'{name} = "{value}"' for name, value in env.items())} }}
{engine.table}
[projects.here]
path = "{folder / "here"}"
[projects.there]
path = "{folder / "there"}"
chat_id = {bob.chat}
{extra}"""
    )
    return config


@asynccontextmanager
async def world(
    folder: Path,
    *,
    engine: Engine = DEMO,
    mode: str = "chat",
    extra: str = "",
    hurry: float = HURRY,
    supervised: bool = True,
) -> AsyncIterator[World]:
    """`extra` is TOML that is appended to the configuration; with `hurry` 1 time goes as it goes."""
    async with FakeTelegram(limits="off") as telegram:
        ann = await telegram.ctl.user(first_name="Ann")
        bob = await telegram.ctl.user(first_name="Bob")
        config = write_config(folder, telegram, ann, bob, engine, mode, extra)
        with Faults() as faults:
            env = {
                "PATH": "/usr/bin:/bin",
                "HOME": str(folder / "home"),
                "LANG": "C.UTF-8",
                "PYTHONUNBUFFERED": "1",
                **engine.bridge_env,
                "UNTETHER_FAULTS": str(faults.path),
            }
            bridge = AsyncBridge(Bridge(config, env=env, logs=folder / "logs"))
            made = World(folder, telegram, ann, bob, faults, bridge)
            if hurry > 1:
                faults.hurry(hurry)
            failure: BaseException | None = None
            async with bridge, anyio.create_task_group() as tasks:
                if supervised:
                    tasks.start_soon(made.supervise)
                try:
                    yield made
                except BaseException as raised:
                    failure = raised  # raised below as it is, not wrapped in a group
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(partial(end, made))
            if failure is not None:
                raise failure


def end(made: World) -> None:
    """Leave nothing alive, whatever went wrong."""
    if made.bridge.sync.running:
        made.bridge.sync.kill()
    for _ in range(20):
        left = made.processes()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
