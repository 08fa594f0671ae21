"""The engine session of every engine that is written as template methods: `JsonlSubprocessRunner` behind the protocol.

Such an engine takes one prompt, on stdin or as an argument, and ends by itself. So a session of it greets the agent
with the payload and closes stdin, cannot be asked anything meanwhile, and hands later messages back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .jsonl_stream import ForeignSession, JsonlHooks, JsonlStream
from .model import Decision, PromptEvent, UntetherEvent, Wait
from .session import CallResult, Capabilities, ProcessExit, Prompt, SessionChange, StartFacts, Step, When


class Prepared(NamedTuple):
    """What the template methods made for one run, before it is spawned.

    `payload` goes to stdin, which is then closed; None means that the agent gets no stdin. `env` is what the engine
    adds to its environment.
    """

    state: Any
    argv: tuple[str, ...]
    payload: bytes | None
    env: dict[str, str]


class JsonlEngine(JsonlHooks, Protocol):
    """What a session needs of its runner."""

    def take_prepared(self, start: StartFacts, prompt: Prompt) -> Prepared:
        """What was prepared for this process; prepared now when it was not (a replay)."""
        ...


class JsonlSession:
    """One agent process of a template-method engine; see `session.EngineSession`.

    After its answer the agent has `linger_s` seconds to end, then its stop is asked for: whatever it still prints is
    dropped, and the next message of its thread waits for its end.
    """

    def __init__(self, engine: JsonlEngine) -> None:
        self._engine = engine
        self._stream: JsonlStream | None = None
        self._deadline: float | None = None
        self._stopped = False
        self._ended = False

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def unknown(self) -> Mapping[str, int]:
        """What is not understood becomes a warning here, so there is nothing to count."""
        return {}

    @property
    def waits(self) -> tuple[Wait, ...]:
        return self._stream.waits if self._stream is not None and not self._ended else ()

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        prepared = self._engine.take_prepared(start, prompt)
        self._stream = JsonlStream(self._engine, prepared.state, start.resume, prompt_id=prompt.id)
        self._stream.begin(now)
        if prepared.payload is None:
            return self._step()
        return self._step(writes=(prepared.payload,) if prepared.payload else (), close_stdin=True)

    def feed(self, line: bytes, now: float) -> Step:
        stream = self._stream
        if stream is None or self._ended:
            return self._step()
        had_finished = stream.finished
        try:
            events = stream.line(line, now)
        except ForeignSession as error:
            return self._step(stream.fail(error, now), stop=True)
        if stream.finished and not had_finished:
            self._deadline = now + self._engine.linger_s
        return self._step(events)

    def skipped(self, length: int, now: float) -> Step:
        return self._step(self._stream.skipped(length, now) if self._stream is not None and not self._ended else ())

    def tick(self, now: float) -> Step:
        if self._ended or self._deadline is None or now < self._deadline:
            return self._step()
        self._deadline = None
        return self._step(stop=True)

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        if self._ended:
            return self._step()
        self._stopped = True
        return self._step(stop=True)

    def say(self, prompt: Prompt, when: When, now: float) -> Step:
        return self._step([PromptEvent(self._engine.engine, prompt.id, "handed_back")])

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        return self._step()

    def configure(self, change: SessionChange, now: float) -> Step:
        return self._step()

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        return self._step()

    def end(self, exit: ProcessExit, now: float) -> Step:
        if self._stream is None or self._ended:
            return self._step()
        self._ended = True
        self._deadline = None
        try:
            return self._step(self._stream.end(exit, now, stopped=self._stopped))
        except ForeignSession as error:  # by a hook for the end
            return self._step(self._stream.fail(error, now))

    def _step(
        self,
        events: tuple[UntetherEvent, ...] | list[UntetherEvent] = (),
        *,
        writes: tuple[bytes, ...] = (),
        close_stdin: bool = False,
        stop: bool = False,
    ) -> Step:
        return Step(tuple(events), writes, deadline=self._deadline, close_stdin=close_stdin, stop=stop)
