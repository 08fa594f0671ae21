"""What the agent tells while it works: `session/update` and other notifications.

While a session is loaded its history comes as updates: those are passed over, but what they say of the session as it
is counts. The same goes for what comes when no turn is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ...schemas import acp
from ...schemas.tolerant import Unknown
from ..claude.output import Output
from ..claude.turns import Turns
from .opening import Opening
from .permissions import Permissions
from .steps import Steps
from .usage import Meter

_WARNING = "Warning: "


class Updates:
    """`proved` is called when an update shows that the agent works on what was sent."""

    def __init__(
        self,
        output: Output,
        opening: Opening,
        turns: Turns,
        steps: Steps,
        permissions: Permissions,
        meter: Meter,
        unknown: Counter[str],
        proved: Callable[[], None],
    ) -> None:
        self._output = output
        self._opening = opening
        self._turns = turns
        self._steps = steps
        self._permissions = permissions
        self._meter = meter
        self._unknown = unknown
        self._proved = proved
        self._message = ""  # the text of the message that is being written
        self._message_id: str | None = None
        self.broken = False  # the agent told that the turn failed: what it writes now is why

    def new_message(self) -> None:
        """What is written from now on is another message."""
        self._message, self._message_id = "", None

    def notified(self, method: str, params: dict[str, Any], now: float) -> None:
        if method != "session/update":
            self._unknown[method] += 1
            return
        try:
            told = acp.read_update(params)
        except ValueError:
            self._unknown["session/update without an update"] += 1
            return
        if self._opening.session_id and told.session_id != self._opening.session_id:
            self._unknown["update of another session"] += 1
        elif not self._of_the_session(told.update):
            self._of_the_turn(told.update, now)

    def _of_the_session(self, update: acp.Update | Unknown) -> bool:
        """True for what says how the session is."""
        opening = self._opening
        match update:
            case acp.Commands(commands):
                opening.know(commands=[command.name for command in commands if command.name])
            case acp.CurrentMode(mode):
                opening.in_mode(mode)
            case acp.Config(options):
                opening.configured(options)
            case acp.UsageUpdate():
                self._meter.update(update)
                if self._turns.open is not None and (context := self._meter.context()):
                    self._output.note("usage", "telemetry", "", detail=dict(context))
            case acp.SessionInfo():
                if status := update.thread_status:
                    self.broken = status == "systemError"
                    if self.broken:
                        self.new_message()
            case Unknown(name):
                self._unknown[f"update {name}"] += 1
            case _:
                return False
        return True

    def _of_the_turn(self, update: acp.Update | Unknown, now: float) -> None:
        if not self._opening.ready:
            return
        if isinstance(update, acp.UserChunk):
            return
        if isinstance(update, acp.MessageChunk) and not acp.text_of(update.content):
            self._count_content(update.content)
            return
        self._proved()
        if self._turns.open is None:
            self._unknown["update outside a turn"] += 1
            return
        if not isinstance(update, acp.ToolCallChange):
            self._permissions.denied = False  # it goes on after a denial
        match update:
            case acp.MessageChunk(content, message_id):
                self._steps.end_thought()
                self._write(acp.text_of(content), message_id)
            case acp.ThoughtChunk(content):
                self._steps.think(acp.text_of(content))
            case acp.ToolCallNew() | acp.ToolCallChange():
                self.new_message()
                self._steps.call(update, now, new=isinstance(update, acp.ToolCallNew))
            case acp.Plan():
                self._steps.plan(update)

    def _write(self, text: str, message_id: str | None) -> None:
        turn = self._turns.open
        assert turn is not None
        if self._opening.agent.warns_in_answer and message_id is None and text.startswith(_WARNING):
            self._output.warning(text.removeprefix(_WARNING).strip())
            return
        if message_id != self._message_id and message_id is not None and self._message_id is not None:
            self.new_message()
        self._message_id = message_id or self._message_id
        self._message += text
        if self._message.strip():
            turn.written = self._message.strip()

    def _count_content(self, content: Any) -> None:
        kind = content.get("type") if isinstance(content, dict) else None
        if kind != "text":
            self._unknown[f"message content {kind}"] += 1
