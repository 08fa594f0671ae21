"""Recordings of real agent CLIs, row by row.

A recording is one file in ``tests/transcripts``; the README beside it tells its format. For parametrized tests::

    @pytest.mark.parametrize("recording", recordings("claude"), ids=str)
    def test_replay(recording: Recording) -> None:
        for row in recording.rows(): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

FOLDER = Path(__file__).resolve().parent.parent / "transcripts"

# Folder → engine and CLI release. The first recordings were made before there was a second release.
RELEASES = MappingProxyType(
    {
        "claude": ("claude", "2.1.197"),
        "claude-2.1.332": ("claude", "2.1.332"),
    }
)


class Row(msgspec.Struct, frozen=True):
    """One row: ``in`` we wrote it, ``out`` and ``err`` the CLI printed it, ``meta`` the recorder's own note.

    ``frame`` is the decoded JSON line and ``raw`` the text of a line that was not JSON; ``event`` names a meta row,
    whose other fields are in ``fields``. ``t`` is in seconds since the spawn.
    """

    t: float
    dir: Literal["in", "out", "err", "meta"]
    frame: Any = None
    raw: str | None = None
    event: str | None = None
    fields: dict[str, Any] = {}

    @property
    def line(self) -> bytes:
        """The line as the CLI wrote or read it, without its newline (keys in the order of the recording)."""
        if self.raw is not None:
            return self.raw.encode()
        return msgspec.json.encode(self.frame)


class Recording(msgspec.Struct, frozen=True):
    """One recorded run of one CLI."""

    engine: str
    version: str
    name: str
    path: Path

    def __str__(self) -> str:
        return f"{self.version}/{self.name}"

    def rows(self) -> Iterator[Row]:
        """All rows, in the order in which they happened."""
        with self.path.open("rb") as file:
            for text in file:
                row = msgspec.json.decode(text)
                known = {key: row.pop(key) for key in ("t", "dir", "frame", "raw", "event") if key in row}
                row.pop("bytes", None)
                yield Row(**known, fields=row)

    def lines(self) -> list[bytes]:
        """What the CLI wrote to stdout, line by line."""
        return [row.line for row in self.rows() if row.dir == "out"]

    @property
    def argv(self) -> list[str]:
        """The command line of the run."""
        spawn = next(row for row in self.rows() if row.event == "spawn")
        return list(spawn.fields["argv"])


def recordings(engine: str | None = None, version: str | None = None) -> list[Recording]:
    """All recordings, or those of one engine or release, in a stable order."""
    return [
        Recording(its_engine, its_version, path.stem, path)
        for folder, (its_engine, its_version) in RELEASES.items()
        if engine in (None, its_engine) and version in (None, its_version)
        for path in sorted((FOLDER / folder).glob("*.jsonl"))
    ]


def recording(name: str, version: str, engine: str = "claude") -> Recording:
    """One recording by name. Raises LookupError when there is none."""
    for one in recordings(engine, version):
        if one.name == name:
            return one
    raise LookupError(f"no recording {name} of {engine} {version} in {FOLDER}")
