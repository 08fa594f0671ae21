"""Draws a table for a chat: aligned in a monospaced block, or as a list of records when it is too wide for that."""

from __future__ import annotations

from typing import NamedTuple

from wcwidth import wcswidth

from .rich import RichBuilder, RichText, join, strip, styled

# Terminal cells. Beyond this a line wraps even on a wide screen and the columns are lost. It also bounds the padding.
MAX_WIDTH = 100


class Cell(NamedTuple):
    """One cell. `align` is `left`, `center`, `right` or empty."""

    content: RichText
    align: str = ""


def render_table(rows: list[list[Cell]]) -> RichText:
    """`rows` drawn; the first one is the heading. All rows have the same number of cells."""
    columns = list(zip(*rows, strict=True))
    widths = [max(_width(cell.content.text) for cell in column) for column in columns]
    if sum(widths) + 3 * (len(widths) - 1) > MAX_WIDTH:
        return _records(rows)
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "─┼─".join("─" * width for width in widths))
    if lines[0].startswith(" "):  # chats cut white space at the start of a block, which would shift the heading
        lines = [("├─" if number == 1 else "│ ") + line for number, line in enumerate(lines)]
    return RichBuilder().append("\n".join(lines), "pre").build()


def _line(row: list[Cell], widths: list[int]) -> str:
    return " │ ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _padded(cell: Cell, width: int) -> str:
    text = cell.content.text
    missing = width - _width(text)
    before = {"right": missing, "center": missing // 2}.get(cell.align, 0)
    return " " * before + text + " " * (missing - before)


def _width(text: str) -> int:
    """Terminal cells that `text` takes: two for a Chinese character, none for a combining mark."""
    width = wcswidth(text)
    return width if width >= 0 else len(text)


def _records(rows: list[list[Cell]]) -> RichText:
    """Each row as lines `heading: value`; empty values are left out."""
    heading, *records = rows
    if not records:
        return join((styled(cell.content, "bold") for cell in heading), " │ ")
    return join((_record(heading, row) for row in records), "\n\n")


def _record(heading: list[Cell], row: list[Cell]) -> RichText:
    lines = []
    for name, cell in zip(heading, row, strict=True):
        if cell.content.text:
            lines.append(join([styled(name.content, "bold"), cell.content], ": " if name.content.text else ""))
    return strip(join(lines, "\n"))
