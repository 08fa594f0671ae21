"""What each frame means: the state machine of one process, over the parts of its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import Action, ActionEvent, TextEvent
from ...schemas import claude as schema
from ...schemas import claude_system as system
from ...schemas.claude import SYNTHETIC, Assistant, Text, ToolResult, ToolUse, User
from ...schemas.tolerant import Unknown
from . import results
from .forms import CANNOT_ASK
from .identity import Foreign
from .modes import BYPASS, TABLE
from .parts import Parts
from .rearm import DEFERRED
from .reports import REPORTED
from .results import Outcome
from .turns import Turn

UNAUTHORIZED = 401
WRITES = frozenset({"Write", "Edit"})


class Stream:
    """Takes the frames of one process in their order: each is handed to the one of `handlers` for its type.

    `now` is the time of the line or input at hand, `sign` that of the last sign of life of the main conversation,
    `unknown` counts what has no name here, and `over` is True when the process cannot be used any more.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._output = parts.output
        self._engine = parts.output.engine
        self._identity = parts.identity
        self._ledger = parts.ledger
        self._turns = parts.turns
        self._actions = parts.actions
        self._interactions = parts.interactions
        self._control = parts.control
        self._background = parts.background
        self._schedules = parts.schedules
        self._notices = parts.notices
        self._compaction = parts.compaction
        self._limits = parts.limits
        self._interrupts = parts.interrupts
        self._reports = parts.reports
        self._meter = parts.meter
        self._permissions = parts.permissions
        self._plans = parts.permissions.plans
        self._rearm = parts.permissions.rearm
        # Looked at for every frame; empty nearly always.
        self._waiting = parts.ledger.waiting
        self._requests = parts.interactions.open
        self._tasks = parts.background.alive
        self._scheduling = parts.schedules.calls
        self.now = 0.0
        self.sign = 0.0
        self.over = False
        self.closing = False  # stdin is closed: what is said now goes to another process
        self.restarts = False  # its settings change with the next start: it ends as soon as it is idle
        self.unknown: dict[str, int] = {}
        self.last: tuple[Outcome, schema.Result] | None = None  # of the one-shot form: the results so far, as one
        self._wakeup = False  # a schedule fired, and its turn has not begun
        self._held_up = False  # a retry or a compaction is to be ended by the next answer of the model
        self._login_lost = ""  # what told that the login was refused
        self.handlers = self._table()

    def _table(self) -> dict[type, Callable[[Any], None]]:
        """What is done about each frame. One that is not listed tells no more than that the agent lives."""
        return {
            Assistant: self._assistant,
            User: self._user,
            schema.Result: self._result,
            schema.StreamEvent: self._stream,
            schema.ControlRequest: self._request,
            schema.ControlCancelRequest: lambda frame: self._permissions.withdraw(frame.request_id),
            schema.ControlResponse: self._response,
            schema.CommandLifecycle: self._lifecycle,
            schema.ConversationReset: self._reset,
            schema.RateLimitEvent: self._rate_limit,
            system.Init: self._init,
            system.Status: self._status,
            system.CompactBoundary: self._compacted,
            system.ApiRetry: self._retry,
            system.SessionState: self._state,
            system.TaskStarted: self._task_started,
            system.TaskProgress: self._task_progress,
            system.TaskUpdated: self._task_updated,
            system.TaskNotification: self._task_notification,
            system.BackgroundTasksChanged: self._tasks_changed,
            system.Informational: lambda frame: self._notices.informational(frame),
            system.ModelFallback: lambda frame: self._notices.fallback(frame),
            system.HookStarted: lambda frame: self._notices.hook_started(frame.hook_id, frame.hook_name, self.now),
            system.HookResponse: lambda frame: self._notices.hook_ended(frame.hook_id),
            Unknown: lambda frame: self.count(frame.name),
        }

    def count(self, name: str) -> None:
        self.unknown[name] = self.unknown.get(name, 0) + 1

    def _check(self, what: str, value: str | None, known: frozenset[str]) -> None:
        """Count a member of an enum that has no place here."""
        if value and value not in known:
            self.count(f"{what}={value}")

    # --------------------------------------------------------------------------------------------- the conversation

    def _assistant(self, frame: Assistant) -> None:
        message, parent = frame.message, frame.parent_tool_use_id
        turn = self._turns.open
        if parent is None:
            self.sign = self.now
            if turn is None:
                turn = self._open_turn(())
            if message.id != turn.message_id:
                self._model_called(frame, turn)
        elif turn is None:
            return  # a background agent at work between turns
        blocks: list[Any] = message.content
        for block in blocks:
            kind = block.__class__
            if kind is ToolUse:
                self._actions.start(block, parent or "", self.now)
                if block.name in WRITES:
                    self._plans.wrote_file(block.input)
            elif kind is Text:
                if parent is None and frame.error is None:
                    self._turns.wrote(block.text, turn)
                    if self._plans.pending:
                        self._plans.wrote(block.text)
            elif kind is Unknown:
                self.count(f"block/{block.name}")

    def _model_called(self, frame: Assistant, turn: Turn) -> None:
        """The first block of another message of the main conversation, from the model or from the CLI itself."""
        message = frame.message
        turn.message_id = message.id
        if frame.user_message_uuids:
            self._ledger.take(frame.user_message_uuids, turn.prompts)
        if frame.error is not None:
            turn.api_error = frame.error
        elif message.model != SYNTHETIC:
            self._meter.latest = message.usage
            if self._waiting:
                self._ledger.model_called(message.id, turn.prompts)
            if self._held_up:
                self._goes_on()
            if self._meter.context_window is not None:
                self._tell_context()

    def _goes_on(self) -> None:
        """The model answers: whatever was retried is over, and a compaction is complete."""
        self._held_up = False
        self._notices.answered(ok=True)
        self._compaction.goes_on()

    def _tell_context(self) -> None:
        """How full the conversation is, once the window is known from an earlier result."""
        figures = {"context_used": self._meter.context_used(), "context_window": self._meter.context_window}
        action = Action("context", "telemetry", "Context in use", figures)
        self._output.action(ActionEvent(self._engine, action, "updated"))

    def _user(self, frame: User) -> None:
        content: Any = frame.message.content
        parent = frame.parent_tool_use_id
        if parent is None:
            self.sign = self.now
        if content.__class__ is list:
            concerned = self._requests or self._tasks or self._waiting or self._scheduling
            for block in content:
                kind = block.__class__
                if kind is ToolResult:
                    self._actions.finish(block, self._returned(block, parent) if concerned else False)
                elif kind is Unknown:
                    self.count(f"block/{block.name}")
        if frame.is_replay and frame.uuid in self._waiting:
            self._ledger.take([frame.uuid], self._open_prompts())

    def _returned(self, result: ToolResult, parent: str | None) -> bool:
        """A tool call has its result. True when its work goes on in the background."""
        call = result.tool_use_id
        self._interactions.withdraw_where(step=call, reason="The step is over.")
        if call in self._scheduling:
            self._schedules.returned(result, self.now)
        if parent is None and (turn := self._turns.open) is not None:
            self._ledger.tool_ended(turn.message_id)
        return self._background.call_returned(call)

    def _stream(self, frame: schema.StreamEvent) -> None:
        if frame.parent_tool_use_id is not None:
            return
        self.sign = self.now
        event = frame.event
        if event is None or (turn := self._turns.open) is None:
            return
        if event.message is not None:
            turn.writing = event.message.id
        elif event.delta is not None and event.delta.text:
            self._output.events.append(TextEvent(self._engine, event.delta.text, turn.writing))

    # ------------------------------------------------------------------------------------------- sessions and turns

    @property
    def working(self) -> bool:
        """True when the conversation owes an answer."""
        return self._turns.open is not None or bool(self._waiting)

    def _init(self, frame: system.Init) -> None:
        self._check("permission_mode", frame.permission_mode, schema.KNOWN_MODES)
        try:
            moved = self._identity.found(frame.session_id, cleared=self._ledger.cleared())
        except Foreign as error:
            self._fail(error)
            return
        if moved:
            self._meter.forget_context()
        self._meter.model = frame.model
        self._actions.root = frame.cwd.rstrip("/") or self._actions.root
        announced = self._identity.know(
            model=frame.model,
            permission_mode=frame.permission_mode,
            version=frame.claude_code_version,
            cwd=frame.cwd,
        )
        if announced and not self._parts.interactive:
            warning = Action("cannot-ask", "warning", CANNOT_ASK)
            self._output.events.append(ActionEvent(self._engine, warning, "completed", None, CANNOT_ASK))
        self._mode_told(frame.permission_mode)
        self.sign = self.now
        if self._turns.open is None:
            self._open_turn(frame.user_message_uuids)
        else:
            self._ledger.take(frame.user_message_uuids, self._turns.open.prompts)

    def _open_turn(self, named: tuple[str, ...]) -> Turn:
        woken = self._background.woken
        prompts = self._ledger.turn_opens(named, maybe_woken=woken)
        reason = ""
        if self._turns.completed and not prompts:
            scheduled = self._wakeup or not (woken or self._tasks)
            reason = self._turns.expected or ("schedule" if scheduled else "background task")
        self._turns.expected = ""
        self._background.woken = self._wakeup = False
        self._permissions.turn_opens(self.now)
        turn = self._turns.begin(prompts, reason, self.now, self._plan_detail())
        if reason == "schedule":
            self._schedules.turn_began()
        self._interrupts.turn_opened()
        return turn

    def _plan_detail(self) -> dict[str, Any]:
        """Facts about a turn that runs outside plan mode in a chat that plans, since agents are still at work."""
        if not self._rearm.deferred:
            return {}
        self._output.note("plan-deferred", "warning", DEFERRED, ok=False)
        return {"plan_deferred": True}

    def _mode_told(self, mode: str) -> None:
        if mode:
            self._permissions.gate.report(mode)

    def _open_prompts(self) -> list[str] | None:
        return self._turns.open.prompts if self._turns.open is not None else None

    def _lifecycle(self, frame: schema.CommandLifecycle) -> None:
        self._check("command_lifecycle", frame.state, schema.KNOWN_LIFECYCLE_STATES)
        self._wakeup |= bool(frame.wakeup_source) and frame.state == "started"
        self._schedules.fired(frame)
        if frame.state == "cancelled" and self._turns.open is None and self._interrupts.hit(frame.command_uuid):
            self._ledger.take([frame.command_uuid])
            self._close_unopened(results.stopped(""))
        else:
            self._ledger.lifecycle(frame.command_uuid, frame.state, self._open_prompts())

    def _state(self, frame: system.SessionState) -> None:
        if frame.state != "idle":
            return
        if self._turns.open is None:
            self._close_unopened(results.stopped("") if self.interrupting else results.already_known())
        self.settle()

    def _close_unopened(self, outcome: Outcome) -> None:
        """End the turn of the messages that were taken and for which none will open."""
        if prompts := self._ledger.taken_ahead():
            self._turns.begin(prompts, "", self.now)
            self.close_turn(outcome, None)

    def _reset(self, frame: schema.ConversationReset) -> None:
        self._identity.resets = True
        self._meter.forget_context()

    def _result(self, frame: schema.Result) -> None:
        self._check("result", frame.subtype, schema.KNOWN_RESULTS)
        if not self._identity.told and not frame.is_error:
            self._identity.assume(frame.session_id)
        turn = self._turns.open or self._turn_without_init(frame)
        woken = frame.origin is not None and frame.origin.kind == "task-notification"
        self._ledger.turn_ends(frame.user_message_uuids, turn.prompts, since=turn.since, woken=woken)
        outcome = results.read(frame, written=turn.written, api_error=turn.api_error, interrupted=self.interrupting)
        if outcome.ok and not outcome.answer and not outcome.outcome:
            outcome = self._without_words(frame, turn, outcome)
        elif outcome.detail.get("quota") and (resets_at := self._limits.resets_at(self.now)):
            outcome = outcome._replace(detail={**outcome.detail, "resets_at": resets_at})
        if woken:
            turn.reason = "background task"
        elif turn.prompts:
            turn.reason = ""
        elif frame.origin is not None and frame.origin.kind:
            turn.reason = frame.origin.kind.replace("-", " ")
        if self._parts.interactive:
            self.close_turn(outcome, frame)
        else:
            before = self.last[1] if self.last else None
            self.last = outcome, results.together(before, frame)
            turn.api_error = ""

    def _without_words(self, frame: schema.Result, turn: Turn, outcome: Outcome) -> Outcome:
        """A result that says nothing: of a compaction, of another command of the CLI's own, or of a resume that failed.

        Only a manual compaction that succeeded is a good end without a word of its own.
        """
        if self._compaction.manual:
            return outcome._replace(answer=f"{self._compaction.manual}.")
        if self._compaction.failure:
            return results.not_compacted(self._compaction.failure)
        called = turn.message_id or frame.num_turns or not self._turns.is_first
        resumed = self._identity.expected is not None and not frame.local_command
        commands = any(self._ledger.text(id).startswith("/") for id in turn.prompts)
        return results.empty_after_resume() if resumed and not called and not commands else outcome

    def _turn_without_init(self, frame: schema.Result) -> Turn:
        """For a result that comes out of nothing, such as the one about a session that was not found."""
        if self._turns.completed:
            return self._open_turn(frame.user_message_uuids)
        return self._turns.begin(self._ledger.unopened(self._parts.first_prompt), "", self.now)

    def close_turn(self, outcome: Outcome, result: schema.Result | None) -> None:
        if self._login_lost:
            outcome, self._login_lost = results.login_lost(outcome.answer, self._login_lost), ""
        self._interrupts.turn_closed()
        self._notices.answered(outcome.ok)
        self._compaction.turn_ends()
        self._actions.close()
        self._interactions.withdraw_where(agent="", reason="The turn is over.")
        usage = self._meter.run(result) if result is not None else None
        if self._parts.interactive:
            self._permissions.turn_closes(self.now, self._session_id, ok=outcome.ok)
        outcome = outcome._replace(answer=self._permissions.gate.with_refused(outcome.answer))
        self._turns.end(outcome, self._identity.token or self._identity.expected, usage)
        self.settle()

    @property
    def _session_id(self) -> str:
        return self._identity.token.value if self._identity.token is not None else ""

    @property
    def idle(self) -> bool:
        """True when nothing goes on and nothing is owed, not even in the background or by a person."""
        return not (self.working or self._tasks or self._requests)

    def settle(self) -> None:
        """What follows from where the session is now: its deadline, and its end when it is to be begun anew."""
        self._output.tick_at(self._permissions.deadline)
        if (self._rearm.refused or self.restarts) and self.idle and not self.closing:
            self.closing = True
            self._output.close_stdin()

    def set_mode(self, mode: str) -> None:
        """The owner wants another permission mode, which is known."""
        gate = self._permissions.gate
        gate.change(mode)
        self._control.ask("set_permission_mode", mode=TABLE[mode].cli)
        if gate.planning and gate.launched_in_bypass and not self._control.features:
            self._rearm.refused = True
            self._output.warning(
                f"In a session begun with {BYPASS}, this {self._parts.name} asks for nothing in plan mode either; "
                "the next message continues in a new process"
            )
            self.settle()

    def before_message(self) -> None:
        """A message comes to a session that is idle."""
        self._rearm.before_message(self.now, self._session_id)

    def tick(self) -> None:
        self._permissions.tick(self.now, self._session_id, idle=not self.working)
        self.settle()

    # ----------------------------------------------------------------------------------------------- control channel

    @property
    def interrupting(self) -> bool:
        """True when we asked for the end of the turn."""
        return self._interrupts.asked

    @interrupting.setter
    def interrupting(self, value: bool) -> None:
        self._interrupts.asked = value

    def interrupt(self, *, cancel_queued: bool = False) -> None:
        """Ask for the end of the turn, also of one that has not begun."""
        self._interrupts.ask(turn_open=self._turns.open is not None, cancel_queued=cancel_queued)

    def _request(self, frame: schema.ControlRequest) -> None:
        request = frame.request
        if isinstance(request, schema.HookCallback) and self._schedules.serve(frame, request):
            return
        if not isinstance(request, schema.CanUseTool):
            if unknown := self._control.serve(frame):
                self.count(f"control_request/{unknown}")
            return
        asked_by = ""
        if request.agent_id:
            asked_by = self._background.name(request.agent_id) or "a sub-agent"
        root = self._actions.root
        self._permissions.request(frame.request_id, request, root=root, asked_by=asked_by, now=self.now)
        self.settle()

    def _response(self, frame: schema.ControlResponse) -> None:
        if self._permissions.response(frame):
            self.settle()
            return
        subtype = self._control.answered(frame)
        if subtype == "set_permission_mode":
            self._permissions.gate.changed(ok=frame.response.subtype != "error")
        elif subtype == "initialize":
            self._identity.know(version=self._control.version)
        elif subtype in REPORTED:
            self._reports.answered(subtype, frame.response)
        elif subtype:
            turn_open = self._turns.open is not None
            self._interrupts.answered(subtype, frame.response, turn_open=turn_open, working=self.working)

    # ------------------------------------------------------------------------------------------- tasks and notices

    def _task_started(self, frame: system.TaskStarted) -> None:
        step = self._actions.open.get(frame.tool_use_id or "")
        asked_behind = step is not None and step.asked_behind
        self._background.started(frame, self.now, asked_behind=asked_behind)
        self._rearm.agent_started(frame.task_id, frame.task_type)

    def _task_progress(self, frame: system.TaskProgress) -> None:
        self._background.progress(frame)
        self._actions.progress(frame.tool_use_id or "", frame.description)
        if self._rearm.deferred:
            self._rearm.agent_acted(frame.task_id, self.now)
            self.settle()

    def _tasks_changed(self, frame: system.BackgroundTasksChanged) -> None:
        self._background.replaced(frame.tasks, self.now)
        self._background_settled()

    def _background_settled(self) -> None:
        """Background work began or ended."""
        self._rearm.background_changed(self.now, self._session_id, idle=not self.working)
        self.settle()

    def _task_updated(self, frame: system.TaskUpdated) -> None:
        status = frame.patch.status
        self._check("task_status", status, schema.KNOWN_TASK_STATUSES)
        if status in schema.ENDED_TASK_STATUSES:
            self._background.ended(frame.task_id)
            self._interactions.withdraw_where(agent=frame.task_id, reason="The sub-agent has ended.")
        elif frame.patch.is_backgrounded:
            self._background.moved(frame.task_id)
        self._background_settled()

    def _task_notification(self, frame: system.TaskNotification) -> None:
        self._check("task_status", frame.status, schema.KNOWN_TASK_STATUSES)
        self._background.notified(frame.task_id)
        self._interactions.withdraw_where(agent=frame.task_id, reason="The sub-agent has ended.")
        self._background_settled()

    def _status(self, frame: system.Status) -> None:
        self._check("permission_mode", frame.permission_mode, schema.KNOWN_MODES)
        if frame.permission_mode:
            self._identity.know(permission_mode=frame.permission_mode)
            self._mode_told(frame.permission_mode)
        if frame.status == "compacting" and self._turns.open is None and self._identity.told and self._waiting:
            self._open_turn(())  # `/compact`: its `init` comes only when it is done
        self._compaction.status(frame, self.now)
        self._held_up = True

    def _compacted(self, frame: system.CompactBoundary) -> None:
        self._meter.forget_context()
        self._compaction.figures(frame.compact_metadata)

    def _retry(self, frame: system.ApiRetry) -> None:
        """More tries, which take minutes, cannot bring back a login (claude-protocol §7)."""
        self._notices.retry(frame, self.now)
        self._held_up = True
        refused = frame.error_status == UNAUTHORIZED or frame.error == "authentication_failed"
        if refused and not self._login_lost:
            self._login_lost = f"{frame.error or 'authentication_failed'} ({frame.error_status or 'no status'})"
            if self._parts.interactive:
                self.interrupt()
            else:
                self._output.stop()

    def _rate_limit(self, frame: schema.RateLimitEvent) -> None:
        self._check("rate_limit", frame.rate_limit_info.status, schema.KNOWN_RATE_LIMIT_STATUSES)
        self._limits.told(frame.rate_limit_info, self.now)

    # ------------------------------------------------------------------------------------------------------- the end

    def _fail(self, error: Foreign) -> None:
        """The process cannot be used: one failed completion, and its end is asked for."""
        self._turns.begin(self._ledger.unopened(self._parts.first_prompt), "", self.now)
        self.close_turn(results.foreign_session(self._parts.name, str(error)), None)
        self.over = True
        self.handlers.clear()  # whatever it still prints is of no interest
        self._output.stop()
