"""What every formatted text and every part of a message must fulfil, and texts to try it on."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from untether.text.rich import MONOSPACED, QUOTES, Entity, RichText, utf16_length


def assert_valid(rich: RichText) -> None:
    """The promises of `untether.text.rich`, which are the rules of Telegram."""
    rich.text.encode("utf-8")  # no half of a surrogate pair
    order = [(e.start, -e.end) for e in rich.entities]
    assert order == sorted(order), "entities are sorted, outer ones first"
    for entity in rich.entities:
        assert 0 <= entity.start < entity.end <= len(rich.text), entity
        assert rich.text[entity.start : entity.end].strip(), f"blank: {entity}"
    open_entities: list[Entity] = []
    for entity in rich.entities:
        open_entities = [outer for outer in open_entities if outer.end > entity.start]
        for outer in open_entities:
            assert entity.end <= outer.end, f"{entity} crosses {outer}"
            assert outer.kind != entity.kind, f"{entity} repeats {outer}"
            assert outer.kind not in MONOSPACED, f"{entity} in {outer}"
            assert not (entity.kind in MONOSPACED and outer.kind not in QUOTES), f"{entity} in {outer}"
            assert not (entity.kind in QUOTES and outer.kind in QUOTES), f"{entity} in {outer}"
        open_entities.append(entity)


def assert_parts(parts: Sequence[RichText], whole: RichText, limit: int, max_entities: int) -> None:
    """`parts` can all be sent, and together they are `whole` but for white space at the cuts."""
    at = 0
    for part in parts:
        assert_valid(part)
        assert part.text
        assert part.text == part.text.strip()
        assert utf16_length(part.text) <= limit
        assert len(part.entities) <= max_entities
        found = whole.text.index(part.text, at)
        assert not whole.text[at:found].strip(), "something was lost before this part"
        at = found + len(part.text)
    assert not whole.text[at:].strip(), "something was lost at the end"


def marks(rich: RichText, *kinds: str) -> list[str]:
    """The texts that are formatted as one of `kinds`."""
    return [rich.text[e.start : e.end] for e in rich.entities if e.kind in kinds]


# Pieces of Markdown that are troublesome next to each other.
_PIECES = [
    *("a", "b", "word ", "ab ba\n", "a b\n\n", " ", "  ", "\n", "\n\n", "\t", "\r\n"),
    *(
        "*",
        "**",
        "***",
        "_",
        "__",
        "~~",
        "`",
        "``",
        "||",
        "> ",
        "> > ",
        "- ",
        "  - ",
        "1. ",
        "12) ",
        "- [ ] ",
        "- [x] ",
    ),
    *("# ", "### ", "---\n", "```\n", "```b\n", "~~~\n", "    ", "\n|a|b|\n|-|:-:|\n", "|a`|`b|\n", "| "),
    *("[a](http://y.yz)", "[b](x/z.py)", "![a](http://y.yz/x)", "[", "](", ")", "[a]: ", "[^b]", "<", ">", "<ab>"),
    *("ab.py", "b/a.md:3", "http://a.ab", "2*3*4", "__ab__", "a*b*a", "/**/", "\\", "!"),
    *("é", "e\u0301", "漢字", "👩", "\u200d", "👨‍👩‍👧", "🇩🇪", "👍🏽", "𝒳", "\u202e", "\0", "\u00a0"),
]

markdown_sources = st.lists(st.sampled_from(_PIECES), max_size=60).map("".join)


@st.composite
def rich_texts(draw: st.DrawFn) -> RichText:
    """Formatted texts from all kinds of Markdown, several of them under each other."""
    from untether.text.markdown import markdown_to_rich

    return markdown_to_rich(draw(markdown_sources))
