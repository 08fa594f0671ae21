"""The demo agent: a scripted program that speaks the stream-json dialect of Claude Code 2.1.332.

It needs no account, no network and no package but Python, so a newcomer can try every button of Untether with it,
and tests have a second, fast agent that goes through the real Claude session. Started like Claude Code in control
mode, it says nothing until stdin speaks; `-p` without `--input-format stream-json` is the one-shot form, with the
prompt as text on stdin. It remembers its conversations (see `memory`), so `--resume=ID` works.

The first of these words in a prompt chooses what it does (see `script`); anything else gets a plain answer that lists
them: `tools`, `permission` or `command`, `write` or `edit`, `plan`, `choice`, `question`, `long`, `slow [seconds]`,
`subagent`, `remember`, `what did I say`; and for tests `error`, `crash`, `garbage`, `huge [megabytes]`, `silent`,
`half`, `lines N`. Files are written only when allowed, and only as `untether-demo.txt` in the working folder.

`UNTETHER_DEMO_SPEED` stretches the pauses (2 doubles them, 0 removes them). Tokens and costs are invented. As in
2.1.332, the totals in a result go on with a resumed conversation. Not spoken: hooks, MCP, partial messages,
background work, slash commands.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from . import frames, memory, script, tools
from .options import Options, UsageError
from .turn import Interrupted, Message, Preempted, Turn
from .wire import FatalInput, Terminated, Wire, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NO_INPUT = "Error: Input must be provided either through stdin or as a prompt argument when using --print"
HELP = "Usage: untether-demo [-p] --output-format stream-json --verbose [--input-format stream-json] [options]"
BAD_MODE = f"Cannot set permission mode: must be one of {', '.join(frames.MODES)}"
NO_BYPASS = (
    "Cannot set permission mode to bypassPermissions because the session was not launched with "
    "--dangerously-skip-permissions"
)


class Agent:
    """One conversation: the messages that wait, the control channel, and the settings that a turn works under."""

    def __init__(self, options: Options, wire: Wire, memory_: memory.Memory) -> None:
        self.wire = wire
        self.memory = memory_
        self.cwd = os.getcwd()
        self.mode = options.mode
        self.mode_before_plan = "default"
        self.model = options.model or frames.MODEL
        self.rules = options.rules
        self.directories: list[str] = []
        self.can_ask = options.can_ask
        self.speed = _speed()
        self.context_tokens = 1_000 + sum(map(len, memory_.prompts)) // 4
        self._settings = dict(options.settings)
        self._may_bypass = options.may_bypass
        self._replays = options.replay
        self._tells_state = os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1"
        self._queue: list[Message] = []
        self._resumed_uuids = frozenset(memory_.uuids)
        self._uuids = set(memory_.uuids)
        self._turn: Turn | None = None
        self._cut = False  # an interrupt came for the running turn
        self._pending: Pending | None = None
        self._results = 0
        self._failed = False

    # Running

    def run(self) -> int:
        """Work on messages until stdin ends or a signal comes; the exit code tells whether the last turn failed."""
        while True:
            while not self._queue:
                line = self.wire.next_line()
                if line is not None:
                    self._handle(line)
                elif self.wire.signal == signal.SIGINT:
                    return 0
                elif self.wire.eof:
                    return int(self._failed)
                else:
                    self.wire.wait(None)
            self._run_turn(self._next_messages())
            if self.wire.signal == signal.SIGINT:
                return 0

    def run_once(self, prompt: str) -> int:
        """The one-shot form: one prompt, one turn."""
        self._run_turn([Message(prompt, "", "next")])
        return 0 if self.wire.signal == signal.SIGINT else int(self._failed)

    def _next_messages(self) -> list[Message]:
        """The messages of the next turn: an urgent one alone, else all that wait, merged into one turn."""
        chosen = next(([message] for message in self._queue if message.priority == "now"), list(self._queue))
        self._queue = [message for message in self._queue if message not in chosen]
        return chosen

    def _run_turn(self, messages: list[Message]) -> None:
        self._cut = False
        turn = self._turn = Turn(self, messages)
        ending = "completed"
        try:
            turn.begin()
            if turn.prompt and not turn.prompt.strip():
                ending = "blank"
            else:
                script.play(turn)
        except Interrupted:
            ending = "interrupted"
        except Preempted:
            ending = "preempted"
        self._turn = None
        self._failed = turn.finish(ending)
        if not self._queue:
            self._tell_state("idle")

    def listen(self, timeout: float | None, fd: int = -1) -> bool:
        """Wait as `Wire.wait` does and handle what came; raises `Interrupted` when the turn was cut."""
        readable = self.wire.wait(timeout, fd)
        while (line := self.wire.next_line()) is not None:
            self._handle(line)
        if self.wire.signal == signal.SIGINT and not self._cut:
            self._withdraw()
            self._cut = True
        if self._cut:
            raise Interrupted
        return readable

    # What turns use

    @property
    def preempted(self) -> bool:
        return any(message.priority == "now" for message in self._queue)

    @property
    def terminated(self) -> bool:
        return self.wire.signal == signal.SIGTERM

    def child_started(self, pid: int) -> None:
        self.wire.child = pid

    def next_result_index(self) -> int:
        self._results += 1
        return self._results - 1

    def take_waiting(self) -> list[Message]:
        """The waiting messages that may join the running turn."""
        taken = [message for message in self._queue if message.priority != "later"]
        self._queue = [message for message in self._queue if message.priority == "later"]
        return taken

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame that is not a control frame: with the session's id, and a uuid if it has none."""
        self.wire.send(frame | {"session_id": self.memory.session_id, "uuid": frame.get("uuid") or frames.new_uuid()})

    def lifecycle(self, message: Message, state: str) -> None:
        if message.uuid:
            self.send(frames.lifecycle(message.uuid, state))

    def replay(self, text: str, uuid: str) -> None:
        """Show a message that was taken in, if --replay-user-messages asks for it."""
        if self._replays:
            self.send(frames.user(text) | {"isReplay": True, "uuid": uuid})

    def judge(self, name: str, call: dict[str, Any]) -> tools.Verdict:
        ask_in_plan = self._settings.get("useAutoModeDuringPlan") is False
        return tools.judge(name, call, self.mode, self.rules, self.memory.plan_path, ask_in_plan=ask_in_plan)

    def set_mode(self, mode: str) -> None:
        """Change the permission mode, and tell, unless it is the same."""
        if self._adopt(mode):
            self.send(frames.status(mode))

    def _adopt(self, mode: str) -> bool:
        changed = mode != self.mode
        if changed and mode == "plan":
            self.mode_before_plan = self.mode
        self.mode = mode
        return changed

    def grant(self, updates: Any) -> None:
        """Apply `updatedPermissions`; what is malformed or not allowed is passed over without a word."""
        for update in updates if isinstance(updates, list) else []:
            if not isinstance(update, dict):
                continue
            mode = update.get("mode")
            if update.get("type") == "setMode" and mode in frames.MODES and mode != "bypassPermissions":
                self.set_mode(mode)
            elif update.get("type") == "addDirectories":
                found = update.get("directories")
                self.directories += [str(path) for path in found] if isinstance(found, list) else []
            elif update.get("type") == "addRules" and update.get("behavior") == "allow":
                rules = [rule for rule in update.get("rules") or [] if isinstance(rule, dict)]
                for tool, content in ((rule.get("toolName"), rule.get("ruleContent")) for rule in rules):
                    self.rules.append(f"{tool}({content})" if content else str(tool))

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a `can_use_tool` and wait for its answer; None when stdin ended before one came."""
        if self.wire.eof:
            return None
        pending = self._pending = Pending()
        self._tell_state("requires_action")
        self.wire.send({"type": "control_request", "request_id": pending.request_id, "request": request})
        try:
            while pending.answer is None and not self.wire.eof:
                self.listen(None)
        finally:
            self._pending = None
        self._tell_state("running")
        return pending.answer

    def _tell_state(self, state: str) -> None:
        if self._tells_state:
            self.send({"type": "system", "subtype": "session_state_changed", "state": state})

    # Lines from the host

    def _handle(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            frame = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            text = f"Error parsing streaming input line (type=unknown, {len(line)} chars): SyntaxError"
            raise FatalInput(text) from error
        kind = frame.get("type") if isinstance(frame, dict) else None
        if not isinstance(frame, dict) or (kind == "user" and not isinstance(frame.get("message"), dict)):
            raise FatalInput(f"Error parsing streaming input line (type={kind}, {len(line)} chars): TypeError")
        if kind == "user":
            self._receive(frame)
        elif kind == "control_request":
            if not isinstance(frame.get("request"), dict):
                raise FatalInput("Error: Missing request on control_request")
            self._control(frame.get("request_id"), frame["request"])
        elif kind == "control_response":
            response = frame.get("response")
            if self._pending and isinstance(response, dict):
                self._pending.take(response)

    def _receive(self, frame: dict[str, Any]) -> None:
        """A user message: it waits for its turn. One whose uuid was seen before is dropped."""
        role = frame["message"].get("role")
        if role != "user":
            raise FatalInput(f"Error: Expected message role 'user', got '{role}'")
        message = Message(frame["message"].get("content"), str(frame.get("uuid") or ""), str(frame.get("priority")))
        if message.uuid in self._uuids:
            self.replay(message.text, message.uuid)
            if message.uuid in self._resumed_uuids:
                self.lifecycle(message, "completed")
            return
        if message.uuid:
            self._uuids.add(message.uuid)
        if self._turn is None and not self._queue:
            self._tell_state("running")
        self.lifecycle(message, "queued")
        self._queue.append(message)

    def _control(self, request_id: Any, request: dict[str, Any]) -> None:
        handlers: dict[Any, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "initialize": lambda _: frames.initialize_response(self.mode, "running" if self._turn else "idle"),
            "interrupt": self._interrupt,
            "set_permission_mode": self._set_permission_mode,
            "set_model": self._set_model,
            "get_plan": self._get_plan,
            "cancel_async_message": self._cancel_message,
            "apply_flag_settings": self._apply_settings,
            "get_context_usage": self._context_usage,
            "list_models": lambda _: {"models": frames.models()},
            "mcp_status": lambda _: {"mcpServers": []},
            "get_binary_version": lambda _: {"version": frames.DIALECT},
            "stop_task": lambda _: {},
            "background_tasks": lambda _: {},
            "set_max_thinking_tokens": lambda _: None,
        }
        subtype = request.get("subtype")
        handler = handlers.get(subtype) if isinstance(subtype, str) else None
        mode = self.mode
        response: dict[str, Any] = {"subtype": "success", "request_id": request_id}
        try:
            if handler is None:
                raise Refused(f"Unsupported control request subtype: {subtype or 'undefined'}", "unsupported_request")
            payload = handler(request)
        except Refused as refused:
            response |= {"subtype": "error", "error": refused.text, "error_code": refused.code}
        else:
            response |= {} if payload is None else {"response": payload}
        self.wire.send({"type": "control_response", "response": response})
        if self.mode != mode:
            self.send(frames.status(self.mode))  # the answer comes first, then the change that it caused

    def _interrupt(self, request: dict[str, Any]) -> dict[str, Any]:
        cancelled: list[Message] = []
        if request.get("cancel_queued") is True:
            cancelled, self._queue = self._queue, []
        for message in cancelled:
            self.lifecycle(message, "cancelled")
        if self._turn is not None:
            self._withdraw()
            self._cut = True
        receipt = {"still_queued": [message.uuid for message in self._queue if message.uuid]}
        if request.get("cancel_queued") is True:
            receipt["cancelled"] = [message.uuid for message in cancelled if message.uuid]
        return receipt

    def _withdraw(self) -> None:
        if self._pending:
            self.wire.send({"type": "control_cancel_request", "request_id": self._pending.request_id})
            self._pending = None

    def _set_permission_mode(self, request: dict[str, Any]) -> dict[str, Any]:
        mode = "default" if request.get("mode") == "manual" else request.get("mode")
        if mode not in frames.MODES:
            raise Refused(BAD_MODE, "invalid_mode")
        if mode == "bypassPermissions" and not self._may_bypass:
            raise Refused(NO_BYPASS, "bypass_not_launched")
        self._adopt(str(mode))
        return {"mode": mode}

    def _set_model(self, request: dict[str, Any]) -> dict[str, Any]:
        """A running turn keeps its model; the change shows from the next `init` on."""
        model = request.get("model")
        self.model = str(model) if model and model != "default" else frames.MODEL
        if self._results or self._turn:
            text = f"<local-command-stdout>Set model to `{self.model}`</local-command-stdout>"
            self.send(frames.user(text) | {"isReplay": True})
        return {"model": self.model}

    def _get_plan(self, _request: dict[str, Any]) -> dict[str, Any]:
        content = tools.read_text(self.memory.plan_path)
        return {"exists": content is not None, "content": content, "path": self.memory.plan_path}

    def _cancel_message(self, request: dict[str, Any]) -> dict[str, Any]:
        uuid = request.get("message_uuid")
        found = [message for message in self._queue if message.uuid and message.uuid == uuid]
        self._queue = [message for message in self._queue if message not in found]
        for message in found:
            self.lifecycle(message, "cancelled")
        return {"cancelled": True, "message_uuid": uuid} if found else {"cancelled": False}

    def _apply_settings(self, request: dict[str, Any]) -> None:
        settings = request.get("settings")
        self._settings |= settings if isinstance(settings, dict) else {}

    def _context_usage(self, _request: dict[str, Any]) -> dict[str, Any]:
        used, size = self.context_tokens, frames.CONTEXT_WINDOW
        category = {"id": "messages", "name": "Messages", "tokens": used, "color": "inactive", "kind": "used"}
        facts = {"maxTokens": size, "rawMaxTokens": size, "percentage": round(100 * used / size), "model": self.model}
        return {"categories": [category], "totalTokens": used} | facts


class Pending:
    """A permission request that waits for its answer; the first one counts."""

    def __init__(self) -> None:
        self.request_id = frames.new_uuid()
        self.answer: dict[str, Any] | None = None

    def take(self, response: dict[str, Any]) -> None:
        if self.answer is None and response.get("request_id") == self.request_id:
            self.answer = response


class NoConversation(Exception):
    """There is nothing to resume under the id that was given."""


class Refused(Exception):
    """A control request that cannot be done."""

    def __init__(self, text: str, code: str) -> None:
        self.text = text
        self.code = code


def _speed() -> float:
    try:
        return max(0.0, float(os.environ.get("UNTETHER_DEMO_SPEED", "1")))
    except ValueError:
        return 1.0


def _open_memory(options: Options) -> memory.Memory:
    """The conversation to go on with, or a new one. Raises `UsageError` and `NoConversation`."""
    folder, cwd = memory.home(), os.getcwd()
    if options.session_id and memory.exists(folder, options.session_id):
        raise UsageError(f"Error: Session ID {options.session_id} is already in use.")
    found = memory.latest(folder, cwd) if options.resume_latest else None
    if options.resume is not None:
        found = memory.load(folder, options.resume)
        if found is None and memory.UUID.fullmatch(options.resume):
            raise NoConversation(f"No conversation found with session ID: {options.resume}")
        if found is None:
            raise NoConversation(
                "Error: --resume requires a valid session ID or session title when used with --print. Provided value "
                f'"{options.resume}" is not a UUID and does not match any session title.'
            )
    if found is None:
        memory.forget_old(folder)
        return memory.Memory(folder, options.session_id or frames.new_uuid(), cwd)
    if options.fork:
        found.session_id = options.session_id or frames.new_uuid()
    return found


def _nothing_to_resume(wire: Wire, options: Options, text: str) -> int:
    complain(text)
    known = memory.UUID.fullmatch(options.resume or "")
    result = {
        "type": "result",
        "subtype": "error_during_execution",
        "duration_ms": 0,
        "duration_api_ms": 0,
        "is_error": True,
        "num_turns": 0,
        "stop_reason": None,
        "session_id": options.resume if known else frames.new_uuid(),
        "total_cost_usd": 0,
        "usage": frames.usage(0, 0, 0),
        "modelUsage": {},
        "permission_denials": [],
        "uuid": frames.new_uuid(),
        "errors": [text],
    }
    wire.send(result)
    return 1


def _start(argv: list[str]) -> int:
    options = Options(argv)
    if options.version or options.help:
        print(f"{frames.DIALECT} (Untether demo agent)" if options.version else HELP)
        return 0
    prompt = options.words
    if sys.stdin.isatty() and (options.stream_input or not prompt):
        raise UsageError(NO_INPUT)
    if not options.stream_input and not prompt:
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")
        if not prompt:
            raise UsageError(NO_INPUT)
    wire = Wire(listen=options.stream_input)
    try:
        agent = Agent(options, wire, _open_memory(options))
        return agent.run() if options.stream_input else agent.run_once(prompt)
    except NoConversation as error:
        return _nothing_to_resume(wire, options, str(error))


def main() -> int:
    """Run the demo agent with the arguments of this process; the exit code is for `sys.exit`."""
    try:
        return _start(sys.argv[1:])
    except (UsageError, FatalInput) as error:
        complain(str(error))
        return 1
    except Terminated:
        return 128 + signal.SIGTERM
    except BrokenPipeError:
        return 1  # nobody reads us any more
    except KeyboardInterrupt:
        return 130  # before `Wire` has taken over the signals


if __name__ == "__main__":
    sys.exit(main())
