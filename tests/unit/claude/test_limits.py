"""What a usage limit means, in every state that a snapshot may have, with and without `unifiedWindows`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.claude_talk import Talk
from untether.model import ActionEvent, CompletedEvent

FIVE = {"rateLimitType": "five_hour", "resetsAt": 5000, "isUsingOverage": False}
WINDOWS = {"five_hour": {"utilization": 0.91, "resetsAt": 5000}, "seven_day": {"utilization": 0.2, "resetsAt": 90_000}}


def told(*infos: dict[str, Any]) -> Talk:
    talk = Talk()
    talk.init()
    for info in infos:
        talk.feed({"type": "rate_limit_event", "rate_limit_info": info})
    return talk


def notes(talk: Talk) -> list[tuple[str, str]]:
    actions = [event.action for event in talk.of(ActionEvent)]
    return [(action.kind, action.title) for action in actions if action.kind != "telemetry"]


def figures(talk: Talk) -> Any:
    return [event.action.detail["limits"] for event in talk.of(ActionEvent) if event.action.kind == "telemetry"]


def test_allowed_is_stored_and_shows_nothing() -> None:
    talk = told({**FIVE, "status": "allowed", "unifiedWindows": WINDOWS})
    assert notes(talk) == []
    assert figures(talk) == [
        {"five_hour": {"used": 0.91, "resets_at": 5000}, "seven_day": {"used": 0.2, "resets_at": 90_000}}
    ]
    assert talk.waits == [("model", "")]


@pytest.mark.parametrize("windows", [False, True])
def test_a_warning_is_one_note_for_each_window_and_reset(windows: bool) -> None:
    warning: dict[str, Any] = {**FIVE, "status": "allowed_warning"}
    warning |= {"unifiedWindows": WINDOWS} if windows else {"utilization": 0.91}
    weekly = {"rateLimitType": "seven_day", "resetsAt": 90_000, "status": "allowed_warning", "utilization": 0.8}
    later = {**warning, "resetsAt": 23_000}
    talk = told(warning, warning, weekly, later)
    assert notes(talk) == [
        ("note", "91% of the 5-hour limit is used"),
        ("note", "80% of the weekly limit is used"),
        ("note", "91% of the 5-hour limit is used"),
    ]
    assert talk.waits == [("model", "")]  # no latch


def test_an_event_without_a_status_says_nothing() -> None:
    talk = told({}, {"rateLimitType": "five_hour"}, {"status": "novel", "resetsAt": 5000})
    assert notes(talk) == []
    assert talk.waits == [("model", "")]


def test_a_rejection_waits_until_the_reset_and_ends_with_the_next_allowance() -> None:
    talk = told({**FIVE, "status": "rejected"})
    assert notes(talk) == [("warning", "The 5-hour limit is used up")]
    assert [(wait.kind, wait.until) for wait in talk.session.waits] == [("quota", 5000), ("model", None)]
    talk.feed({"type": "rate_limit_event", "rate_limit_info": {**FIVE, "status": "allowed"}})
    assert talk.waits == [("model", "")]


def test_what_paid_usage_covers_is_no_wait() -> None:
    assert told({**FIVE, "status": "rejected", "isUsingOverage": True}).waits == [("model", "")]


def test_a_run_that_ends_on_a_spent_quota_tells_the_reset() -> None:
    talk = told({**FIVE, "status": "rejected"})
    talk.result("You've hit your 5-hour limit · resets 11pm", is_error=True, api_error_status=429)
    (completed,) = talk.of(CompletedEvent)
    assert completed.detail == {"quota": True, "resets_at": 5000}


def test_a_quota_of_which_no_reset_is_known() -> None:
    talk = told()
    talk.result("You've hit your 5-hour limit · resets 11pm", is_error=True, api_error_status=429)
    assert talk.of(CompletedEvent)[0].detail == {"quota": True}


def test_a_throttle_is_no_quota() -> None:
    talk = told()
    talk.result("API Error: rate limited", is_error=True, api_error_status=429)
    assert talk.of(CompletedEvent)[0].detail == {}
