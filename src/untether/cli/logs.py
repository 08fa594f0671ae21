"""The log: one line an event on stderr, for people on a terminal, JSON elsewhere when asked; secrets masked."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable

import structlog

from ..redact import Redactor


def set_up(secrets: Iterable[str], *, level: int = logging.INFO) -> None:
    """Configure structlog and the libraries' logging. `UNTETHER_LOG=json` prints JSON lines."""
    as_json = os.environ.get("UNTETHER_LOG") == "json"
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
    )
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=as_json),
        structlog.processors.format_exc_info,
        Redactor(secrets),
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log URLs that hold the bot token, so only their warnings are let through, and masked.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared, renderer]
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
