"""Amp, deprecated, and not verified against the real program: written from its public description of stream-json.

It is started as `amp [threads continue ID] [--dangerously-allow-all] [--mode M] --stream-json --stream-json-input -x`;
the prompt is one line of JSON on stdin, so that it is on no command line. Frames resemble those of Claude Code:
`system` (subtype init, session_id), `assistant` and `user` (message.content: text, tool_use, tool_result), `result`
(is_error, result, error, duration_ms, num_turns). It asks nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...backends import EngineBackend, EngineConfig
from ...events import EventFactory
from ...exit_text import last_words
from ...model import ActionKind, EngineId, ResumeToken, UntetherEvent, Usage
from ...runner import JsonlSubprocessRunner, ResumeTokenMixin
from ...session import Capabilities
from ..tool_actions import tool_call

__all__ = ["BACKEND", "AmpRunner"]

INSTALL = "npm install -g @ampcode/cli"
UNVERIFIED = "not verified against the real program"
_KEYS = ("command", "mode", "dangerously_allow_all", "env")
_LONGEST_MESSAGE = 2_000


@dataclass
class _State:
    events: EventFactory
    answer: str = ""
    tools: dict[str, tuple[ActionKind, str, dict[str, Any]]] = field(default_factory=dict)


class AmpRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    """`config` is the table `[engines.amp]`. Raises ValueError when it is wrong."""

    engine = EngineId("amp")
    resume_re = re.compile(r"(?im)^[ \t]*`?amp[ \t]+threads[ \t]+continue[ \t]+(?P<token>[^`\s-][^`\s]*)`?[ \t]*$")
    capabilities = Capabilities()
    install_cmd = INSTALL

    def __init__(self, config: EngineConfig) -> None:
        if unknown := sorted(set(config) - set(_KEYS)):
            raise ValueError(f"engines.amp.{unknown[0]} is not a known key. Known: {', '.join(_KEYS)}.")
        if not isinstance(config.get("dangerously_allow_all", False), bool):
            raise ValueError("engines.amp.dangerously_allow_all must be true or false.")
        self._config = dict(config)

    def tag(self) -> str:
        return "Amp"

    def format_resume(self, token: ResumeToken) -> str:
        if token.engine != self.engine:
            raise RuntimeError(f"a session of {token.engine!r} has no resume line of {self.engine!r}")
        return f"`amp threads continue {token.value}`"

    # ------------------------------------------------------------------------------------------- template methods

    def command(self) -> str:
        return str(self._config.get("command") or "amp")

    def build_args(self, prompt: str, resume: ResumeToken | None, *, state: _State) -> list[str]:
        args = ["threads", "continue", resume.value] if resume is not None else []
        if self._config.get("dangerously_allow_all"):
            args.append("--dangerously-allow-all")
        if mode := self._config.get("mode"):
            args += ["--mode", str(mode)]
        return [*args, "--stream-json", "--stream-json-input", "-x"]

    def stdin_payload(self, prompt: str, resume: ResumeToken | None, *, state: _State) -> bytes:
        message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        return msgspec.json.encode({"type": "user", "message": message}) + b"\n"

    def env(self, *, state: _State) -> dict[str, str]:
        return {str(name): str(value) for name, value in (self._config.get("env") or {}).items()}

    def new_state(self, prompt: str, resume: ResumeToken | None) -> _State:
        return _State(EventFactory(self.engine))

    def translate(
        self, data: Mapping[str, Any], *, state: _State, resume: ResumeToken | None, found_session: ResumeToken | None
    ) -> list[UntetherEvent]:
        match data:
            case {"type": "system", "subtype": "init", "session_id": str(session)} if session:
                return [state.events.started(ResumeToken(self.engine, session), "Amp")]
            case {"type": "assistant" | "user", "message": {"content": list(blocks)}}:
                parent = str(data.get("parent_tool_use_id") or "")
                return [event for block in blocks for event in self._block(data["type"], block, state, parent)]
            case {"type": "result"}:
                return [self._result(data, state)]
        return []

    def _block(self, role: str, block: Any, state: _State, parent: str) -> list[UntetherEvent]:
        match block:
            case {"type": "text", "text": str(text)} if role == "assistant" and not parent and text.strip():
                state.answer = text
            case {"type": "tool_use", "id": str(id), "name": str(name)}:
                state.tools[id] = tool_call(name, block.get("input"), "")
                return [state.events.action_started(id, *state.tools[id], parent=parent)]
            case {"type": "tool_result", "tool_use_id": str(id)} if id in state.tools:
                kind, title, detail = state.tools.pop(id)
                message = _text(block.get("content"))[:_LONGEST_MESSAGE]
                ok = not block.get("is_error")
                return [state.events.action_completed(id, kind, title, detail, ok, message, parent=parent)]
        return []

    def _result(self, data: Mapping[str, Any], state: _State) -> UntetherEvent:
        duration, turns = data.get("duration_ms"), data.get("num_turns")
        usage = Usage(
            duration_s=duration / 1000 if isinstance(duration, int | float) else None,
            turns=turns if isinstance(turns, int) else None,
        )
        if not data.get("is_error") and data.get("subtype") in (None, "success"):
            return state.events.completed_ok(_text(data.get("result")) or state.answer, usage=usage)
        raw = _text(data.get("error")) or _text(data.get("result"))
        words = last_words(raw)
        error = f"Amp reported an error: {words}" if words else "Amp reported an error."
        advice = "Try again. If it says that it is not logged in, run `amp login` on the machine."
        return state.events.completed_error(error, answer=state.answer, usage=usage, raw_error=raw, advice=advice)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def _build_runner(config: EngineConfig, config_path: Path) -> AmpRunner:
    return AmpRunner(config)


BACKEND = EngineBackend(
    id="amp",
    build_runner=_build_runner,
    cli_cmd="amp",
    install_cmd=INSTALL,
    capabilities=AmpRunner.capabilities,
    title="Amp",
    note=f"deprecated, {UNVERIFIED}: prefer an agent that speaks ACP",
)
