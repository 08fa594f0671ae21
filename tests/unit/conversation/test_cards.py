"""Words of the cards that depend on numbers and lengths."""

from __future__ import annotations

import pytest

from untether.conversation import cards
from untether.model import Allow, Answers, Content, Decision, Deny, Interaction
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
    text = to_plain(cards.outcome(pending, "Ann", 0.0).blocks)
    assert len(text.encode("utf-16-le")) // 2 <= 4096
    assert "…" in text
