"""Stories of Codex for the runner contract: recordings of both forms, and lines in their manner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.support.codex_talk import THREAD, thread
from tests.support.replay_codex import rows_of
from untether.session import Input

TURN = {"id": "turn-1", "status": "inProgress"}

# The requests of a session are numbered from 1: initialize, thread/start or thread/resume, turn/start.
OPENING: Sequence[dict[str, Any]] = (
    {"id": 1, "result": {"codexHome": "/home/ann/.codex"}},
    {"id": 2, "result": thread()},
    {"id": 3, "result": {"turn": TURN}},
    {"method": "turn/started", "params": {"threadId": THREAD, "turn": TURN}},
)
COMMAND = {"type": "commandExecution", "id": "c1", "command": "ls", "status": "inProgress"}


def line(method: str, **params: Any) -> bytes:
    return msgspec.json.encode({"method": method, "params": {"threadId": THREAD, **params}})


def started(**item: Any) -> bytes:
    return line("item/started", item={**COMMAND, **item})


def said(text: str) -> bytes:
    return line("item/completed", item={"type": "agentMessage", "id": "m1", "text": text})


def over(status: str = "completed", **more: Any) -> bytes:
    return line("turn/completed", turn={"id": "turn-1", "status": status, **more})


def asked() -> bytes:
    params = {"threadId": THREAD, "turnId": "turn-1", "itemId": "c1", "command": "ls"}
    return msgspec.json.encode({"method": "item/commandExecution/requestApproval", "id": 0, "params": params})


def opened(*rows: bytes | Input) -> list[bytes | Input]:
    return [*map(msgspec.json.encode, OPENING), *rows]


def recorded(name: str) -> list[bytes]:
    """What Codex printed in a recording whose requests are numbered like ours."""
    return [row.data for row in rows_of(name) if row.dir == "out"]
