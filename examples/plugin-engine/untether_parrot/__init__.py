"""The engine `parrot`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from untether.api import (
    ActionKind,
    EngineBackend,
    EngineConfig,
    EngineId,
    EventFactory,
    JsonlSubprocessRunner,
    ResumeToken,
    ResumeTokenMixin,
    UntetherEvent,
    action_detail,
    tool_kind_and_title,
)


@dataclass
class State:
    """What one run gathers on the way."""

    events: EventFactory
    tools: dict[str, tuple[ActionKind, str]] = field(default_factory=dict)


class ParrotRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    engine = EngineId("parrot")
    resume_re = re.compile(r"(?im)^\s*`?parrot\s+resume\s+(?P<token>[^\s`]+)`?\s*$")

    def __init__(self, config: EngineConfig) -> None:
        self._program = str(config.get("command", "parrot"))

    def command(self) -> str:
        return self._program

    def build_args(self, prompt: str, resume: ResumeToken | None, *, state: State) -> list[str]:
        return ["--resume", resume.value] if resume else []

    def new_state(self, prompt: str, resume: ResumeToken | None) -> State:
        return State(EventFactory(self.engine))

    def translate(
        self, data: Any, *, state: State, resume: ResumeToken | None, found_session: ResumeToken | None
    ) -> list[UntetherEvent]:
        make = state.events
        match data.get("type"):
            case "session":
                return [make.started(ResumeToken(self.engine, data["id"]), title="Parrot")]
            case "tool":
                name, arguments = data["name"], data["input"]
                kind, title = state.tools[data["id"]] = tool_kind_and_title(name, arguments)
                return [make.action_started(data["id"], kind, title, action_detail(name, arguments))]
            case "tool_end":
                return [make.action_completed(data["id"], *state.tools[data["id"]], ok=data["ok"])]
            case "result" if "error" in data:
                return [make.completed_error(data["error"])]
            case "result":
                return [make.completed_ok(data["text"])]
        return []  # a line of a kind that is new to us


def build_runner(config: EngineConfig, config_path: Path) -> ParrotRunner:
    return ParrotRunner(config)


BACKEND = EngineBackend(
    id="parrot",
    title="Parrot",
    build_runner=build_runner,
    cli_cmd="parrot",
    install_cmd="pip install untether-parrot",
)
