"""What Pi is held up by, and what it and its extensions tell on the side: retries, compaction, notes."""

from __future__ import annotations

from ...model import Wait
from ...schemas.pi import RetryStart, UiRequest
from ..output import Output
from .results import retry_reason


class Notices:
    """Notes under way, and the waits they stand for."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._retry: Wait | None = None
        self._compaction: Wait | None = None

    def retry(self, frame: RetryStart, now: float) -> None:
        """Pi calls the provider again after a while. One note for a series of tries (recording json_retry_500)."""
        count = f", retry {frame.attempt} of {frame.max_attempts}" if frame.max_attempts else ""
        label = retry_reason(frame.error_message) + count
        fresh = self._retry is None
        id = self._output.new_id("retry") if self._retry is None else self._retry.id
        self._retry = Wait("retry", now, now + frame.delay_ms / 1000, label, id)
        self._output.note(id, "note", _sentence(label), phase="started" if fresh else "updated", detail={"retry": True})

    def retried(self, *, ok: bool) -> None:
        """The provider answered, or no more tries follow."""
        if self._retry is not None:
            retry, self._retry = self._retry, None
            self._output.note(retry.id, "note", _sentence(retry.label), ok=ok, detail={"retry": True})

    def compacting(self, now: float) -> None:
        if self._compaction is None:
            self._compaction = Wait("compaction", now, None, "", self._output.new_id("compaction"))
            self._output.note(self._compaction.id, "note", "Compacting the conversation", phase="started")

    def compacted(self, *, ok: bool) -> None:
        if self._compaction is not None:
            id, self._compaction = self._compaction.id, None
            title = "Compacted the conversation" if ok else "Compacting the conversation"
            self._output.note(id, "note", title, ok=ok)

    def notify(self, asked: UiRequest) -> None:
        """An extension tells something; errors and warnings stand out."""
        if not asked.message:
            return
        if asked.notify_type in ("error", "warning"):
            self._output.warning(asked.message)
        else:
            self._output.note(self._output.new_id("note"), "note", asked.message)

    def turn_ends(self, *, ok: bool) -> None:
        self.retried(ok=ok)
        self.compacted(ok=False)

    def waits(self) -> list[Wait]:
        """What keeps the model from answering."""
        return [wait for wait in (self._retry, self._compaction) if wait is not None]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
