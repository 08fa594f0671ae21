"""The control channel apart from permissions: our requests with their answers, and the requests that need no person.

The CLI waits for an answer to everything it asks, so everything gets one at once: a hook that is not ours has no
opinion, a server that is not ours is not found, what is unknown is refused (claude-protocol §4).
"""

from __future__ import annotations

import uuid
from typing import Any

from ...schemas.claude import (
    ControlRequest,
    ControlResponse,
    HookCallback,
    InitializeRequest,
    InterruptRequest,
    McpMessage,
    RewindFilesRequest,
    decode_initialized,
)
from ...schemas.tolerant import Unknown
from . import frames
from .output import Output

_WHAT = {
    "initialize": "the greeting",
    "interrupt": "the stop",
    "set_model": "the change of the model",
    "set_permission_mode": "the change of the permission mode",
    "stop_task": "to stop the task",
    "rewind_files": "to put the files back",
    "get_context_usage": "to tell what fills the context",
}


class Control:
    """Our open requests, by id. Ids follow from the process and the number of the request."""

    def __init__(self, output: Output, name: str) -> None:
        self._output = output
        self._name = name
        self._process = ""
        self._count = 0
        self._asked: dict[str, str] = {}
        self.version = ""
        self.features: tuple[str, ...] = ()  # what the CLI says it can do; 2.1.197 says nothing

    def begin(self, process: str, **fields: Any) -> None:
        """Greet the CLI; `fields` go with the greeting."""
        self._process = process
        self.ask("initialize", **fields)

    def ask(self, subtype: str, **fields: Any) -> str:
        """Returns the id of the request."""
        self._count += 1
        id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._process}/request/{self._count}"))
        self._asked[id] = subtype
        self._output.writes.append(frames.control_request(id, subtype, **fields))
        return id

    def answered(self, frame: ControlResponse) -> str:
        """What the answer is to, "" when we did not ask. Late, doubled and foreign answers come, and mean nothing."""
        response = frame.response
        subtype = self._asked.pop(response.request_id, "")
        if subtype and response.subtype == "error":
            detail = {"request": subtype, "error": response.error or ""}
            self._output.warning(f"{self._name} refused {_WHAT.get(subtype, subtype)}", detail)
        elif subtype == "initialize":
            told = decode_initialized(response.response)
            self.version, self.features = told.claude_code_version, tuple(told.capabilities)
        return subtype

    def serve(self, frame: ControlRequest) -> str:
        """Answer a request that needs no person. Returns its name when it is not known."""
        id, request = frame.request_id, frame.request
        unknown = ""
        if isinstance(request, HookCallback | InitializeRequest | RewindFilesRequest | InterruptRequest):
            line = frames.success(id, {})
        elif isinstance(request, McpMessage):
            line = frames.no_such_server(id, request.server_name, request.message)
        else:
            unknown = request.name if isinstance(request, Unknown) else "undefined"
            line = frames.failure(id, f"Unsupported control request subtype: {unknown}")
        self._output.writes.append(line)
        return unknown
