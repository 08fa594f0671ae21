"""The ledger of messages: which wait for their turn, which were handed to Codex, and which it took.

A message that begins a turn is taken when that turn begins. One that is said into a running turn (`turn/steer`) is
taken when its item `userMessage` comes, which names it (`clientId`; recording as_steer).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...session import Prompt
from ..output import Output
from .rpc import text_input

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Ledger:
    """`queue` holds the messages that wait for a turn of their own, in order.

    `starting` is True between a `turn/start` and the beginning of its turn.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self.queue: list[Prompt] = []
        self.starting = False
        self._handed: dict[str, Prompt] = {}
        self._first: list[str] = []  # the messages that the turn which is being started will answer

    @property
    def waiting(self) -> bool:
        return bool(self.queue or self._handed or self.starting)

    def start(self, *prompts: Prompt) -> None:
        """A turn is asked for, to answer these."""
        self.starting = True
        for prompt in prompts:
            self.steer(prompt)
            self._first.append(prompt.id)

    def steer(self, prompt: Prompt) -> None:
        """It is said into the running turn."""
        self._handed[prompt.id] = prompt

    def begun(self) -> list[str]:
        """A turn began: the messages that it answers."""
        ids, self._first, self.starting = self._first, [], False
        return [id for id in ids if self._take(id)]

    def joined(self) -> None:
        """The turn that was asked for is one that runs already: its messages are taken when they come up there."""
        self._first, self.starting = [], False

    def not_begun(self) -> list[str]:
        """No turn will begin: the messages that it would have answered."""
        return self.begun()

    def take(self, id: str | None, turn: list[str]) -> bool:
        """A message came up in the turn whose messages are `turn`. False for one that was taken before, or not ours."""
        if id is None or not self._take(id):
            return False
        turn.append(id)
        return True

    def _take(self, id: str) -> bool:
        if self._handed.pop(id, None) is None:
            return False
        self._output.prompt(id, "taken")
        return True

    def again(self, ids: Iterable[str] | None = None) -> None:
        """These (all, when None) did not get into the turn: each waits for one of its own, before all others."""
        returned = [self._handed.pop(id) for id in list(self._handed if ids is None else ids) if id in self._handed]
        self.queue[:0] = returned

    def withdraw(self, id: str | None = None) -> None:
        """Take back what waits in the queue: one message, or all."""
        for prompt in [prompt for prompt in self.queue if id in (None, prompt.id)]:
            self.queue.remove(prompt)
            self._output.prompt(prompt.id, "withdrawn")

    def hand_back(self, *, queue: bool = True) -> None:
        """What was said into a turn will not be taken, nor will what waits in the queue."""
        for id in self._handed:
            self._output.prompt(id, "handed_back")
        self._handed.clear()
        if queue:
            for prompt in self.queue:
                self._output.prompt(prompt.id, "handed_back")
            self.queue.clear()


def user_input(prompt: Prompt) -> list[dict[str, Any]]:
    """A message as Codex takes it: pictures as such, other files by their names behind the text."""
    pictures = [file for file in prompt.attachments if file.mime in _PICTURES]
    others = [f"- {file.path} ({file.name})" for file in prompt.attachments if file.mime not in _PICTURES]
    text = "\n".join([prompt.text, "", "Attached files:", *others]) if others else prompt.text
    return [text_input(text), *({"type": "localImage", "path": file.path} for file in pictures)]
