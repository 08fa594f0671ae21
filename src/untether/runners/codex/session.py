"""The Codex session: lines and inputs go in, events and lines for its stdin come out, with no I/O.

One instance is one process of `codex app-server`, which serves one thread: it is greeted, opens the thread and answers
one turn after another until its stdin is closed. Here are the inputs and the answers to our requests; `stream` takes
the notifications. Both work on parts that have one subject each: `thread` (which session, and what its turns are
told), `prompts` (which message is answered when), `requests` (what a person decides), `plan`, `steps`, `notices`,
`results` and `usage`.

Messages are queued here and not by Codex: a `turn/start` during a turn would go into that turn. What is said `now`
goes into the running turn (`turn/steer`), all else gets a turn of its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...model import Allow, Decision, Deny, Wait
from ...schemas import codex as schema
from ...session import (
    CallResult,
    Capabilities,
    ProcessExit,
    Prompt,
    SessionChange,
    SetEffort,
    SetModel,
    SetPermissionMode,
    StartFacts,
    Step,
    StopTask,
    When,
    Withdraw,
)
from ..output import NOTHING
from ..turns import Outcome, ended_early, stopped
from . import plan, results
from .asked import Scene
from .parts import Parts
from .policies import APP_SERVER, DEFAULT
from .prompts import user_input
from .rpc import Call, text_input
from .stream import Stream, failure

COMPACT = "/compact"
_NOISE = "could not find bubblewrap"
_COMPACTED = "The conversation was compacted."


class CodexSession:
    """One process of `codex app-server`; see `session.EngineSession`."""

    def __init__(self, engine: str = "codex") -> None:
        self._parts = parts = Parts(engine)
        self._output = parts.output
        self._stream = Stream(parts, self._turn_ended)
        self._interrupting = False  # the end of the turn was asked for
        self._too_early = False  # … and is to be asked for once the turn has begun
        self._compacts = False  # the turn is one that compacts
        self._over = False  # the thread could not be opened
        self._ended = False

    @property
    def capabilities(self) -> Capabilities:
        return APP_SERVER

    @property
    def unknown(self) -> dict[str, int]:
        """Names of notifications, requests and items that have no place here, each with its count."""
        return dict(self._stream.unknown)

    @property
    def waits(self) -> tuple[Wait, ...]:
        if self._deaf:
            return ()
        parts, stream = self._parts, self._stream
        waits = parts.requests.waits() + parts.plan.waits()
        waits += (
            parts.notices.holding_up() + parts.notices.quota(stream.now) + parts.steps.waits(parts.requests.steps())
        )
        working = parts.turns.open is not None or parts.ledger.waiting
        if working and not waits:
            waits.append(Wait("model", stream.sign))
        return tuple(waits + parts.steps.background())

    @property
    def _deaf(self) -> bool:
        """True when nothing that is said reaches the agent any more."""
        return self._ended or self._over

    # ------------------------------------------------------------------------------------------------------ inputs

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        self._stream.now = self._stream.sign = now
        self._parts.begin(start)
        self._parts.ledger.queue.append(prompt)
        return self._output.take()

    def say(self, prompt: Prompt, when: When, now: float) -> Step:
        stream, parts = self._stream, self._parts
        stream.now = now
        if self._deaf:
            self._output.prompt(prompt.id, "handed_back")
        elif parts.plan.open is not None:
            parts.plan.close("withdrawn", "A message came instead.")
            parts.plan.take()
            self._start_turn(prompt)
        elif when == "now" and stream.turn_id:
            parts.ledger.steer(prompt)
            self._ask("turn/steer", prompt, expectedTurnId=stream.turn_id)
        elif when == "replace" and stream.turn_id:
            parts.ledger.queue.insert(0, prompt)
            self._interrupt()
        else:
            parts.ledger.queue.append(prompt)
            self._next_turn()
        return self._output.take()

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        self._stream.now = now
        parts = self._parts
        if self._deaf:
            return NOTHING
        if parts.plan.open is not None and parts.plan.open.id == interaction_id:
            self._decide_plan(decision)
        elif parts.requests.decide(interaction_id, decision):
            self._stream.sign = now
            self._interrupting |= isinstance(decision, Deny) and decision.interrupt
        return self._output.take()

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        """Also before the turn has begun: it then ends at its start. A plan that waits is withdrawn."""
        self._stream.now = now
        parts = self._parts
        if self._deaf:
            return NOTHING
        if cancel_queued:
            parts.ledger.withdraw()
        if parts.plan.open is not None:
            parts.plan.close("withdrawn", "The run was stopped.")
            self._close_turn(stopped(self._written_with_plan()))
        elif self._stream.turn_id:
            self._interrupt()
        elif parts.ledger.starting or not parts.thread.id:
            self._interrupting = self._too_early = True
        return self._output.take()

    def configure(self, change: SessionChange, now: float) -> Step:
        """What concerns turns counts from the next one on."""
        self._stream.now = now
        if self._deaf:
            return NOTHING
        match change:
            case SetModel(model):
                self._parts.thread.set_model(model)
            case SetEffort(effort):
                self._parts.thread.set_effort(effort)
            case SetPermissionMode(mode):
                self._parts.thread.set_mode(mode)
            case Withdraw(prompt_id):
                self._parts.ledger.withdraw(prompt_id)
            case StopTask(task_id):
                self._stop_task(task_id)
        return self._output.take()

    def _stop_task(self, id: str) -> None:
        """End a terminal in the background, or all of them."""
        if not id:
            self._ask("thread/backgroundTerminals/clean")
        elif (process := self._parts.steps.terminal(id)) is not None:
            self._ask("thread/backgroundTerminals/terminate", processId=process)

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        return NOTHING

    def tick(self, now: float) -> Step:
        return NOTHING

    # ------------------------------------------------------------------------------------------------------- lines

    def feed(self, line: bytes, now: float) -> Step:
        stream = self._stream
        stream.now = now
        if self._deaf:
            return NOTHING
        try:
            message = schema.decode(line)
        except schema.NotAFrame:
            if text := line.decode("utf-8", "replace").strip(" \t\r\0\ufeff"):
                self._output.warning("Codex printed a line that is not understood", {"line": text[:200]})
            return self._output.take()
        if not message.method:
            self._answered(message)
        elif message.id is not None:
            self._asked(message, message.id)
        else:
            stream.take(message)
            if self._too_early and stream.turn_id:
                self._interrupt()
        return self._output.take()

    def skipped(self, length: int, now: float) -> Step:
        self._stream.now = now
        self._output.warning(f"A line of {length / 1e6:.0f} MB from Codex was too long and is left out")
        return self._output.take()

    def _asked(self, message: schema.Message, id: schema.RequestId) -> None:
        """A request of Codex. One that is not known here is refused, so that it never waits."""
        parts = self._parts
        kind = schema.REQUESTS.get(message.method)
        if kind is None:
            self._stream.count(message.method)
            parts.rpc.refuse(id, f"Untether does not serve {message.method}")
            return
        asked = schema.decode_as(kind, message.params)
        patch = parts.steps.changes(asked.item_id) if isinstance(asked, schema.PatchApproval) else ()
        tool = parts.steps.tool_of(asked.server_name) if isinstance(asked, schema.Elicitation) else ("", "")
        scene = Scene(parts.root, parts.thread.home, patch, *tool)
        parts.requests.ask(id, asked, scene, asked_by=self._stream.agent_name(asked.thread_id), now=self._stream.now)

    def _answered(self, message: schema.Message) -> None:
        """An answer to a request of ours. Late, doubled and foreign ones come, and mean nothing."""
        call = self._parts.rpc.answered(message.id)
        self._parts.requests.told(message.id)
        if call is None:
            self._stream.count("response")
        elif message.error is not None:
            self._refused(call, message.error)
        else:
            self._granted(call, message.result)

    def _granted(self, call: Call, result: msgspec.Raw) -> None:
        parts = self._parts
        match call.method:
            case "initialize":
                parts.thread.greeted(schema.decode_as(schema.Initialized, result))
            case "thread/list":
                parts.thread.listed(schema.decode_as(schema.ThreadList, result))
            case "thread/start" | "thread/resume" | "thread/fork":
                parts.thread.opened(schema.decode_as(schema.ThreadResult, result))
                self._opened()
            case "turn/start":
                turn = schema.decode_as(schema.TurnResult, result).turn
                if parts.ledger.starting and self._stream.turn_id == turn.id:
                    parts.ledger.joined()

    def _refused(self, call: Call, error: schema.RpcError) -> None:
        parts = self._parts
        match call.method:
            case "initialize" | "thread/start" | "thread/resume" | "thread/fork":
                self._fail(results.refused(error))
            case "thread/list":
                parts.thread.open("")
            case "turn/start" | "thread/compact/start":
                if parts.turns.open is None:
                    parts.turns.begin(parts.ledger.not_begun(), "", self._stream.now)
                self._close_turn(results.refused(error))
            case "turn/steer" if call.prompts:  # the turn was over, or takes nothing
                parts.ledger.again(call.prompts)
                self._next_turn()
            case "turn/steer":
                self._output.warning("Codex could not be told why that was refused", {"error": error.message})

    # ------------------------------------------------------------------------------------------------------- turns

    def _ask(self, method: str, *prompts: Prompt, **params: Any) -> None:
        """A request about the thread; of `prompts` there is one at most."""
        for prompt in prompts:
            params |= {"input": user_input(prompt), "clientUserMessageId": prompt.id}
        ids = [prompt.id for prompt in prompts]
        self._parts.rpc.ask(method, {"threadId": self._parts.thread.id, **params}, *ids)

    def _start_turn(self, prompt: Prompt) -> None:
        self._stream.sign = self._stream.now
        self._compacts = prompt.text.strip() == COMPACT
        self._parts.ledger.start(prompt)
        if self._compacts:
            self._parts.rpc.ask("thread/compact/start", {"threadId": self._parts.thread.id}, prompt.id)
        else:
            self._ask("turn/start", prompt, **self._parts.thread.overrides())

    def _next_turn(self) -> None:
        """Begin a turn for the next message that waits, when nothing is going on."""
        parts = self._parts
        idle = parts.turns.open is None and not parts.ledger.starting and parts.thread.id
        if idle and parts.ledger.queue:
            self._start_turn(parts.ledger.queue.pop(0))

    def _go_on(self, text: str) -> None:
        """Another turn of the run that is open."""
        self._parts.ledger.start()
        self._ask("turn/start", input=[text_input(text)], **self._parts.thread.overrides())

    def _opened(self) -> None:
        """The thread is open. A stop that came before ends the run here."""
        if self._too_early:
            self._begin_unstarted()
            self._close_turn(stopped(""))
        else:
            self._next_turn()

    def _begin_unstarted(self) -> None:
        """Open the turn of a message for which none began."""
        ledger = self._parts.ledger
        if not ledger.starting and ledger.queue and not self._parts.turns.completed:
            ledger.start(ledger.queue.pop(0))
        if ledger.starting:
            self._parts.turns.begin(ledger.not_begun(), "", self._stream.now)

    def _interrupt(self) -> None:
        """Codex leaves a running command alone, so its terminals are ended too (recording as_interrupt_clean)."""
        self._interrupting, self._too_early = True, False
        self._ask("turn/interrupt", turnId=self._stream.turn_id)
        self._ask("thread/backgroundTerminals/clean")
        self._parts.steps.forget_background()

    def _turn_ended(self, turn: schema.TurnInfo) -> None:
        parts = self._parts
        if turn.status != "completed":
            parts.plan.take()
            self._close_turn(failure(turn, self._stream.written()))
            return
        policy = parts.thread.policy
        if parts.plan.text and policy.planning and not self._interrupting and not self._compacts:
            if policy.approves_plan:
                self._output.note(self._output.new_id("note"), "note", "The plan was approved by itself")
                self._settle(ok=True)
                parts.thread.set_mode(DEFAULT)
                parts.plan.take()
                self._go_on(plan.IMPLEMENT)
                return
            if parts.requests.attended:
                self._settle(ok=True)
                parts.plan.ask(parts.plan.text, self._stream.now)
                return
        written = self._written_with_plan()
        self._close_turn(Outcome(True, written or (_COMPACTED if self._compacts else "")))

    def _written_with_plan(self) -> str:
        """The answer so far, and the plan that the turn made."""
        return "\n\n".join(filter(None, (self._stream.written().strip("\n"), self._parts.plan.take().strip("\n"))))

    def _decide_plan(self, decision: Decision) -> None:
        parts = self._parts
        text, mode = plan.following(decision)
        parts.plan.close("resolved", "approved" if isinstance(decision, Allow) else "denied")
        if not text:
            self._close_turn(Outcome(True, self._written_with_plan()))
            return
        parts.plan.take()
        if mode is not None:
            parts.thread.set_mode(mode)
        self._go_on(text)

    def _settle(self, *, ok: bool) -> None:
        """A turn of Codex is over: close what was open in it."""
        self._parts.notices.turn_ends(ok=ok)
        self._parts.steps.close(cut=not ok, now=self._stream.now)

    def _close_turn(self, outcome: Outcome) -> None:
        """The turn, or the run, is over. What was said into it and not taken waits for a turn of its own."""
        parts = self._parts
        turn = parts.turns.open
        since = turn.since if turn is not None else self._stream.now
        self._settle(ok=outcome.ok)
        parts.requests.withdraw_turn(parts.thread.id, "The turn is over.")
        usage = parts.meter.run(round(self._stream.now - since, 3))
        outcome = outcome._replace(answer=parts.requests.with_refused(outcome.answer))
        if outcome.detail.get("quota") and (resets_at := parts.notices.resets_at) is not None:
            outcome = outcome._replace(detail={**outcome.detail, "resets_at": resets_at})
        parts.turns.end(outcome, parts.thread.token or parts.thread.expected, usage)
        self._interrupting = self._too_early = self._compacts = False
        if outcome.outcome == "stopped":
            parts.ledger.hand_back(queue=False)
        else:
            parts.ledger.again()
        if not self._deaf:
            self._next_turn()

    def _fail(self, outcome: Outcome) -> None:
        """The thread cannot be opened: the process is of no use."""
        self._over = True
        self._begin_unstarted()
        self._close_turn(outcome)
        self._parts.ledger.hand_back()
        self._output.close_stdin()

    # ------------------------------------------------------------------------------------------------------- the end

    def end(self, exit: ProcessExit, now: float) -> Step:
        parts = self._parts
        self._stream.now = now
        if not self._deaf:
            self._ended = True
            parts.requests.withdraw_all("The agent has ended.")
            parts.plan.close("withdrawn", "The agent has ended.")
            if parts.turns.open is None:
                self._begin_unstarted()
            if parts.turns.open is not None:
                self._close_turn(ended_early(results.NAME, _telling(exit), self._written_with_plan()))
        parts.ledger.hand_back()
        self._ended = True
        return self._output.take()


def _telling(exit: ProcessExit) -> ProcessExit:
    """Without what Codex says on stderr at every start where bubblewrap is not installed."""
    lines = exit.stderr_tail.splitlines(keepends=True)
    return msgspec.structs.replace(exit, stderr_tail="".join(line for line in lines if _NOISE not in line))
