"""What the agent is held up by, and what it tells on the side: retries, hooks, notices."""

from __future__ import annotations

from ...model import Wait
from ...schemas.claude_system import ApiRetry, Informational, ModelFallback
from .output import Output

_ERRORS = {
    "overloaded": "the provider is overloaded",
    "server_error": "the provider has an error",
    "rate_limit": "the provider limits requests",
    "authentication_failed": "the login was refused",
}


class Notices:
    """Notes under way, and the waits they stand for."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.retrying: Wait | None = None
        self._retry_title = ""
        self._hooks: dict[str, Wait] = {}

    # -------------------------------------------------------------------------------------------------- retries

    def retry(self, frame: ApiRetry, now: float) -> None:
        """The CLI waits before it calls the provider again. One note for a series of tries."""
        delay = (frame.retry_delay_ms or 0) / 1000
        count = f", retry {frame.attempt} of {frame.max_retries}" if frame.attempt and frame.max_retries else ""
        label = _retry_reason(frame) + count
        fresh = self.retrying is None
        id = self._output.new_id("retry") if self.retrying is None else self.retrying.id
        self.retrying = Wait("retry", now, now + delay, label, id)
        self._retry_title = label[0].upper() + label[1:]
        detail = {
            "retry": True,
            "attempt": frame.attempt,
            "max_retries": frame.max_retries,
            "delay_s": round(delay, 1),
            "status": frame.error_status,
            "error": frame.error,
        }
        self._output.note(id, "note", self._retry_title, phase="started" if fresh else "updated", detail=detail)

    def answered(self, ok: bool) -> None:
        """The provider answered, or the run ended: whatever was retried is over."""
        if self.retrying is not None:
            id, self.retrying = self.retrying.id, None
            self._output.note(id, "note", self._retry_title, ok=ok, detail={"retry": True})

    # ------------------------------------------------------------------------------------------- hooks, notices

    def hook_started(self, id: str, name: str, now: float) -> None:
        self._hooks[id] = Wait("hook", now, None, name, id)

    def hook_ended(self, id: str) -> None:
        self._hooks.pop(id, None)

    def informational(self, frame: Informational) -> None:
        """Prose of the CLI for people."""
        if frame.content:
            warning = frame.level == "warning"
            id = self._output.new_id("warning" if warning else "note")
            self._output.note(id, "warning" if warning else "note", frame.content, ok=not warning)

    def fallback(self, frame: ModelFallback) -> None:
        title = frame.content or f"{frame.fallback_model} took over from {frame.original_model}"
        self._output.note(self._output.new_id("note"), "note", title)

    def waits(self) -> list[Wait]:
        """What keeps the model from answering."""
        retrying = [self.retrying] if self.retrying is not None else []
        return [*retrying, *self._hooks.values()]


def _retry_reason(frame: ApiRetry) -> str:
    known = _ERRORS.get(frame.error or "")
    if known:
        return known
    if frame.error_status is None:
        return "the provider does not answer"
    return f"the provider answers with error {frame.error_status}"
