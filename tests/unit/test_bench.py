"""The measurements of `bench/` measure what they say. How fast anything is, is not tested."""

from __future__ import annotations

import msgspec

from bench import feed, recorded
from bench.figures import Figure, as_json, table


def test_the_conversation_is_as_long_as_it_says_and_every_tool_id_is_new() -> None:
    frames = [msgspec.json.decode(line) for line in recorded.conversation()]
    contents = [frame["message"]["content"] for frame in frames[1:]]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert len(frames) == 8_001
    assert len(set(calls)) == len(calls) == 2_800
    assert sorted(results) == sorted(calls)
    assert {frame["parent_tool_use_id"] for frame in frames[1:]} - {None} <= set(calls)


def test_a_measurement_of_the_feed_gives_its_share_and_the_parts() -> None:
    head, *parts = feed.conversation(rounds=1)
    assert (head.unit, head.target) == ("%", "≥ 50 %")
    assert head.value > 0
    assert [figure.unit for figure in parts] == ["µs"] * 5


def test_figures_are_shown_as_a_table_and_as_json() -> None:
    figures = [Figure("start", "memory", 71.68, "MB", "≤ 80 MB"), Figure("start", "share", 50.26, "%")]
    assert table(figures).splitlines() == ["", "start", "  memory  71.7 MB   budget ≤ 80 MB", "  share    50.3 %"]
    assert msgspec.json.decode(as_json(figures))[0]["value"] == 71.68
