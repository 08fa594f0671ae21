"""Numbers, names and times in words."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untether.text import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (0.4, "0s"), (48.9, "48s"), (60, "1m"), (134, "2m 14s"), (3599, "59m 59s"), (3600, "1h"),
     (3905, "1h 5m"), (86_400, "1d"), (277_200, "3d 5h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"),
        (59, "just now"),
        (180, "3 min ago"),
        (7200, "2 h ago"),
        (86_400, "1 day ago"),
        (432_000, "5 days ago"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert words.age(1000.0, 1000.0 + seconds) == text


def test_clock_times_are_in_the_zone_of_the_reader() -> None:
    noon = datetime(2026, 12, 3, 12, 30, tzinfo=UTC).timestamp()
    assert words.clock_time(noon, ZoneInfo("Europe/Berlin")) == "13:30"
    assert words.clock_time(noon, UTC, now=noon - 3600) == "12:30"
    assert words.clock_time(noon, UTC, now=noon - 90_000) == "3 Dec 12:30"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (850, "850"), (1000, "1 k"), (4_400, "4 k"), (61_499, "61 k"), (999_499, "999 k"), (999_500, "1.0 M"),
     (1_250_000, "1.3 M")],
)  # fmt: skip
def test_tokens(count: int, text: str) -> None:
    assert words.tokens(count) == text


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0, "$0.00"),
        (0.42, "$0.42"),
        (12.345, "$12.35"),
        (0.01, "$0.01"),
        (0.0042, "$0.004"),
        (0.0005, "$0.001"),
        (0.0001, "<$0.001"),
    ],
)
def test_money(dollars: float, text: str) -> None:
    assert words.money(dollars) == text


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("claude-opus-5-5", "opus 5.5"),
        ("claude-opus-4-8[1m]", "opus 4.8 (1M)"),
        ("claude-sonnet-5", "sonnet 5"),
        ("claude-haiku-4-5-20251001", "haiku 4.5"),
        ("claude-opus-4-20250514", "opus 4"),
        ("claude-3-5-sonnet-20241022", "sonnet 3.5"),
        ("gpt-5.1-codex", "gpt-5.1-codex"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("opus", "opus"),
        ("", ""),
    ],
)
def test_model_names(model: str, text: str) -> None:
    assert words.model_name(model) == text


def test_changes() -> None:
    assert words.changes(12, 3) == "+12 −3"


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("  a \n\t b\r\n", 10, "a b"),
        ("exactly ten", 11, "exactly ten"),
        ("exactly ten", 10, "exactly t…"),
        ("one two", 5, "one…"),
        ("x\u202ey\0z", 5, "x�y�z"),
        ("ab👨‍👩‍👧cd", 6, "ab…"),
        ("a" + "\u0301" * 9, 4, "a\u0301\u0301…"),
        ("", 1, ""),
        ("ab", 1, "…"),
    ],
)
def test_one_line(text: str, limit: int, line: str) -> None:
    assert words.one_line(text, limit) == line


@given(st.text(), st.integers(1, 30))
def test_one_line_is_one_line_within_the_limit(text: str, limit: int) -> None:
    line = words.one_line(text, limit)
    assert len(line) <= limit
    assert line == " ".join(line.split())
    line.encode()


def test_one_line_does_not_read_megabytes_of_words() -> None:
    assert words.one_line("word " * 1_000_000, 9) == "word wor…"


@pytest.mark.parametrize(
    ("path", "root", "short"),
    [
        ("/srv/shop/src/cart.py", "/srv/shop", "src/cart.py"),
        ("/srv/shop/src/cart.py", "/srv/shop/", "src/cart.py"),
        ("/srv/shop", "/srv/shop", "."),
        ("/srv/shop2/a", "/srv/shop", "/srv/shop2/a"),
        ("/srv/shop/../secret", "/srv/shop", "/srv/shop/../secret"),
        ("src/cart.py", "/srv/shop", "src/cart.py"),
        ("/etc/hosts", "", "/etc/hosts"),
    ],
)
def test_paths_within_the_project_are_short(path: str, root: str, short: str) -> None:
    assert words.shorten_path(path, root) == short


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 MB"), (300 << 20, "300 MB"), (1024 << 20, "1.0 GB"), ((1 << 30) - 1, "1.0 GB"), (63 << 30, "63.0 GB")],
)
def test_memory(size: int, text: str) -> None:
    assert words.memory(size) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (61_400, "61 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (1_250_000, "1.3 MB"),
        (268_435_456, "268 MB"),
        (34_000_000_000, "34 GB"),
        (1_500_000_000_000, "1.5 TB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert words.size(count) == text
