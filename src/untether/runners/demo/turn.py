"""One turn of the demo agent: what it says, the tools it uses, whom it asks, and the result that ends it.

A script (see `script`) drives a turn through `say`, `think`, `pause`, `tool` and a few more. All of them may raise
`Interrupted` or `Preempted`, which a script lets pass. The order of the frames follows the recordings of 2.1.332.
"""

from __future__ import annotations

import time

from . import frames, tools
from .tools import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .agent import Agent

    Perform = Callable[[dict[str, Any], str], Outcome]

STOPPED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)
INVALID_ANSWER = (
    "The canUseTool callback returned an invalid permission result. Expected "
    "{behavior: 'allow', updatedInput?: object} or {behavior: 'deny', message: string}."
)
MAX_RESULT_TOKENS = 10_000
CLOSED = "Tool permission request failed: AbortError: Tool permission stream closed before response received"
BLANK = "Blank prompt — the message was only whitespace, so nothing was sent to the model."
ENTERED_PLAN_MODE = (
    "Entered plan mode. Explore and design an approach; use ExitPlanMode to present it. DO NOT write yet."
)


class Interrupted(Exception):
    """The turn was stopped: by an interrupt, a denial that asks for one, or SIGINT."""


class Preempted(Exception):
    """The turn was cut short by a message with `priority: "now"`."""


class Message:
    """A user message as it came on stdin. `priority` is "now", "next" or "later"."""

    def __init__(self, content: Any, uuid: str, priority: str) -> None:
        self.uuid = uuid
        self.priority = priority
        self.text = content if isinstance(content, str) else _text_of(content)


def _text_of(content: Any) -> str:
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [
        str(block.get("text", "")) if block.get("type") == "text" else f"[{block.get('type')}]" for block in blocks
    ]
    return "\n".join(texts) or "(no content)"


class Turn:
    """The work on one or several user messages, up to the result."""

    def __init__(self, agent: Agent, messages: list[Message]) -> None:
        self.agent = agent
        self.prompt = "\n".join(message.text for message in messages)
        self.heard: list[str] = []  # what was said while the turn ran, and folded into it
        self.previous_prompts = list(agent.memory.prompts)
        self.subagents = 0
        self._model = agent.model
        self._openers = messages
        self._folded: list[Message] = []
        self._text = ""
        self._error: tuple[int, str] | None = None
        self._denials: list[dict[str, Any]] = []
        self._begun = time.monotonic()
        self._first_frame: float | None = None
        self._calls = 0
        self._message_id = ""  # empty: the next block begins a new call of the model
        self._in_tool = False
        self._output_tokens = 0
        self._cached_tokens = 0

    # What scripts use

    def say(self, text: str) -> None:
        self._text = text
        self.block({"type": "text", "text": text}, len(text))

    def think(self, text: str) -> None:
        facts = {"thinking_duration_ms": 0, "thinking_display": "updates"}
        self.block({"type": "thinking", "thinking": text, "signature": ""}, len(text), facts)

    def pause(self, seconds: float) -> None:
        """Wait as if for the model."""
        deadline = time.monotonic() + seconds * self.agent.speed
        while True:
            left = deadline - time.monotonic()
            self.agent.listen(max(0.0, left))
            if self.agent.preempted:
                raise Preempted
            if left <= 0:
                return

    def wait_for_host(self) -> None:
        """Wait until something comes on stdin."""
        self.agent.listen(None)
        if self.agent.preempted:
            raise Preempted

    def block(self, block: dict[str, Any], size: int, extra: dict[str, Any] | None = None) -> None:
        """Send one content block; `extra` are further fields of the frame."""
        if not self._message_id:
            self._calls += 1
            self._message_id = f"msg_demo{frames.new_uuid()[-12:]}"
            self._cached_tokens += self.agent.context_tokens
        tokens = size // 4 + 1
        self._output_tokens += tokens
        self.agent.context_tokens += tokens
        frame = frames.assistant(self._message_id, self._model, block, self.agent.context_tokens)
        if self._first_frame is None:
            self._first_frame = time.monotonic()
            frame |= self._uuids()
        self.agent.send(frame | (extra or {}))

    def api_error(self, status: int, kind: str, error: str, text: str) -> None:
        """Fail as a call of the model's API fails; the script has nothing to add."""
        self._error = (status, kind)
        self._text = text
        self.agent.send(frames.api_error(status, kind, error, text))

    def tool(self, name: str, call: dict[str, Any], perform: Perform | None = None) -> Outcome:
        """Use a tool: tool_use, permission if need be, the deed, tool_result; then take in what was said meanwhile.

        `perform(call, tool_id)` is the deed; the tools that have one of their own (`_deed`) need none.
        """
        tool_id = f"toolu_demo{frames.new_uuid()[-12:]}"
        self.block({"type": "tool_use", "id": tool_id, "name": name, "input": call}, 40)
        self._in_tool = True
        try:
            call, refusal, meta = self._permit(tool_id, name, call)
            outcome = refusal or self._do(name, call, tool_id, perform)
        except Interrupted:
            stopped = Outcome(STOPPED, error=True)
            stopped.detail = "User rejected tool use"
            self.send_outcome(tool_id, stopped, {"non_execution_kind": "cancelled"})
            raise
        self.send_outcome(tool_id, outcome, meta)
        self._in_tool = False
        self._message_id = ""
        self._fold()
        return outcome

    def send_outcome(
        self, tool_id: str, outcome: Outcome, meta: dict[str, Any], extra: dict[str, Any] | None = None
    ) -> None:
        content: dict[str, Any] = {"tool_use_id": tool_id, "type": "tool_result", "content": outcome.text}
        if outcome.error is not None:
            content["is_error"] = outcome.error
        frame = frames.user([content])
        if extra is None:
            frame["tool_use_result"] = outcome.detail
        self.agent.context_tokens += min(len(str(outcome.text)) // 4, MAX_RESULT_TOKENS)
        self.agent.send(frame | {"tool_result_meta": [{"id": tool_id, **meta}]} | (extra or {}))

    # Permissions

    def _permit(self, tool_id: str, name: str, call: dict[str, Any]) -> tuple[dict[str, Any], Outcome | None, Any]:
        """The input to run with, or the refusal; and what `tool_result_meta` says of who decided."""
        agent = self.agent
        verdict = agent.judge(name, call)
        if verdict.act == "run":
            return call, None, {"permission_decision": _decision("accept", "config", verdict.reason_type)}
        if verdict.act == "ask" and agent.can_ask:
            return self._ask(tool_id, name, call)
        kind, reason_type = "permission-rule", verdict.reason_type
        if verdict.act == "ask":
            verdict.text = verdict.reason = "This command requires approval"
            kind, reason_type, verdict.reason_type = "user-rejected", "", verdict.reason_type or "other"
        elif verdict.code:
            kind = "automode-unavailable"
        denied = frames.permission_denied(
            name, tool_id, verdict.reason_type, verdict.code, verdict.reason, verdict.text
        )
        agent.send(denied)
        return self._refusal(tool_id, name, call, verdict.text, kind, _decision("reject", "config", reason_type))

    def _ask(self, tool_id: str, name: str, call: dict[str, Any]) -> tuple[dict[str, Any], Outcome | None, Any]:
        agent = self.agent
        request = {"subtype": "can_use_tool", "tool_name": name, "display_name": name, "input": call}
        request |= tools.suggestions(name, call, agent.mode, agent.cwd) | {"tool_use_id": tool_id}
        try:
            answer = agent.ask(request)
        except Interrupted:
            self._deny(tool_id, name, call)
            raise
        by_config = _decision("reject", "config", "other")
        if answer is None:
            return self._refusal(tool_id, name, call, CLOSED, "permission-rule", by_config)
        if answer.get("subtype") != "success":
            text = f"Tool permission request failed: Error: {answer.get('error')}"
            return self._refusal(tool_id, name, call, text, "permission-rule", by_config)
        said = answer.get("response")
        said = said if isinstance(said, dict) else {}
        updated, message = said.get("updatedInput"), said.get("message")
        if said.get("behavior") == "allow" and isinstance(updated, dict | None):
            agent.grant(said.get("updatedPermissions"))
            return updated or call, None, {"permission_decision": {"decision": "accept", "source": "user_temporary"}}
        if said.get("behavior") != "deny" or not isinstance(message, str):
            return self._refusal(tool_id, name, call, INVALID_ANSWER, "permission-rule", by_config)
        if said.get("interrupt") is True:
            self._deny(tool_id, name, call)
            raise Interrupted
        return self._refusal(tool_id, name, call, message, "permission-rule", _decision("reject", "user_reject", ""))

    def _refusal(
        self, tool_id: str, name: str, call: dict[str, Any], text: str, kind: str, decision: dict[str, str]
    ) -> tuple[dict[str, Any], Outcome, Any]:
        self._deny(tool_id, name, call)
        return call, Outcome(text, refused=True), {"non_execution_kind": kind, "permission_decision": decision}

    def _deny(self, tool_id: str, name: str, call: dict[str, Any]) -> None:
        self._denials.append({"tool_name": name, "tool_use_id": tool_id, "tool_input": call})

    # Deeds

    def _do(self, name: str, call: dict[str, Any], tool_id: str, perform: Perform | None) -> Outcome:
        try:
            return (perform or self._deed(name))(call, tool_id)
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            # The host may have changed the input into anything.
            return Outcome(f"InputValidationError: {name} cannot work with this input ({error!r})", error=True)

    def _deed(self, name: str) -> Perform:
        deeds: dict[str, Perform] = {
            "Bash": self._bash,
            "Read": lambda call, _: tools.read(call),
            "Write": lambda call, _: tools.write(call),
            "Edit": lambda call, _: tools.edit(call),
            "AskUserQuestion": lambda call, _: tools.answers(call),
            "EnterPlanMode": self._enter_plan_mode,
            "ExitPlanMode": self._exit_plan_mode,
        }
        return deeds[name]

    def _enter_plan_mode(self, _call: dict[str, Any], _tool_id: str) -> Outcome:
        self.agent.set_mode("plan")
        return Outcome(ENTERED_PLAN_MODE, {"message": ENTERED_PLAN_MODE})

    def _exit_plan_mode(self, call: dict[str, Any], _tool_id: str) -> Outcome:
        """Leave plan mode; a `plan` that the host edited is used and stored."""
        agent = self.agent
        if agent.mode == "plan":  # else the answer's `updatedPermissions` have set another one
            agent.set_mode(agent.mode_before_plan)
        path, plan = agent.memory.plan_path, str(call.get("plan", ""))
        before = tools.read_text(path)
        if plan and plan != before:
            tools.write({"file_path": path, "content": plan})
        edited = " (edited by user)" if plan != before else ""
        text = (
            "User has approved your plan. You can now start coding.\n\n"
            f"Your plan has been saved to: {path}\n\n## Approved Plan{edited}:\n{plan}"
        )
        return Outcome(text, {"plan": plan, "isAgent": False, "filePath": path})

    def _bash(self, call: dict[str, Any], tool_id: str) -> Outcome:
        """Run a command; one that takes longer than 3 s is told as a task, with a heartbeat every 30 s."""
        agent, beats = self.agent, 0
        task = {"task_id": f"b{tool_id[-8:]}", "run_id": tool_id[-8:], "tool_use_id": tool_id}
        title = str(call.get("description", ""))
        told = False

        def slow(elapsed: float) -> None:
            nonlocal beats, told
            if elapsed > tools.SLOW_AFTER and not told:
                told = True
                facts = {"description": title, "is_backgrounded": False, "task_type": "local_bash"}
                agent.send({"type": "system", "subtype": "task_started"} | task | facts)
            if elapsed > tools.HEARTBEAT * (beats + 1):
                beat = {"type": "tool_progress", "tool_use_id": f"{tool_id}-heartbeat-{beats}", "tool_name": "Bash"}
                beats += 1
                facts = {"elapsed_time_seconds": int(tools.HEARTBEAT * beats), "heartbeat": True}
                agent.send(beat | {"parent_tool_use_id": tool_id} | facts)

        outcome = tools.bash(call, agent.cwd, agent.listen, agent.child_started, slow)
        if told and not agent.terminated:
            end = {"status": "failed" if outcome.error else "completed", "output_file": "", "summary": title}
            agent.send({"type": "system", "subtype": "task_notification"} | task | end)
        return outcome

    # Begin and end

    def begin(self) -> None:
        agent = self.agent
        for message in self._openers:
            agent.lifecycle(message, "started")
        uuids = [message.uuid for message in self._openers if message.uuid]
        init = frames.init(agent.cwd, self._model, agent.mode, agent.memory.folder, can_ask=agent.can_ask)
        init["additional_directories"] = list(agent.directories)
        agent.send(init | ({"user_message_uuids": uuids} if uuids else {}))
        agent.replay(self.prompt, uuids[-1] if uuids else "")
        agent.memory.take(self.prompt, uuids)
        agent.context_tokens += len(self.prompt) // 4

    def _fold(self) -> None:
        """Take in the messages that came while the tool ran, as the CLI does at a tool boundary."""
        self.agent.listen(0)
        for message in self.agent.take_waiting():
            self._folded.append(message)
            self.heard.append(message.text)
            self.agent.replay(message.text, message.uuid)
            self.agent.lifecycle(message, "started")
            self.agent.memory.take(message.text, [message.uuid] if message.uuid else [])

    def finish(self, ending: str) -> bool:
        """Send what ends the turn; `ending` is completed, interrupted, preempted or blank. True when it failed."""
        agent = self.agent
        if ending == "interrupted":
            note = "[Request interrupted by user for tool use]" if self._in_tool else "[Request interrupted by user]"
            agent.send(frames.user([{"type": "text", "text": note}]))
        elif ending == "blank":
            self._text = BLANK
            agent.send({"type": "system", "subtype": "informational", "content": BLANK, "level": "warning"})
        done = "cancelled" if ending in ("interrupted", "preempted") else "completed"
        for message in self._folded:
            agent.lifecycle(message, done)
        result = self._result(ending)
        agent.send(result)
        agent.memory.save()
        for message in self._openers:
            agent.lifecycle(message, done)
        return bool(result["is_error"])

    def _result(self, ending: str) -> dict[str, Any]:
        agent = self.agent
        spent = [self._calls * frames.TOKENS_PER_CALL, self._output_tokens, self._cached_tokens]
        before = agent.memory.usage.get(self._model, [0, 0, 0])
        agent.memory.usage[self._model] = [old + new for old, new in zip(before, spent, strict=True)]
        totals = {model: frames.model_usage(model, *tokens) for model, tokens in agent.memory.usage.items()}
        own = {self._model: frames.model_usage(self._model, *spent)}
        elapsed = time.monotonic() - self._begun
        return {
            "type": "result",
            "duration_ms": int(elapsed * 1000),
            "duration_api_ms": int(elapsed * 1000),
            "stop_reason": "end_turn",
            "total_cost_usd": sum(usage["costUSD"] for usage in totals.values()),
            "usage": frames.usage(*spent),
            "modelUsage": totals if self._calls or len(totals) > 1 else {},
            "permission_denials": self._denials,
            "fast_mode_state": "off",
            "fast_mode_disabled_reason": "sdk_opt_in_required",
            "subagent_stats": frames.subagent_stats(self.subagents),
            "safety_stops": 0,
            "num_turns": self._calls,
            "queued_turn_count": 0,
            "result_index": agent.next_result_index(),
            "model_usage_since_last_result": own if self._calls else {},
            **self._uuids(),
            **self._verdict(ending),
        }

    def _verdict(self, ending: str) -> dict[str, Any]:
        """The fields of the result that depend on how the turn ended."""
        if ending == "interrupted":
            reason = "tool_use" if self._in_tool else None
            return {
                "subtype": "error_during_execution",
                "is_error": True,
                "terminal_reason": "aborted_tools" if self._in_tool else "aborted_streaming",
                "stop_reason": reason,
                "num_turns": self._calls + (2 if self._in_tool else 1),
                "errors": [f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={reason or 'null'}"],
            }
        if ending == "blank":
            return {"subtype": "success", "is_error": False, "stop_reason": None, "result": self._text}
        said = {"subtype": "success", "is_error": False, "api_error_status": None, "result": self._text}
        if self._error:
            status, kind = self._error
            failed = {"is_error": True, "api_error_status": status, "api_error_type": kind, "num_turns": 1}
            return said | failed | {"terminal_reason": "api_error", "stop_reason": "stop_sequence"}
        first = int(((self._first_frame or time.monotonic()) - self._begun) * 1000)
        said |= {"ttft_ms": first, "ttft_stream_ms": first, "time_to_request_ms": 0, "first_content_frame_ms": first}
        if ending == "preempted":
            return said | {"terminal_reason": "aborted_streaming", "stop_reason": None}
        return said | {"terminal_reason": "completed"}

    def _uuids(self) -> dict[str, Any]:
        uuids = [message.uuid for message in self._openers + self._folded if message.uuid]
        opener = next((message.uuid for message in reversed(self._openers) if message.uuid), None)
        return {"user_message_uuid": opener, "user_message_uuids": uuids} if opener else {}


def _decision(decision: str, source: str, reason_type: str) -> dict[str, str]:
    return {"decision": decision, "source": source} | ({"reason_type": reason_type} if reason_type else {})
