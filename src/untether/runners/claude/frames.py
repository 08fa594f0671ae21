"""The lines that are written to Claude Code. Nothing else ever reaches its stdin.

One malformed line ends the CLI, and a frame `bash_command` runs a shell without asking anybody (claude-protocol §4),
so text of others goes in only as the value of a string.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...schemas.tolerant import without_surrogates
from ...session import Prompt

_METHOD_NOT_FOUND = -32601  # JSON-RPC 2.0


def user_message(prompt: Prompt, *, now: bool = False) -> bytes:
    """A message of the person. `now` cuts the running model call; else it goes in at the next tool or turn."""
    message = {"role": "user", "content": _text(prompt)}
    frame: dict[str, Any] = {"type": "user", "message": message, "uuid": prompt.id}
    return _line(frame | {"priority": "now"} if now else frame)


def plain_text(prompt: Prompt) -> bytes:
    """The prompt of the one-shot form, which reads text."""
    return _text(prompt).replace("\0", " ").encode("utf-8", "replace") + b"\n"


def control_request(request_id: str, subtype: str, **fields: Any) -> bytes:
    return _line({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})


def allow(request_id: str, input: bytes, update: dict[str, Any] | None = None) -> bytes:
    """Let a tool run. `input` is a JSON object; 2.1.197 takes an answer without it for a refusal.

    `update` changes what is allowed from now on: a rule, a mode, a folder (`updatedPermissions`).
    """
    more = b',"updatedPermissions":' + encode([update]) if update is not None else b""
    return success(request_id, msgspec.Raw(b'{"behavior":"allow","updatedInput":' + input + more + b"}"))


def deny(request_id: str, message: str, *, interrupt: bool = False) -> bytes:
    """Refuse a tool. The agent reads `message`; `interrupt` ends its turn."""
    answer: dict[str, Any] = {"behavior": "deny", "message": message}
    return success(request_id, answer | {"interrupt": True} if interrupt else answer)


def success(request_id: str, payload: Any) -> bytes:
    return _line(
        {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": request_id, "response": payload},
        }
    )


def failure(request_id: str, error: str) -> bytes:
    return _line(
        {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}}
    )


def no_such_server(request_id: str, server: str, message: dict[str, Any]) -> bytes:
    """The answer to a message for an MCP server that is not ours; a notification is only acknowledged."""
    if "id" in message:
        error = {"code": _METHOD_NOT_FOUND, "message": f"There is no MCP server {server!r} here."}
        reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
    else:
        reply = {"jsonrpc": "2.0", "id": 0, "result": {}}
    return success(request_id, {"mcp_response": reply})


def encode(value: Any) -> bytes:
    """`value` as JSON without a newline."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(value))


def _text(prompt: Prompt) -> str:
    """A message as one text; files are named behind it."""
    names = [f"- {file.path} ({file.name})" for file in prompt.attachments]
    return "\n".join([prompt.text, "", "Attached files:", *names]) if names else prompt.text


def _line(frame: dict[str, Any]) -> bytes:
    return encode(frame) + b"\n"
