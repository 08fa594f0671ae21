"""What each notification of `codex app-server` means: the state of one process, over the parts of its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import TextEvent
from ...schemas import codex as schema
from ...schemas import codex_items as kinds
from ...schemas.tolerant import Unknown
from ..turns import Outcome, stopped
from . import items, results
from .parts import Parts

_UNKNOWN_AGENT = "a sub-agent"


class Stream:
    """Takes notifications in their order. `on_turn_end` is called when the turn of the main thread is over.

    `now` is the time of the line or input at hand, `sign` that of the last sign of life of the main thread, `unknown`
    counts what has no name here, `turn_id` is the running turn, "" for none.
    """

    def __init__(self, parts: Parts, on_turn_end: Callable[[schema.TurnInfo], None]) -> None:
        self._parts = parts
        self._on_turn_end = on_turn_end
        self.now = 0.0
        self.sign = 0.0
        self.turn_id = ""
        self.unknown: dict[str, int] = {}
        self._partial: tuple[str, str] = ("", "")  # the message that is being written: its item, and the text so far
        self._remark = ""  # the message that is being written and is no answer
        self._final = False  # the turn has its final answer
        self._earlier: list[str] = []  # answers in the turn, each ended by a further message of the person
        self._just_said = False  # a message was the last that came
        self._agents: dict[str, str] = {}  # threads of sub-agents → their names
        self._parents: dict[str, str] = {}  # … → the steps that started them
        self._handlers: dict[str, Callable[[Any], None]] = {
            "item/started": self._item_started,
            "item/completed": self._item_completed,
            "item/agentMessage/delta": self._text,
            "item/commandExecution/outputDelta": self._printed,
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "turn/plan/updated": self._todo,
            "thread/started": self._thread_started,
            "thread/tokenUsage/updated": self._tokens,
            "thread/settings/updated": self._settings,
            "account/rateLimits/updated": lambda told: parts.notices.limits(told.rate_limits, self.now),
            "serverRequest/resolved": lambda told: parts.requests.resolved(told.request_id),
            "model/rerouted": self._rerouted,
            "mcpServer/startupStatus/updated": self._mcp,
            "hook/started": lambda told: parts.notices.hook_started(told.run, self.now),
            "hook/completed": lambda told: parts.notices.hook_ended(told.run),
            "error": self._error,
            "warning": lambda told: parts.notices.warn(told.message),
            "guardianWarning": lambda told: parts.notices.warn(told.message),
            "configWarning": lambda told: parts.notices.warn(": ".join(filter(None, (told.summary, told.details)))),
        }

    def take(self, message: schema.Message) -> None:
        """One notification."""
        handler = self._handlers.get(message.method)
        if handler is not None:
            handler(schema.decode_as(schema.NOTIFICATIONS[message.method], message.params))
        elif message.method not in schema.QUIET:
            self.count(message.method)

    def count(self, name: str) -> None:
        self.unknown[name] = self.unknown.get(name, 0) + 1

    def agent_name(self, thread: str) -> str:
        """Who works in a thread: "" for the main agent."""
        return "" if self._is_main(thread) else self._agents.get(thread) or _UNKNOWN_AGENT

    def _is_main(self, thread: str) -> bool:
        return not thread or not self._parts.thread.id or thread == self._parts.thread.id

    # -------------------------------------------------------------------------------------------------------- turns

    def _turn_started(self, told: schema.TurnEventParams) -> None:
        if told.turn.id and self._is_main(told.thread_id):
            self.begin_turn(told.turn.id)

    def begin_turn(self, id: str) -> None:
        """A turn of the main thread has begun, one of ours or one that Codex began by itself."""
        self.sign = self.now
        self.turn_id = id
        self._final, self._just_said, self._partial = False, False, ("", "")
        self._earlier.clear()
        asked, prompts = self._parts.ledger.starting, self._parts.ledger.begun()
        turn = self._parts.turns.open
        if turn is None:
            self._parts.turns.begin(prompts, "" if asked else "background task", self.now)
        else:
            turn.prompts += prompts  # it goes on with the run that is open: a plan was decided on
            turn.written = ""

    def _turn_completed(self, told: schema.TurnEventParams) -> None:
        if not told.turn.id:
            self.count("turn/completed without a turn")
            return
        self._parts.requests.withdraw_turn(told.thread_id, "The turn is over.")
        if not self._is_main(told.thread_id):
            return
        if not self.turn_id:
            self.begin_turn(told.turn.id)
        self.turn_id = ""
        self._on_turn_end(told.turn)

    def written(self) -> str:
        """The answer of the open turn so far, one that was being written included."""
        turn = self._parts.turns.open
        last = self._partial[1] or (turn.written if turn is not None else "")
        return "\n\n".join(filter(None, (text.strip("\n") for text in (*self._earlier, last))))

    # -------------------------------------------------------------------------------------------------------- items

    def _item_started(self, told: schema.ItemEvent) -> None:
        item: Any = told.item
        if self._is_main(told.thread_id):
            self.sign = self.now
            if not isinstance(item, kinds.UserMessage):
                self._parts.notices.answered(ok=True)
                self._just_said = False
            if isinstance(item, kinds.ContextCompaction):
                self._parts.notices.compacting(self.now)
            elif isinstance(item, kinds.AgentMessage) and item.phase == "commentary":
                self._remark = item.id
        shown = items.show(item, self._parts.root) if self._parts.turns.open is not None else None
        if shown is not None and item.id:
            self._begin_step(told, shown)

    def _begin_step(self, told: schema.ItemEvent, shown: items.Shown) -> None:
        item: Any = told.item
        parent = "" if self._is_main(told.thread_id) else self._parents.get(told.thread_id, "")
        self._parts.steps.start(item.id, shown, self.now, thread=told.thread_id, parent=parent, item=item)

    def _item_completed(self, told: schema.ItemEvent) -> None:
        item: Any = told.item
        if isinstance(item, Unknown):
            self.count(f"item/{item.name}")
            return
        if not item.id:
            self.count("item without an id")
            return
        if self._is_main(told.thread_id):
            self.sign = self.now
            self._main_item(item)
        if isinstance(item, kinds.CollabToolCall | kinds.SubAgentActivity):
            self._note_agents(item)
        shown = items.show(item, self._parts.root)
        if shown is None or self._parts.steps.finish(item.id, shown) or self._parts.turns.open is None:
            return
        self._begin_step(told, shown)  # one that comes complete at once
        self._parts.steps.finish(item.id, shown)

    def _main_item(self, item: Any) -> None:
        parts = self._parts
        match item:
            case kinds.UserMessage(client_id=client_id) if (turn := parts.turns.open) is not None:
                if parts.ledger.take(client_id, turn.prompts) and self._just_said and turn.written:
                    self._earlier.append(turn.written)
                    turn.written, self._final = "", False
            case kinds.AgentMessage():
                self._said(item)
            case kinds.Reasoning() if text := items.heading(item):
                parts.output.note(item.id, "note", text, message=items.beginning("\n".join(item.summary)))
            case kinds.Plan():
                parts.plan.text = item.text
            case kinds.ContextCompaction():
                parts.notices.compacted(ok=True)
            case kinds.ExitedReviewMode() if item.review and parts.turns.open is not None:
                parts.turns.open.written = item.review

    def _said(self, item: kinds.AgentMessage) -> None:
        """A message of the main agent: a remark on the way, or the answer. The final answer counts before the last."""
        self._partial = ("", "")
        turn = self._parts.turns.open
        if turn is None or not item.text.strip():
            return
        if item.phase == "commentary":
            self._parts.output.note(item.id, "note", item.text)
        elif item.phase == "final_answer" or not self._final:
            self._final |= item.phase == "final_answer"
            self._just_said = True
            turn.written = item.text

    def _text(self, told: schema.Delta) -> None:
        if self._is_main(told.thread_id):
            self.sign = self.now
            id, text = self._partial
            self._partial = (told.item_id, (text if id == told.item_id else "") + told.delta)
            if self._parts.turns.open is not None and told.item_id != self._remark:
                self._parts.output.events.append(TextEvent(self._parts.output.engine, told.delta, told.item_id))

    def _printed(self, told: schema.Delta) -> None:
        self.sign = self.now
        self._parts.steps.update(told.item_id, told.delta.rstrip("\n")[-items.LONGEST_MESSAGE :])

    def _note_agents(self, item: kinds.CollabToolCall | kinds.SubAgentActivity) -> None:
        """Which step started which sub-agent."""
        threads = item.receiver_thread_ids if isinstance(item, kinds.CollabToolCall) else (item.agent_thread_id,)
        for thread in threads:
            if isinstance(item, kinds.CollabToolCall):
                self._parents.setdefault(thread, item.id)
            elif item.agent_path:
                self._agents.setdefault(thread, item.agent_path.rsplit("/", 1)[-1])

    def _todo(self, told: schema.PlanUpdated) -> None:
        if not self._is_main(told.thread_id) or self._parts.turns.open is None or not told.plan:
            return
        steps = [(step.step, step.status == "completed") for step in told.plan]
        listed = "\n".join(f"{'✓' if done else '·'} {text}" for text, done in steps)
        self._parts.output.note(f"todo-{told.turn_id}", "note", items.todo(steps), message=listed)

    # ------------------------------------------------------------------------------------------------ on the side

    def _thread_started(self, told: schema.ThreadStarted) -> None:
        thread = told.thread
        if thread.id != self._parts.thread.id and thread.parent_thread_id:
            self._agents[thread.id] = thread.agent_nickname or _UNKNOWN_AGENT

    def _tokens(self, told: schema.TokenUsageUpdated) -> None:
        working = self._parts.turns.open is not None
        main = self._is_main(told.thread_id)
        self._parts.meter.read(told.thread_id, told.token_usage, main=main, working=working)

    def _settings(self, told: schema.SettingsUpdated) -> None:
        if self._is_main(told.thread_id):
            self._parts.thread.know(model=told.thread_settings.model)

    def _rerouted(self, told: schema.Rerouted) -> None:
        if self._is_main(told.thread_id):
            self._parts.output.note(
                self._parts.output.new_id("note"), "note", f"{told.to_model} took over from {told.from_model}"
            )
            self._parts.thread.know(model=told.to_model)

    def _mcp(self, told: schema.McpStartup) -> None:
        if told.status == "failed":
            self._parts.notices.warn(f"The MCP server {told.name} did not start: {told.error or 'no reason told'}")

    def _error(self, told: schema.ErrorNotice) -> None:
        """`will_retry`: a notice. Else the turn ends as failed right after, and tells the same."""
        if told.will_retry:
            self._parts.notices.retry(told, self.now)


def failure(turn: schema.TurnInfo, written: str) -> Outcome:
    """How a turn ended that did not end well."""
    return stopped(written) if turn.status == "interrupted" else results.failed(turn.error, written)
