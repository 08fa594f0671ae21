"""The Claude runner: makes sessions and says how their processes are started, for Claude Code and for its dialect."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import structlog

from ...backends import EngineConfig
from ...model import EngineId, ResumeToken, UntetherEvent
from ...process.direct import DirectProcess
from ...process.environment import CLAUDE_NAMES, PROCESS_VARIABLE, Names, agent_environment
from ...process.host import Launch, Rung, SpawnFailed
from ...process.recording import Dialect
from ...runner import (
    JsonlStreamState,
    JsonlSubprocessRunner,
    ResumeTokenMixin,
    RunOptions,
    blocked_event,
    clean_text,
    publish_run_stream,
    run_folder,
    run_options,
)
from ...session import EngineSession, Place, Prompt, StartFacts, Step
from . import frames, spawn
from .forms import CONTROL, ONE_SHOT
from .recording import ClaudeDialect
from .session import ClaudeSession

log = structlog.get_logger(__name__)

_HANDSHAKE_S = 20.0  # a cold start takes under a second; several at once on a small machine take 3
_FROM_CONFIG = (
    "model",
    "permission_mode",
    "allowed_tools",
    "auto_approve",
    "extra_args",
    "dangerously_skip_permissions",
)


class ClaudeRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    """Claude Code. `config` is the engine's table (see docs/reference/configuration.md)."""

    engine = EngineId("claude")
    name = "Claude Code"
    resume_re = re.compile(r"(?im)^[ \t]*`?claude[ \t]+(?:--resume|-r)(?:[ \t]+|=)(?P<token>[^`\s]+)`?[ \t]*$")
    resume_line = "`claude --resume {}`"
    install_cmd = spawn.INSTALL
    min_version = spawn.MIN_VERSION
    stop_ladder: Sequence[Rung] = spawn.LADDER

    def __init__(self, config: EngineConfig) -> None:
        self._config = dict(config)
        self.interactive = self._config.get("interactive") is not False
        self.capabilities = CONTROL if self.interactive else ONE_SHOT

    # -------------------------------------------------------------------------------------------------- the program

    def command(self) -> str:
        return str(self._config.get("command") or "claude")

    def program(self) -> tuple[str, ...]:
        """The command, and arguments that come before all others."""
        return (self.command(),)

    def tag(self) -> str:
        return self.name

    @property
    def env_names(self) -> Names:
        return CLAUDE_NAMES

    def format_resume(self, token: ResumeToken) -> str:
        if token.engine != self.engine:
            raise RuntimeError(f"a session of {token.engine!r} has no resume line of {self.engine!r}")
        return self.resume_line.format(token.value)

    # ----------------------------------------------------------------------------------------- for the conversation

    def start_settings(self, options: RunOptions) -> dict[str, Any]:
        chosen = {name: self._config[name] for name in _FROM_CONFIG if self._config.get(name)}
        return {**chosen, **options.settings(), "interactive": self.interactive, "config_dir": self._config_dir()}

    def _config_dir(self) -> str:
        """Where this agent keeps its own files, among them its plans."""
        own = self._config.get("env") or {}
        told = own.get("CLAUDE_CONFIG_DIR") or os.environ.get("CLAUDE_CONFIG_DIR")
        home = own.get("HOME") or os.environ.get("HOME") or ""
        return str(told or f"{home}/.claude")

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        if environ.get(PROCESS_VARIABLE) != start.process_id:
            environ = agent_environment(environ, engine_names=self.env_names, process_id=start.process_id)
        own = {str(name): str(value) for name, value in (self._config.get("env") or {}).items()}
        billing = bool(self._config.get("use_api_billing"))
        args = spawn.arguments(start.settings, start.resume, continue_latest=start.continue_latest)
        return Launch((*self.program(), *args), start.cwd, spawn.environment(environ, own, use_api_billing=billing))

    def session(self, start: StartFacts) -> EngineSession:
        return ClaudeSession(self.engine, self.name)

    def dialect(self) -> Dialect:
        return ClaudeDialect(self.engine)

    async def handshake(self, environ: Mapping[str, str]) -> str:
        """Start the CLI in control mode and greet it; no model is called."""
        id = uuid.uuid4().hex
        with TemporaryDirectory(prefix="untether-") as folder:
            start = StartFacts(
                id, self.engine, folder, settings={**self.start_settings(RunOptions()), "interactive": True}
            )
            launch = self.launch(start, Prompt(id, ""), environ=environ)
            try:
                async with DirectProcess.spawned(launch, clock=self.clock) as process:
                    process.write(Place(0, 0), frames.control_request(id, "initialize"))
                    with anyio.move_on_after(_HANDSHAKE_S):
                        async for batch in process.batches():
                            if any(b'"control_response"' in line.data for line in batch):
                                return ""
                        exit = await process.wait()
                        return exit.stderr_tail.strip() or "it ended without an answer"
                    return f"it did not answer within {_HANDSHAKE_S:.0f} s"
            except SpawnFailed as failure:
                return failure.reason

    # -------------------------------------------------------------------------------------------------------- a run

    async def run_impl(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[UntetherEvent]:
        """One run in the one-shot form: nobody is there who could be asked. Consume and close it in one task."""
        settings = {**self.start_settings(run_options()), "interactive": False}
        process_id = uuid.uuid4().hex
        folder = run_folder() or str(Path.cwd())
        start = StartFacts(process_id, self.engine, folder, resume=resume, settings=settings)
        message = Prompt(str(uuid.uuid4()), clean_text(prompt))
        launch = self.launch(start, message, environ=os.environ)
        if refusal := await self.check(launch.env):
            yield blocked_event(self.engine, refusal, resume)
            return
        held: dict[ResumeToken, anyio.Semaphore | None] = {resume: None} if resume else {}
        try:
            async with DirectProcess.spawned(launch, clock=self.clock, ladder=self.stop_ladder) as process:
                self.current_stream, self.last_pid = JsonlStreamState(expected_session=resume), process.pid
                publish_run_stream(self.current_stream, process.pid)
                async for step in self._steps(process, start, message):
                    for event in step.events:
                        await self._hold(event, held)
                        yield event
        except SpawnFailed as failure:
            yield blocked_event(self.engine, self._not_spawned(failure), resume)
        finally:
            for lock in held.values():
                if lock is not None:
                    lock.release()

    async def _steps(self, process: DirectProcess, start: StartFacts, message: Prompt) -> AsyncIterator[Step]:
        session = self.session(start)
        now = self.clock.now()
        step = session.begin(start, message, now)
        for index, data in enumerate(step.writes):
            process.write(Place(0, 0, index), data)
        if step.close_stdin:
            await process.close_stdin()
        yield step
        async for batch in process.batches():
            for line in batch:
                now = max(now, line.time)
                step = session.skipped(line.skipped, now) if line.skipped else session.feed(line.data, now)
                if step.stop:
                    await process.stop(self.stop_ladder)
                yield step
        yield session.end(await process.wait(), max(now, self.clock.now()))
