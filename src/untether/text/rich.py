"""Formatted text as a plain string plus entities: what every chat edge takes and the splitter cuts.

Offsets are Python code points, ends are exclusive. A `RichText` that comes out of this room has its entities sorted
(outer before inner), inside the text, never empty, never blank and never crossing; `code` and `pre` hold no other
entity, `link` holds no code, quotes do not nest. These are the rules of Telegram, the strictest chat we know; other
chats are content with less.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, TypeAlias

import msgspec

EntityKind: TypeAlias = Literal[
    "bold", "italic", "underline", "strike", "spoiler", "code", "pre", "link", "quote", "expandable_quote"
]

QUOTES: frozenset[EntityKind] = frozenset({"quote", "expandable_quote"})
MONOSPACED: frozenset[EntityKind] = frozenset({"code", "pre"})
# Of entities over the same text the one that comes first here encloses the others.
_ORDER: tuple[EntityKind, ...] = (
    "quote", "expandable_quote", "pre", "code", "link", "bold", "italic", "underline", "strike", "spoiler",
)  # fmt: skip
_RANK = {kind: rank for rank, kind in enumerate(_ORDER)}


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of text with a meaning. `value` is the language of a `pre` or the address of a `link`."""

    kind: EntityKind
    start: int
    end: int
    value: str = ""


class RichText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text and its entities. Slicing clips the entities, `+` and `join` shift them."""

    text: str
    entities: tuple[Entity, ...] = ()

    def __getitem__(self, part: slice) -> RichText:
        """The part of the text with the entities that touch it, cut to it. Steps other than 1: ValueError."""
        start, end, step = part.indices(len(self.text))
        if step != 1:
            raise ValueError("A rich text is sliced without a step")
        return RichText(self.text[start:end], clip(self.text, self.entities, start, end))

    def __add__(self, other: RichText) -> RichText:
        return join((self, other))


class Style(NamedTuple):
    """How to append a stretch: a kind, and for `pre` and `link` their value."""

    kind: EntityKind
    value: str = ""


class Utf16Entity(NamedTuple):
    """An entity in UTF-16 code units, the way Telegram counts."""

    kind: EntityKind
    offset: int
    length: int
    value: str


# ----------------------------------------------------------------------------------------------- whole texts


def clip(text: str, entities: Iterable[Entity], start: int, end: int) -> tuple[Entity, ...]:
    """The entities that touch `text[start:end]`, cut to it and counted from `start`; blank ones are left out."""
    clipped = []
    for entity in entities:
        low, high = max(entity.start, start), min(entity.end, end)
        if low < high and not text[low:high].isspace():
            clipped.append(Entity(entity.kind, low - start, high - start, entity.value))
    return tuple(clipped)


def join(parts: Iterable[RichText], sep: str = "") -> RichText:
    """The parts one after another, with the unformatted `sep` between them."""
    texts: list[str] = []
    entities: list[Entity] = []
    at = 0
    for part in parts:
        if texts:
            at += len(sep)
        entities += (Entity(e.kind, e.start + at, e.end + at, e.value) for e in part.entities)
        texts.append(part.text)
        at += len(part.text)
    return RichText(sep.join(texts), tuple(entities))


def styled(rich: RichText, kind: EntityKind, value: str = "") -> RichText:
    """The whole of `rich` in one more style."""
    return RichBuilder().extend(rich, Style(kind, value)).build()


def strip(rich: RichText) -> RichText:
    """`rich` without white space at its ends."""
    end = len(rich.text.rstrip())
    return rich[min(end, len(rich.text) - len(rich.text.lstrip())) : end]


# ---------------------------------------------------------------------------------------------------- UTF-16


def utf16_length(text: str) -> int:
    """The length of `text` in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_offsets(text: str) -> array[int]:
    """For every code point of `text`, and for its end, the offset in UTF-16 code units."""
    return array("I", accumulate((1 + (char > "\uffff") for char in text), initial=0))


def to_utf16(rich: RichText) -> list[Utf16Entity]:
    """The entities of `rich` in UTF-16 code units, in the same order."""
    at = utf16_offsets(rich.text)
    return [Utf16Entity(e.kind, at[e.start], at[e.end] - at[e.start], e.value) for e in rich.entities]


# --------------------------------------------------------------------------------------------------- builder


class RichBuilder:
    """Collects stretches of text with their styles and makes entities that obey the rules of this module."""

    def __init__(self) -> None:
        self._runs: list[tuple[str, tuple[Style, ...]]] = []

    def append(self, text: str, *styles: Style | EntityKind) -> RichBuilder:
        """Add `text` in all of `styles`, outer ones first; what the rules forbid to combine is reduced (code in bold
        is only code)."""
        if text:
            self._runs.append((text, _allowed(styles)))
        return self

    def extend(self, rich: RichText, *styles: Style | EntityKind) -> RichBuilder:
        """Add an already formatted text, all of it in `styles` too."""
        for start, end, inner in _stretches(rich):
            self.append(rich.text[start:end], *styles, *inner)
        return self

    def build(self) -> RichText:
        text = "".join(run for run, _ in self._runs)
        entities: list[Entity] = []
        open_styles: list[tuple[Style, int]] = []  # with the place where each began, outer ones first

        def close(count: int, at: int) -> None:
            for style, start in open_styles[count:]:
                if not text[start:at].isspace():
                    entities.append(Entity(style.kind, start, at, style.value))
            del open_styles[count:]

        at = 0
        for run, styles in self._runs:
            close(_staying([style for style, _ in open_styles], styles), at)
            held = {style for style, _ in open_styles}
            open_styles += ((style, at) for style in styles if style not in held)
            at += len(run)
        close(0, at)
        return RichText(text, tuple(sorted(entities, key=_nesting)))


def _staying(open_styles: list[Style], styles: tuple[Style, ...]) -> int:
    """How many of the open styles, outer ones first, go on in the next stretch, which is in `styles`."""
    if styles and styles[0].kind in QUOTES and styles[0] not in open_styles:
        return 0  # a quote that begins here encloses all others
    return next((i for i, style in enumerate(open_styles) if style not in styles), len(open_styles))


def _nesting(entity: Entity) -> tuple[int, int, int]:
    return entity.start, -entity.end, _RANK[entity.kind]


def _allowed(styles: Iterable[Style | EntityKind]) -> tuple[Style, ...]:
    """The styles that may be combined, in their order but a quote first. The first quote wins, a link over code."""
    chosen: dict[EntityKind, Style] = {}
    for item in styles:
        style = Style(item) if isinstance(item, str) else item
        chosen.setdefault(style.kind, style)
    if "quote" in chosen and "expandable_quote" in chosen:
        second = next(kind for kind in reversed(chosen) if kind in QUOTES)
        del chosen[second]
    only: set[EntityKind] | None = None
    if "pre" in chosen:
        only = {"pre"}
    elif "link" in chosen:
        chosen.pop("code", None)
    elif "code" in chosen:
        only = {"code"}
    kept = [style for kind, style in chosen.items() if only is None or kind in only | QUOTES]
    return tuple(sorted(kept, key=lambda style: style.kind not in QUOTES))


def _stretches(rich: RichText) -> Iterator[tuple[int, int, list[Style]]]:
    """Cut a text where its entities begin and end; with the styles of each stretch, outer ones first."""
    entities = sorted(rich.entities, key=_nesting)
    borders = sorted({0, len(rich.text), *(e.start for e in entities), *(e.end for e in entities)})
    active: list[Entity] = []
    upcoming = 0
    for start, end in pairwise(borders):
        while upcoming < len(entities) and entities[upcoming].start <= start:
            active.append(entities[upcoming])
            upcoming += 1
        active = [e for e in active if e.end > start]
        yield start, end, [Style(e.kind, e.value) for e in active]
