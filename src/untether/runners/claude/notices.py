"""What the agent is held up by, and what it tells on the side: retries, compaction, limits, hooks, notices."""

from __future__ import annotations

from ...model import Wait
from ...schemas.claude import RateLimitInfo
from ...schemas.claude_system import ApiRetry, CompactMetadata, Informational, ModelFallback, Status
from .output import Output

_LIMITS = {
    "five_hour": "5-hour limit",
    "seven_day": "weekly limit",
    "seven_day_opus": "weekly limit for Opus",
    "seven_day_sonnet": "weekly limit for Sonnet",
    "overage": "limit for extra usage",
}
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
        self.expecting = False  # `answered` has something to do
        self._retry: Wait | None = None
        self._retry_title = ""
        self._compaction: Wait | None = None
        self._compacting = False  # False while only the figures are awaited
        self._quota: Wait | None = None
        self._hooks: dict[str, Wait] = {}
        self._told: dict[tuple[str, float | None], None] = {}

    # -------------------------------------------------------------------------------------------------- retries

    def retry(self, frame: ApiRetry, now: float) -> None:
        """The CLI waits before it calls the provider again. One note for a series of tries."""
        delay = (frame.retry_delay_ms or 0) / 1000
        count = f", retry {frame.attempt} of {frame.max_retries}" if frame.attempt and frame.max_retries else ""
        label = _retry_reason(frame) + count
        fresh = self._retry is None
        id = self._output.new_id("retry") if self._retry is None else self._retry.id
        self._retry = Wait("retry", now, now + delay, label, id)
        self.expecting = True
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
        """The provider answered, or the run ended: whatever was retried is over, and a compaction is complete."""
        self.expecting = False
        if self._retry is not None:
            id, self._retry = self._retry.id, None
            self._output.note(id, "note", self._retry_title, ok=ok, detail={"retry": True})
        if self._compaction is not None and not self._compacting:
            self._end_compaction("Compacted the conversation", ok=True)

    # ----------------------------------------------------------------------------------------------- compaction

    def status(self, frame: Status, now: float) -> None:
        """`compacting`, which 2.1.332 repeats every 30 s, or the end of it."""
        if frame.status == "compacting":
            if self._compaction is None:
                id = self._output.new_id("compaction")
                self._compaction = Wait("compaction", now, None, "", id)
                self._output.note(id, "note", "Compacting the conversation", phase="started")
            self._compacting = True
        elif frame.compact_result == "success":
            self._compacting = False
            self.expecting = True
        elif frame.compact_result is not None:
            self._end_compaction("Compacting the conversation", ok=False, message=frame.compact_error or "")

    def compacted(self, metadata: CompactMetadata) -> None:
        """The figures of a compaction, in tokens."""
        before, after = metadata.pre_tokens, metadata.post_tokens
        title = "Compacted the conversation"
        if before is not None and after is not None:
            title += f": {_thousands(before)} → {_thousands(after)} tokens"
        self._end_compaction(title, ok=True, detail={"pre_tokens": before, "post_tokens": after})

    def _end_compaction(
        self, title: str, *, ok: bool, message: str = "", detail: dict[str, int | None] | None = None
    ) -> None:
        if self._compaction is not None:
            id, self._compaction, self._compacting = self._compaction.id, None, False
            self._output.note(id, "note", title, ok=ok, detail=detail, message=message)

    # --------------------------------------------------------------------------------------------------- limits

    def limit(self, info: RateLimitInfo, now: float) -> None:
        """The state of a usage limit. `rejected` waits until the reset, unless paid extra usage goes on."""
        name = _LIMITS.get(info.rate_limit_type, "usage limit")
        if info.status == "rejected":
            if not info.is_using_overage and (info.resets_at is None or info.resets_at > now):
                self._quota = Wait("quota", now, info.resets_at, name)
                self._tell(info, "warning", f"The {name} is used up")
            return
        if info.status in ("allowed", "allowed_warning"):
            self._quota = None
        if info.status == "allowed_warning" and info.utilization is not None:
            self._tell(info, "note", f"{info.utilization:.0%} of the {name} is used")

    def _tell(self, info: RateLimitInfo, kind: str, title: str) -> None:
        """Once for each limit, state and reset."""
        key = (f"{info.status} {info.rate_limit_type}", info.resets_at)
        if key not in self._told:
            self._told[key] = None
            detail = {"limit": info.rate_limit_type, "resets_at": info.resets_at, "utilization": info.utilization}
            warning = kind == "warning"
            id = self._output.new_id("limit")
            self._output.note(id, "warning" if warning else "note", title, ok=not warning, detail=detail)

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

    # ------------------------------------------------------------------------------------------------------ end

    def turn_ends(self, ok: bool) -> None:
        self.answered(ok)
        self._end_compaction("Compacting the conversation", ok=False)

    def holding_up(self) -> list[Wait]:
        """What keeps the model from answering."""
        compaction = self._compaction if self._compacting else None
        return [wait for wait in (self._retry, compaction, *self._hooks.values()) if wait is not None]

    def quota(self, now: float) -> list[Wait]:
        """The limit that keeps every run from going on, until its reset."""
        if self._quota is not None and self._quota.until is not None and self._quota.until <= now:
            self._quota = None
        return [self._quota] if self._quota is not None else []


def _retry_reason(frame: ApiRetry) -> str:
    known = _ERRORS.get(frame.error or "")
    if known:
        return known
    if frame.error_status is None:
        return "the provider does not answer"
    return f"the provider answers with error {frame.error_status}"


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f} k" if tokens >= 10_000 else f"{tokens / 1000:.1f} k"
