"""The real Claude Code under the real driver and session, with a scripted model: what a test of the session needs."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import psutil

from fake_anthropic import FakeAnthropic, Scenario
from tests.support.bridge import API_KEY
from untether.clock import SystemClock
from untether.model import (
    ActionEvent,
    Allow,
    CompletedEvent,
    Decision,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    TurnEvent,
    UntetherEvent,
    Wait,
)
from untether.process.direct import DirectProcess
from untether.process.driver import Also, Driver
from untether.process.environment import PROCESS_VARIABLE, agent_environment
from untether.process.host import Receipt
from untether.runner import RunOptions
from untether.runners.claude import BACKEND
from untether.session import (
    Attachment,
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

T = TypeVar("T")
PATIENCE_S = 30.0


class Live:
    """One process: it stores nothing and remembers everything. `answer` decides requests by itself when it is set."""

    def __init__(self, fake: Any, project: Path) -> None:
        self.fake = fake
        self.project = project
        self.events: list[UntetherEvent] = []
        self.inputs: list[Input] = []
        self.answer: Decision | None = Allow()
        self.first = ""  # the id of the message that it began with
        self.process_id = ""
        self.runner: Any = None
        self.process: Any = None
        self.driver: Any = None
        self.tasks: Any = None
        self._changed = anyio.Event()

    # ------------------------------------------------------------------------------------------ InputLog and Effects

    async def append(self, item: Input, offset: int, now: float, also: Also | None) -> int:
        self.inputs.append(item)
        return len(self.inputs)

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        self.events += events
        for event in events:
            if isinstance(event, InteractionEvent) and event.phase == "opened" and self.answer is not None:
                self.tasks.start_soon(self.driver.submit, Decide(event.interaction.id, self.answer))

    async def settled(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def recall(self, item: Input) -> None:
        """Nothing is stored, so nothing is folded again; the same for the two below."""

    async def caught_up(self, decided: Mapping[str, Sequence[Receipt]]) -> None: ...

    async def over(self, exit: ProcessExit, now: float) -> None: ...

    # ---------------------------------------------------------------------------------------------------- the person

    async def say(self, text: str, when: Any = "next", files: tuple[Attachment, ...] = ()) -> str:
        id = str(uuid.uuid4())
        await self.driver.submit(Say(Prompt(id, text, files), when))
        return id

    async def interrupt(self, *, cancel_queued: bool = False) -> None:
        await self.driver.submit(Interrupt(cancel_queued))

    async def change(self, change: SessionChange) -> None:
        await self.driver.submit(Configure(change))

    # ------------------------------------------------------------------------------------------------------- waiting

    async def until(self, find: Callable[[], T | None], what: str = "") -> T:
        try:
            with anyio.fail_after(PATIENCE_S):
                while not (found := find()):
                    changed = self._changed
                    with anyio.move_on_after(0.1):
                        await changed.wait()
                return found
        except TimeoutError:
            seen = "\n".join(map(str, self.events))
            raise AssertionError(f"waited in vain{': ' + what if what else ''}; events:\n{seen}") from None

    async def ends(self, number: int = 1) -> list[CompletedEvent | TurnEvent]:
        """The first `number` ends of runs and turns."""
        return await self.until(lambda: found if len(found := self.all_ends) >= number else None, f"{number} ends")

    async def step(self, words: str, phase: str = "") -> ActionEvent:
        def find() -> ActionEvent | None:
            return next(
                (
                    event
                    for event in self.of(ActionEvent)
                    if words in event.action.title and (not phase or event.phase == phase)
                ),
                None,
            )

        return await self.until(find, f"a step {words!r}")

    async def wait_for(self, kind: str) -> Wait:
        return await self.until(lambda: next((w for w in self.driver.session.waits if w.kind == kind), None), kind)

    async def calls(self, number: int) -> list[dict[str, Any]]:
        """The first model calls of conversations, once there are `number`."""
        return await self.until(lambda: found if len(found := self.model_calls) >= number else None, "model calls")

    # ---------------------------------------------------------------------------------------------------- what came

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def all_ends(self) -> list[CompletedEvent | TurnEvent]:
        return [
            event
            for event in self.events
            if isinstance(event, CompletedEvent) or (isinstance(event, TurnEvent) and event.phase == "completed")
        ]

    @property
    def model_calls(self) -> list[dict[str, Any]]:
        return [call for call in self.fake.calls if call.get("n_messages")]

    def states(self, id: str) -> list[str]:
        """What became of a message."""
        return [event.state for event in self.of(PromptEvent) if event.prompt_id == id]


def scenario(*turns: dict[str, Any], project: Path, **more: Any) -> Any:
    script = {"name": "main", "turns": list(turns), "exhausted": more.pop("exhausted", "repeat_last")}
    others = more.pop("others", [])
    return Scenario({"name": "test", "scripts": [*others, script], **more}, {"REPO": str(project)})


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"blocks": [{"text": text}], **more}


def uses(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"blocks": [{"tool_use": {"name": tool, "input": arguments}}]}


def bash(command: str, **more: Any) -> dict[str, Any]:
    return uses("Bash", command=command, description="Test", **more)


@asynccontextmanager
async def live(
    folder: Path,
    claude: Path,
    home: dict[str, str],
    *turns: dict[str, Any],
    prompt: str = "go",
    prompt_id: str = "",
    files: tuple[Attachment, ...] = (),
    resume: str = "",
    fake: Any = None,
    project: Path | None = None,
    env: dict[str, str] | None = None,
    settings: dict[str, Any] | None = None,
    scripted: dict[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[Live]:
    """A process that was handed `prompt`. With `fake` and `project` of an earlier one it goes on with its model."""
    if project is None:
        project = folder / "project"
        project.mkdir(exist_ok=True)
        (project / ".git").mkdir(exist_ok=True)
    server = fake or FakeAnthropic(scenario(*turns, project=project, **(scripted or {})), full_record=True)
    if fake is None:
        server.__enter__()
    try:
        first = Prompt(prompt_id or str(uuid.uuid4()), prompt, files)
        async with _process(
            folder, claude, {**home, **(env or {})}, server, project, first, resume, settings or {}, config
        ) as talk:
            yield talk
    finally:
        if fake is None:
            server.__exit__(None, None, None)


@asynccontextmanager
async def _process(
    folder: Path,
    claude: Path,
    home: dict[str, str],
    fake: Any,
    project: Path,
    first: Prompt,
    resume: str,
    settings: dict[str, Any],
    config: dict[str, Any],
) -> AsyncIterator[Live]:
    key = {} if "CLAUDE_CODE_OAUTH_TOKEN" in home else {"ANTHROPIC_API_KEY": API_KEY}
    environ = {**home, "ANTHROPIC_BASE_URL": fake.base_url, **key}
    runner = BACKEND.build_runner({"command": str(claude), "use_api_billing": True, **config}, folder / "untether.toml")
    assert await runner.check(environ) is None
    start = StartFacts(
        uuid.uuid4().hex,
        "claude",
        str(project),
        cli_version=runner.cli_version,
        resume=ResumeToken(runner.engine, resume) if resume else None,
        settings={**runner.start_settings(RunOptions()), **settings},
    )
    env = agent_environment(environ, engine_names=runner.env_names, process_id=start.process_id)
    launch = runner.launch(start, first, environ=env)
    talk = Live(fake, project)
    journal = folder / f"journal-{start.process_id}"
    clock, ladder = SystemClock(), runner.stop_ladder
    async with DirectProcess.spawned(launch, clock=clock, folder=journal, ladder=ladder) as process:
        talk.process = process
        talk.first, talk.process_id, talk.runner = first.id, start.process_id, runner
        talk.driver = Driver(runner.session(start), process, inputs=talk, effects=talk, clock=clock, ladder=ladder)
        async with anyio.create_task_group() as tasks:
            talk.tasks = tasks
            await tasks.start(talk.driver.run, Begin(start, first))
            yield talk
            tasks.cancel_scope.cancel()


def left_behind(process_id: str) -> list[str]:
    """Command lines of what still carries the id of a process of ours in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(PROCESS_VARIABLE) == process_id:
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found
