"""Reading recordings of ACP agents: what the host of that time sent, as inputs for a session of ours."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Allow, Deny, EngineId, ResumeToken
from ...process.recording import Row
from ...session import (
    Begin,
    Configure,
    Decide,
    Input,
    Interrupt,
    Prompt,
    Say,
    SetModel,
    SetPermissionMode,
    StartFacts,
)
from .agents import recognised


class AcpDialect:
    """One recording. Requests of the host are mapped to ours by method and order, permissions by order."""

    def __init__(self, engine: str) -> None:
        self._engine = EngineId(engine)
        self._first: Row | None = None
        self._prompts = 0
        self._theirs: dict[Any, tuple[str, int]] = {}  # request id → method, which of that method
        self._ours: dict[str, list[int]] = {}
        self._counts: dict[str, int] = {}
        self._kinds: dict[str, dict[str, tuple[str, str]]] = {}  # request id as JSON → option id → its kind, plain id
        self._asked: dict[str, str] = {}  # request id as JSON → interaction id
        self._ready = False

    def begin(self, rows: Sequence[Row]) -> Begin:
        argv: list[str] = next(
            (row.facts.get("argv", []) for row in rows if row.dir == "meta" and row.event == "spawn"), []
        )
        self._first = next((row for row in rows if row.dir == "in" and _method(row) == "session/prompt"), None)
        prompt = self._prompt(self._first.frame) if self._first is not None else Prompt(self._id(), "(no prompt)")
        opened = next((row for row in rows if row.dir == "in" and _method(row) in _OPENING), None)
        params = opened.frame["params"] if opened is not None else {}
        resume = ResumeToken(self._engine, str(params["sessionId"])) if params.get("sessionId") else None
        settings: dict[str, Any] = {"agent": recognised(argv).id}
        before = rows[: rows.index(self._first)] if self._first is not None else rows
        for row in before:
            if row.dir == "in" and _method(row) == "session/set_mode":
                settings["mode"] = row.frame["params"]["modeId"]
            if row.dir == "in" and _method(row) == "session/set_config_option":
                settings[_CONFIG.get(row.frame["params"]["configId"], "mode")] = row.frame["params"]["value"]
        if "mode" not in settings:  # it kept its own
            answers = (
                row.frame.get("result") or {} for row in rows if row.dir == "out" and isinstance(row.frame, dict)
            )
            modes: dict[str, Any] = next(
                (answer["modes"] for answer in answers if isinstance(answer, dict) and answer.get("modes")), {}
            )
            settings["mode"] = modes.get("currentModeId", "")
        cwd = str(params.get("cwd") or "/")
        return Begin(StartFacts("recording", self._engine, cwd, resume=resume, settings=settings), prompt)

    def input(self, row: Row) -> Input | None:
        frame = row.frame
        if not isinstance(frame, dict):
            return None
        method = _method(row)
        if method and frame.get("id") is not None:
            number = self._counts.get(method, 0)
            self._theirs[frame["id"]], self._counts[method] = (method, number), number + 1
        if row is self._first or not self._ready:
            self._ready |= row is self._first
            return None
        match method:
            case "session/prompt":
                return Say(self._prompt(frame), "now")
            case "session/cancel":
                return Interrupt()
            case "session/set_mode":
                return Configure(SetPermissionMode(str(frame["params"].get("modeId"))))
            case "session/set_model":
                return Configure(SetModel(str(frame["params"].get("modelId"))))
        return self._decided(frame) if "result" in frame else None

    def line(self, row: Row) -> bytes:
        frame = row.frame
        if not isinstance(frame, dict):
            return row.data
        if frame.get("method") == "session/request_permission":
            key = _key(frame.get("id"))
            self._asked[key] = f"permission-{len(self._asked) + 1}"
            options = frame["params"].get("options", [])
            self._kinds[key] = {
                option["optionId"]: (option.get("kind", ""), _plain(options, option)) for option in options
            }
        if "method" in frame or frame.get("id") not in self._theirs:
            return row.data
        method, number = self._theirs[frame["id"]]
        ours = self._ours.get(method, [])
        id = (
            ours[number] if number < len(ours) else f"not asked: {frame['id']}"
        )  # a number of theirs may be one of ours
        return msgspec.json.encode(frame | {"id": id})

    def wrote(self, line: bytes) -> None:
        frame = msgspec.json.decode(line)
        if "method" in frame and "id" in frame:
            self._ours.setdefault(frame["method"], []).append(frame["id"])

    def _decided(self, frame: dict[str, Any]) -> Input | None:
        key = _key(frame.get("id"))
        interaction = self._asked.get(key)
        outcome = (frame["result"] or {}).get("outcome", {})
        if interaction is None or outcome.get("outcome") != "selected":
            return None
        kind, scope = self._kinds[key].get(outcome.get("optionId"), ("", ""))
        return Decide(interaction, Deny(choice=scope) if kind.startswith("reject") else Allow(scope))

    def _prompt(self, frame: dict[str, Any]) -> Prompt:
        blocks = frame["params"].get("prompt", [])
        return Prompt(self._id(), "\n".join(str(block.get("text", "")) for block in blocks))

    def _id(self) -> str:
        self._prompts += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"recording/prompt/{self._prompts}"))


_CONFIG = {"model": "model", "effort": "reasoning"}
_OPENING = ("session/new", "session/load", "session/resume")


def _plain(options: Sequence[dict[str, Any]], option: dict[str, Any]) -> str:
    """The scope that stands for an option: "" for the first that allows or rejects once."""
    kind = option.get("kind")
    first = next(one for one in options if one.get("kind") == kind)
    return "" if option is first and kind in ("allow_once", "reject_once") else str(option["optionId"])


def _method(row: Row) -> str:
    return str(row.frame.get("method") or "") if isinstance(row.frame, dict) else ""


def _key(id: Any) -> str:
    return msgspec.json.encode(id).decode()
