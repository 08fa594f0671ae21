"""Compaction: the CLI sums up the conversation, by itself or for `/compact`. One row each, and a wait meanwhile."""

from __future__ import annotations

from ...model import Wait
from ...schemas.claude_system import CompactMetadata, Status
from .output import Output

_LONGEST_S = 15 * 60.0  # seconds that one may take before it counts as stuck
_UNDER_WAY = "Compacting the conversation"
_DONE = "Compacted the conversation"


class Compaction:
    """The compaction under way, and what the one of this turn came to."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._wait: Wait | None = None
        self._working = False  # False while only the figures are awaited
        self.manual = ""  # what the manual compaction of this turn came to, when it succeeded
        self.failure = ""  # why the one of this turn failed

    @property
    def awaits_figures(self) -> bool:
        """It is done, and its figures have not come."""
        return self._wait is not None and not self._working

    def status(self, frame: Status, now: float) -> None:
        """`compacting`, which 2.1.332 repeats every 30 s, or the end of it."""
        if frame.status == "compacting":
            if self._wait is None:
                id = self._output.new_id("compaction")
                self._wait = Wait("compaction", now, now + _LONGEST_S, "", id)
                self._output.note(id, "note", _UNDER_WAY, phase="started")
            self._working = True
        elif frame.compact_result == "success":
            self._working = False
        elif frame.compact_result is not None:
            self.failure = frame.compact_error or "it did not say why"
            self._end(_UNDER_WAY, ok=False, message=frame.compact_error or "")

    def figures(self, metadata: CompactMetadata) -> None:
        """In tokens."""
        before, after = metadata.pre_tokens, metadata.post_tokens
        title = _DONE
        if before is not None and after is not None:
            title += f": {_thousands(before)} → {_thousands(after)} tokens"
        if metadata.trigger == "manual":
            self.manual = title
        self._end(title, ok=True, detail={"pre_tokens": before, "post_tokens": after})

    def goes_on(self) -> None:
        """The conversation goes on: a compaction whose figures did not come is complete all the same."""
        if self.awaits_figures:
            self._end(_DONE, ok=True)

    def turn_ends(self) -> None:
        self.goes_on()
        self._end(_UNDER_WAY, ok=False)
        self.manual = self.failure = ""

    def waits(self) -> list[Wait]:
        return [self._wait] if self._wait is not None and self._working else []

    def _end(self, title: str, *, ok: bool, message: str = "", detail: dict[str, int | None] | None = None) -> None:
        if self._wait is not None:
            id, self._wait, self._working = self._wait.id, None, False
            self._output.note(id, "note", title, ok=ok, detail=detail, message=message)


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f} k" if tokens >= 10_000 else f"{tokens / 1000:.1f} k"
