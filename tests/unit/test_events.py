"""The event factory."""

from __future__ import annotations

import pytest

from untether.events import EventFactory
from untether.model import (
    Action,
    ActionEvent,
    CompletedEvent,
    EngineId,
    ResumeToken,
    StartedEvent,
    TurnEvent,
    Usage,
)

CODEX = EngineId("codex")
TOKEN = ResumeToken(CODEX, "thread_123")


def test_events_have_the_shapes_of_the_model() -> None:
    factory = EventFactory(engine="codex")
    assert factory.started(TOKEN, title="Codex") == StartedEvent(CODEX, TOKEN, "Codex")
    assert factory.started(TOKEN, meta={"model": "x"}) == StartedEvent(CODEX, TOKEN, "", {"model": "x"})
    assert factory.action_started(action_id="item_1", kind="command", title="ls") == ActionEvent(
        CODEX, Action("item_1", "command", "ls"), "started"
    )
    assert factory.action_updated("item_1", "command", "ls", message="12 files") == ActionEvent(
        CODEX, Action("item_1", "command", "ls"), "updated", message="12 files"
    )
    assert factory.action_completed(
        action_id="item_1", kind="command", title="ls", ok=False, detail={"exit": 2}, parent="task_1"
    ) == ActionEvent(CODEX, Action("item_1", "command", "ls", {"exit": 2}), "completed", ok=False, parent="task_1")
    assert factory.completed_ok(answer="Done.", resume=TOKEN, usage={"turns": 1}) == CompletedEvent(
        CODEX, True, "Done.", TOKEN, None, {"turns": 1}
    )
    assert factory.completed_error(error="timeout", resume=TOKEN) == CompletedEvent(CODEX, False, "", TOKEN, "timeout")
    assert factory.turn_started(prompts=("p1",)) == TurnEvent(CODEX, "started", prompts=("p1",))
    assert factory.turn_completed(True, "Yes.", usage=Usage(cost_usd=0.5), prompts=("p1",)) == TurnEvent(
        CODEX, "completed", ok=True, answer="Yes.", usage=Usage(cost_usd=0.5), prompts=("p1",)
    )


def test_the_completed_event_names_the_session_that_was_announced_last() -> None:
    factory = EventFactory("codex")
    assert factory.completed_error("no such model").resume is None
    factory.started(TOKEN)
    assert factory.completed_ok("Done.").resume == TOKEN
    moved = ResumeToken(CODEX, "thread_456")
    factory.session_changed(moved, "reset")
    assert factory.completed_ok("Done.").resume == moved
    assert factory.completed_ok("Done.", resume=TOKEN).resume == TOKEN


def test_another_engines_session_is_refused() -> None:
    with pytest.raises(ValueError, match="claude"):
        EventFactory("codex").started(ResumeToken(EngineId("claude"), "1"))


def test_warnings_are_numbered_unless_they_have_an_id() -> None:
    factory = EventFactory("codex")
    warnings = [factory.warning("Slow"), factory.warning("Slower"), factory.warning("Retry 2", action_id="retry")]
    assert [event.action.id for event in warnings] == ["codex.warning.1", "codex.warning.2", "retry"]
    assert {(event.action.kind, event.phase, event.ok) for event in warnings} == {("warning", "completed", False)}


def test_an_event_does_not_change_with_the_detail_it_was_made_of() -> None:
    detail = {"lines": 1}
    event = EventFactory("codex").action_started("1", "tool", "Read a", detail)
    detail["lines"] = 2
    assert event.action.detail == {"lines": 1}
