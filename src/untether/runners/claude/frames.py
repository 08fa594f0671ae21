"""The lines that are written to Claude Code. Nothing else ever reaches its stdin.

One malformed line ends the CLI, and a frame `bash_command` runs a shell without asking anybody (claude-protocol §4),
so text of others goes in only as the value of a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...schemas.tolerant import without_surrogates
from ...session import Prompt

_METHOD_NOT_FOUND = -32601  # JSON-RPC 2.0


def user_message(id: str, content: str | list[dict[str, Any]], priority: str = "") -> bytes:
    """A message of the person. `priority`: `now` cuts the running model call, `later` waits for the end of the turn."""
    frame: dict[str, Any] = {"type": "user", "message": {"role": "user", "content": content}, "uuid": id}
    return _line(frame | {"priority": priority} if priority else frame)


def plain_text(prompt: Prompt) -> bytes:
    """The prompt of the one-shot form, which reads text."""
    return text_of(prompt).replace("\0", " ").encode("utf-8", "replace") + b"\n"


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


def text_of(prompt: Prompt, failures: Mapping[str, str] | None = None) -> str:
    """A message as one text; files are named behind it, with what went wrong with them, by path."""
    names = []
    for file in prompt.attachments:
        failure = (failures or {}).get(file.path)
        names.append(f"- {file.path} ({file.name})" + (f": could not be attached: {failure}" if failure else ""))
    return "\n".join([prompt.text, "", "Attached files:", *names]) if names else prompt.text


def _line(frame: dict[str, Any]) -> bytes:
    return encode(frame) + b"\n"
