"""JSON-RPC 2.0 over lines: one object a line, in both directions. No I/O, no state (jsonrpc.org/specification).

Reading is lenient: the `jsonrpc` member may be missing, an id may be any string or number (0 is one too), and
null. Batches are not part of the protocols that use this. Writing is strict.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from .tolerant import loads

Id: TypeAlias = int | float | str | None

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class Request(msgspec.Struct, frozen=True):
    """The other side wants an answer. `params` is {} when there are none."""

    id: Id
    method: str
    params: dict[str, Any] = {}


class Notification(msgspec.Struct, frozen=True):
    method: str
    params: dict[str, Any] = {}


class Result(msgspec.Struct, frozen=True):
    """The answer to a request of ours."""

    id: Id
    result: Any = None


class Failure(msgspec.Struct, frozen=True):
    """A request of ours failed, or, with id None, something that we sent could not be read."""

    id: Id
    code: int
    message: str = ""
    data: Any = None


Message: TypeAlias = Request | Notification | Result | Failure


class NotAMessage(ValueError):
    """The line is no JSON-RPC message. `id` and `has_id` tell which request it may have been."""

    def __init__(self, why: str, *, id: Id = None, has_id: bool = False) -> None:
        super().__init__(why)
        self.id = id
        self.has_id = has_id


def decode(line: bytes) -> Message:
    """Read one line. Raises NotAMessage."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        value = _salvaged(line)
    if not isinstance(value, dict):
        raise NotAMessage("not a JSON object")
    has_id, id = "id" in value, value.get("id")
    if has_id and (isinstance(id, bool) or not isinstance(id, int | float | str | None)):
        raise NotAMessage("the id is neither text nor a number")
    method, params = value.get("method"), value.get("params")
    if isinstance(method, str):
        known = params if isinstance(params, dict) else {}
        return Request(id, method, known) if has_id else Notification(method, known)
    if method is not None:
        raise NotAMessage("the method is not text", id=id, has_id=has_id)
    if "error" in value and value["error"] is not None:
        return _failure(id, value["error"])
    if has_id and "result" in value:
        return Result(id, value["result"])
    raise NotAMessage("neither a method nor an answer", id=id, has_id=has_id)


def request(id: int | str, method: str, params: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def result(id: Id, value: Any) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "result": value})


def error(id: Id, code: int, message: str) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})


def _failure(id: Id, error: Any) -> Failure:
    if not isinstance(error, dict):
        return Failure(id, INTERNAL_ERROR, str(error))
    code, message = error.get("code"), error.get("message")
    known = code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR
    return Failure(id, known, message if isinstance(message, str) else "", error.get("data"))


def _salvaged(line: bytes) -> Any:
    try:
        return loads(line)
    except (ValueError, RecursionError):
        raise NotAMessage("not JSON") from None


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
