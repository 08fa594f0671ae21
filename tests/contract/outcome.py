"""Prints what the sessions make of every story, as JSON: ``python -m tests.contract.outcome``."""

from __future__ import annotations

import sys

import msgspec
import structlog

from tests.contract.engines import STORIES


def outcome() -> bytes:
    return msgspec.json.encode({str(story): story.steps() for story in STORIES})


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    sys.stdout.buffer.write(outcome())
