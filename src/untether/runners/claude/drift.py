"""What a release of Claude Code has that is not known here, and what it has no more: the CLI changes every week.

Read from the program itself: its help, its greeting, the `init` of a turn without a model call, and the schemas that
its native program carries as JavaScript, minified otherwise in each release but always written
`type:F("system"),subtype:F("init")` and `F(["allowed","rejected"])`.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio.to_thread
import structlog

from ...model import Record
from ...process.guard import locate
from ...schemas import claude_known as known
from ...schemas.claude import decode_object
from .handshake import greet

if TYPE_CHECKING:
    from .runner import ClaudeRunner

log = structlog.get_logger(__name__)

_ANCHOR = b'("session_state_changed")'  # in the schemas, and there behind `subtype:F`
_AROUND = 1_500_000  # bytes before and behind the anchor that hold the schemas (2.1.197, 2.1.332)
_CALL = rb"[\w$.]{1,16}"
_SUBTYPE = re.compile(rb"type:" + _CALL + rb'\("system"\),subtype:' + _CALL + rb'\("([a-z_]+)"\)')
_REQUEST = re.compile(rb"\{subtype:" + _CALL + rb'\("([a-z_]+)"\)')
_ENUM = re.compile(_CALL + rb'\(\[((?:"[\w-]{1,40}",?){2,60})\]\)')
_FLAG = re.compile(r"--[A-Za-z][\w-]*")


class Surface(Record, frozen=True):
    """What a release shows of itself; empty where it did not tell."""

    version: str = ""
    flags: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    subtypes: frozenset[str] = frozenset()
    requests: frozenset[str] = frozenset()
    enums: tuple[frozenset[str], ...] = ()
    failure: str = ""


async def look(runner: ClaudeRunner, environ: Mapping[str, str]) -> Surface:
    """Ask the installed CLI, and read its program."""
    path, missing = locate(runner.command(), environ)
    if missing:
        return Surface(failure=missing)
    heard = await greet(runner, environ, turn=True)
    if heard.failure:
        return Surface(runner.cli_version, failure=heard.failure)
    schemas = await anyio.to_thread.run_sync(_schemas, path)
    tools = decode_object(heard.begun).get("tools")
    return Surface(
        runner.cli_version,
        frozenset(_FLAG.findall(runner.help_text)),
        frozenset(name for name in tools or () if isinstance(name, str) and not name.startswith("mcp__")),
        _names(_SUBTYPE, schemas),
        _names(_REQUEST, schemas),
        tuple(frozenset(found.replace('"', "").split(",")) for found in sorted(_names(_ENUM, schemas))),
    )


def compare(surface: Surface) -> tuple[str, ...]:
    """The differences to what is known, each in one line; none for a release that holds nothing new."""
    lines = [
        *_line("new tools", surface.tools - known.TOOLS),
        *_line("new frames", surface.subtypes - known.SUBTYPES),
    ]
    for about, members in known.ENUMS.items():
        for enum in surface.enums:
            if len(enum & members) * 2 > max(len(enum), len(members) - 1):
                lines += _line(f"new {about}", enum - members)
    if surface.flags:
        lines += _line("flags that are gone", known.FLAGS - surface.flags)
    if surface.requests:
        lines += _line("requests that are gone", known.REQUESTS - surface.requests)
    return tuple(dict.fromkeys(lines))


def _line(what: str, found: frozenset[str]) -> list[str]:
    return [f"{what}: {', '.join(sorted(found))}"] if found else []


def _names(pattern: re.Pattern[bytes], text: bytes) -> frozenset[str]:
    return frozenset(match[1].decode() for match in pattern.finditer(text))


def _schemas(path: str) -> bytes:
    """The part of a native program that holds the schemas; empty when there is none, as in a script."""
    try:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program,
        ):
            at = program.find(_ANCHOR)
            while at >= 0:
                if re.search(rb"subtype:" + _CALL + rb"$", program[max(0, at - 30) : at]):
                    return program[max(0, at - _AROUND) : at + _AROUND]
                at = program.find(_ANCHOR, at + 1)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        log.info("drift.program_not_read", path=path, error=str(error))
    return b""
