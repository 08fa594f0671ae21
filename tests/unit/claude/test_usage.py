"""What a run cost, from the running totals of both versions."""

from __future__ import annotations

import pytest

from tests.support.replay_claude import replay
from untether.model import CompletedEvent, TurnEvent, Usage


def costs(name: str) -> list[float | None]:
    found = []
    for event in replay(name).events:
        if isinstance(event, CompletedEvent) or (isinstance(event, TurnEvent) and event.phase == "completed"):
            assert isinstance(event.usage, Usage)
            found.append(event.usage.cost_usd)
    return found


def test_a_resumed_session_is_not_paid_twice() -> None:
    """2.1.332 goes on counting from the session: its first total is 0.0024, of which 0.0008 are this run's."""
    assert costs("claude-2.1.332/resume_other_cwd") == [pytest.approx(0.0008)]


def test_later_turns_cost_their_own_share() -> None:
    total = costs("claude/followup_turns")
    assert len(total) > 1
    assert all(cost is not None and 0 < cost < 0.01 for cost in total)
