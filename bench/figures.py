"""Figures: what a measurement gives, as a table for people or as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec


class Figure(NamedTuple):
    """One measured value. `target` is the budget for it in words, "" when it has none."""

    group: str
    name: str
    value: float
    unit: str
    target: str = ""

    @property
    def shown(self) -> str:
        if self.unit == "%":
            return f"{self.value:.1f} %"
        return f"{self.value:.3g} {self.unit}" if self.value < 100 else f"{self.value:,.0f} {self.unit}"


def table(figures: Sequence[Figure]) -> str:
    """The figures in columns, a heading line before each group."""
    names = max((len(figure.name) for figure in figures), default=0)
    values = max((len(figure.shown) for figure in figures), default=0)
    lines: list[str] = []
    group = None
    for figure in figures:
        if figure.group != group:
            group = figure.group
            lines += ["", group]
        line = f"  {figure.name:<{names}}  {figure.shown:>{values}}"
        lines.append(f"{line}   budget {figure.target}" if figure.target else line)
    return "\n".join(lines)


def as_json(figures: Iterable[Figure]) -> str:
    return msgspec.json.format(msgspec.json.encode([figure._asdict() for figure in figures])).decode()


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
