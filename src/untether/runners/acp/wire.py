"""What is said to the agent: requests of ours with their ids, notifications, and answers to its requests.

Ids of ours are numbers from 1 on. Each request has one answer: a second one, or one to a request that was never made,
is counted and passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ...schemas import jsonrpc
from ..claude.output import Output

OnResult = Callable[[Any], None]
OnFailure = Callable[[jsonrpc.Failure], None]


class _Asked(NamedTuple):
    method: str
    done: OnResult
    failed: OnFailure


class Wire:
    def __init__(self, output: Output, unknown: Counter[str]) -> None:
        self._output = output
        self._unknown = unknown
        self._asked: dict[int, _Asked] = {}
        self._number = 0

    def request(self, method: str, params: dict[str, Any], done: OnResult, failed: OnFailure) -> int:
        """Ask for something; returns the id of the request."""
        self._number += 1
        self._asked[self._number] = _Asked(method, done, failed)
        self._output.writes.append(jsonrpc.request(self._number, method, params))
        return self._number

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._output.writes.append(jsonrpc.notification(method, params))

    def answer(self, id: jsonrpc.Id, value: Any) -> None:
        self._output.writes.append(jsonrpc.result(id, value))

    def refuse(self, id: jsonrpc.Id, code: int, message: str) -> None:
        self._output.writes.append(jsonrpc.error(id, code, message))

    def answered(self, message: jsonrpc.Result | jsonrpc.Failure) -> None:
        """The agent answered a request."""
        id = message.id
        asked = self._asked.pop(id, None) if isinstance(id, int) and not isinstance(id, bool) else None
        if asked is None:
            self._unknown["response without a request"] += 1
        elif isinstance(message, jsonrpc.Result):
            asked.done(message.result)
        else:
            asked.failed(message)

    def forget(self) -> None:
        """No answer counts any more."""
        self._asked.clear()
