"""The Codex runner: makes sessions and says how their processes are started, in the form that the settings choose."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from ...backends import EngineConfig
from ...process.direct import DirectProcess
from ...process.environment import PROCESS_VARIABLE, Names, agent_environment
from ...process.host import Launch, SpawnFailed
from ...process.recording import Dialect
from ...runner import RunOptions
from ...session import EngineSession, Place, Prompt, StartFacts
from . import spawn
from .drift import compare, look
from .exec import ExecRunner
from .policies import APP_SERVER, EXEC
from .recording import CodexDialect
from .session import CodexSession

_HANDSHAKE_S = 20.0
_EXEC = "exec"


class CodexRunner(ExecRunner):
    """Codex: through its app-server, or with `mode = "exec"` one-shot.

    The form is among the start settings of a process, so that one that was started in the other is recovered as what
    it is. `run`, which has no chat to ask in, uses the one-shot form always.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.interactive = self._config.get("mode") != _EXEC
        self.capabilities = APP_SERVER if self.interactive else EXEC

    @property
    def env_names(self) -> Names:
        return spawn.ENV_NAMES

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        if environ.get(PROCESS_VARIABLE) != start.process_id:
            environ = agent_environment(environ, engine_names=self.env_names, process_id=start.process_id)
        own = self.own_env()
        program, *tools = spawn.native_program(self.command(), own.get("PATH") or environ.get("PATH", os.defpath))
        env = spawn.environment(environ, own, tools)
        if start.settings.get("mode") == _EXEC:
            launch = super().launch(start, prompt, environ=environ)
            return Launch((program, *launch.argv[1:]), launch.cwd, {**launch.env, **env}, launch.stdin)
        return Launch((program, *spawn.app_server(start.settings)), start.cwd, env)

    def session(self, start: StartFacts) -> EngineSession:
        return super().session(start) if start.settings.get("mode") == _EXEC else CodexSession(self.engine)

    def dialect(self) -> Dialect:
        return CodexDialect(self.engine)

    async def drift(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What the installed release has that is not known here, or has no more, a line each."""
        program = spawn.native_program(self.command(), environ.get("PATH", os.defpath))[0]
        return compare(await look(program, environ))

    async def handshake(self, environ: Mapping[str, str]) -> str:
        """Start the app-server and greet it; no model is called."""
        if not self.interactive:
            return ""
        id = uuid.uuid4().hex
        with TemporaryDirectory(prefix="untether-") as folder:
            start = StartFacts(id, self.engine, folder, settings=self.start_settings(RunOptions()))
            prompt = Prompt(id, "")
            launch = self.launch(start, prompt, environ=environ)
            greeting = self.session(start).begin(start, prompt, 0.0).writes[0]
            try:
                async with DirectProcess.spawned(launch, clock=self.clock) as process:
                    process.write(Place(0, 0), greeting)
                    with anyio.move_on_after(_HANDSHAKE_S):
                        async for batch in process.batches():
                            if any(_is_greeting(line.data) for line in batch):
                                return ""
                        exit = await process.wait()
                        return exit.stderr_tail.strip() or "it ended without an answer"
                    return f"it did not answer within {_HANDSHAKE_S:.0f} s"
            except SpawnFailed as failure:
                return failure.reason


def build_runner(config: EngineConfig) -> CodexRunner:
    """Raises ValueError when the table is wrong."""
    spawn.check_extra_args([str(word) for word in config.get("extra_args") or ()])
    return CodexRunner(config)


def _is_greeting(line: bytes) -> bool:
    try:
        frame: Any = json.loads(line)
    except ValueError:
        return False
    return isinstance(frame, dict) and "result" in frame and frame.get("id") == 1
