"""Reading recordings of Pi: what the host of that time sent, as inputs for a session of ours."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Allow, Answers, Decision, Deny, EngineId, ResumeToken
from ...process.recording import Row
from ...schemas.pi import UiRequest, read_as
from ...session import Begin, Decide, Input, Interrupt, Prompt, Say, StartFacts
from .asked import GATE_COMMAND, gated_call

_MESSAGES = ("prompt", "steer", "follow_up")


class PiDialect:
    """One recording. Commands of the host are mapped to ours by type and order; others get no answer.

    Our session asks who it talks to before all else. A recording whose host did not gets those answers here.
    """

    def __init__(self, engine: str = "pi") -> None:
        self._engine = engine
        self._first: Row | None = None  # the `in` row whose message the process began with
        self._theirs: dict[str, tuple[str, int]] = {}  # command id → type, which of that type
        self._ours: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._asked: dict[str, Any] = {}
        self._session = "recorded"
        self._plain = False  # nothing of the host is in it: the answers are to commands of ours

    def begin(self, rows: Sequence[Row]) -> Begin:
        self._plain = not any(row.dir == "in" for row in rows)
        argv = [str(word) for row in rows if row.event == "spawn" for word in row.facts.get("argv", [])]
        resume = argv[argv.index("--session") + 1] if "--session" in argv else ""
        token = ResumeToken(EngineId(self._engine), resume) if resume else None
        if "json" in argv:
            start = StartFacts("recording", self._engine, "/repo", resume=token, settings={"mode": "json"})
            return Begin(start, Prompt(_prompt_id(1), argv[-1]))
        self._session = resume or self._session
        for row in rows:
            if row.dir == "out" and _of(row, "command") == "get_state" and isinstance(row.frame.get("data"), dict):
                self._session = str(row.frame["data"].get("sessionId"))
                break
        self._first = next((row for row in rows if row.dir == "in" and _of(row, "type") in _MESSAGES), None)
        settings: dict[str, Any] = {} if any("gate" in word for word in argv) else _BYPASS
        start = StartFacts("recording", self._engine, "/repo", resume=token, settings=settings)
        return Begin(start, self._prompt(self._first.frame["message"] if self._first is not None else ""))

    def input(self, row: Row) -> Input | None:
        frame = row.frame
        if not isinstance(frame, dict):
            return None
        kind = str(frame.get("type") or "")
        ours = "prompt" if kind == "follow_up" else kind
        if "id" in frame and kind != "extension_ui_response":
            self._theirs[str(frame["id"])] = ours, self._counts.get(ours, 0)
            self._counts[ours] = self._theirs[str(frame["id"])][1] + 1
        if row is self._first:
            return None
        if kind in _MESSAGES:
            return Say(self._prompt(str(frame["message"])), "now" if kind == "steer" else "next")
        if kind == "abort":
            return Interrupt()
        if kind == "extension_ui_response":
            return Decide(str(frame.get("id")), self._decision(frame))
        return None

    def line(self, row: Row) -> bytes:
        """An answer gets the id of our command."""
        frame = row.frame
        if not isinstance(frame, dict):
            return row.data
        if frame.get("type") == "extension_ui_request":
            self._asked[str(frame.get("id"))] = frame
        if frame.get("type") != "response" or self._plain:
            return row.data
        kind, number = self._theirs.get(str(frame.get("id")), ("", 0))
        if kind in ("get_state", "get_commands"):
            kind = ""  # those are answered already
        ours = self._ours.get(kind, [])
        return msgspec.json.encode(frame | {"id": ours[number] if number < len(ours) else "foreign"})

    def wrote(self, line: bytes) -> None:
        try:
            frame = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return  # the prompt of the one-shot form
        if isinstance(frame, dict) and "id" in frame:
            self._ours.setdefault(str(frame.get("type")), []).append(str(frame["id"]))

    def greeting(self) -> list[bytes]:
        """The answers to what our session asks at its start."""
        if self._plain or not self._ours:
            return []
        state = {"sessionId": self._session, "model": {"id": "fake-model", "provider": "fake", "contextWindow": 128000}}
        facts = {"get_commands": {"commands": [{"name": GATE_COMMAND}]}, "get_state": state}
        return [
            msgspec.json.encode(
                {"id": self._ours[kind][0], "type": "response", "command": kind, "success": True, "data": data}
            )
            for kind, data in facts.items()
        ]

    def _prompt(self, text: str) -> Prompt:
        self._counts["messages"] = number = self._counts.get("messages", 0) + 1
        return Prompt(_prompt_id(number), text)

    def _decision(self, frame: dict[str, Any]) -> Decision:
        asked = self._asked.get(str(frame.get("id")), {})
        value = frame.get("value")
        if frame.get("cancelled"):
            return Deny()
        if gated_call(read_as(UiRequest, asked)) is not None:
            if value == "Allow for this session":
                return Allow("session")
            return Allow() if value == "Allow" else Deny()
        answer = str(value) if value is not None else "Yes" if frame.get("confirmed") else "No"
        return Answers({str(asked.get("title")): answer})


_BYPASS = {"permission_mode": "bypassPermissions", "dangerously_skip_permissions": True}


def _of(row: Row, name: str) -> str:
    return str(row.frame.get(name) or "") if isinstance(row.frame, dict) else ""


def _prompt_id(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"recording/prompt/{number}"))
