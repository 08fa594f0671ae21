"""Words of the cards that depend on numbers and lengths."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from untether.conversation import asked_cards, cards
from untether.conversation.progress import ProgressTracker, wait_text
from untether.model import Allow, Answers, Content, Decision, Deny, Interaction, Wait
from untether.store.interactions import Pending
from untether.text.blocks import to_plain


@pytest.mark.parametrize(
    ("place", "words"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_places_in_the_queue(place: int, words: str) -> None:
    assert to_plain(cards.queued(place, "").blocks) == f"⏳ queued, {words}"


@pytest.mark.parametrize("decision", [Allow(), Deny("no " * 4000), Answers({"a": "yes " * 4000, "b": "or 🤷 " * 4000})])
def test_an_outcome_fits_one_message(decision: Decision) -> None:
    """It is an edit: what is too long cannot go on in a second message, and the buttons would stay."""
    asked = Interaction("r1", "permission", "Run a command?", (Content("command", "🤖" * 9000),))
    pending = Pending("k", "p", 1, asked, "decided", 1, decision, "Ann", 0.0, 0.0)
    text = to_plain(asked_cards.outcome(pending, "Ann", 0.0).blocks)
    assert len(text.encode("utf-16-le")) // 2 <= 4096
    assert "…" in text


def test_the_end_of_a_usage_limit_is_told_in_the_zone_of_the_reader() -> None:
    """`until` is 2023-11-14 22:13:20 UTC."""
    waits = (Wait("quota", 0.0, 1_700_000_000.0, "weekly limit"),)
    now = 1_700_000_000.0 - 72 * 60
    tracker = ProgressTracker(now)
    assert wait_text(tracker, waits, now, zone=UTC) == "⏳ usage limit, resets 22:13 (in 1h 12m)"
    assert wait_text(tracker, waits, now, zone=ZoneInfo("Asia/Kolkata")) == "⏳ usage limit, resets 03:43 (in 1h 12m)"
    far = now - 2 * 86_400
    assert wait_text(tracker, waits, far, zone=UTC) == "⏳ usage limit, resets 14 Nov 22:13 (in 2d 1h)"
    assert wait_text(tracker, waits, 1_700_000_001.0, zone=UTC) == ""


@pytest.mark.parametrize(
    ("waits", "line"),
    [
        ((Wait("quota", 0.0),), "⏳ usage limit"),
        ((Wait("compaction", 95.0),), "⏳ compacting the conversation"),
        ((Wait("compaction", 30.0),), "⏳ compacting the conversation · 1m 10s"),
        ((Wait("hook", 0.0, label="SessionStart"),), "⏳ hook SessionStart"),
        ((Wait("model", 41.0),), ""),
        ((Wait("model", 20.0),), "⏳ model, 1m 20s of silence (normal)"),
        ((Wait("tool", 0.0, label="make"),), ""),
        (
            (Wait("background", 30.0, label="check the API docs"),),
            '⏳ 1 task in the background: "check the API docs" · 1m 10s',
        ),
    ],
)
def test_the_line_says_whom_the_run_waits_for(waits: tuple[Wait, ...], line: str) -> None:
    assert wait_text(ProgressTracker(0.0), waits, 100.0) == line
