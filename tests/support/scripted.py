"""An engine for tests whose requests are given. Its agent is `cat`; its session opens them and notes the decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from untether.backends import EngineBackend
from untether.conversation.engines import Engine, Engines
from untether.model import (
    CompletedEvent,
    Decision,
    EngineId,
    Interaction,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
    Wait,
)
from untether.process.guard import Refusal
from untether.process.host import Launch
from untether.runners.demo.runner import DemoRunner
from untether.session import (
    CallResult,
    Capabilities,
    EngineSession,
    ProcessExit,
    Prompt,
    SessionChange,
    StartFacts,
    Step,
)

SCRIPTED = EngineId("scripted")
_TOKEN = ResumeToken(SCRIPTED, "s1")


class ScriptedSession:
    """Opens the requests of its runner at each prompt; the turn ends when all are closed."""

    unknown: Mapping[str, int] = {}

    def __init__(self, runner: ScriptedRunner) -> None:
        self._runner = runner
        self.capabilities = runner.capabilities
        self._open: dict[str, Interaction] = {}
        self._prompt = ""
        self._first = True
        self._count = 0

    @property
    def waits(self) -> tuple[Wait, ...]:
        return tuple(Wait("human", 0.0, id=id) for id in self._open)

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        return Step((StartedEvent(SCRIPTED, _TOKEN), *self._turn(prompt)), writes=(b"begin\n",))

    def say(self, prompt: Prompt, when: Any, now: float) -> Step:
        return Step((TurnEvent(SCRIPTED, "started", prompts=(prompt.id,)), *self._turn(prompt)), writes=(b"say\n",))

    def _turn(self, prompt: Prompt) -> tuple[UntetherEvent, ...]:
        self._prompt = prompt.id
        self._count += 1
        asked = [msgspec.structs.replace(one, id=f"{one.id}-{self._count}") for one in self._runner.asks]
        self._open = {one.id: one for one in asked}
        opened = [InteractionEvent(SCRIPTED, one, "opened") for one in asked]
        taken = PromptEvent(SCRIPTED, prompt.id, "taken")
        return (taken, *opened, *(() if asked else self._ended()))

    def _ended(self) -> tuple[UntetherEvent, ...]:
        first, self._first = self._first, False
        if first:
            return (CompletedEvent(SCRIPTED, True, "All decided.", _TOKEN, prompts=(self._prompt,)),)
        return (TurnEvent(SCRIPTED, "completed", True, "All decided.", prompts=(self._prompt,)),)

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        asked = self._open.pop(interaction_id, None)
        if asked is None:
            return Step()
        self._runner.decisions.append(decision)
        resolved = InteractionEvent(SCRIPTED, asked, "resolved")
        return Step((resolved, *(() if self._open else self._ended())), writes=(b"decided\n",))

    def withdraw(self) -> tuple[UntetherEvent, ...]:
        gone = tuple(InteractionEvent(SCRIPTED, one, "withdrawn") for one in self._open.values())
        self._open.clear()
        return gone

    def configure(self, change: SessionChange, now: float) -> Step:
        self._runner.changes.append(change)
        return Step(writes=(b"configured\n",))

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        return Step((*self.withdraw(), *self._ended()))

    def feed(self, line: bytes, now: float) -> Step:
        return Step()

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        return Step()

    def tick(self, now: float) -> Step:
        return Step()

    def skipped(self, length: int, now: float) -> Step:
        return Step()

    def end(self, exit: ProcessExit, now: float) -> Step:
        return Step((*self.withdraw(), *(self._ended() if self._first else ())))


class ScriptedRunner(DemoRunner):
    """`asks` are opened at every prompt; `decisions`, `changes` and `starts` tell what came."""

    engine = SCRIPTED

    def __init__(self, asks: Sequence[Interaction], capabilities: Capabilities) -> None:
        super().__init__({})
        self.asks = list(asks)
        self.capabilities = capabilities
        self.decisions: list[Decision] = []
        self.changes: list[SessionChange] = []
        self.starts: list[StartFacts] = []

    async def check(self, environ: Mapping[str, str]) -> Refusal | None:
        return None

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        self.starts.append(start)
        return Launch(("cat",), start.cwd, dict(environ))

    def session(self, start: StartFacts) -> EngineSession:
        return ScriptedSession(self)


def scripted(*asks: Interaction, plan: bool = True) -> tuple[Engines, ScriptedRunner]:
    """Engines with the scripted one alone, and its runner."""
    capabilities = Capabilities(interactive_permissions=True, questions=True, plan=plan, followup=True, interrupt=True)
    runner = ScriptedRunner(asks, capabilities)
    backend = EngineBackend("scripted", lambda config, path: runner, capabilities=capabilities)
    return Engines({"scripted": Engine("scripted", backend, runner, "built in")}, "scripted"), runner
