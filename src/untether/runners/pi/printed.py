"""The JSON print mode of Pi as template methods: one prompt, one answer, and nobody can be asked.

Pi ends with exit code 0 even when the model failed: the last message of the model tells (recording json_error_401).
Our extension refuses what the permission mode does not let run unasked, since there is no one to ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...backends import EngineConfig
from ...events import EventFactory
from ...model import EngineId, ResumeToken, UntetherEvent
from ...runner import JsonlSubprocessRunner, ResumeTokenMixin, RunOptions, run_options
from ...schemas import pi as schema
from ...schemas.tolerant import Unknown
from ...session import ProcessExit
from ..tool_actions import tool_call
from . import results, spawn
from .identity import RESUME_LINE, same_session
from .policies import BYPASS, CANNOT_ASK, CANNOT_ASK_BYPASS, mode_of
from .results import retry_reason
from .steps import shortened
from .usage import total

LATEST = "continue_latest"


@dataclass
class PrintState:
    """What is gathered in one run."""

    events: EventFactory
    resume: ResumeToken | None
    answer: str = ""
    error: str = ""
    aborted: bool = False
    seen: bool = False  # anything of the model's work
    usage: list[schema.Usage] = field(default_factory=list)
    steps: dict[str, tuple[Any, str, dict[str, Any]]] = field(default_factory=dict)
    retrying: str = ""
    retries: int = 0
    compactions: int = 0


class PrintRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    """The one-shot form of Pi. `config` is the engine's table."""

    engine = EngineId("pi")
    resume_re = RESUME_LINE
    install_cmd = spawn.INSTALL
    min_version = spawn.MIN_VERSION
    stop_ladder = spawn.LADDER

    def __init__(self, config: EngineConfig) -> None:
        self._config = dict(config)

    def tag(self) -> str:
        return results.NAME

    def command(self) -> str:
        return str(self._config.get("command") or "pi")

    def format_resume(self, token: ResumeToken) -> str:
        if token.engine != self.engine:
            raise RuntimeError(f"a session of {token.engine!r} has no resume line of {self.engine!r}")
        return f"`pi --session {token.value}`"

    def start_settings(self, options: RunOptions) -> dict[str, Any]:
        """The engine's table, and on top of it what was chosen for the run."""
        names = (
            "model",
            "provider",
            "permission_mode",
            "reasoning",
            "dangerously_skip_permissions",
            "mode",
            "extra_args",
        )
        kept = {name: self._config[name] for name in names if self._config.get(name)}
        if "extra_args" in kept:
            kept["extra_args"] = list(kept["extra_args"])
        return kept | options.settings()

    def own_env(self) -> dict[str, str]:
        """The variables that the engine's table sets."""
        return {str(name): str(value) for name, value in (self._config.get("env") or {}).items()}

    # ------------------------------------------------------------------------------------------ template methods

    def build_args(self, prompt: str, resume: ResumeToken | None, *, state: Any) -> list[str]:
        return spawn.arguments(self.start_settings(run_options()), resume, mode="json")

    def env(self, *, state: Any) -> dict[str, str] | None:
        return {**spawn.environment(self.start_settings(run_options())), **self.own_env()}

    def new_state(self, prompt: str, resume: ResumeToken | None) -> PrintState:
        return PrintState(EventFactory(self.engine), resume)

    def decode_jsonl(self, *, line: bytes) -> Any | None:
        try:
            return schema.decode(line)
        except schema.NotAFrame:
            return None

    def translate(
        self, data: Any, *, state: PrintState, resume: ResumeToken | None, found_session: ResumeToken | None
    ) -> list[UntetherEvent]:
        match data:
            case schema.Header(id):
                return self._header(id, state)
            case schema.MessageEnd(message) if message.role == "assistant":
                return self._message(message, state)
            case schema.ToolStart():
                kind, title, detail = tool_call(data.tool_name, data.args, "")
                state.steps[data.tool_call_id] = kind, title, detail
                return [state.events.action_started(data.tool_call_id, kind, title, detail)]
            case schema.ToolEnd():
                kind, title, detail = state.steps.pop(data.tool_call_id, ("tool", data.tool_name or "tool", {}))
                text = shortened(schema.result_text(data.result)) if data.is_error else ""
                return [
                    state.events.action_completed(
                        data.tool_call_id, kind, title, detail, not data.is_error, text or None
                    )
                ]
            case schema.AgentSettled(aborted):
                state.aborted |= aborted
                return self._end(state)
            case Unknown():
                return []
        return self._noted(data, state)

    def exit_events(
        self, exit: ProcessExit, *, resume: ResumeToken | None, found_session: ResumeToken | None, state: PrintState
    ) -> list[UntetherEvent]:
        """Without `agent_settled`: an older Pi, or an end before one. An unknown session is told on stderr only."""
        if state.seen and exit.code == 0 and not exit.stopped:
            return self._end(state)
        if found_session is None and "No session found" in exit.stderr_tail:
            return [self._failed(results.failed(exit.stderr_tail), state)]
        if exit.code == 0 and not exit.stopped:
            text = "Pi loaded the session and printed nothing more." if resume else "Pi printed nothing of a run."
            advice = "Try again. If it stays so, start a new session with /new." if resume else "Try again."
            return [state.events.completed_error(text, found_session or resume, advice=advice)]
        return super().exit_events(exit, resume=resume, found_session=found_session, state=state)

    # --------------------------------------------------------------------------------------------------- the lines

    def _header(self, id: str, state: PrintState) -> list[UntetherEvent]:
        """A token that is the beginning of an id, or a file, is promoted to the whole id, which cannot mean another."""
        settings = self.start_settings(run_options())
        meta = {name: settings[name] for name in ("model", "permission_mode", "reasoning") if settings.get(name)}
        told = ResumeToken(self.engine, id)
        asked = state.resume
        promoted = asked is not None and asked.value != id and same_session(asked.value, id)
        token = asked if asked is not None and promoted else told
        events: list[UntetherEvent] = [state.events.started(token, str(meta.get("model") or results.NAME), meta)]
        if promoted:
            events.append(state.events.session_changed(told, "its whole id"))
        text = CANNOT_ASK_BYPASS if mode_of(settings) == BYPASS else CANNOT_ASK
        return [*events, state.events.action_completed("cannot-ask", "warning", text, ok=False)]

    def _message(self, message: schema.Message, state: PrintState) -> list[UntetherEvent]:
        state.seen = True
        state.aborted = message.stop_reason == "aborted"
        state.error = (message.error_message or "Pi told no reason") if message.stop_reason == "error" else ""
        if message.usage is not None and message.usage.total_tokens:
            state.usage.append(message.usage)
        if message.text:
            state.answer = message.text
        return self._retried(state, ok=True) if not state.error else []

    def _noted(self, data: Any, state: PrintState) -> list[UntetherEvent]:
        match data:
            case schema.RetryStart():
                count = f", retry {data.attempt} of {data.max_attempts}" if data.max_attempts else ""
                label = retry_reason(data.error_message) + count
                label = label[:1].upper() + label[1:]
                if not state.retrying:
                    state.retries += 1
                    state.retrying = f"retry-{state.retries}"
                    return [state.events.action_started(state.retrying, "note", label, {"retry": True})]
                return [state.events.action_updated(state.retrying, "note", label, {"retry": True})]
            case schema.RetryEnd(success):
                return self._retried(state, ok=success)
            case schema.CompactionStart() | schema.OldCompactionStart():
                state.compactions += 1
                id = f"compaction-{state.compactions}"
                return [state.events.action_started(id, "note", "Compacting the conversation")]
            case schema.CompactionEnd() | schema.OldCompactionEnd():
                id = f"compaction-{state.compactions}"
                ok = not data.aborted
                return [state.events.action_completed(id, "note", "Compacted the conversation", ok=ok)]
            case schema.ExtensionError():
                return [state.events.warning(f"An extension of Pi failed: {data.error}"[:500])]
        return []

    def _retried(self, state: PrintState, *, ok: bool) -> list[UntetherEvent]:
        if not state.retrying:
            return []
        id, state.retrying = state.retrying, ""
        return [state.events.action_completed(id, "note", "The provider was called again", {"retry": True}, ok)]

    def _end(self, state: PrintState) -> list[UntetherEvent]:
        events = self._retried(state, ok=not state.error)
        usage = total(state.usage) if state.usage else None
        if state.aborted:
            return [
                *events,
                state.events.completed_error("The run was stopped.", answer=state.answer, outcome="stopped"),
            ]
        if state.error:
            return [*events, self._failed(results.failed(state.error, state.answer), state)]
        return [*events, state.events.completed_ok(state.answer, usage=usage)]

    def _failed(self, outcome: Any, state: PrintState) -> UntetherEvent:
        usage = total(state.usage) if state.usage else None
        return state.events.completed_error(
            outcome.error or "",
            answer=outcome.answer,
            usage=usage,
            raw_error=outcome.raw_error,
            advice=outcome.advice,
        )
