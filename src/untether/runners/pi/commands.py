"""Commands to Pi in RPC mode: the lines that are written to it, and those that wait for an answer.

Text of others goes in only as the value of a string. Ids count from 1 in every process.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...schemas.tolerant import without_surrogates
from ..output import Output


class Sent(NamedTuple):
    """A command of ours. `prompt_id` is the message that went with it; `note` what we want to remember."""

    type: str
    prompt_id: str = ""
    note: str = ""


class Commands:
    """Our side of the channel."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._count = 0
        self._open: dict[str, Sent] = {}

    def send(self, type: str, *, prompt_id: str = "", note: str = "", **fields: Any) -> None:
        self._count += 1
        id = str(self._count)
        self._open[id] = Sent(type, prompt_id, note)
        self._write({"id": id, "type": type, **fields})

    def respond(self, id: str, fields: dict[str, Any]) -> None:
        """Answer a dialog of an extension."""
        self._write({"type": "extension_ui_response", "id": id, **fields})

    def answered(self, id: str | None) -> Sent | None:
        """What a response is to. None for one that nobody asked for, or that comes a second time."""
        return self._open.pop(id, None) if id is not None else None

    def _write(self, frame: dict[str, Any]) -> None:
        try:
            line = msgspec.json.encode(frame)
        except UnicodeEncodeError:
            line = msgspec.json.encode(without_surrogates(frame))
        self._output.writes.append(line + b"\n")
