"""The ledger of messages: which were handed to Claude Code, which it took, and which turn answers them.

Messages and results do not pair up: several messages can give one result, and results come that nobody asked for
(claude-protocol §6). What proves that a message was taken, best first:

- frames that name its uuid: `command_lifecycle started`, `user_message_uuids`, a replay (`isReplay`);
- from a CLI that names none: the start of a turn while the message waits, unless a background task has just ended
  (then the turn may be about that, and its result tells); or the next model call after a tool's end, since what is
  said during a tool goes in with its result.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...session import Prompt
from .output import Output

_CLEARING = ("/clear", "/reset", "/new")


class Waiting:
    """A message that was handed over and not yet taken."""

    def __init__(self, prompt: Prompt, since: float, later: bool) -> None:
        self.text = prompt.text
        self.since = since
        self.later = later  # it waits for the end of the turn, tools or not
        self.offered_after: str | None = None  # the model call after which it went along with a tool's result


class Ledger:
    """Messages by id, in the order in which they were handed over."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.waiting: dict[str, Waiting] = {}
        self._ours: dict[str, str] = {}
        self._ahead: list[str] = []  # taken, and their turn has not opened yet
        self._named = False  # this CLI names messages as it takes them
        self.unwanted: dict[str, None] = {}  # those that we asked to have back
        self._returned: dict[str, None] = {}

    def hand(self, prompt: Prompt, now: float, *, later: bool = False) -> None:
        """`later`: it waits for the end of the turn that runs."""
        self.waiting[prompt.id] = Waiting(prompt, now, later)
        self._ours[prompt.id] = prompt.text

    def text(self, id: str) -> str:
        """The text of a message."""
        return self._ours.get(id, "")

    def turn_opens(self, named: Iterable[str], *, maybe_woken: bool) -> list[str]:
        """The messages that the turn now opening answers, as far as that is known."""
        self.take(named)
        if not self._named and not maybe_woken:
            self.take(list(self.waiting))
        prompts, self._ahead = self._ahead, []
        return prompts

    def take(self, ids: Iterable[str], turn: list[str] | None = None) -> None:
        """The CLI took these: they belong to `turn` (its messages), else to the turn that opens next."""
        for id in ids:
            if self.waiting.pop(id, None) is not None:
                self._output.prompt(id, "taken")
                (self._ahead if turn is None else turn).append(id)

    def lifecycle(self, id: str, state: str, turn: list[str] | None) -> None:
        """`command_lifecycle` of one of ours; `turn` holds the messages of the open turn."""
        if id not in self._ours:
            return
        self._named = True
        if state in ("started", "completed"):
            self.take([id], turn)
        elif state != "queued":
            self.hand_back([id])

    def tool_ended(self, message_id: str) -> None:
        """A tool of the main agent ended: what waits goes to the model with its result."""
        if not self._named:
            for waiting in self.waiting.values():
                if waiting.offered_after is None and not waiting.later:
                    waiting.offered_after = message_id

    def model_called(self, message_id: str, turn: list[str]) -> None:
        """The model wrote: a call later than the one that an offered message followed has read that message."""
        offered = [
            id
            for id, waiting in self.waiting.items()
            if waiting.offered_after is not None and waiting.offered_after != message_id
        ]
        self.take(offered, turn)

    def turn_ends(self, named: Iterable[str], turn: list[str], *, since: float, woken: bool) -> None:
        """A result: what it names was taken; what waited for a turn that may have been a wake-up is settled."""
        self.take(named, turn)
        if not self._named and not turn and not woken:
            self.take([id for id, waiting in self.waiting.items() if waiting.since <= since], turn)

    def hand_back(self, ids: Iterable[str]) -> None:
        """These will never be taken: they go back to whoever said them, unless that one did not want them any more."""
        for id in list(ids):
            if self.waiting.pop(id, None) is not None:
                self._returned[id] = None
                self._output.prompt(id, "withdrawn" if id in self.unwanted else "handed_back")

    def taken_ahead(self) -> list[str]:
        """What was taken for a turn that has not opened. None will open for them when the CLI is idle or has ended."""
        prompts, self._ahead = self._ahead, []
        return prompts

    def unopened(self, first: str) -> list[str]:
        """The messages of a run whose turn never opened: `first`, and what was taken ahead."""
        self.waiting.pop(first, None)
        owed = [] if first in self._returned else [first]
        return owed + [id for id in self.taken_ahead() if id != first]

    def cleared(self) -> bool:
        """True when one of the waiting messages is a command that begins the conversation anew."""
        return any(waiting.text.startswith(_CLEARING) for waiting in self.waiting.values())
