"""Stopping: the end of the running turn, and with it of what waits behind it in Claude Code's own queue.

2.1.332 drops its queue with the interrupt (`cancel_queued`); 2.1.197 has each message taken back first
(claude-protocol §4, claude-protocol-332 §6). Which of the two is told by `interrupt_cancel_queued_v1`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.claude import Response, decode_cancelled, decode_still_queued
from .control import Control
from .messages import Messages
from .prompts import Ledger

_DROPS_QUEUE = "interrupt_cancel_queued_v1"


class Interrupts:
    """What was asked to stop, until it has."""

    def __init__(self, control: Control, ledger: Ledger, messages: Messages) -> None:
        self._control = control
        self._ledger = ledger
        self._messages = messages
        self.asked = False  # we asked for the end of the turn
        self._early = False  # the last interrupt was sent before the turn that it is meant for had begun
        self._target = ""  # the message of that turn
        self._again = False  # and the CLI has said that it did not hit
        self._taking_back: dict[str, str] = {}  # message by request

    def ask(self, *, turn_open: bool, cancel_queued: bool = False) -> None:
        """Ask for the end of the turn, also of one that has not begun: that is the turn of the oldest message."""
        self.asked = True
        self._early = not turn_open
        self._target = next(iter(self._ledger.waiting), "") if self._early else ""
        drops = cancel_queued and _DROPS_QUEUE in self._control.features
        if cancel_queued:
            behind = [id for id in self._ledger.waiting if id != self._target]
            self._ledger.unwanted.update(dict.fromkeys(behind))
            for id in behind:
                if self._messages.withdraw(id):
                    self._ledger.hand_back([id])
                elif not drops:
                    self._take_back(id)
        self._control.ask("interrupt", **({"cancel_queued": True} if drops else {}))

    def withdraw(self, prompt_id: str) -> None:
        """Take back one message, if it has not been taken."""
        if prompt_id not in self._ledger.waiting:
            return
        self._ledger.unwanted[prompt_id] = None
        if self._messages.withdraw(prompt_id):
            self._ledger.hand_back([prompt_id])
        else:
            self._take_back(prompt_id)

    def _take_back(self, prompt_id: str) -> None:
        request = self._control.ask("cancel_async_message", message_uuid=prompt_id)
        self._taking_back[request] = prompt_id

    def answered(self, subtype: str, response: Response, *, turn_open: bool, working: bool) -> None:
        """The CLI answered one of our requests; those of others are passed over."""
        if subtype == "cancel_async_message":
            id = self._taking_back.pop(response.request_id, "")
            if id and decode_cancelled(response.response):
                self._ledger.hand_back([id])
            else:
                self._ledger.unwanted.pop(id, None)
        elif subtype == "interrupt" and not working:
            self.asked = False  # it came when nothing was going on, and no result will follow
        elif subtype == "interrupt" and self._early and not turn_open:
            # 2.1.332 lets a message that was still queued run in spite of it (seen, and not always).
            queued = decode_still_queued(response.response)
            self._again = not self._ledger.waiting.keys().isdisjoint(queued)

    def hit(self, prompt_id: str) -> bool:
        """True when this message, which the CLI dropped, is the one whose turn we asked to end."""
        return self._early and self.asked and prompt_id == self._target

    def turn_opened(self) -> None:
        """The turn that an interrupt missed is there: it is asked for again."""
        if self._again:
            self._again = False
            self.ask(turn_open=True)

    def turn_closed(self) -> None:
        self.asked = False

    @property
    def open(self) -> Mapping[str, str]:
        """Messages that are being taken back, by request."""
        return self._taking_back
