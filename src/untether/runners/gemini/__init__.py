"""Gemini CLI in its one-shot form (`--output-format stream-json`), deprecated: as an ACP agent it can ask.

Frames, from recordings of 0.61 (tests/transcripts/gemini): `init` (session_id, model), `message` (role, content; pieces
of an answer have `delta`), `tool_use` (tool_id, tool_name, parameters), `tool_result` (tool_id, status, output, error),
`error` (severity, message), `result` (status, error, stats of this process). It asks nobody: in its default mode the
tools that change something are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...backends import EngineBackend, EngineConfig
from ...events import EventFactory
from ...exit_text import last_words
from ...model import ActionKind, EngineId, ResumeToken, UntetherEvent, Usage
from ...process.environment import Names
from ...runner import JsonlSubprocessRunner, ResumeTokenMixin, run_options
from ...session import Capabilities, ProcessExit
from ..tool_actions import tool_call

__all__ = ["BACKEND", "GeminiRunner"]

INSTALL = "npm install -g @google/gemini-cli"
_KEYS = ("command", "model", "approval_mode", "env")
_APPROVAL = ("default", "auto_edit", "yolo", "plan")
# Gemini's names of tools, and those of the table that all engines share.
_TOOLS = {
    "run_shell_command": "bash",
    "write_file": "write",
    "replace": "edit",
    "read_file": "read",
    "list_directory": "ls",
    "grep_search": "grep",
    "google_web_search": "websearch",
    "web_fetch": "webfetch",
    "write_todos": "todowrite",
}
_LONGEST_MESSAGE = 2_000
_LOGIN = re.compile(r"api key|\b401\b|unauthenticated|authenticat|auth method|log ?in", re.IGNORECASE)
_LIMITED = re.compile(r"\b429\b|quota|rate.?limit|resource.?exhausted", re.IGNORECASE)


@dataclass
class _State:
    events: EventFactory
    answer: str = ""
    tools: dict[str, tuple[ActionKind, str, dict[str, Any]]] = field(default_factory=dict)


class GeminiRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    """`config` is the table `[engines.gemini]`. Raises ValueError when it is wrong."""

    engine = EngineId("gemini")
    resume_re = re.compile(r"(?im)^[ \t]*`?gemini[ \t]+(?:--resume|-r)(?:[ \t]+|=)(?P<token>[^`\s]+)`?[ \t]*$")
    capabilities = Capabilities(set_model=True)
    install_cmd = INSTALL

    def __init__(self, config: EngineConfig) -> None:
        if unknown := sorted(set(config) - set(_KEYS)):
            raise ValueError(f"engines.gemini.{unknown[0]} is not a known key. Known: {', '.join(_KEYS)}.")
        if config.get("approval_mode", "default") not in _APPROVAL:
            raise ValueError(f"engines.gemini.approval_mode must be one of {', '.join(_APPROVAL)}.")
        self._config = dict(config)

    def tag(self) -> str:
        return "Gemini CLI"

    def format_resume(self, token: ResumeToken) -> str:
        if token.engine != self.engine:
            raise RuntimeError(f"a session of {token.engine!r} has no resume line of {self.engine!r}")
        return f"`gemini --resume {token.value}`"

    @property
    def env_names(self) -> Names:
        return Names(prefixes=("GEMINI_", "GOOGLE_"))

    # ------------------------------------------------------------------------------------------- template methods

    def command(self) -> str:
        return str(self._config.get("command") or "gemini")

    def build_args(self, prompt: str, resume: ResumeToken | None, *, state: _State) -> list[str]:
        """The prompt goes to stdin. The session id of a resume is its own; "latest" would be any."""
        args = [f"--resume={resume.value}"] if resume is not None else []
        args += ["--output-format", "stream-json"]
        if model := run_options().model or self._config.get("model"):
            args += ["-m", str(model)]
        return [*args, "--approval-mode", str(self._config.get("approval_mode") or "default")]

    def env(self, *, state: _State) -> dict[str, str]:
        return {str(name): str(value) for name, value in (self._config.get("env") or {}).items()}

    def new_state(self, prompt: str, resume: ResumeToken | None) -> _State:
        return _State(EventFactory(self.engine))

    def translate(
        self, data: Mapping[str, Any], *, state: _State, resume: ResumeToken | None, found_session: ResumeToken | None
    ) -> list[UntetherEvent]:
        events = state.events
        match data:
            case {"type": "init", "session_id": str(session)} if session:
                model = str(data.get("model") or "")
                meta = {"model": model} if model else None
                return [events.started(ResumeToken(self.engine, session), model or "Gemini CLI", meta)]
            case {"type": "message", "role": "assistant", "content": str(text)}:
                state.answer = state.answer + text if data.get("delta") else text
            case {"type": "tool_use", "tool_id": str(id), "tool_name": str(name)}:
                state.answer = ""
                state.tools[id] = tool_call(_TOOLS.get(name, name), data.get("parameters"), "")
                return [events.action_started(id, *state.tools[id])]
            case {"type": "tool_result", "tool_id": str(id)}:
                return self._tool_result(data, id, state)
            case {"type": "error"}:
                return [events.warning(last_words(str(data.get("message") or "An error without words")))]
            case {"type": "result"}:
                return [self._result(data, state)]
        return []

    def _tool_result(self, data: Mapping[str, Any], id: str, state: _State) -> list[UntetherEvent]:
        kind, title, detail = state.tools.pop(id, ("tool", "Tool", {}))
        text = data.get("output")
        message = text[:_LONGEST_MESSAGE] if isinstance(text, str) else ""
        ok = data.get("status") == "success"
        return [state.events.action_completed(id, kind, title, detail, ok, message)]

    def _result(self, data: Mapping[str, Any], state: _State) -> UntetherEvent:
        usage = _usage(data.get("stats"))
        if data.get("status") == "success":
            return state.events.completed_ok(state.answer.strip(), usage=usage)
        error = data.get("error")
        raw = str(error.get("message") or "") if isinstance(error, dict) else str(error or "")
        told, advice = _in_words(raw)
        return state.events.completed_error(
            told, answer=state.answer.strip(), usage=usage, raw_error=raw, advice=advice
        )

    def exit_events(
        self, exit: ProcessExit, *, resume: ResumeToken | None, found_session: ResumeToken | None, state: _State
    ) -> list[UntetherEvent]:
        """A session that is not there is told on stderr only (recording bad_resume)."""
        if resume is not None and found_session is None and "resuming session" in exit.stderr_tail:
            error = "The session to continue was not found."
            advice = "Start a new one with /new."
            return [state.events.completed_error(error, raw_error=exit.stderr_tail[-4000:], advice=advice)]
        return super().exit_events(exit, resume=resume, found_session=found_session, state=state)


def _usage(stats: Any) -> Usage | None:
    if not isinstance(stats, dict):
        return None

    def count(name: str) -> int | None:
        value = stats.get(name)
        return value if isinstance(value, int) else None

    duration = count("duration_ms")
    return Usage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cached_tokens=count("cached"),
        duration_s=duration / 1000 if duration is not None else None,
    )


def _in_words(raw: str) -> tuple[str, str]:
    if _LIMITED.search(raw):
        return "The provider limits requests right now.", "Try again in a few minutes, or use another model or account."
    if _LOGIN.search(raw):
        advice = "Run `gemini` on the machine and log in, or set GEMINI_API_KEY, then try again."
        return "Gemini CLI is not logged in, or its login was not accepted.", advice
    words = last_words(raw)
    return f"Gemini CLI reported an error: {words}" if words else "Gemini CLI reported an error.", "Try again."


def _build_runner(config: EngineConfig, config_path: Path) -> GeminiRunner:
    return GeminiRunner(config)


BACKEND = EngineBackend(
    id="gemini",
    build_runner=_build_runner,
    cli_cmd="gemini",
    install_cmd=INSTALL,
    capabilities=GeminiRunner.capabilities,
    title="Gemini CLI",
    note='deprecated: set type = "acp" in [engines.gemini], and it can ask',
)
