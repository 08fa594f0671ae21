"""An engine for tests whose turns end as they are told: with a cost, or a failure. Its agent is `cat`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.scripted import SCRIPTED, ScriptedRunner, ScriptedSession
from untether.backends import EngineBackend, Login
from untether.conversation.engines import Engine, Engines
from untether.model import CompletedEvent, PromptEvent, ResumeToken, StartedEvent, TurnEvent, UntetherEvent, Usage, Wait
from untether.process.host import Launch
from untether.session import Capabilities, EngineSession, Prompt, StartFacts, Step

QUOTA: dict[str, Any] = {"quota": True}
LOGGED_OUT: dict[str, Any] = {"login": True}


class Turn:
    """How a turn ends. `detail` is that of a failure; `taken` tells that the agent had taken the message."""

    def __init__(
        self,
        cost: float | None = None,
        *,
        detail: Mapping[str, Any] | None = None,
        taken: bool = True,
        holds: bool = False,
    ) -> None:
        self.cost, self.detail, self.taken, self.holds = cost, detail, taken, holds


class CostlySession(ScriptedSession):
    def __init__(self, runner: CostlyRunner) -> None:
        super().__init__(runner)
        self._costly = runner
        self._holds = False

    @property
    def waits(self) -> tuple[Wait, ...]:
        return (Wait("background", 0.0),) if self._holds else ()

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        token = start.resume or ResumeToken(SCRIPTED, start.process_id)
        return Step((StartedEvent(SCRIPTED, token), *self._end_of(prompt)))

    def say(self, prompt: Prompt, when: Any, now: float) -> Step:
        return Step((TurnEvent(SCRIPTED, "started", prompts=(prompt.id,)), *self._end_of(prompt)))

    def _end_of(self, prompt: Prompt) -> tuple[UntetherEvent, ...]:
        self._costly.said.append(prompt.text)
        turn = self._costly.turns.pop(0) if self._costly.turns else Turn()
        self._holds = turn.holds
        first, self._first = self._first, False
        ok, detail = turn.detail is None, dict(turn.detail or {})
        usage = Usage(input_tokens=1000, output_tokens=50, cost_usd=turn.cost) if turn.cost is not None else None
        said: dict[str, Any] = {
            "answer": f"Answer to {prompt.text}." if ok else "",
            "error": None if ok else "It did not work.",
            "usage": usage,
            "prompts": (prompt.id,),
            "detail": detail,
        }
        end: UntetherEvent = (
            CompletedEvent(SCRIPTED, ok, **said) if first else TurnEvent(SCRIPTED, "completed", ok, **said)
        )
        return (*((PromptEvent(SCRIPTED, prompt.id, "taken"),) if turn.taken else ()), end)


class CostlyRunner(ScriptedRunner):
    """`turns` are used up one after the other, then all succeed; `said` are the prompts that came."""

    def __init__(self, turns: Sequence[Turn], capabilities: Capabilities) -> None:
        super().__init__((), capabilities)
        self.turns = list(turns)
        self.said: list[str] = []
        self.login_program = "cat"

    def launch(self, start: StartFacts, prompt: Prompt, *, environ: Mapping[str, str]) -> Launch:
        if prompt.text:
            self.starts.append(start)
            return Launch(("cat",), start.cwd, dict(environ))
        return Launch((self.login_program,), start.cwd, dict(environ))

    def session(self, start: StartFacts) -> EngineSession:
        return CostlySession(self)


def costly(*turns: Turn, login: Login | None = None) -> tuple[Engines, CostlyRunner]:
    """Engines with the one of given turns alone, and its runner."""
    capabilities = Capabilities(followup=True, interrupt=True)
    runner = CostlyRunner(turns, capabilities)
    backend = EngineBackend("scripted", lambda config, path: runner, capabilities=capabilities, login=login)
    return Engines({"scripted": Engine("scripted", backend, runner, "built in")}, "scripted"), runner
