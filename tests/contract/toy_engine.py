"""A toy engine, written as a plugin author would: template methods only.

Its lines: ``session`` (id, model), ``moved`` (id), ``tool`` (id, name, input), ``tool_end`` (id, ok), ``text`` (text),
``result`` (text, error).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from untether.backends import EngineBackend, EngineConfig
from untether.events import EventFactory
from untether.model import ActionKind, EngineId, ResumeToken, UntetherEvent
from untether.runner import JsonlSubprocessRunner, ResumeTokenMixin, Runner, run_options
from untether.runners.tool_actions import action_detail, tool_kind_and_title

AGENT = Path(__file__).with_name("toy_agent.py")


@dataclass
class ToyState:
    events: EventFactory
    last_text: str = ""
    tools: dict[str, tuple[ActionKind, str]] = field(default_factory=dict)


class ToyRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    engine = EngineId("toy")
    resume_re = re.compile(r"(?im)^\s*`?toy\s+resume\s+(?P<token>[^\s`]+)`?\s*$")

    def __init__(self, program: str = sys.executable) -> None:
        self.program = program

    def command(self) -> str:
        return self.program

    def build_args(self, prompt: str, resume: ResumeToken | None, *, state: ToyState) -> list[str]:
        args = [str(AGENT)]
        if resume is not None:
            args += ["--resume", resume.value]
        if model := run_options().model:
            args += ["--model", model]
        return args

    def new_state(self, prompt: str, resume: ResumeToken | None) -> ToyState:
        return ToyState(EventFactory(self.engine))

    def translate(
        self,
        data: Mapping[str, Any],
        *,
        state: ToyState,
        resume: ResumeToken | None,
        found_session: ResumeToken | None,
    ) -> list[UntetherEvent]:
        events = state.events
        match data["type"]:
            case "session":
                meta = {"model": data["model"]} if "model" in data else None
                return [events.started(ResumeToken(self.engine, data["id"]), title="Toy", meta=meta)]
            case "moved":
                return [events.session_changed(ResumeToken(self.engine, data["id"]), "reset")]
            case "tool":
                kind, title = state.tools[data["id"]] = tool_kind_and_title(data["name"], data["input"])
                detail = action_detail(data["name"], data["input"])
                return [events.action_started(data["id"], kind, title, detail)]
            case "tool_end":
                return [events.action_completed(data["id"], *state.tools[data["id"]], ok=data["ok"])]
            case "text":
                state.last_text = data["text"]
            case "result" if "error" in data:
                return [events.completed_error(data["error"])]
            case "result":
                return [events.completed_ok(data.get("text", state.last_text), usage={"turns": 1})]
        return []


def build_runner(config: EngineConfig, config_path: Path) -> Runner:
    return ToyRunner(config.get("command", sys.executable))


BACKEND = EngineBackend(id="toy", build_runner=build_runner, cli_cmd="toy", install_cmd="pip install toy")
