"""Splitting: what a chat accepts, cut where a person would cut it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fake_telegram
from tests.unit.text.checks import assert_parts, marks, rich_texts
from untether.text.markdown import markdown_to_rich
from untether.text.rich import Entity, RichText, join, to_utf16, utf16_length
from untether.text.split import split


def texts(rich: RichText, limit: int = 4096) -> list[str]:
    parts = split(rich, limit)
    assert_parts(parts, rich, limit, 100)
    return [part.text for part in parts]


def test_a_short_text_is_one_trimmed_part() -> None:
    assert split(RichText(" \n a b \n", (Entity("bold", 1, 7),))) == [RichText("a b", (Entity("bold", 0, 3),))]


def test_blank_text_gives_no_part() -> None:
    assert split(RichText("")) == []
    assert split(RichText(" \n\u00a0\t")) == []


def test_the_limit_is_that_of_the_trimmed_text() -> None:
    assert texts(RichText("a" * 20 + " \n\n" + "b" * 20), 20) == ["a" * 20, "b" * 20]


def test_paragraphs_are_preferred_to_lines_and_lines_to_words() -> None:
    assert texts(RichText("one two\n\nthree\nfour five"), 20) == ["one two", "three\nfour five"]
    assert texts(RichText("one two three\nfour five"), 20) == ["one two three", "four five"]
    assert texts(RichText("one two three four five"), 20) == ["one two three four", "five"]
    assert texts(RichText("x" * 45), 20) == ["x" * 20, "x" * 20, "x" * 5]


def test_a_paragraph_is_not_worth_an_almost_empty_part() -> None:
    assert texts(RichText("a\n\n" + "word " * 8), 40) == ["a\n\n" + ("word " * 7).strip(), "word"]


def test_a_code_block_that_fits_into_one_part_is_not_cut() -> None:
    code = "\n".join(f"line{n}" for n in range(10))
    parts = split(markdown_to_rich(f"Some words before.\n```py\n{code}\n```\nafter"), 70)
    assert [part.text for part in parts] == ["Some words before.", f"{code}\nafter"]
    assert [e.value for e in parts[1].entities] == ["py"]


def test_a_longer_code_block_is_cut_between_lines_and_opened_again_with_its_language() -> None:
    code = "\n".join(f"def f{n}():\n    return {n}" for n in range(20))
    rich = markdown_to_rich(f"```py\n{code}\n```")
    parts = split(rich, 200)
    assert_parts(parts, rich, 200, 100)
    assert "\n".join(part.text for part in parts) == code
    for part in parts:
        assert part.text.startswith("def"), "the indentation of a first line would be trimmed"
        assert part.entities == (Entity("pre", 0, len(part.text), "py"),)


def test_links_and_code_spans_stay_whole() -> None:
    rich = markdown_to_rich("Please read [the long manual](http://x.yz) and `git push --force` it")
    parts = split(rich, 24)
    assert_parts(parts, rich, 24, 100)
    assert [m for part in parts for m in marks(part, "link", "code")] == ["the long manual", "git push --force"]


def test_formatting_goes_on_in_the_next_part() -> None:
    rich = markdown_to_rich("> **one two three four five six**")
    parts = split(rich, 14)
    assert [(part.text, [e.kind for e in part.entities]) for part in parts] == [
        ("one two three", ["quote", "bold"]),
        ("four five six", ["quote", "bold"]),
    ]


def test_emoji_are_never_cut_and_families_stay_together() -> None:
    family = "👨‍👩‍👧"  # 8 UTF-16 units
    assert texts(RichText(family * 5), 20) == [family * 2, family * 2, family]
    assert texts(RichText("🇩🇪" * 3), 7) == ["🇩🇪"] * 3
    assert texts(RichText("e\u0301" * 4), 3) == ["e\u0301"] * 4
    assert texts(RichText("👩👩"), 2) == ["👩", "👩"]


def test_a_letter_with_endless_accents_is_cut_all_the_same() -> None:
    assert "".join(texts(RichText("a" + "\u0301" * 50), 20)) == "a" + "\u0301" * 50


def test_a_part_has_at_most_as_many_entities_as_telegram_reads() -> None:
    rich = markdown_to_rich("**w** x " * 150)
    parts = split(rich)
    assert_parts(parts, rich, 4096, 100)
    assert [len(part.entities) for part in parts] == [100, 50]


def test_more_nested_entities_than_allowed_do_not_stop_it() -> None:
    rich = RichText("a b c", (*[Entity("bold", 0, 5)] * 5, Entity("code", 4, 5)))
    assert [len(part.entities) for part in split(rich, 4096, 3)] == [3]


def test_limits_that_hold_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        split(RichText("a"), 1)
    with pytest.raises(ValueError, match="at least"):
        split(RichText("a"), 10, 0)


@given(st.lists(rich_texts(), min_size=1, max_size=4), st.integers(2, 120), st.integers(1, 12))
@settings(max_examples=300)
def test_any_text_splits_into_parts_that_can_be_sent(pieces: list[RichText], limit: int, cap: int) -> None:
    rich = join(pieces, "\n\n")
    parts = split(rich, limit, cap)
    assert_parts(parts, rich, limit, cap)


@given(st.text(max_size=400), st.integers(2, 60))
def test_any_plain_text_splits(text: str, limit: int) -> None:
    assert_parts(split(RichText(text), limit), RichText(text), limit, 1)


@given(rich_texts(), st.integers(20, 100))
def test_formatting_is_kept_over_the_cuts(rich: RichText, limit: int) -> None:
    def formatted(part: RichText, kind: str) -> str:
        places = {i for e in part.entities if e.kind == kind for i in range(e.start, e.end)}
        return "".join(part.text[i] for i in sorted(places) if not part.text[i].isspace())

    for kind in ("bold", "italic", "code", "pre", "link", "quote", "expandable_quote"):
        assert "".join(formatted(part, kind) for part in split(rich, limit)) == formatted(rich, kind)


# --------------------------------------------------------------------------------- what Telegram makes of it

_TELEGRAM_KINDS = {
    "strike": "strikethrough",
    "link": "text_link",
    "quote": "blockquote",
    "expandable_quote": "expandable_blockquote",
}


def _sent(part: RichText) -> list[dict[str, Any]]:
    entities = []
    for kind, offset, length, value in to_utf16(part):
        entity: dict[str, Any] = {"type": _TELEGRAM_KINDS.get(kind, kind), "offset": offset, "length": length}
        if kind in ("link", "pre") and value:
            entity["url" if kind == "link" else "language"] = value
        entities.append(entity)
    return entities


ANSWER = """# Report on `main.py`

I changed **two** files, see [the PR](https://host.example/pr/1) and README.md:

- src/cart.py: `total()` now returns *cents* ||secret||
  - nested 👨‍👩‍👧 ~~gone~~
- [ ] open

> quoted
> > inner `code`

```python
def total(items: list[Item]) -> int:
    return sum(i.price for i in items)
```

| a | 数量 |
|--|--:|
| `x` | 1 |

Vec<String>, 2*3*4, __init__.py
"""


@pytest.mark.parametrize("limit", [40, 100, 4096])
def test_telegram_takes_every_part_as_it_is(limit: int) -> None:
    """No trimming, no dropped or shifted entity, no link that we did not make."""
    for part in split(markdown_to_rich(ANSWER * 3), limit):
        sent = _sent(part)
        text, entities = fake_telegram.clean_text(part.text, [dict(e) for e in sent])
        assert text == part.text
        assert utf16_length(text) <= limit
        assert entities == fake_telegram.sort_entities(sent)
