"""What is wrong with the settings, as one error that names file, line, key and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    """One thing to correct. `what` finishes the sentence "KEY …"; no field ever holds a value of the file."""

    what: str
    key: str = ""
    """The dotted key; empty when the whole file is meant."""
    line: int | None = None
    column: int | None = None
    variable: str | None = None
    """The environment variable that the value came from, instead of the file."""
    hint: str | None = None
    """What is allowed, or the key that was probably meant, as a sentence."""

    def __str__(self) -> str:
        if self.variable:
            place = f"{self.variable}: "
        elif self.line is None:
            place = ""
        else:
            place = f"line {self.line}" + (f", column {self.column}" if self.column else "") + ": "
        sentence = f"{place}{self.key} {self.what}" if self.key else f"{place}{self.what}"
        return f"{sentence}. {self.hint}" if self.hint else f"{sentence}."


class ConfigError(Exception):
    """The settings cannot be used. `str()` gives the full text for a person: all problems, one a line, no secrets."""

    def __init__(self, path: Path, problems: Iterable[Problem], headline: str | None = None) -> None:
        self.path = path
        self.problems = tuple(problems)
        count = len(self.problems)
        self.headline = headline or f"{path} has {count} problem{'s' if count != 1 else ''}:"
        super().__init__(path, self.problems)

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {problem}" for problem in self.problems)])
