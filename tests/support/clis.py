"""Which releases of the agent CLIs the end-to-end tests run (tests/clis.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path

PINS = Path(__file__).resolve().parent.parent / "clis.toml"


def pinned(engine: str) -> list[str]:
    """The pinned releases of one engine; the first is the one to take when any will do."""
    return [cli["version"] for cli in tomllib.loads(PINS.read_text("utf-8"))["cli"] if cli["engine"] == engine]
