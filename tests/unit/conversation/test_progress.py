"""When a status message is worth another look though nothing happened."""

from __future__ import annotations

from untether.conversation.progress import ProgressTracker, step_text
from untether.model import Action, ActionEvent, EngineId

ENGINE = EngineId("demo")


def test_a_running_step_shows_its_time_from_ten_seconds_on() -> None:
    tracker = ProgressTracker(100.0)
    assert tracker.next_change(100.0) is None
    tracker.note_event(ActionEvent(ENGINE, Action("a", "command", "make"), "started"), 100.0)
    left = tracker.next_change(104.0)
    assert left is not None
    assert 6.0 < left < 6.5
    (step,) = tracker.last(5)
    assert step_text(step, 104.0) == "▸ make"
    assert step_text(step, 104.0 + left) == "▸ make · 10s"
    assert tracker.next_change(111.0) is None
    tracker.note_event(ActionEvent(ENGINE, Action("a", "command", "make"), "completed", ok=True), 112.0)
    assert tracker.next_change(112.0) is None
