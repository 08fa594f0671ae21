"""The Pi runner: makes sessions and says how their processes are started, in the form that the settings choose."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from ...backends import EngineConfig
from ...process.direct import DirectProcess
from ...process.environment import PROCESS_VARIABLE, SESSION_VARIABLE, Names, agent_environment
from ...process.guard import Refusal
from ...process.host import Launch, SpawnFailed
from ...process.recording import Dialect
from ...runner import RunOptions
from ...session import EngineSession, Place, Prompt, StartFacts
from . import spawn
from .asked import GATE_COMMAND
from .policies import JSON, RPC
from .printed import PrintRunner
from .recording import PiDialect
from .session import PiSession

_HANDSHAKE_S = 20.0
_JSON = "json"


class PiRunner(PrintRunner):
    """Pi: through its RPC mode, or with `mode = "json"` one-shot.

    The form is among the start settings of a process, so that one that was started in the other is recovered as what
    it is. `run`, which has no chat to ask in, uses the one-shot form always.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.interactive = self._config.get("mode") != _JSON
        self.capabilities = RPC if self.interactive else JSON

    @property
    def env_names(self) -> Names:
        return spawn.ENV_NAMES

    async def check(self, environ: Mapping[str, str]) -> Refusal | None:
        """Whether the CLI is there and new enough, and the Node.js that it finds, too."""
        environ = {**environ, **self.own_env()}
        refusal = await super().check(environ)
        if refusal is None and not self.cli_version:  # with an old Node.js it does not even tell its version
            node = (await self._guard.probe("node", environ=environ)).version
            if node and _numbers(node) < _numbers(spawn.NODE):
                return Refusal(
                    "cli_unsupported",
                    f"Pi needs Node.js {spawn.NODE} or newer, and the one on the PATH is {node}.",
                    "Install a newer Node.js, or put it first on the PATH of [pi.env], then try again.",
                )
        return refusal

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        if start.settings.get("mode") == _JSON:
            return super().launch(start, prompt, environ=environ)
        if environ.get(PROCESS_VARIABLE) != start.process_id:
            environ = agent_environment(environ, engine_names=self.env_names, process_id=start.process_id)
        args = spawn.arguments(
            start.settings, start.resume, mode="rpc", new_id=start.process_id, latest=start.continue_latest
        )
        env = {**environ, **spawn.environment(start.settings), **self.own_env()}
        env |= {SESSION_VARIABLE: "1", PROCESS_VARIABLE: start.process_id}
        return Launch((self.command(), *args), start.cwd, env)

    def session(self, start: StartFacts) -> EngineSession:
        return super().session(start) if start.settings.get("mode") == _JSON else PiSession(self.engine)

    def dialect(self) -> Dialect:
        return PiDialect(self.engine)

    async def handshake(self, environ: Mapping[str, str]) -> str:
        """Start the RPC mode and see that it answers and has our extension; no model is called."""
        if not self.interactive:
            return ""
        id = uuid.uuid4().hex
        with TemporaryDirectory(prefix="untether-") as folder:
            settings = self.start_settings(RunOptions())
            extra = [*settings.get("extra_args", ()), "--no-session"]
            start = StartFacts(id, self.engine, folder, settings={**settings, "extra_args": extra})
            prompt = Prompt(id, "")
            launch = self.launch(start, prompt, environ=environ)
            launch = Launch(_without_session(launch.argv), launch.cwd, launch.env)
            session = self.session(start)
            greeting = session.begin(start, prompt, 0.0).writes
            try:
                async with DirectProcess.spawned(launch, clock=self.clock, ladder=spawn.LADDER) as process:
                    process.write(Place(0, 0), b"".join(greeting))
                    with anyio.move_on_after(_HANDSHAKE_S):
                        async for batch in process.batches():
                            for line in batch:
                                if (answer := _greeted(line.data)) is not None:
                                    return answer
                        exit = await process.wait()
                        return exit.stderr_tail.strip() or "it ended without an answer"
                    return f"it did not answer within {_HANDSHAKE_S:.0f} s"
            except SpawnFailed as failure:
                return failure.reason


def build_runner(config: EngineConfig, config_path: Path) -> PiRunner:
    """Raises ValueError when the table is wrong."""
    spawn.check_extra_args([str(word) for word in config.get("extra_args") or ()])
    return PiRunner(config)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _without_session(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without an id for a new session, which is not to be kept."""
    at = argv.index("--session-id")
    return (*argv[:at], *argv[at + 2 :])


def _greeted(line: bytes) -> str | None:
    """What is wrong, "" when the list of commands holds our extension, None when the line is no such list."""
    try:
        frame: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(frame, dict) or frame.get("command") != "get_commands":
        return None
    return "" if GATE_COMMAND in json.dumps(frame) else "it did not load the extension that asks before tools run"
