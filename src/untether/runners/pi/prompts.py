"""The ledger of messages: which wait for their turn, which were handed to Pi, and which it took.

A message is taken when Pi shows it as one of the user's in the conversation (`message_end`); it has no id there, so
those that were said into a running turn are told apart by their text, in order (recording rpc_steer). Messages are
queued here and not by Pi: its `follow_up` would make one run of several messages, with one end for all.
"""

from __future__ import annotations

from ...session import Prompt
from ..output import Output


class Ledger:
    """`queue` holds the messages that wait for a turn of their own, `current` the one that the turn was begun for."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.queue: list[Prompt] = []
        self.current: Prompt | None = None
        self._steered: list[Prompt] = []

    @property
    def waiting(self) -> bool:
        return bool(self.queue or self.current or self._steered)

    def steer(self, prompt: Prompt) -> None:
        self._steered.append(prompt)

    def is_steered(self, id: str) -> bool:
        """Whether it is on its way into the running turn."""
        return any(prompt.id == id for prompt in self._steered)

    def begun(self) -> list[str]:
        """A turn begins, or will not: the ids of the messages that it is for."""
        if self.current is None:
            return []
        id, self.current = self.current.id, None
        self._output.prompt(id, "taken")
        return [id]

    def shown(self, text: str, turn: list[str]) -> None:
        """A message of the user came up in the turn whose messages are `turn`."""
        for prompt in self._steered:
            if prompt.text.strip() == text.strip() or text.startswith(prompt.text):
                self._steered.remove(prompt)
                self._output.prompt(prompt.id, "taken")
                turn.append(prompt.id)
                return

    def refused(self, id: str) -> None:
        """Pi did not take it into the turn: it waits for one of its own, before all others."""
        for prompt in [prompt for prompt in self._steered if prompt.id == id]:
            self._steered.remove(prompt)
            self.queue.insert(0, prompt)

    def again(self) -> None:
        """The turn is over: what was said into it and not taken waits for a turn of its own."""
        self.queue[:0] = self._steered
        self._steered.clear()

    def withdraw(self, id: str | None = None) -> None:
        """Take back what waits in the queue: one message, or all."""
        for prompt in [prompt for prompt in self.queue if id in (None, prompt.id)]:
            self.queue.remove(prompt)
            self._output.prompt(prompt.id, "withdrawn")

    def hand_back(self, *, queue: bool = True) -> None:
        """What was said into a turn will not be taken, nor will what waits in the queue."""
        for prompt in [*self._steered, *(self.queue if queue else ())]:
            self._output.prompt(prompt.id, "handed_back")
        self._steered.clear()
        if queue:
            self.queue.clear()
