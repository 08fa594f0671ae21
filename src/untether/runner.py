"""Runners: how an engine's CLI is started, fed and understood. The base class for engines that print JSON lines.

An engine is a subclass of `JsonlSubprocessRunner` (with `ResumeTokenMixin`) that says by template methods which program
to start and what its lines mean. It then works in two ways, by one set of rules (`jsonl_stream`): as an async generator
of events, `run(prompt, resume)`, and as an engine session behind `launch` and `session`, which is how the conversation
runs every engine, so that it is journalled and recovered.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec
import structlog

from .clock import Clock, SystemClock
from .events import EventFactory
from .exit_text import exit_error, with_last_words
from .jsonl_session import JsonlSession, Prepared
from .jsonl_stream import JsonlStream, JsonlStreamState, returncode, shown_line
from .model import CompletedEvent, EngineId, ResumeToken, SessionChangedEvent, StartedEvent, UntetherEvent
from .process.direct import DirectProcess
from .process.environment import PROCESS_VARIABLE, SESSION_VARIABLE, Names, agent_environment
from .process.guard import Cli, Guard, Refusal, locate
from .process.host import Launch, Line, Rung, SpawnFailed
from .process.recording import Dialect, PlainDialect
from .runner_context import (
    RunOptions,
    RunStreamHandle,
    bind_run,
    publish_run_stream,
    run_folder,
    run_options,
)
from .runner_mixins import ResumeTokenMixin, SessionLockMixin, closing
from .session import Capabilities, EngineSession, Place, ProcessExit, Prompt, StartFacts

__all__ = [
    "PRESPAWN_BLOCKED_KEY",
    "BaseRunner",
    "JsonlStreamState",
    "JsonlSubprocessRunner",
    "ResumeTokenMixin",
    "RunOptions",
    "RunStreamHandle",
    "Runner",
    "SessionLockMixin",
    "bind_run",
    "blocked_event",
    "publish_run_stream",
    "run_folder",
    "run_options",
]

log = structlog.get_logger(__name__)

PRESPAWN_BLOCKED_KEY = "prespawn_blocked"
"""Key of a completed event's usage: nothing was spawned, for the reason that is its value. The session is kept."""

_MOST_PREPARED = 64


class Runner(Protocol):
    """What the conversation uses of an engine. One runner serves all chats; what belongs to a run is in its session."""

    @property
    def engine(self) -> EngineId: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def interactive(self) -> bool:
        """Whether the agent can ask a person while it works, as it is configured."""
        ...

    @property
    def env_names(self) -> Names:
        """The engine's own variables, which pass to its agent besides the common ones."""
        ...

    @property
    def stop_ladder(self) -> Sequence[Rung]:
        """How its agent is stopped."""
        ...

    @property
    def cli_version(self) -> str:
        """The version that the last `check` found; empty when it is not known."""
        ...

    def run(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[UntetherEvent]:
        """The events of one run, without journal and recovery. Consume and close it in one task."""
        ...

    def lock_for(self, token: ResumeToken) -> anyio.Semaphore:
        """The lock of a session: one process writes it at a time."""
        ...

    def format_resume(self, token: ResumeToken) -> str: ...
    def extract_resume(self, text: str | None) -> ResumeToken | None: ...
    def is_resume_line(self, line: str) -> bool: ...

    async def check(self, environ: Mapping[str, str]) -> Refusal | None:
        """The guard in front of every spawn."""
        ...

    async def handshake(self, environ: Mapping[str, str]) -> str:
        """Start the CLI for a moment and greet it, as `untether doctor` does: what is wrong, or "" when it answers."""
        ...

    async def drift(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What the installed CLI has that this version of Untether does not know, a line each."""
        ...

    def start_settings(self, options: RunOptions) -> dict[str, Any]:
        """What `StartFacts.settings` holds for a run with these options: JSON values, everything the session needs."""
        ...

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        """How to start the agent. `environ` is what `agent_environment` made for this process.

        Any other, such as the bridge's own, is passed through `agent_environment` first.
        """
        ...

    def session(self, start: StartFacts) -> EngineSession:
        """A session of its own for one process; it begins with the same facts."""
        ...

    def dialect(self) -> Dialect:
        """How one recording of this engine is read by `untether replay`."""
        ...


class BaseRunner(SessionLockMixin):
    """A runner that yields events from `run_impl`, one run a session at a time."""

    engine: EngineId

    def run(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[UntetherEvent]:
        """The events of one run, in the order of the run contract (`untether.model`).

        :raises RuntimeError: when `resume` is another engine's, or the agent answers in another session
        """
        return self.run_with_resume_lock(prompt, resume, self.run_impl)

    def run_impl(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[UntetherEvent]:
        """One run, the lock of `resume` being held. An async generator."""
        raise NotImplementedError


class JsonlSubprocessRunner(BaseRunner):
    """An engine whose CLI takes one prompt and prints JSON lines.

    To write: `command`, `build_args`, `new_state` and `translate`. The other hooks have defaults.
    """

    capabilities: Capabilities = Capabilities()
    interactive: bool = False

    followup_turns: bool = False
    """True when the agent goes on after its first result: later results are turns. Else later lines are dropped."""

    linger_s: float = 60.0
    """Seconds that the agent has to end after its answer, before it is stopped."""

    stop_ladder: Sequence[Rung] = (Rung("SIGINT", 3.0), Rung("SIGTERM", 2.0), Rung("SIGKILL", 2.0))
    """How the agent is stopped; its stdin was closed behind the prompt already."""

    install_cmd: str = ""
    min_version: str = ""
    """How to get the CLI, and the oldest version that works; only with the latter it is asked for its version."""

    cli_version: str = ""

    current_stream: JsonlStreamState | None = None
    last_pid: int | None = None
    """The latest spawn in any chat, for diagnosis only. A run's own are in the `RunStreamHandle` bound to it."""

    clock: Clock = SystemClock()

    # ------------------------------------------------------------------------------------------ template methods

    def command(self) -> str:
        """The CLI's program, such as "codex"."""
        raise NotImplementedError

    def build_args(self, prompt: str, resume: ResumeToken | None, *, state: Any) -> list[str]:
        """The CLI's arguments. Called once per run; the run's options are in `run_options()`."""
        raise NotImplementedError

    def new_state(self, prompt: str, resume: ResumeToken | None) -> Any:
        """The state of one run: an event factory, and what is gathered on the way."""
        raise NotImplementedError

    def translate(
        self, data: Any, *, state: Any, resume: ResumeToken | None, found_session: ResumeToken | None
    ) -> list[UntetherEvent]:
        """What a decoded line means. `resume` was asked for, `found_session` was seen so far."""
        raise NotImplementedError

    def stdin_payload(self, prompt: str, resume: ResumeToken | None, *, state: Any) -> bytes | None:
        """What is written to stdin before it is closed; None for no stdin. By default the prompt."""
        return prompt.encode()

    def env(self, *, state: Any) -> dict[str, str] | None:
        """Variables to add to the agent's environment."""
        return None

    def decode_jsonl(self, *, line: bytes) -> Any | None:
        """The decoded line, or None when it is not JSON; what it raises is told as a decode error."""
        try:
            data = json.loads(line.decode("utf-8", "replace"))
        except json.JSONDecodeError:
            return None
        return data if isinstance(data, dict) else None

    # ---------------------------------------------------------------------------------------------- *_events hooks

    def invalid_json_events(self, *, raw: str, line: str, state: Any) -> list[UntetherEvent]:
        """A line that is not JSON; `raw` is what was printed, `line` the same cleaned."""
        return [self.note_event(f"{self.tag()} printed a line that is not JSON; ignored", {"line": shown_line(line)})]

    def decode_error_events(self, *, raw: str, line: str, error: Exception, state: Any) -> list[UntetherEvent]:
        """A line for which `decode_jsonl` raised."""
        detail = {"line": shown_line(line), "error": str(error)}
        return [self.note_event(f"{self.tag()} printed a line that is not understood; ignored", detail)]

    def translate_error_events(self, *, data: Any, error: Exception, state: Any) -> list[UntetherEvent]:
        """A line for which `translate` raised."""
        detail: dict[str, Any] = {"error": str(error)}
        if isinstance(data, dict) and isinstance(data.get("type"), str):
            detail["type"] = data["type"]
        return [self.note_event(f"A line from {self.tag()} could not be translated; ignored", detail)]

    def process_error_events(
        self, rc: int, *, resume: ResumeToken | None, found_session: ResumeToken | None, state: Any
    ) -> list[UntetherEvent]:
        """The agent ended with exit code `rc`, or by the signal -`rc`, without a completed event."""
        session = found_session or resume
        error = exit_error(self.tag(), _exit_of(rc), session=session, resumed=resume is not None)
        advice = f"Try again. If it fails the same way, run `{self.command()}` in a terminal there to see why."
        return [EventFactory(self.engine).completed_error(error, session, advice=advice)]

    def stream_end_events(
        self, *, resume: ResumeToken | None, found_session: ResumeToken | None, state: Any
    ) -> list[UntetherEvent]:
        """The agent ended well, or was stopped, without a completed event."""
        error = f"{self.tag()} ended without an answer."
        return [EventFactory(self.engine).completed_error(error, found_session or resume, advice="Try again.")]

    def exit_events(
        self, exit: ProcessExit, *, resume: ResumeToken | None, found_session: ResumeToken | None, state: Any
    ) -> list[UntetherEvent]:
        """The agent ended without a completed event: one of the two hooks above, with its last words added.

        Override it only to read `exit` yourself (stderr, a stop that we asked for).
        """
        rc = returncode(exit)
        if exit.stopped or not rc:
            return self.stream_end_events(resume=resume, found_session=found_session, state=state)
        events = self.process_error_events(rc, resume=resume, found_session=found_session, state=state)
        return [_with_last_words(event, exit) for event in events or ()]

    def pipes_error_message(self) -> str:
        """The sentence for an agent that the system did not start for want of pipes, processes or memory."""
        return f"{self.tag()} could not be started by the system."

    # ---------------------------------------------------------------------------------------- help for subclasses

    def tag(self) -> str:
        """The engine's name in messages."""
        return str(self.engine)

    def note_event(
        self, message: str, detail: Mapping[str, Any] | None = None, *, state: Any = None, ok: bool = False
    ) -> UntetherEvent:
        """A warning that does not end the run. Its id is given by the stream."""
        return EventFactory(self.engine).action("completed", "", "warning", message, detail, ok=ok, message=message)

    @property
    def env_names(self) -> Names:
        """The engine's own variables, which pass to the agent besides the common ones: `ENGINE_…`."""
        return Names(prefixes=(f"{self.engine.upper()}_",))

    # ----------------------------------------------------------------------------------------- for the conversation

    async def check(self, environ: Mapping[str, str]) -> Refusal | None:
        """Whether the CLI is there and new enough."""
        cli = Cli(self.tag(), self.command(), self.install_cmd, self.min_version)
        if self.min_version:
            self.cli_version = (await self._guard.probe(cli.command, environ=environ)).version
            return await self._guard.check(cli, environ)
        path, error = locate(cli.command, environ)  # a CLI of which no version is asked need not know --version
        if path:
            return None
        install = f"Install it with `{cli.install}`" if cli.install else "Install it"
        advice = f"{install}, or correct the command in the settings, then try again."
        return Refusal("cli_missing", f"{cli.name} was not found: {error}.", advice)

    async def handshake(self, environ: Mapping[str, str]) -> str:
        """A CLI that takes its prompt and works cannot be greeted without giving it work."""
        return ""

    async def drift(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Nothing is known of a CLI in general."""
        return ()

    def start_settings(self, options: RunOptions) -> dict[str, Any]:
        return options.settings()

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        prepared = self._prepare(prompt_text(prompt), start.resume, RunOptions.of(start.settings), start.cwd)
        while len(self._prepared) >= _MOST_PREPARED:  # launched and never begun: the spawn failed
            del self._prepared[next(iter(self._prepared))]
        self._prepared[start.process_id] = prepared
        return self._launch(prepared, start.cwd, environ, start.process_id)

    def session(self, start: StartFacts) -> EngineSession:
        return JsonlSession(self)

    def dialect(self) -> Dialect:
        return PlainDialect(self.engine)

    def take_prepared(self, start: StartFacts, prompt: Prompt) -> Prepared:
        """What `launch` prepared for this process, so that each template method is called once; or the same anew."""
        prepared = self._prepared.pop(start.process_id, None)
        if prepared is None:
            prepared = self._prepare(prompt_text(prompt), start.resume, RunOptions.of(start.settings), start.cwd)
        return prepared

    # -------------------------------------------------------------------------------------------------------- a run

    async def run_impl(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[UntetherEvent]:
        """One run as a child of this process: the lifecycle in its nine steps.

        Consume and close it in one task, since it holds its agent in a task group.

        :raises RuntimeError: when the agent answers in another session than `resume`
        """
        folder = run_folder() or str(Path.cwd())
        prepared = self._prepare(clean_text(prompt), resume, run_options(), folder)  # 1, 2 and 3
        launch = self._launch(prepared, folder, os.environ, uuid.uuid4().hex)
        if refusal := await self.check(launch.env):
            yield blocked_event(self.engine, refusal, resume)
            return
        run = JsonlStream(self, prepared.state, resume)
        # The lock of a resumed session is held by `run`; one that becomes known is taken before it is told.
        held: dict[ResumeToken, anyio.Semaphore | None] = {resume: None} if resume else {}
        try:
            async with AsyncExitStack() as stack:
                spawned = DirectProcess.spawned(launch, clock=self.clock, ladder=self.stop_ladder)  # 4
                try:
                    process = await stack.enter_async_context(spawned)
                except SpawnFailed as failure:
                    yield blocked_event(self.engine, self._not_spawned(failure), resume)
                    return
                self.current_stream, self.last_pid = run.stream, process.pid
                publish_run_stream(run.stream, process.pid)
                try:
                    async with closing(self._events(process, prepared.payload, run)) as events:
                        async for event in events:
                            await self._hold(event, held)
                            yield event
                except GeneratorExit:
                    log.debug("runner.closed", engine=self.engine)  # told to the task group, it would become a group
        finally:
            for lock in held.values():
                if lock is not None:
                    lock.release()

    async def _events(
        self, process: DirectProcess, payload: bytes | None, run: JsonlStream
    ) -> AsyncIterator[UntetherEvent]:
        """Steps 5 to 9 of a run; the process drains its stderr meanwhile (6). A lingering agent is stopped."""
        run.begin(self.clock.now())
        if payload is not None:  # 5
            if payload:
                process.write(Place(0, 0), payload)
            await process.close_stdin()
        batches = aiter(process.batches())
        deadline = float("inf")
        while True:  # 7
            batch: Sequence[Line] | None = None
            with anyio.CancelScope(deadline=deadline) as scope:  # left again before anything is yielded
                batch = await anext(batches, None)
            if scope.cancelled_caught:
                log.info("runner.lingering_agent_stopped", engine=self.engine, seconds=self.linger_s)
                await process.stop(self.stop_ladder)
            if batch is None:
                break
            for line in batch:
                skipped, now = line.skipped, line.time
                for event in run.skipped(skipped, now) if skipped else run.line(line.data, now):
                    yield event
            if run.finished:
                deadline = min(deadline, anyio.current_time() + self.linger_s)
        exit = await process.wait()  # 8
        for event in run.end(exit, self.clock.now()):  # 9
            yield event

    async def _hold(self, event: UntetherEvent, held: dict[ResumeToken, anyio.Semaphore | None]) -> None:
        """Take the lock of a session that became known, before the event that tells it is handed on."""
        if isinstance(event, StartedEvent | SessionChangedEvent) and event.resume not in held:
            lock = self.lock_for(event.resume)
            await lock.acquire()
            held[event.resume] = lock

    def _prepare(self, prompt: str, resume: ResumeToken | None, options: RunOptions, folder: str) -> Prepared:
        with bind_run(options=options, folder=folder):
            state = self.new_state(prompt, resume)
            args = self.build_args(prompt, resume, state=state)
            payload = self.stdin_payload(prompt, resume, state=state)
            return Prepared(state, (self.command(), *args), payload, self.env(state=state) or {})

    def _launch(self, prepared: Prepared, folder: str, environ: Mapping[str, str], process_id: str) -> Launch:
        if environ.get(PROCESS_VARIABLE) != process_id:  # the bridge's own environment
            environ = agent_environment(environ, engine_names=self.env_names, process_id=process_id)
        env = {**environ, **prepared.env, SESSION_VARIABLE: "1", PROCESS_VARIABLE: process_id}
        return Launch(prepared.argv, folder, env, stdin=prepared.payload is not None)

    def _not_spawned(self, failure: SpawnFailed) -> Refusal:
        message = self.pipes_error_message() if failure.kind == "other" else failure.reason
        return Refusal(f"spawn_{failure.kind}", message, failure.reason if failure.kind == "other" else "")

    @cached_property
    def _guard(self) -> Guard:
        return Guard()

    @cached_property
    def _prepared(self) -> dict[str, Prepared]:
        """By process id, from `launch` to the session's `begin`."""
        return {}


def blocked_event(engine: EngineId, refusal: Refusal, resume: ResumeToken | None) -> CompletedEvent:
    """The end of a run for which nothing was spawned; the session that was to be continued stays."""
    return EventFactory(engine).completed_error(
        refusal.message,
        resume,
        usage={PRESPAWN_BLOCKED_KEY: refusal.reason},
        outcome="blocked",
        advice=refusal.advice,
    )


def clean_text(text: str) -> str:
    """`text` without what neither an argument nor UTF-8 can carry: NUL characters and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def prompt_text(prompt: Prompt) -> str:
    """A prompt as one text; files are named behind it."""
    names = [f"- {file.path} ({file.name})" for file in prompt.attachments]
    text = clean_text(prompt.text)
    return "\n".join([text, "", "Attached files:", *names]) if names else text


def _exit_of(rc: int) -> ProcessExit:
    if rc >= 0:
        return ProcessExit(code=rc)
    try:
        return ProcessExit(signal=signal.Signals(-rc).name)
    except ValueError:
        return ProcessExit(signal=f"signal {-rc}")


def _with_last_words(event: UntetherEvent, exit: ProcessExit) -> UntetherEvent:
    if not isinstance(event, CompletedEvent) or event.ok or event.raw_error:
        return event
    return msgspec.structs.replace(event, error=with_last_words(event.error or "", exit.stderr_tail))
