"""The pause that grows."""

from __future__ import annotations

from untether.conversation.persistence import Backoff


def test_a_pause_doubles_up_to_its_bound_and_is_short_again_after_success() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 1.0
