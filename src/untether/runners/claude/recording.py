"""Reading recordings of Claude Code: what the host of that time sent, as inputs for a session of ours."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Allow, Answers, Decision, Deny, ResumeToken
from ...process.recording import Row
from ...session import (
    AskContext,
    Begin,
    Configure,
    Decide,
    Input,
    Interrupt,
    Prompt,
    Rewind,
    Say,
    SetModel,
    SetPermissionMode,
    StartFacts,
    StopTask,
    When,
    Withdraw,
)
from .frames import encode
from .modes import TABLE

_WHEN: dict[str, When] = {"now": "replace", "later": "next"}  # by the priority on the wire


class ClaudeDialect:
    """One recording. Requests of the host are mapped to ours by subtype and order."""

    def __init__(self, engine: str = "claude") -> None:
        self._engine = engine
        self._first: Row | None = None  # the `in` row whose message the process began with
        self._prompts = 0
        self._theirs: dict[str, tuple[str, int]] = {}  # request id → subtype, which of that subtype
        self._ours: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def begin(self, rows: Sequence[Row]) -> Begin:
        argv = _argv(rows)
        one_shot = ("-p" in argv or "--print" in argv) and _value(argv, "--input-format") != "stream-json"
        first = next((row for row in rows if row.dir == "in" and (one_shot or _type(row) == "user")), None)
        self._first = first
        if first is not None:
            prompt = self._prompt(first.frame) if first.frame else self._prompt(None, first.data.decode())
        else:
            prompt = self._prompt(None, argv[argv.index("--") + 1] if "--" in argv[:-1] else "(no prompt)")
        session_id = _value(argv, "--resume") or _value(argv, "-r")
        settings: dict[str, Any] = {"interactive": not one_shot, "extra_args": list(argv)}
        if (mode := _value(argv, "--permission-mode")) in TABLE:
            settings["permission_mode"] = mode
        settings["dangerously_skip_permissions"] = "--dangerously-skip-permissions" in argv
        cwd = next((str(row.frame["cwd"]) for row in rows if row.frame and _is_init(row)), "/")
        resume = ResumeToken(self._engine, session_id) if session_id else None  # type: ignore[arg-type]
        return Begin(StartFacts("recording", self._engine, cwd, resume=resume, settings=settings), prompt)

    def input(self, row: Row) -> Input | None:
        frame = row.frame
        if row is self._first or not isinstance(frame, dict):
            return None
        kind = _type(row)
        if kind == "user":
            return Say(self._prompt(frame), _WHEN.get(str(frame.get("priority")), "now"))
        if kind == "control_request" and isinstance(frame.get("request"), dict):
            return self._request(str(frame.get("request_id")), frame["request"])
        if kind == "control_response" and isinstance(frame.get("response"), dict):
            response = frame["response"]
            return Decide(str(response.get("request_id")), _decision(response))
        return None

    def line(self, row: Row) -> bytes:
        frame = row.frame
        if not isinstance(frame, dict) or frame.get("type") != "control_response":
            return row.data
        response = frame.get("response")
        if not isinstance(response, dict):
            return row.data
        subtype, number = self._theirs.get(str(response.get("request_id")), ("", 0))
        ours = self._ours.get(subtype, [])
        if number >= len(ours):
            return row.data
        return encode(frame | {"response": response | {"request_id": ours[number]}})

    def wrote(self, line: bytes) -> None:
        try:
            frame = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return  # the prompt of the one-shot form
        if isinstance(frame, dict) and frame.get("type") == "control_request":
            self._ours.setdefault(frame["request"]["subtype"], []).append(frame["request_id"])

    def _request(self, id: str, request: dict[str, Any]) -> Input | None:
        subtype = str(request.get("subtype"))
        self._theirs[id] = subtype, self._counts.get(subtype, 0)
        self._counts[subtype] = self._theirs[id][1] + 1
        match subtype:
            case "interrupt":
                return Interrupt(request.get("cancel_queued") is True)
            case "set_model":
                return Configure(SetModel(request.get("model")))
            case "set_permission_mode":
                return Configure(SetPermissionMode(str(request.get("mode"))))
            case "stop_task":
                return Configure(StopTask(str(request.get("task_id"))))
            case "cancel_async_message":
                return Configure(Withdraw(str(request.get("message_uuid"))))
            case "rewind_files":
                return Configure(Rewind(str(request.get("user_message_id")), request.get("dry_run") is True))
            case "get_context_usage":
                return Configure(AskContext())
        return None

    def _prompt(self, frame: dict[str, Any] | None, text: str = "") -> Prompt:
        self._prompts += 1
        id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"recording/prompt/{self._prompts}"))
        if frame is None:
            return Prompt(id, text)
        content = (frame.get("message") or {}).get("content")
        if isinstance(content, list):
            content = "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
        return Prompt(str(frame.get("uuid") or id), str(content))


def _decision(response: dict[str, Any]) -> Decision:
    """What an answer decided; one that made no sense to the CLI counts as a refusal."""
    body = response.get("response") or {}
    changed = body.get("updatedInput") or None
    if body.get("behavior") == "allow":
        answers = changed.get("answers") if isinstance(changed, dict) else None
        if isinstance(answers, dict) and answers and all(isinstance(value, str) for value in answers.values()):
            return Answers(answers)
        return Allow(updated_input=changed)
    return Deny(str(body.get("message") or ""), bool(body.get("interrupt")))


def _type(row: Row) -> str:
    return str(row.frame.get("type")) if isinstance(row.frame, dict) else ""


def _is_init(row: Row) -> bool:
    return row.dir == "out" and row.frame.get("subtype") == "init" and "cwd" in row.frame


def _argv(rows: Sequence[Row]) -> list[str]:
    spawn = next((row for row in rows if row.dir == "meta" and row.event == "spawn"), None)
    return [str(word) for word in spawn.facts.get("argv", [])] if spawn is not None else []


def _value(argv: Sequence[str], flag: str) -> str:
    """The value of a flag, written with a space or an equals sign; "" when it is not there."""
    for index, word in enumerate(argv):
        if word == flag:
            return argv[index + 1] if index + 1 < len(argv) else ""
        if word.startswith(flag + "="):
            return word.partition("=")[2]
    return ""
