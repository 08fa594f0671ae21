"""The Claude runner: makes sessions and says how their processes are started, for Claude Code and for its dialect."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import structlog

from ...backends import EngineConfig
from ...model import EngineId, ResumeToken, UntetherEvent
from ...process.direct import DirectProcess
from ...process.environment import CLAUDE_NAMES, PROCESS_VARIABLE, Names, agent_environment
from ...process.guard import Refusal
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
from . import spawn
from .drift import Surface, compare, look
from .forms import CONTROL, ONE_SHOT
from .handshake import greet
from .options import NAMES, mcp_flags
from .recording import ClaudeDialect
from .session import ClaudeSession

log = structlog.get_logger(__name__)

_FROM_CONFIG = (
    "model",
    "permission_mode",
    "allowed_tools",
    "auto_approve",
    "extra_args",
    "dangerously_skip_permissions",
)
_HOOK_EVENTS = "--include-hook-events"


class ClaudeRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    """Claude Code. `config` is the engine's table (see docs/reference/configuration.md)."""

    engine = EngineId("claude")
    name = "Claude Code"
    resume_re = re.compile(r"(?im)^[ \t]*`?claude[ \t]+(?:--resume|-r)(?:[ \t]+|=)(?P<token>[^`\s]+)`?[ \t]*$")
    resume_line = "`claude --resume {}`"
    install_cmd = spawn.INSTALL
    min_version = spawn.MIN_VERSION

    def __init__(self, config: EngineConfig, folder: Path | None = None) -> None:
        """`folder` is where files for the CLI may be kept, such as the table of its MCP servers."""
        self._config = dict(config)
        self._folder = folder or Path.cwd()
        self.help_text = ""  # of the CLI, once it was checked
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
    def stop_ladder(self) -> Sequence[Rung]:  # type: ignore[override]  # as the version has it
        return spawn.ladder(self.cli_version)

    async def check(self, environ: Mapping[str, str]) -> Refusal | None:
        """Whether the CLI is there and new enough. Its help is read as well, once, for the flags that it offers."""
        refusal = await super().check(environ)
        if refusal is None and self.min_version:
            self.help_text = await self._guard.told(self.command(), ("--help",), environ)
        return refusal

    @property
    def env_names(self) -> Names:
        return CLAUDE_NAMES

    def format_resume(self, token: ResumeToken) -> str:
        if token.engine != self.engine:
            raise RuntimeError(f"a session of {token.engine!r} has no resume line of {self.engine!r}")
        return self.resume_line.format(token.value)

    # ----------------------------------------------------------------------------------------- for the conversation

    def start_settings(self, options: RunOptions) -> dict[str, Any]:
        chosen = {name: self._config[name] for name in (*_FROM_CONFIG, *NAMES) if self._config.get(name)}
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
        more = mcp_flags(self._config.get("mcp_config"), self._folder)
        if _HOOK_EVENTS in self.help_text and start.settings.get("interactive") is not False:
            more.append(_HOOK_EVENTS)
        args = spawn.arguments(start.settings, start.resume, continue_latest=start.continue_latest, more=more)
        env = spawn.environment(environ, own, start.settings, use_api_billing=billing)
        return Launch((*self.program(), *args), start.cwd, env)

    def session(self, start: StartFacts) -> EngineSession:
        return ClaudeSession(self.engine, self.name)

    def dialect(self) -> Dialect:
        return ClaudeDialect(self.engine)

    async def handshake(self, environ: Mapping[str, str]) -> str:
        """Start the CLI in control mode and greet it; no model is called."""
        return (await greet(self, environ)).failure

    async def drift(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What the installed release has that is not known here, or has no more, a line each."""
        surface = await look(self, environ) if self.min_version else Surface()
        return (surface.failure,) if surface.failure else compare(surface)

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
