"""What a release of Codex has that is not known here, and what it has no more, by the schema that it prints itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import msgspec
import structlog

from ...model import Record
from ...schemas import codex_known as known

log = structlog.get_logger(__name__)

_PATIENCE_S = 30.0
_FILE = "codex_app_server_protocol.schemas.json"


class Surface(Record, frozen=True):
    """Names that a release has; `failure` says why there are none."""

    notifications: frozenset[str] = frozenset()
    requests: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    items: frozenset[str] = frozenset()
    decisions: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()
    failure: str = ""


async def look(program: str, environ: Mapping[str, str]) -> Surface:
    """Have the program print its schema, and read that. No model is called."""
    with TemporaryDirectory(prefix="untether-") as folder:
        command = [program, "app-server", "generate-json-schema", "--experimental", "--out", folder]
        try:
            with anyio.fail_after(_PATIENCE_S):
                done = await anyio.run_process(command, check=False, env=dict(environ), stdin=subprocess.DEVNULL)
        except (OSError, TimeoutError) as error:
            return Surface(failure=f"it did not print its schema: {error or 'no answer'}")
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[-200:]
            return Surface(failure=f"it did not print its schema: {said}")
        try:
            return read(msgspec.json.decode(await anyio.Path(folder, _FILE).read_bytes()))
        except (OSError, msgspec.DecodeError) as error:
            log.info("codex.schema_unread", error=str(error))
            return Surface(failure=f"its schema could not be read: {error}")


def read(schema: Any) -> Surface:
    """The names in a schema bundle; what is not found there stays empty."""
    found = dict(_definitions(schema))
    return Surface(
        notifications=_values(found.get("ServerNotification"), "method"),
        requests=_values(found.get("ServerRequest"), "method"),
        methods=_values(found.get("ClientRequest"), "method"),
        items=_values(found.get("ThreadItem"), "type"),
        decisions=_members(found.get("CommandExecutionApprovalDecision")),
        errors=_members(found.get("CodexErrorInfo")),
    )


def compare(surface: Surface) -> tuple[str, ...]:
    """What is new and what is gone, a line each."""
    if surface.failure:
        return (surface.failure,)
    lines = []
    for what, told, names in (
        ("notifications", surface.notifications, known.KNOWN_NOTIFICATIONS),
        ("requests", surface.requests, known.KNOWN_REQUESTS),
        ("items", surface.items, known.KNOWN_ITEMS),
        ("decisions", surface.decisions, known.KNOWN_DECISIONS),
        ("errors", surface.errors, known.KNOWN_ERRORS),
    ):
        if new := sorted(told - names):
            lines.append(f"new {what}: {', '.join(new)}")
    for what, told, names in (
        ("decisions", surface.decisions, known.KNOWN_DECISIONS),
        ("methods", surface.methods, known.NEEDED_METHODS),
    ):
        if gone := sorted(names - told):
            lines.append(f"{what} that are gone: {', '.join(gone)}")
    return tuple(lines)


def _definitions(schema: Any) -> Iterator[tuple[str, Any]]:
    """All types of a bundle; those of the newer protocol are in a group of their own."""
    groups = schema.get("definitions") if isinstance(schema, dict) else None
    for name, value in (groups or {}).items():
        if isinstance(value, dict) and not {"type", "oneOf", "anyOf", "enum", "properties", "$ref"} & value.keys():
            yield from value.items()
        else:
            yield name, value


def _forms(kind: Any) -> list[Any]:
    """The alternatives of a type."""
    if not isinstance(kind, dict):
        return []
    forms = kind.get("oneOf") or kind.get("anyOf") or []
    return [form for form in forms if isinstance(form, dict)]


def _values(kind: Any, field: str) -> frozenset[str]:
    """What a field may be, over all alternatives."""
    found: set[str] = set()
    for form in _forms(kind):
        value = (form.get("properties") or {}).get(field) or {}
        found |= set(value.get("enum") or ())
    return frozenset(found)


def _members(kind: Any) -> frozenset[str]:
    """The names of an enum whose members are texts or objects with one key."""
    found: set[str] = set()
    for form in _forms(kind):
        if form.get("type") == "string":
            found |= set(form.get("enum") or ())
        else:
            found |= set(form.get("required") or ())
    return frozenset(found)
