"""A real Claude Code behind a session of ours, with the real driver and a scripted model, and no chat.

The agent runs as a plain user where the tests run as root, since the CLI refuses its bypass modes to root.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import msgspec

from fake_anthropic import FakeAnthropic, Scenario
from tests.support.bridge import API_KEY, QUIET_CLAUDE, make_project
from untether.clock import SystemClock
from untether.model import (
    ActionEvent,
    CompletedEvent,
    Decision,
    Interaction,
    InteractionEvent,
    ResumeToken,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
)
from untether.process.direct import DirectProcess
from untether.process.driver import Also, Driver
from untether.process.host import Receipt
from untether.runner_context import RunOptions
from untether.runners.claude.runner import ClaudeRunner
from untether.session import (
    Begin,
    Configure,
    Decide,
    Input,
    Interrupt,
    Place,
    ProcessExit,
    Prompt,
    Say,
    SessionChange,
    StartFacts,
)

NOBODY = 65534
TIMEOUT = 30.0

E = TypeVar("E")


def plain_user() -> tuple[str, ...]:
    """What to put before a command so that it does not run as root."""
    if os.getuid() != 0:
        return ()
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")


class PlainRunner(ClaudeRunner):
    """Claude Code, never as root."""

    def program(self) -> tuple[str, ...]:
        return (*plain_user(), self.command())


class _Recorder:
    """Stores inputs nowhere, keeps what happened, and wakes whoever waits for it."""

    def __init__(self) -> None:
        self.events: list[UntetherEvent] = []
        self.ordinal = 0
        self._news = anyio.Event()

    async def append(self, item: Input, offset: int, now: float, also: Also | None) -> int:
        self.ordinal += 1
        return self.ordinal

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        self.events += events
        self.tell()

    async def settled(self) -> None:
        self.tell()

    async def recall(self, item: Input) -> None:
        """Nothing is recovered here."""

    async def caught_up(self, decided: Mapping[str, Sequence[Receipt]]) -> None:
        """Nothing is recovered here."""

    async def over(self, exit: ProcessExit, now: float) -> None:
        self.tell()

    def tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, found: Callable[[], E | None]) -> E:
        while (value := found()) is None:
            await self._news.wait()
        return value


class _Spied:
    """A process whose lines, both ways, are kept."""

    def __init__(self, process: DirectProcess) -> None:
        self._process = process
        self.written: list[dict[str, Any]] = []
        self.read: list[dict[str, Any]] = []

    async def batches(self) -> AsyncIterator[Any]:
        async for batch in self._process.batches():
            self.read += [msgspec.json.decode(line.data) for line in batch if line.data.startswith(b"{")]
            yield batch

    def write(self, place: Place, data: bytes, *, again: bool = False) -> Receipt:
        self.written.append(msgspec.json.decode(data))
        return self._process.write(place, data, again=again)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


class Real:
    """One process of Claude Code at work. Waits raise TimeoutError."""

    def __init__(self, driver: Driver, recorder: _Recorder, process: _Spied, project: Path, model: Any) -> None:
        self.driver = driver
        self.session = driver.session
        self.project = project
        self.model = model
        self.written = process.written
        self.read = process.read
        self._recorder = recorder
        self._seen = 0
        self._handled: set[str] = set()

    @property
    def events(self) -> list[UntetherEvent]:
        return self._recorder.events

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    # what the person does

    async def decide(self, interaction: Interaction, decision: Decision) -> None:
        self._handled.add(interaction.id)
        await self.driver.submit(Decide(interaction.id, decision))

    async def say(self, text: str) -> None:
        await self.driver.submit(Say(Prompt(str(uuid.uuid4()), text)))

    async def configure(self, change: SessionChange) -> None:
        await self.driver.submit(Configure(change))

    async def interrupt(self) -> None:
        await self.driver.submit(Interrupt())

    # what comes of it

    async def until(self, found: Callable[[], E | None], timeout: float = TIMEOUT) -> E:
        try:
            with anyio.fail_after(timeout):
                return await self._recorder.until(found)
        except TimeoutError:
            seen = "\n".join(str(frame)[:300] for frame in self.read[-12:])
            raise TimeoutError(f"not seen; last lines:\n{seen}\nlast events: {self.events[-5:]}") from None

    async def asked(self, timeout: float = TIMEOUT) -> Interaction:
        """The next request that is open and was not yet decided on."""
        return await self.until(self.next_asked, timeout)

    def next_asked(self) -> Interaction | None:
        """A request that is open and was not yet decided on."""
        closed = {event.interaction.id for event in self.of(InteractionEvent) if event.phase != "opened"}
        opened = [event.interaction for event in self.of(InteractionEvent) if event.phase == "opened"]
        return next((each for each in opened if each.id not in closed | self._handled), None)

    async def asked_or_answered(self) -> Interaction | CompletedEvent | TurnEvent:
        return await self.until(lambda: self.next_asked() or self._next_answer())

    async def answered(self, timeout: float = TIMEOUT) -> CompletedEvent | TurnEvent:
        """The next end of a run or turn."""
        return await self.until(self._next_answer, timeout)

    def _next_answer(self) -> CompletedEvent | TurnEvent | None:
        ends = [
            event
            for event in self.events
            if isinstance(event, CompletedEvent) or (isinstance(event, TurnEvent) and event.phase == "completed")
        ]
        if len(ends) <= self._seen:
            return None
        self._seen += 1
        return ends[self._seen - 1]

    async def mode(self, mode: str, timeout: float = TIMEOUT) -> None:
        """Wait until the CLI is in this permission mode."""

        def found() -> bool | None:
            modes = [(event.meta or {}).get("permission_mode") for event in self.of(StartedEvent)]
            return True if modes and modes[-1] == mode else None

        await self.until(found, timeout)

    # what to look at

    @property
    def warnings(self) -> list[str]:
        found = self.of(ActionEvent)
        return [event.action.title for event in found if event.action.kind == "warning" and event.phase == "completed"]

    @property
    def tool_results(self) -> list[str]:
        """What the model was told, over all calls."""
        return [result["text"] for call in self.model.calls for result in call.get("tool_results", [])]

    def requests(self, subtype: str) -> list[dict[str, Any]]:
        """Our control requests of one kind."""
        return [frame for frame in self.written if (frame.get("request") or {}).get("subtype") == subtype]


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"blocks": [{"text": text}], **more}


def uses(tool: str, *, text: str = "", **arguments: Any) -> dict[str, Any]:
    """One model call that uses a tool, after some text."""
    blocks: list[dict[str, Any]] = [{"text": text}] if text else []
    return {"blocks": [*blocks, {"tool_use": {"name": tool, "input": arguments}}]}


def bash(command: str) -> dict[str, Any]:
    return uses("Bash", command=command, description="Do it")


def script(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "main", "turns": list(turns), **more}


@asynccontextmanager
async def real(
    claude: Path,
    *scripts: dict[str, Any],
    prompt: str = "do it",
    settings: dict[str, Any] | None = None,
    resume: ResumeToken | None = None,
    home: Path | None = None,
    user_settings: dict[str, Any] | None = None,
    safeguards: str = "",
    **config: Any,
) -> AsyncIterator[Real]:
    """Start Claude Code with a scripted model. `config` is the engine's table, `settings` more start facts.

    In scripts `${REPO}` is the project, `${OUT}` a folder beside it, `${PLANS}` the folder of plan files.
    """
    with tempfile.TemporaryDirectory(prefix="untether-real-") as made:
        base = home or Path(made)
        project, out, config_dir = base / "project", base / "outside", base / "home" / ".claude"
        if not project.exists():
            make_project(project)
            out.mkdir()
            config_dir.mkdir(parents=True)
        if user_settings is not None:
            (config_dir / "settings.json").write_bytes(msgspec.json.encode(user_settings))
        variables = {"REPO": str(project), "OUT": str(out), "PLANS": str(config_dir / "plans")}
        scenario = {"name": "real", "scripts": list(scripts), **({"safeguards": safeguards} if safeguards else {})}
        with FakeAnthropic(Scenario(scenario, variables)) as model:
            env = {
                "HOME": str(base / "home"),
                "CLAUDE_CONFIG_DIR": str(config_dir),
                "CLAUDE_CODE_TMPDIR": str(base / "tmp"),
                "ANTHROPIC_BASE_URL": model.base_url,
                "ANTHROPIC_API_KEY": API_KEY,
                **QUIET_CLAUDE,
            }
            (base / "tmp").mkdir(exist_ok=True)
            if plain_user():
                for path in [base, *base.rglob("*")]:
                    shutil.chown(path, NOBODY, NOBODY)
            runner = PlainRunner({"command": str(claude), "env": env, "use_api_billing": True, **config})
            facts = {**runner.start_settings(RunOptions()), **(settings or {})}
            start = StartFacts(uuid.uuid4().hex, runner.engine, str(project), resume=resume, settings=facts)
            message = Prompt(str(uuid.uuid4()), prompt)
            environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "SHELL": "/bin/bash"}
            launch = runner.launch(start, message, environ=environ)
            recorder = _Recorder()
            async with DirectProcess.spawned(launch, clock=SystemClock(), ladder=runner.stop_ladder) as process:
                spied = _Spied(process)
                driver = Driver(
                    runner.session(start),
                    spied,
                    inputs=recorder,
                    effects=recorder,
                    clock=SystemClock(),
                    ladder=runner.stop_ladder,
                )
                async with anyio.create_task_group() as tasks:
                    await tasks.start(driver.run, Begin(start, message))
                    try:
                        yield Real(driver, recorder, spied, project, model)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await process.stop(runner.stop_ladder)
                        tasks.cancel_scope.cancel()
