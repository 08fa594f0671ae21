"""What Pi tells: each frame of RPC mode, as it changes the session."""

from __future__ import annotations

from collections.abc import Callable

from ...model import TextEvent
from ...schemas import pi as schema
from ...schemas.tolerant import Unknown
from .asked import DIALOGS
from .parts import Parts


class Stream:
    """`settled` is called at the end of a turn. `now` is the time of the line at hand, `sign` of the last progress."""

    def __init__(self, parts: Parts, settled: Callable[[schema.AgentSettled], None]) -> None:
        self._parts = parts
        self._settled = settled
        self._messages = 0
        self.now = 0.0
        self.sign = 0.0
        self.error = ""  # of the last message of the model, in Pi's words
        self.unknown: dict[str, int] = {}

    def count(self, name: str) -> None:
        self.unknown[name] = self.unknown.get(name, 0) + 1

    def begin_turn(self) -> None:
        """Open a turn when none is: for the message that was handed over, or because an extension wants one."""
        parts = self._parts
        if parts.turns.open is None:
            self.error = ""
            prompts = parts.ledger.begun()
            parts.turns.begin(prompts, "" if prompts or not parts.turns.completed else "extension", self.now)

    def take(self, frame: schema.AnyFrame | Unknown) -> None:
        parts = self._parts
        self.sign = self.now
        match frame:
            case schema.AgentStart():
                self.begin_turn()
            case schema.MessageStart(message) if message.role == "assistant":
                self._messages += 1
            case schema.MessageUpdate(piece):
                self._piece(piece)
            case schema.MessageEnd(message):
                self._message(message)
            case schema.ToolStart():
                parts.steps.start(frame, self.now)
            case schema.ToolEnd():
                parts.requests.step_ended(frame.tool_call_id)
                parts.steps.finish(frame)
            case schema.AgentSettled():
                self._settled(frame)
            case schema.UiRequest():
                self._ui(frame)
            case schema.ExtensionError():
                parts.output.warning(f"An extension of Pi failed: {frame.error}"[:500])
            case Unknown(name):
                self.count(name)
            case _:
                self._held_up(frame)

    def _held_up(self, frame: schema.AnyFrame) -> None:
        notices = self._parts.notices
        match frame:
            case schema.RetryStart():
                notices.retry(frame, self.now)
            case schema.RetryEnd(success):
                notices.retried(ok=success)
            case schema.CompactionStart() | schema.OldCompactionStart():
                notices.compacting(self.now)
            case schema.CompactionEnd():
                notices.compacted(ok=not frame.aborted and not frame.error_message)
            case schema.OldCompactionEnd(aborted):
                notices.compacted(ok=not aborted)

    def _piece(self, piece: schema.Piece) -> None:
        output = self._parts.output
        if piece.type == "text_delta" and piece.delta and self._parts.turns.open is not None:
            output.events.append(TextEvent(output.engine, piece.delta, str(self._messages)))

    def _message(self, message: schema.Message) -> None:
        parts = self._parts
        turn = parts.turns.open
        if message.role == "user" and turn is not None:
            parts.ledger.shown(message.text, turn.prompts)
        if message.role != "assistant":
            return
        parts.meter.read(message.usage)
        self.error = message.error_message if message.stop_reason == "error" else ""
        if message.stop_reason == "error" and not self.error:
            self.error = "Pi told no reason"
        if message.stop_reason != "error":
            parts.notices.retried(ok=True)
        if message.stop_reason == "length":
            parts.output.warning("The answer reached the limit of what the model may write at once")
        if turn is not None and message.text:
            turn.written = message.text

    def _ui(self, asked: schema.UiRequest) -> None:
        if asked.method in DIALOGS:
            self._parts.requests.ask(asked, self.now)
        elif asked.method == "notify":
            self._parts.notices.notify(asked)
        elif asked.method not in ("setStatus", "setWidget", "setTitle", "set_editor_text"):
            self.count(f"extension_ui_request {asked.method}")
