"""Reading recordings of Codex: what the host of that time sent, as inputs for a session of ours."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Allow, Answers, Decision, Deny, EngineId, ResumeToken
from ...process.recording import Row
from ...session import Begin, Decide, Input, Interrupt, Prompt, Say, StartFacts
from .session import COMPACT

_OPENING = ("thread/start", "thread/resume")
_TURNS = ("turn/start", "turn/steer", "thread/compact/start")


class CodexDialect:
    """One recording. Requests of the host are mapped to ours by method and order; others get no answer."""

    def __init__(self, engine: str = "codex") -> None:
        self._engine = engine
        self._first: Row | None = None  # the `in` row whose message the process began with
        self._before: list[Row] = []  # `in` rows of attempts that failed
        self._prompts = 0
        self._theirs: dict[int | str, tuple[str, int]] = {}  # request id → method, which of that method
        self._ours: dict[str, list[int]] = {}
        self._counts: dict[str, int] = {}
        self._clients: dict[str, str] = {}  # ids of messages of theirs → of ours
        self._asked: dict[str, Any] = {}  # questions by their request

    def begin(self, rows: Sequence[Row]) -> Begin:
        argv = [str(word) for row in rows if row.event == "spawn" for word in row.facts.get("argv", [])]
        if "exec" in argv:
            return self._begin_exec(argv)
        calls = [row for row in rows if row.dir == "in" and _method(row)]
        granted = {row.frame.get("id") for row in rows if row.dir == "out" and row.frame and "result" in row.frame}
        opening = [index for index, row in enumerate(calls) if _method(row) in _OPENING]
        # Attempts that failed are left out when one did not.
        good = next((index for index in opening if calls[index].frame.get("id") in granted), None)
        at = good if good is not None else opening[-1] if opening else 0
        self._before = [row for row in calls[:at] if _method(row) in (*_OPENING, *_TURNS)]
        self._first = next((row for row in calls[at:] if _method(row) in _TURNS), None)
        opened = calls[at].frame["params"] if opening else {}
        resume = opened.get("threadId")
        token = ResumeToken(EngineId(self._engine), resume) if resume else None
        params = self._first.frame["params"] if self._first is not None else {}
        settings: dict[str, Any] = {"permission_mode": _mode(opened, params)}
        start = StartFacts("recording", self._engine, str(opened.get("cwd") or "/"), resume=token, settings=settings)
        return Begin(start, self._prompt(params, _method(self._first) if self._first else ""))

    def _begin_exec(self, argv: list[str]) -> Begin:
        resume = argv[argv.index("resume") + 1] if "resume" in argv else ""
        token = ResumeToken(EngineId(self._engine), resume) if resume else None
        start = StartFacts("recording", self._engine, "/repo", resume=token, settings={"mode": "exec"})
        return Begin(start, Prompt(_prompt_id(1), argv[-1]))

    def input(self, row: Row) -> Input | None:
        frame = row.frame
        if not isinstance(frame, dict) or row in self._before:
            return None
        method = _method(row)
        if method and "id" in frame:
            self._theirs[frame["id"]] = method, self._counts.get(method, 0)
            self._counts[method] = self._theirs[frame["id"]][1] + 1
        if row is self._first:
            return None
        if method in _TURNS:
            when = "now" if method == "turn/steer" else "next"
            return Say(self._prompt(frame["params"], method), when)  # type: ignore[arg-type]
        if method == "turn/interrupt":
            return Interrupt()
        if not method and "result" in frame:
            return Decide(msgspec.json.encode(frame.get("id")).decode(), self._decision(frame["result"], frame["id"]))
        return None

    def line(self, row: Row) -> bytes:
        """An answer gets the id of our request; the message that a person wrote gets our name for it."""
        frame = row.frame
        if not isinstance(frame, dict):
            return row.data
        if "method" not in frame and "id" in frame:
            method, number = self._theirs.get(frame["id"], ("", 0))
            ours = self._ours.get(method, [])
            id = ours[number] if number < len(ours) else 1_000_000 + self._counts.setdefault("unknown", 0)
            return msgspec.json.encode(frame | {"id": id})
        params = frame.get("params")
        if isinstance(params, dict) and "questions" in params:
            self._asked[msgspec.json.encode(frame.get("id")).decode()] = params["questions"]
        item = params.get("item") if isinstance(params, dict) else None
        if isinstance(item, dict) and item.get("type") == "userMessage":
            named = {**item, "clientId": self._client(item)}
            return msgspec.json.encode({**frame, "params": {**frame["params"], "item": named}})
        return row.data

    def wrote(self, line: bytes) -> None:
        try:
            frame = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return  # the prompt of the one-shot form
        if isinstance(frame, dict) and "method" in frame and "id" in frame:
            self._ours.setdefault(frame["method"], []).append(frame["id"])

    def _client(self, item: dict[str, Any]) -> str | None:
        theirs = item.get("clientId")
        if theirs is None:
            text = _text(item.get("content"))
            return self._clients.get(text)
        return self._clients.get(theirs)

    def _prompt(self, params: dict[str, Any], method: str) -> Prompt:
        self._prompts += 1
        id = _prompt_id(self._prompts)
        text = COMPACT if method == "thread/compact/start" else _text(params.get("input"))
        self._clients[str(params.get("clientUserMessageId") or text)] = id
        return Prompt(id, text)

    def _decision(self, result: Any, id: Any) -> Decision:
        """What an answer decided; one that made no sense to Codex counts as a refusal."""
        if not isinstance(result, dict):
            return Deny()
        if isinstance(result.get("answers"), dict):
            questions = self._asked.get(msgspec.json.encode(id).decode(), [])
            by_id = {question.get("id"): question.get("question") for question in questions}
            answers = result["answers"].items()
            return Answers({str(by_id.get(key)): ", ".join(value.get("answers", [])) for key, value in answers})
        match result.get("decision") or result.get("action"):
            case "accept":
                return Allow()
            case "acceptForSession":
                return Allow("session")
            case {"acceptWithExecpolicyAmendment": _}:
                return Allow("always")
            case "cancel":
                return Deny(interrupt=True)
        return Deny()


def _method(row: Row) -> str:
    return str(row.frame.get("method") or "") if isinstance(row.frame, dict) else ""


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _mode(opened: dict[str, Any], turn: dict[str, Any]) -> str:
    """The permission mode that is nearest to what the thread was opened with."""
    if (turn.get("collaborationMode") or {}).get("mode") == "plan":
        return "plan"
    policy, sandbox = opened.get("approvalPolicy"), opened.get("sandbox")
    if policy == "untrusted":
        return "untrusted"
    if sandbox == "danger-full-access":
        return "bypassPermissions"
    return "acceptEdits" if sandbox == "workspace-write" else "default"


def _prompt_id(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"recording/prompt/{number}"))
