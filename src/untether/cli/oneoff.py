"""`untether run --unattended PROMPT`: one run without a chat. It prints the answer; nothing waits for a person.

It works beside a bridge that runs: nothing of it is stored. Its session is the engine's own, and can be resumed by the
engine's command.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import click

from ..clock import SystemClock
from ..conversation.engines import Engine
from ..model import CompletedEvent, Deny, InteractionEvent, UntetherEvent
from ..process.direct import DirectProcess
from ..process.driver import Driver, Ended
from ..process.environment import agent_environment
from ..process.host import Receipt, Rung, SpawnFailed
from ..runner import RunOptions
from ..session import Begin, Decide, Input, Place, ProcessExit, Prompt, StartFacts
from ..settings import Settings

NOBODY = (
    "Nobody is there to decide this: the run is unattended. Go on without it, and say in your answer what was left out."
)


def run_unattended(settings: Settings, engine: Engine, prompt: str) -> int:
    """Run one prompt in the current folder. Prints the answer, or the error on stderr; returns the exit code."""
    return anyio.run(_run, settings, engine, prompt)


async def _run(settings: Settings, engine: Engine, prompt: str) -> int:
    runner = engine.runner
    refusal = await runner.check(os.environ)
    if refusal is not None:
        return _failed(refusal.message, refusal.advice)
    process_id = str(uuid.uuid4())
    facts = {**runner.start_settings(RunOptions()), "attended": False}
    start = StartFacts(process_id, engine.id, str(Path.cwd()), runner.cli_version, settings=facts)
    message = Prompt(str(uuid.uuid4()), prompt)
    security = settings.security
    environ = agent_environment(
        os.environ,
        engine_names=runner.env_names,
        process_id=process_id,
        extra_allow=security.env_extra_allow,
        extra_prefix_allow=security.env_extra_prefix_allow,
        secrets=settings.secrets,
    )
    clock = SystemClock()
    try:
        launch = runner.launch(start, message, environ=environ)
        async with (
            DirectProcess.spawned(launch, clock=clock, ladder=runner.stop_ladder) as process,
            anyio.create_task_group() as tasks,
        ):
            log = _InMemory(tasks)
            driver = Driver(
                runner.session(start), process, inputs=log, effects=log, clock=clock, ladder=runner.stop_ladder
            )
            log.submit = driver.submit
            await tasks.start(driver.run, Begin(start, message))
            await log.completed.wait()
            await process.stop((Rung("close_stdin", 3.0), *runner.stop_ladder))
            await driver.finished.wait()
    except SpawnFailed as failure:
        return _failed(str(failure), f"Install it with: {engine.backend.install_cmd or 'its own installer'}")
    assert log.result is not None
    if log.result.answer.strip() and log.result.answer != log.result.error:
        click.echo(log.result.answer)
    if log.refused:
        click.echo("Not done, since nobody could be asked:", err=True)
        for act in log.refused:
            click.echo(f"  ✗ {act}", err=True)
    return 0 if log.result.ok else _failed(log.result.error or "The agent ended without an answer.", log.result.advice)


def _failed(error: str, advice: str) -> int:
    click.echo(f"✗ {error}", err=True)
    if advice:
        click.echo(advice, err=True)
    return 1


class _InMemory:
    """The driver's `InputLog` and `Effects` of a run that is stored nowhere.

    A session that knows that it is unattended asks nothing; what another one asks is denied at once.
    """

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._inputs = 0
        self.submit: Callable[[Input], Any]
        self.refused: list[str] = []
        self.result: CompletedEvent | None = None
        self.completed = anyio.Event()

    async def append(self, item: Input, offset: int, now: float, also: Callable[[Any], None] | None) -> int:
        self._inputs += 1
        return self._inputs

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        for event in events:
            if isinstance(event, InteractionEvent) and event.phase == "opened":
                self.refused.append(event.interaction.act)
                self._tasks.start_soon(self._deny, event.interaction.id)
            if isinstance(event, CompletedEvent):
                self.result = event
                self.completed.set()

    async def settled(self) -> None:
        """Nothing is shown before the end."""

    async def recall(self, item: Input) -> None:
        """Nothing is folded again."""

    async def caught_up(self, decided: Mapping[str, Sequence[Receipt]]) -> None:
        """There is no history."""

    async def over(self, exit: ProcessExit, now: float) -> None:
        """Whoever waits for the driver knows."""

    async def _deny(self, request: str) -> None:
        try:
            await self.submit(Decide(request, Deny(NOBODY)))
        except Ended:
            return  # it ended first
