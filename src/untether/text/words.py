"""The words for numbers, names and times that every screen uses, so that they read the same everywhere."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from pathlib import PurePath

from wcwidth import grapheme_boundary_before

from .clean import clean_text

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400

# claude-opus-5-5, claude-sonnet-5, claude-haiku-4-5-20251001, claude-opus-4-8[1m]; the older claude-3-5-sonnet-…
_MODEL = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:-(\d{1,2}))?(?:-\d{8})?(\[1m\])?")
_OLD_MODEL = re.compile(r"claude-(\d{1,2})(?:-(\d{1,2}))?-([a-z]+)(?:-\d{8})?(\[1m\])?")

_WORD = re.compile(r"\S+")


def duration(seconds: float) -> str:
    """`48s`, `2m 14s`, `1h 5m`, `3d 2h`: at most two units, the rest is cut off, a zero is left out."""
    left = max(0, int(seconds))
    if left < _MINUTE:
        return f"{left}s"
    if left < _HOUR:
        return _two(left, _MINUTE, "m", 1, "s")
    if left < _DAY:
        return _two(left, _HOUR, "h", _MINUTE, "m")
    return _two(left, _DAY, "d", _HOUR, "h")


def _two(seconds: int, big: int, big_sign: str, small: int, small_sign: str) -> str:
    rest = seconds % big // small
    return f"{seconds // big}{big_sign}" + (f" {rest}{small_sign}" if rest else "")


def age(then: float, now: float) -> str:
    """How long ago, for epoch seconds: `just now`, `3 min ago`, `2 h ago`, `5 days ago`."""
    seconds = now - then
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min ago"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)} h ago"
    days = int(seconds // _DAY)
    return "1 day ago" if days == 1 else f"{days} days ago"


def clock_time(epoch: float, tz: tzinfo | None, now: float | None = None) -> str:
    """`14:30` in the zone `tz` (None: this machine's); with `now`, a time of another day as `3 Dec 14:30`.

    Times are epoch seconds. Raises ValueError or OverflowError beyond the years that a datetime holds.
    """
    moment = datetime.fromtimestamp(epoch, tz)
    if now is None or datetime.fromtimestamp(now, tz).date() == moment.date():
        return f"{moment:%H:%M}"
    return f"{moment.day} {moment:%b %H:%M}"


def memory(size: int) -> str:
    """Bytes as `512 MB`, `1.9 GB`, in units of 1024."""
    megabytes = size / 2**20
    return f"{megabytes:.0f} MB" if megabytes < 1023.5 else f"{_rounded(megabytes / 1024, 1)} GB"


def tokens(count: int) -> str:
    """`850`, `61 k`, `1.2 M`."""
    if count < 1000:
        return str(count)
    if count < 999_500:
        return f"{_rounded(count / 1000, 0)} k"
    return f"{_rounded(count / 1_000_000, 1)} M"


def size(count: int) -> str:
    """Bytes as `850 B`, `61 kB`, `1.2 MB`, `34 GB`: thousands, as disks are sold."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.5:
            return f"{_rounded(value, 1 if value < 9.95 and unit != 'kB' else 0)} {unit}"
    return f"{_rounded(value / 1000, 1)} TB"


def money(dollars: float) -> str:
    """`$0.42`; under a cent three decimals, `$0.004`; less than what they can show is `<$0.001`."""
    if 0 < dollars < 0.0005:
        return "<$0.001"
    return f"${_rounded(dollars, 3 if 0 < dollars < 0.01 else 2)}"


def _rounded(value: float, places: int) -> Decimal:
    # Through the shortest decimal form, so that 0.125 and 2.675 round the way they read.
    return Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)


def changes(added: int, removed: int) -> str:
    """`+12 −3`, with a typographic minus."""
    return f"+{added} −{removed}"


def model_name(model: str) -> str:
    """`claude-opus-5-5` as `opus 5.5`, `claude-opus-4-8[1m]` as `opus 4.8 (1M)`; a name of another form unchanged."""
    if match := _MODEL.fullmatch(model):
        family, major, minor, wide = match.groups()
    elif match := _OLD_MODEL.fullmatch(model):
        major, minor, family, wide = match.groups()
    else:
        return model
    return f"{family} {major}" + (f".{minor}" if minor else "") + (" (1M)" if wide else "")


def one_line(text: str, limit: int) -> str:
    """`text` on one line of at most `limit` characters: safe to show, white space as single spaces, `…` where cut.

    The cut does not break an emoji or an accented letter. ValueError if `limit` is under 1.
    """
    if limit < 1:
        raise ValueError("A line must hold at least the sign that it was cut")
    words: list[str] = []
    length = -1
    for match in _WORD.finditer(text):  # stops early: tool output may be megabytes
        words.append(text[match.start() : min(match.end(), match.start() + limit + 1)])
        length += 1 + len(words[-1])
        if length > limit:
            break
    line = clean_text(" ".join(words))
    if len(line) <= limit:
        return line
    cut = grapheme_boundary_before(line[:limit], limit) or limit - 1
    return line[:cut].rstrip() + "…"


def shorten_path(path: str, root: str) -> str:
    """`path` as seen from the folder `root`; unchanged when it lies outside. Names only, no file is touched."""
    pure = PurePath(path)
    if not root or not pure.is_relative_to(root) or ".." in pure.parts:
        return path
    return str(pure.relative_to(root))
