"""Formatted text: builder, slices, joins and UTF-16 offsets."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.text.checks import assert_valid, marks, rich_texts
from untether.text.rich import (
    Entity,
    EntityKind,
    RichBuilder,
    RichText,
    Style,
    join,
    strip,
    styled,
    to_utf16,
    utf16_length,
)

BOLD_WORD = RichText("a bold word", (Entity("bold", 2, 6),))


def test_a_slice_clips_and_shifts_the_entities() -> None:
    assert BOLD_WORD[4:] == RichText("ld word", (Entity("bold", 0, 2),))
    assert BOLD_WORD[:2] == RichText("a ")
    assert BOLD_WORD[-4:] == RichText("word")


def test_a_slice_with_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="step"):
        BOLD_WORD[::2]


def test_join_shifts_the_entities_and_leaves_the_separator_plain() -> None:
    joined = join([BOLD_WORD, RichText("x", (Entity("code", 0, 1),))], "--")
    assert joined == RichText("a bold word--x", (Entity("bold", 2, 6), Entity("code", 13, 14)))
    assert BOLD_WORD + RichText("!") == RichText("a bold word!", BOLD_WORD.entities)
    assert join([], "--") == RichText("")


def test_strip_trims_text_and_entities() -> None:
    assert strip(RichText(" \n ab \n", (Entity("bold", 1, 5),))) == RichText("ab", (Entity("bold", 0, 2),))
    assert strip(RichText(" \n ")) == RichText("")


def test_utf16_counts_what_telegram_counts() -> None:
    rich = RichText("é👩b", (Entity("link", 1, 3, "http://x.yz"),))
    assert utf16_length(rich.text) == 4
    assert to_utf16(rich) == [("link", 1, 3, "http://x.yz")]


def test_neighbours_of_one_style_become_one_entity() -> None:
    rich = RichBuilder().append("a", "bold").append("b", "bold", "italic").append("c", "bold").build()
    assert rich.entities == (Entity("bold", 0, 3), Entity("italic", 1, 2))


def test_crossing_styles_are_cut() -> None:
    rich = RichBuilder().append("a", "bold").append("b", "bold", "italic").append("c", "italic").build()
    assert_valid(rich)
    assert marks(rich, "bold") == ["ab"]
    assert marks(rich, "italic") == ["b", "c"]


def test_code_in_bold_is_only_code() -> None:
    rich = RichBuilder().append("see ", "bold").append("x", "bold", "code").build()
    assert rich.entities == (Entity("bold", 0, 4), Entity("code", 4, 5))


def test_a_link_wins_over_code_and_the_outer_quote_over_the_inner() -> None:
    rich = RichBuilder().append("x", Style("link", "u"), "code").append("y", "expandable_quote", "quote").build()
    assert rich.entities == (Entity("link", 0, 1, "u"), Entity("expandable_quote", 1, 2))


def test_blank_stretches_have_no_entities() -> None:
    assert RichBuilder().append(" \n", "bold").append("x").build().entities == ()


def test_rich_text_is_json_and_back() -> None:
    assert msgspec.json.decode(msgspec.json.encode(BOLD_WORD), type=RichText) == BOLD_WORD


KINDS: list[EntityKind] = ["bold", "italic", "code", "pre", "link", "quote", "expandable_quote", "spoiler"]
runs = st.lists(st.tuples(st.sampled_from(["a", " ", "👩", "b\n"]), st.lists(st.sampled_from(KINDS), max_size=4)))


@given(runs)
def test_whatever_is_appended_the_result_obeys_the_rules(pieces: list[tuple[str, list[EntityKind]]]) -> None:
    out = RichBuilder()
    for text, kinds in pieces:
        out.append(text, *kinds)
    rich = out.build()
    assert_valid(rich)
    assert rich.text == "".join(text for text, _ in pieces)


@given(rich_texts(), st.integers(0, 80), st.integers(0, 80))
def test_slices_and_styles_of_a_valid_text_are_valid(rich: RichText, start: int, end: int) -> None:
    assert_valid(rich[start:end])
    assert_valid(styled(rich, "quote"))
    assert_valid(styled(rich, "bold"))
    assert RichBuilder().extend(rich).build() == rich
