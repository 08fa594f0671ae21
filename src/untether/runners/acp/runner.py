"""The runner of one ACP agent: how its process is started and stopped, and sessions for it."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import structlog

from ...model import EngineId, ResumeToken, UntetherEvent
from ...process.direct import DirectProcess
from ...process.driver import read_file
from ...process.environment import PROCESS_VARIABLE, Names, agent_environment
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
from ...schemas import acp, jsonrpc
from ...session import EngineSession, Place, Prompt, StartFacts, Step
from . import outcomes
from .capabilities import capabilities_of
from .opening import greeting
from .recording import AcpDialect
from .session import AcpSession
from .settings import Table

log = structlog.get_logger(__name__)

_HANDSHAKE_S = 30.0

# At the end of its input an agent ends by itself and takes its commands along; a signal orphans them in OpenCode, and
# SIGINT in most (recordings opencode_end_eof, opencode_end_sigterm). codex-acp 0.16 does not end, so signals follow.
LADDER = (Rung("close_stdin", 4.0), Rung("SIGTERM", 2.0), Rung("SIGKILL", 2.0))


class AcpRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    """One agent. `table` is its table in the settings."""

    interactive = True
    stop_ladder: Sequence[Rung] = LADDER

    def __init__(self, id: str, table: Table) -> None:
        self.engine = EngineId(id)
        self._table = table
        self.name = table.title
        self.capabilities = capabilities_of(table.known)
        self.install_cmd = table.known.install
        engine = re.escape(id)
        self.resume_re = re.compile(
            rf"(?im)^[ \t]*`?{engine}[ \t]+(?:--resume|-r)(?:[ \t]+|=)(?P<token>[^`\s]+)`?[ \t]*$"
        )

    # -------------------------------------------------------------------------------------------------- the program

    def command(self) -> str:
        return self._table.command[0]

    def tag(self) -> str:
        return self.name

    @property
    def env_names(self) -> Names:
        """Those of an agent that is known, and all that begin with the name of the program."""
        known = self._table.known.names
        word = re.sub(r"[^A-Z0-9]+", "_", PurePath(self.command()).name.upper()).strip("_")
        prefixes = (f"{word}_",) if word else ()
        return Names(known.exact, (*known.prefixes, *prefixes), known.never)

    def format_resume(self, token: ResumeToken) -> str:
        """`ID --resume SESSION` names engine and session; it is for this chat, not for a terminal."""
        if token.engine != self.engine:
            raise RuntimeError(f"a session of {token.engine!r} has no resume line of {self.engine!r}")
        return f"`{self.engine} --resume {token.value}`"

    # ----------------------------------------------------------------------------------------- for the conversation

    def start_settings(self, options: RunOptions) -> dict[str, Any]:
        table = self._table
        chosen = {"agent": table.agent, "mode": table.mode, "model": table.model, "auth": table.auth}
        return {**{name: value for name, value in chosen.items() if value}, **options.settings()}

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        if environ.get(PROCESS_VARIABLE) != start.process_id:
            environ = agent_environment(environ, engine_names=self.env_names, process_id=start.process_id)
        return Launch(self._table.command, start.cwd, {**environ, **self._table.env})

    def session(self, start: StartFacts) -> EngineSession:
        return AcpSession(self.engine, self.name)

    def dialect(self) -> Dialect:
        return AcpDialect(self.engine)

    async def handshake(self, environ: Mapping[str, str]) -> str:
        """Start the agent and greet it; no session is begun."""
        id = uuid.uuid4().hex
        with TemporaryDirectory(prefix="untether-") as folder:
            launch = self.launch(StartFacts(id, self.engine, folder), Prompt(id, ""), environ=environ)
            try:
                async with DirectProcess.spawned(launch, clock=self.clock, ladder=LADDER) as process:
                    process.write(Place(0, 0), jsonrpc.request(1, "initialize", greeting()))
                    with anyio.move_on_after(_HANDSHAKE_S):
                        async for batch in process.batches():
                            for line in batch:
                                if (problem := _greeted(line.data, self.name)) is not None:
                                    return problem
                        exit = await process.wait()
                        return exit.stderr_tail.strip() or "it ended without an answer"
                    return f"it did not answer within {_HANDSHAKE_S:.0f} s"
            except SpawnFailed as failure:
                return failure.reason

    # -------------------------------------------------------------------------------------------------------- a run

    async def run_impl(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[UntetherEvent]:
        """One run without a chat: nobody is there who could be asked. Consume and close it in one task."""
        settings = {**self.start_settings(run_options()), "attended": False}
        folder = run_folder() or str(Path.cwd())
        start = StartFacts(uuid.uuid4().hex, self.engine, folder, resume=resume, settings=settings)
        message = Prompt(str(uuid.uuid4()), clean_text(prompt))
        launch = self.launch(start, message, environ=os.environ)
        if refusal := await self.check(launch.env):
            yield blocked_event(self.engine, refusal, resume)
            return
        held: dict[ResumeToken, anyio.Semaphore | None] = {resume: None} if resume else {}
        try:
            async with DirectProcess.spawned(launch, clock=self.clock, ladder=LADDER) as process:
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
        """Each step of the session, whose lines have left. After the first answer the agent is let go."""
        session = self.session(start)
        ordinal = 0

        async def perform(step: Step) -> None:
            nonlocal ordinal
            ordinal += 1
            for index, data in enumerate(step.writes):
                process.write(Place(0, ordinal, index), data)
            for call in step.calls:
                await perform(session.answer(call.call_id, await read_file(call), now))
            if step.stop or any(event.__struct_config__.tag == "completed" for event in step.events):
                await process.stop(LADDER)

        now = self.clock.now()
        step = session.begin(start, message, now)
        await perform(step)
        yield step
        async for batch in process.batches():
            for line in batch:
                now = max(now, line.time)
                step = session.skipped(line.skipped, now) if line.skipped else session.feed(line.data, now)
                await perform(step)
                yield step
        yield session.end(await process.wait(), max(now, self.clock.now()))


def _greeted(line: bytes, name: str) -> str | None:
    """What is wrong with the answer to the greeting, "" when nothing is; None when this line is no answer."""
    try:
        message = jsonrpc.decode(line)
    except jsonrpc.NotAMessage:
        return None
    match message:
        case jsonrpc.Failure():
            return outcomes.greeting_refused(message, name).error
        case jsonrpc.Result(result=result):
            version = result.get("protocolVersion") if isinstance(result, dict) else None
            return "" if version == acp.VERSION else outcomes.other_version(name, version).error
    return None
