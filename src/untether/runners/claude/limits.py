"""The usage limits of a subscription, as `rate_limit_event` tells them (claude-protocol §8).

It is a snapshot of a quota, no throttle: `allowed` is stored and shown nowhere by itself; `allowed_warning` is one note
for each window and reset; `rejected`, unless paid extra usage goes on, is a wait until the reset. One without a status
says nothing. 2.1.332 tells all windows each time (`unifiedWindows`).
"""

from __future__ import annotations

from typing import Any

from ...model import Action, ActionEvent, Wait
from ...schemas.claude import RateLimitInfo
from .output import Output

_NAMES = {
    "five_hour": "5-hour limit",
    "seven_day": "weekly limit",
    "seven_day_opus": "weekly limit for Opus",
    "seven_day_sonnet": "weekly limit for Sonnet",
    "overage": "limit for extra usage",
}


class Limits:
    """What is known of the limits of the account."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._quota: Wait | None = None
        self._windows: dict[str, dict[str, float | None]] = {}
        self._told: dict[tuple[str, float | None], None] = {}

    def told(self, info: RateLimitInfo, now: float) -> None:
        if not info.status:
            return
        name = _NAMES.get(info.rate_limit_type, "usage limit")
        used = info.utilization
        if used is None and (window := info.unified_windows.get(info.rate_limit_type)):
            used = window.utilization
        self._store(info, used)
        if info.status == "rejected":
            if not info.is_using_overage and (info.resets_at is None or info.resets_at > now):
                self._quota = Wait("quota", now, info.resets_at, name)
                self._tell(info, used, f"The {name} is used up")
            return
        if info.status in ("allowed", "allowed_warning"):
            self._quota = None
        if info.status == "allowed_warning" and used is not None:
            self._tell(info, used, f"{used:.0%} of the {name} is used")

    def resets_at(self, now: float) -> float | None:
        """When the quota that is spent now is renewed, in epoch seconds; None when none is, or when it is not known."""
        return next((wait.until for wait in self.waits(now)), None)

    def waits(self, now: float) -> list[Wait]:
        """The limit that keeps every run from going on, until its reset."""
        if self._quota is not None and self._quota.until is not None and self._quota.until <= now:
            self._quota = None
        return [self._quota] if self._quota is not None else []

    def _store(self, info: RateLimitInfo, used: float | None) -> None:
        """Keep the latest figures of each window, and tell them as a fact about the run."""
        for window, figures in info.unified_windows.items():
            self._windows[window] = {"used": figures.utilization, "resets_at": figures.resets_at}
        if info.rate_limit_type and used is not None:
            self._windows[info.rate_limit_type] = {"used": used, "resets_at": info.resets_at}
        if self._windows:
            facts = {"limits": {window: dict(figures) for window, figures in self._windows.items()}}
            action = Action("limits", "telemetry", "Usage limits", facts)
            self._output.action(ActionEvent(self._output.engine, action, "updated"))

    def _tell(self, info: RateLimitInfo, used: float | None, title: str) -> None:
        """Once for each limit, state and reset."""
        key = (f"{info.status} {info.rate_limit_type}", info.resets_at)
        if key not in self._told:
            self._told[key] = None
            spent = info.status == "rejected"
            detail: dict[str, Any] = {
                "limit": info.rate_limit_type,
                "resets_at": info.resets_at,
                "utilization": used,
            }
            id = self._output.new_id("limit")
            self._output.note(id, "warning" if spent else "note", title, ok=not spent, detail=detail)
