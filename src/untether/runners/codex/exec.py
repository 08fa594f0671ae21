"""`codex exec --json` as template methods: one prompt, one answer, and nobody can be asked.

`exec` forces the approval policy `never`: what needs a permission is refused to the model, and no line tells of it
(recording exec_escalation_denied). So every run says that it cannot ask.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...backends import EngineConfig
from ...events import EventFactory
from ...model import ActionEvent, CompletedEvent, EngineId, ResumeToken, UntetherEvent, Usage
from ...runner import JsonlSubprocessRunner, ResumeTokenMixin, RunOptions, run_options
from ...schemas import codex_exec as wire
from ...schemas import codex_items as kinds
from ...schemas.tolerant import Unknown
from ...session import ProcessExit
from ..turns import Outcome
from . import items, results, spawn
from .notices import retry_reason
from .policies import CANNOT_ASK

_RECONNECTING = "Reconnecting..."


@dataclass
class ExecState:
    """What is gathered in one run. `resumed`: its usage counts the runs before it too."""

    events: EventFactory
    resumed: bool = False
    answer: str = ""
    final: bool = False
    error: str = ""  # told, and not yet known whether it ends the run
    retrying: str = ""  # the id of the note about calls to the provider
    retries: int = 0
    warned: set[str] = field(default_factory=set)


class ExecRunner(ResumeTokenMixin, JsonlSubprocessRunner):
    """The one-shot form of Codex. `config` is the engine's table."""

    engine = EngineId("codex")
    resume_re = re.compile(r"(?im)^[ \t]*`?codex[ \t]+resume[ \t]+(?P<token>[^`\s]+)`?[ \t]*$")
    install_cmd = spawn.INSTALL
    min_version = spawn.MIN_VERSION
    stop_ladder = spawn.LADDER

    def __init__(self, config: EngineConfig) -> None:
        self._config = dict(config)

    def tag(self) -> str:
        return results.NAME

    def command(self) -> str:
        return str(self._config.get("command") or "codex")

    def start_settings(self, options: RunOptions) -> dict[str, Any]:
        """The engine's table, and on top of it what was chosen for the run."""
        names = ("model", "permission_mode", "reasoning", "extra_args", "dangerously_skip_permissions", "mode")
        kept = {name: self._config[name] for name in names if self._config.get(name)}
        if "extra_args" in kept:
            kept["extra_args"] = list(kept["extra_args"])
        return kept | options.settings()

    def own_env(self) -> dict[str, str]:
        """The owner's variables."""
        return {str(name): str(value) for name, value in (self._config.get("env") or {}).items()}

    # ------------------------------------------------------------------------------------------ template methods

    def env(self, *, state: Any) -> dict[str, str] | None:
        return self.own_env()

    def build_args(self, prompt: str, resume: ResumeToken | None, *, state: Any) -> list[str]:
        return spawn.exec_json(self.start_settings(run_options()), resume)

    def new_state(self, prompt: str, resume: ResumeToken | None) -> ExecState:
        return ExecState(EventFactory(self.engine), resumed=resume is not None)

    def decode_jsonl(self, *, line: bytes) -> Any | None:
        try:
            return wire.decode(line)
        except wire.NotAFrame:
            return None

    def translate(
        self, data: Any, *, state: ExecState, resume: ResumeToken | None, found_session: ResumeToken | None
    ) -> list[UntetherEvent]:
        fails = isinstance(data, wire.ErrorLine | wire.TurnFailed)
        events = [] if fails else self._survived(state)
        match data:
            case wire.ThreadStarted(thread_id):
                events += self._thread(thread_id, state)
            case wire.ItemStarted(item) | wire.ItemUpdated(item) | wire.ItemCompleted(item):
                events += self._item(item, data, state)
            case wire.ErrorLine(message):
                events += self._error(message, state)
            case wire.TurnCompleted(usage):
                events.append(state.events.completed_ok(state.answer, usage=self._usage(usage, state)))
            case wire.TurnFailed(error):
                events += self._retried(state, ok=False)
                events.append(_failed(state.events, results.failed_text(error.message, state.answer)))
        return events

    def exit_events(
        self, exit: ProcessExit, *, resume: ResumeToken | None, found_session: ResumeToken | None, state: ExecState
    ) -> list[UntetherEvent]:
        """A resume id that does not exist is told on stderr only (recording exec_resume_bad_id)."""
        if found_session is None and "no rollout found" in exit.stderr_tail:
            return [_failed(EventFactory(self.engine), results.failed_text(exit.stderr_tail, ""))]
        return super().exit_events(exit, resume=resume, found_session=found_session, state=state)

    # --------------------------------------------------------------------------------------------------- the lines

    def _thread(self, id: str, state: ExecState) -> list[UntetherEvent]:
        settings = self.start_settings(run_options())
        meta = {name: settings[name] for name in ("model", "permission_mode", "reasoning") if settings.get(name)}
        started = state.events.started(ResumeToken(self.engine, id), str(meta.get("model") or results.NAME), meta)
        return [started, state.events.action_completed("cannot-ask", "warning", CANNOT_ASK, ok=False)]

    def _item(self, item: Any, line: Any, state: ExecState) -> list[UntetherEvent]:
        completed = isinstance(line, wire.ItemCompleted)
        match item:
            case wire.AgentMessage() if completed and item.text.strip():
                return self._said(item, state)
            case wire.Reasoning() if completed:
                text = items.heading(kinds.Reasoning(item.id, (item.text,)))
                message = items.beginning(item.text)
                return [state.events.action_completed(item.id, "note", text, message=message)] if text else []
            case wire.TodoList():
                title = items.todo([(todo.text, todo.completed) for todo in item.items])
                return [state.events.action_completed(item.id, "note", title)]
            case wire.ErrorItem(message=message) if message not in state.warned:
                state.warned.add(message)
                return [state.events.warning(message)]
            case Unknown():
                return []
        shown = items.show(_as_app_server(item), "")
        if shown is None:
            return []
        if not completed:
            phase = "started" if isinstance(line, wire.ItemStarted) else "updated"
            return [state.events.action(phase, item.id, shown.kind, shown.title, shown.detail)]  # type: ignore[arg-type]
        ok = shown.ok is not False
        return [state.events.action_completed(item.id, shown.kind, shown.title, shown.detail, ok, shown.message)]

    def _said(self, item: wire.AgentMessage, state: ExecState) -> list[UntetherEvent]:
        """A final answer counts before the last message without a phase; commentary is a remark on the way."""
        if item.phase == "commentary":
            return [state.events.action_completed(item.id, "note", item.text)]
        if item.phase == "final_answer" or not state.final:
            state.final |= item.phase == "final_answer"
            state.answer = item.text
        return []

    def _error(self, message: str, state: ExecState) -> list[UntetherEvent]:
        if not message.startswith(_RECONNECTING):
            state.error = message  # `turn.failed` follows and says the same, else it was a warning
            return []
        label = retry_reason("", results.status_of(message), message, "")
        if not state.retrying:
            state.retries += 1
            state.retrying = f"retry-{state.retries}"
            return [state.events.action_started(state.retrying, "note", _sentence(label), {"retry": True})]
        return [state.events.action_updated(state.retrying, "note", _sentence(label), {"retry": True})]

    def _survived(self, state: ExecState) -> list[UntetherEvent]:
        """The run goes on after what was told as an error."""
        found: list[UntetherEvent] = list(self._retried(state, ok=True))
        if state.error:
            message, state.error = state.error, ""
            found.append(state.events.warning(message))
        return found

    def _retried(self, state: ExecState, *, ok: bool) -> list[ActionEvent]:
        if not state.retrying:
            return []
        id, state.retrying = state.retrying, ""
        return [state.events.action_completed(id, "note", "The provider was called again", {"retry": True}, ok)]

    def _usage(self, tokens: wire.Tokens | None, state: ExecState) -> Usage | None:
        """`codex exec` tells the sums of the whole thread, so nothing is known of a resumed run (exec_resume)."""
        if tokens is None or state.resumed:
            return None
        return Usage(
            input_tokens=tokens.input_tokens,
            output_tokens=tokens.output_tokens,
            cached_tokens=tokens.cached_input_tokens,
        )


def _failed(events: EventFactory, outcome: Outcome) -> CompletedEvent:
    completed = events.completed_error(
        outcome.error or "", answer=outcome.answer, raw_error=outcome.raw_error, advice=outcome.advice
    )
    return msgspec.structs.replace(completed, detail=dict(outcome.detail))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _as_app_server(item: Any) -> Any:
    """An item of `codex exec` in the form of the app-server's."""
    match item:
        case wire.CommandExecution():
            return kinds.CommandExecution(
                item.id,
                item.command,
                status=item.status,
                aggregated_output=item.aggregated_output,
                exit_code=item.exit_code,
            )
        case wire.FileChange():
            updates = tuple(kinds.FileUpdate(change.path, kinds.ChangeKind(change.kind)) for change in item.changes)
            return kinds.FileChange(item.id, updates, item.status)
        case wire.McpToolCall():
            error = kinds.ToolError(item.error.message) if item.error is not None else None
            return kinds.McpToolCall(item.id, item.server, item.tool, item.arguments, item.result, error, item.status)
        case wire.WebSearch():
            action = item.action or wire.WebAction()
            return kinds.WebSearch(
                item.id, item.query, kinds.WebAction(action.type, action.query, action.url, action.pattern)
            )
    return None
