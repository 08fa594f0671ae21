"""A real Pi behind a session of ours, with the real driver and a scripted model, and no chat."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from tests.support.bridge import make_project
from tests.support.claude_real import Real, _Recorder, _Spied
from tests.support.codex_home import fake_model
from tests.support.pi_home import pi_home
from untether.clock import SystemClock
from untether.model import ResumeToken
from untether.process.direct import DirectProcess
from untether.process.driver import Driver
from untether.process.environment import PROCESS_VARIABLE
from untether.runner_context import RunOptions
from untether.runners.pi import PiRunner
from untether.session import Attachment, Begin, Prompt, StartFacts


@asynccontextmanager
async def real(
    pi: Path,
    *replies: dict[str, Any],
    prompt: str = "do it",
    attachments: tuple[Attachment, ...] = (),
    settings: dict[str, Any] | None = None,
    resume: ResumeToken | None = None,
    latest: bool = False,
    home: Path | None = None,
    **config: Any,
) -> AsyncIterator[Real]:
    """Start Pi with a scripted model. `config` is the engine's table, `settings` more start facts."""
    with tempfile.TemporaryDirectory(prefix="untether-real-") as made, fake_model(*replies) as model:
        base = home or Path(made)
        project = base / "project"
        if not project.exists():
            make_project(project)
        environ = pi_home(base / "home", model.base_url, pi)
        runner = PiRunner({"command": str(pi), **config})
        facts = {**runner.start_settings(RunOptions()), **(settings or {})}
        start = StartFacts(
            uuid.uuid4().hex, runner.engine, str(project), resume=resume, continue_latest=latest, settings=facts
        )
        message = Prompt(str(uuid.uuid4()), prompt, attachments)
        launch = runner.launch(start, message, environ={**environ, PROCESS_VARIABLE: start.process_id})
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
