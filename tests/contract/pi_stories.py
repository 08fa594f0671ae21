"""Stories of Pi for the runner contract: recordings of its JSON print mode, and lines in the manner of RPC mode."""

from __future__ import annotations

import json
from typing import Any

from tests.support.replay_pi import rows_of
from untether.session import Input

SESSION = "abc-1"
COMMAND = {"command": "ls"}


def frame(type: str, **fields: Any) -> bytes:
    return json.dumps({"type": type, **fields}).encode()


def response(id: str, command: str, **data: Any) -> bytes:
    return frame("response", id=id, command=command, success=True, data=data)


def refused(id: str, command: str, error: str) -> bytes:
    return frame("response", id=id, command=command, success=False, error=error)


def opened(*rows: bytes | Input) -> list[bytes | Input]:
    """The commands of a session are numbered from 1: get_commands, get_state, prompt."""
    return [
        response("1", "get_commands", commands=[{"name": "untether-gate"}]),
        response("2", "get_state", sessionId=SESSION),
        response("3", "prompt", disposition="started"),
        frame("agent_start"),
        *rows,
    ]


def started(id: str = "c1") -> bytes:
    return frame("tool_execution_start", toolCallId=id, toolName="bash", args=COMMAND)


def asked(id: str = "u1") -> bytes:
    title = "gate:" + json.dumps({"tool": "bash", "id": "c1", "input": COMMAND})
    return frame("extension_ui_request", id=id, method="select", title=title, options=["Allow", "Deny"])


def said(text: str, **more: Any) -> bytes:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop", **more}
    return frame("message_end", message=message)


def over(*, aborted: bool = False) -> bytes:
    return frame("agent_settled", aborted=aborted)


def recorded(name: str) -> list[bytes]:
    return [row.data for row in rows_of(name) if row.dir == "out"]


def recorded_session(name: str) -> str:
    return str(next(row.frame["id"] for row in rows_of(name) if row.dir == "out"))
