"""JSON-RPC with `codex app-server`: the lines that are written to it, and our requests that wait for an answer.

Text of others goes in only as the value of a string. Ids of our requests count from 1 in every process.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...schemas.codex import RequestId
from ...schemas.tolerant import without_surrogates
from ..output import Output

METHOD_NOT_FOUND = -32601  # JSON-RPC 2.0


def text_input(text: str) -> dict[str, Any]:
    """A piece of a message."""
    return {"type": "text", "text": text, "text_elements": []}


class Call(NamedTuple):
    """A request of ours. `prompts` are the ids of the messages that went with it."""

    method: str
    prompts: tuple[str, ...] = ()


class Rpc:
    """Our side of the channel."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._count = 0
        self._open: dict[RequestId, Call] = {}

    def ask(self, method: str, params: dict[str, Any], *prompts: str) -> int:
        """Returns the id of the request."""
        self._count += 1
        self._open[self._count] = Call(method, prompts)
        self._write({"method": method, "id": self._count, "params": params})
        return self._count

    def notify(self, method: str) -> None:
        self._write({"method": method})

    def reply(self, id: RequestId, result: dict[str, Any]) -> None:
        self._write({"id": id, "result": result})

    def refuse(self, id: RequestId, message: str) -> None:
        self._write({"id": id, "error": {"code": METHOD_NOT_FOUND, "message": message}})

    def answered(self, id: RequestId | None) -> Call | None:
        """What a response is to. None for one that nobody asked for, or that comes a second time."""
        return self._open.pop(id, None) if id is not None else None

    def _write(self, frame: dict[str, Any]) -> None:
        try:
            line = msgspec.json.encode(frame)
        except UnicodeEncodeError:
            line = msgspec.json.encode(without_surrogates(frame))
        self._output.writes.append(line + b"\n")
