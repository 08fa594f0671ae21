"""What Codex is held up by, and what it tells on the side: retries, compaction, limits, hooks, warnings."""

from __future__ import annotations

import re

from ...model import Wait
from ...schemas.codex import ErrorNotice, HookRun, RateLimits, RateWindow
from ..output import Output
from .results import code

_COUNT = re.compile(r"(\d+)/(\d+)")
_LIMITS = {300: "5-hour limit", 10080: "weekly limit"}  # by the minutes of their window
_NEARLY = 90  # percent of a limit from which on it is told


class Notices:
    """Notes under way, and the waits they stand for."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._retry: Wait | None = None
        self._compaction: Wait | None = None
        self._quota: Wait | None = None
        self._hooks: dict[str, Wait] = {}
        self._told: dict[str, None] = {}
        self.resets_at: float | None = None  # of the limit that is used up

    # -------------------------------------------------------------------------------------------------- retries

    def retry(self, notice: ErrorNotice, now: float) -> None:
        """Codex calls the provider again. One note for a series of tries (recording as_error_500)."""
        name, status = code(notice.error.codex_error_info)
        label = retry_reason(name, status, notice.error.message, notice.error.additional_details or "")
        fresh = self._retry is None
        id = self._output.new_id("retry") if self._retry is None else self._retry.id
        self._retry = Wait("retry", now, None, label, id)
        detail = {"retry": True, "status": status, "error": name}
        self._output.note(id, "note", _sentence(label), phase="started" if fresh else "updated", detail=detail)

    def answered(self, *, ok: bool) -> None:
        """The provider answered, or the turn is over: whatever was retried is over."""
        if self._retry is not None:
            retry, self._retry = self._retry, None
            self._output.note(retry.id, "note", _sentence(retry.label), ok=ok, detail={"retry": True})

    # ----------------------------------------------------------------------------------------------- compaction

    def compacting(self, now: float) -> None:
        if self._compaction is None:
            self._compaction = Wait("compaction", now, None, "", self._output.new_id("compaction"))
            self._output.note(self._compaction.id, "note", "Compacting the conversation", phase="started")

    def compacted(self, *, ok: bool) -> None:
        if self._compaction is not None:
            id, self._compaction = self._compaction.id, None
            title = "Compacted the conversation" if ok else "Compacting the conversation"
            self._output.note(id, "note", title, ok=ok)

    # --------------------------------------------------------------------------------------------------- limits

    def limits(self, limits: RateLimits, now: float) -> None:
        """The state of the usage limits. One that is reached waits until its reset."""
        windows = [window for window in (limits.primary, limits.secondary) if window is not None]
        for window in windows:
            if window.used_percent >= _NEARLY:
                self._once(f"{window.used_percent:.0f} % of the {_limit_name(window)} is used", "note")
        fullest = max(windows, key=lambda window: window.used_percent, default=None)
        spent = limits.rate_limit_reached_type is not None or (fullest is not None and fullest.used_percent >= 100)
        self.resets_at = fullest.resets_at if fullest is not None and spent else None
        if limits.rate_limit_reached_type is None:
            self._quota = None
            return
        name = _limit_name(fullest) if fullest is not None else "usage limit"
        if self._quota is None and (self.resets_at is None or self.resets_at > now):
            self._quota = Wait("quota", now, self.resets_at, name)
            self._once(f"The {name} is used up", "warning")

    # ------------------------------------------------------------------------------------------ hooks, warnings

    def hook_started(self, run: HookRun, now: float) -> None:
        self._hooks[run.id] = Wait("hook", now, None, run.event_name, run.id)

    def hook_ended(self, run: HookRun) -> None:
        self._hooks.pop(run.id, None)

    def warn(self, text: str) -> None:
        """A warning for people, told once in a process."""
        # Said at every start where bubblewrap is not installed; Codex then uses its own copy, so nothing is to be done.
        if text and "could not find bubblewrap" not in text:
            self._once(text, "warning")

    def _once(self, title: str, kind: str) -> None:
        if title not in self._told:
            self._told[title] = None
            warning = kind == "warning"
            name = "warning" if warning else "limit"
            self._output.note(self._output.new_id(name), "warning" if warning else "note", title, ok=not warning)

    # ------------------------------------------------------------------------------------------------------ end

    def turn_ends(self, *, ok: bool) -> None:
        self.answered(ok=ok)
        self.compacted(ok=False)
        self._hooks.clear()

    def holding_up(self) -> list[Wait]:
        """What keeps the model from answering."""
        return [wait for wait in (self._retry, self._compaction, *self._hooks.values()) if wait is not None]

    def quota(self, now: float) -> list[Wait]:
        """The limit that keeps every run from going on, until its reset."""
        if self._quota is not None and self._quota.until is not None and self._quota.until <= now:
            self._quota = None
        return [self._quota] if self._quota is not None else []


def retry_reason(name: str, status: int | None, message: str, details: str) -> str:
    """Why the provider is called again, and which try it is: "Reconnecting... 1/5" counts them."""
    if status == 401:
        reason = "the login was refused"
    elif status == 429:
        reason = "the provider limits requests"
    elif (status or 0) >= 500 or "high demand" in f"{message} {details}":
        reason = "the provider is overloaded"
    else:
        reason = "the connection to the provider broke off"
    count = _COUNT.search(message)
    return f"{reason}, retry {count[1]} of {count[2]}" if count else reason


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _limit_name(window: RateWindow) -> str:
    return _LIMITS.get(int(window.window_duration_mins or 0), "usage limit")
