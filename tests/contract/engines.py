"""The engines that must pass the runner contract, each with stories: what its process printed and was told.

A new engine adds its stories to ``STORIES``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contract import pi_stories as of_pi
from tests.contract.codex_stories import asked, opened, over, recorded, said, started
from tests.contract.toy_engine import ToyRunner
from tests.support.codex_talk import THREAD
from untether.model import Allow, EngineId, ResumeToken, UntetherEvent
from untether.runner import Runner
from untether.runners import acp, amp, gemini
from untether.runners.codex import CodexRunner
from untether.runners.pi import PiRunner
from untether.session import Decide, End, Input, Interrupt, ProcessExit, Prompt, StartFacts, Step, apply


@dataclass(frozen=True)
class Story:
    """``rows`` are stdout lines and inputs, in order; the prompt goes before them. The end is added when it is missing.

    ``session`` is the id that the agent tells, None when it tells none; ``ok`` and ``answer`` are how the run ends.
    """

    engine: str
    name: str
    runner: Callable[[], Runner]
    rows: Callable[[], Sequence[bytes | Input]]
    session: str | None
    ok: bool
    answer: str = ""
    resumed: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.engine}/{self.name}"

    def steps(self) -> list[Step]:
        """What a session makes of the story, one second a row."""
        runner = self.runner()
        resume = ResumeToken(EngineId(self.engine), self.session) if self.resumed and self.session else None
        start = StartFacts("process-1", self.engine, "/repo", resume=resume, settings=dict(self.settings))
        session = runner.session(start)
        steps = [session.begin(start, Prompt("00000000-0000-4000-8000-000000000001", "Do it"), 1.0)]
        rows = list(self.rows())
        if not (rows and isinstance(rows[-1], End)):
            rows.append(End(ProcessExit(code=0)))
        for now, row in enumerate(rows, 2):
            steps.append(session.feed(row, now) if isinstance(row, bytes) else apply(session, row, now))
        return steps

    def events(self) -> list[UntetherEvent]:
        return [event for step in self.steps() for event in step.events]


def frames(*frames: dict[str, Any] | bytes) -> list[bytes]:
    return [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]


SESSION = {"type": "session", "id": "0199a213-cafe"}
TOOL = {"type": "tool", "id": "t1", "name": "Bash", "input": {"command": "ls -la"}}
TOOL_END = {"type": "tool_end", "id": "t1", "ok": True}
STRAY_END = {"type": "tool_end", "id": "?"}
RESULT = {"type": "result", "text": "Done."}


def toy(name: str, rows: Sequence[bytes | Input], session: str | None = "0199a213-cafe", **more: Any) -> Story:
    return Story("toy", name, ToyRunner, lambda: rows, session, **more)


def codex(name: str, rows: Sequence[bytes | Input], session: str | None = THREAD, **more: Any) -> Story:
    return Story("codex", name, lambda: CodexRunner({}), lambda: rows, session, **more)


def pi(name: str, rows: Sequence[bytes | Input], session: str | None = of_pi.SESSION, **more: Any) -> Story:
    return Story("pi", name, lambda: PiRunner({}), lambda: rows, session, **more)


def pi_json(name: str, **more: Any) -> Story:
    rows, session = of_pi.recorded(name), of_pi.recorded_session(name)
    return pi(f"json: {name}", rows, session, settings={"mode": "json"}, **more)


EXEC = {"mode": "exec"}
EXEC_THREAD = "01a22e69-706e-7bd1-8e6e-5651ceec0115"
EXEC_FAILED = "01a22e69-de60-7bf1-ac6a-60cef4c0edb9"

STORIES = [
    toy("answer", frames(SESSION, TOOL, TOOL_END, RESULT), ok=True, answer="Done."),
    toy("resumed", frames(SESSION, RESULT), ok=True, answer="Done.", resumed=True),
    toy("noise", frames(b"npm warn", SESSION, b"[1]", b"{", STRAY_END, RESULT), ok=True, answer="Done."),
    toy("model told late", frames(SESSION, SESSION, SESSION | {"model": "big"}, RESULT), ok=True, answer="Done."),
    toy("lines after the end", frames(SESSION, RESULT, TOOL, RESULT), ok=True, answer="Done."),
    toy("tool without an end", frames(SESSION, TOOL, RESULT), ok=True, answer="Done."),
    toy("no result", frames(SESSION, TOOL), ok=False),
    toy("nothing at all", [], session=None, ok=False),
    toy("refused", frames({"type": "result", "error": "There is no such model."}), session=None, ok=False),
    toy("crash", [*frames(SESSION, TOOL), End(ProcessExit(signal="SIGSEGV"))], ok=False),
    toy("stopped", [*frames(SESSION, TOOL), Interrupt(), End(ProcessExit(signal="SIGINT", stopped=True))], ok=False),
    codex("answer", opened(started(), started(id="c2"), said("Done."), over()), ok=True, answer="Done."),
    codex("resumed", opened(said("Done."), over()), ok=True, answer="Done.", resumed=True),
    codex("approved", opened(started(), asked(), Decide("0", Allow()), said("Done."), over()), ok=True, answer="Done."),
    codex(
        "noise",
        [b"npm warn", *opened(b"[1]", b"{", b'{"id":99,"result":1}', said("Done."), over())],
        ok=True,
        answer="Done.",
    ),
    codex("failed", opened(said("Half."), over("failed", error={"message": "No."})), ok=False, answer="Half."),
    codex("stopped", opened(started(), Interrupt(), over("interrupted")), ok=False),
    codex("ended early", opened(started(), said("Half.")), ok=False, answer="Half."),
    codex("crash with a request open", opened(started(), asked(), End(ProcessExit(signal="SIGKILL"))), ok=False),
    codex("nothing at all", [], session=None, ok=False),
    codex("refused", frames({"id": 1, "error": {"code": -1, "message": "No."}}), session=None, ok=False),
    codex("exec: recorded", recorded("exec_tools"), EXEC_THREAD, ok=True, answer="Done: created b.txt.", settings=EXEC),
    codex("exec: failed", recorded("exec_error_401"), EXEC_FAILED, ok=False, settings=EXEC),
    codex("exec: nothing at all", [], session=None, ok=False, settings=EXEC),
    pi("answer", of_pi.opened(of_pi.started(), of_pi.said("Done."), of_pi.over()), ok=True, answer="Done."),
    pi("resumed", of_pi.opened(of_pi.said("Done."), of_pi.over()), ok=True, answer="Done.", resumed=True),
    pi(
        "approved",
        of_pi.opened(of_pi.started(), of_pi.asked(), Decide("u1", Allow()), of_pi.said("Done."), of_pi.over()),
        ok=True,
        answer="Done.",
    ),
    pi(
        "noise",
        [b"npm warn", *of_pi.opened(b"[1]", b"{", of_pi.response("99", "abort"), of_pi.said("Done."), of_pi.over())],
        ok=True,
        answer="Done.",
    ),
    pi(
        "failed",
        of_pi.opened(of_pi.said("Half."), of_pi.said("", stopReason="error", errorMessage="500: {}"), of_pi.over()),
        ok=False,
        answer="Half.",
    ),
    pi("stopped", of_pi.opened(of_pi.started(), Interrupt(), of_pi.over(aborted=True)), ok=False),
    pi("ended early", of_pi.opened(of_pi.started(), of_pi.said("Half.")), ok=False, answer="Half."),
    pi("crash with a request open", of_pi.opened(of_pi.asked(), End(ProcessExit(signal="SIGKILL"))), ok=False),
    pi("nothing at all", [], session=None, ok=False),
    pi("refused", [of_pi.refused("2", "get_state", "No.")], session=None, ok=False),
    pi_json("json_tools", ok=True, answer="Done."),
    pi_json("json_error_401", ok=False),
    pi("json: nothing at all", [], session=None, ok=False, settings={"mode": "json"}),
]


def acp_runner() -> Runner:
    config = {"type": "acp", "command": ["robo", "--acp"]}
    return acp.backend("robo", config).build(config, Path("untether.toml"))


def rpc(id: int, result: Any) -> bytes:
    return frames({"jsonrpc": "2.0", "id": id, "result": result})[0]


def told(name: str, /, **more: Any) -> bytes:
    params = {"sessionId": "s-1", "update": {"sessionUpdate": name, **more}}
    return frames({"jsonrpc": "2.0", "method": "session/update", "params": params})[0]


def robo(name: str, rows: Sequence[bytes | Input], session: str | None = "s-1", **more: Any) -> Story:
    return Story("robo", name, acp_runner, lambda: rows, session, **more)


GREETED = rpc(1, {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
OPENED = [GREETED, rpc(2, {"sessionId": "s-1"})]
CALL = told("tool_call", toolCallId="t1", title="ls", kind="execute", status="in_progress")
DONE = [told("agent_message_chunk", content={"type": "text", "text": "Done."}), rpc(3, {"stopReason": "end_turn"})]
STORIES += [
    robo("answer", [*OPENED, CALL, *DONE], ok=True, answer="Done."),
    robo("resumed", [*OPENED, *DONE], ok=True, answer="Done.", resumed=True),
    robo("noise", [b"npm warn", b"[1]", *OPENED, b"{", told("odd"), *DONE, rpc(3, {})], ok=True, answer="Done."),
    robo("lines after the end", [*OPENED, *DONE, CALL, *DONE], ok=True, answer="Done."),
    robo("another version", [rpc(1, {"protocolVersion": 7})], session=None, ok=False),
    robo("no session", [GREETED, rpc(2, {})], session=None, ok=False),
    robo("nothing at all", [], session=None, ok=False),
    robo("crash", [*OPENED, CALL, End(ProcessExit(signal="SIGSEGV"))], ok=False),
    robo("stopped", [*OPENED, CALL, Interrupt(), End(ProcessExit(signal="SIGTERM", stopped=True))], ok=False),
]


def one_shot(engine: str, name: str, rows: Sequence[bytes | Input], session: str | None = "T-1", **more: Any) -> Story:
    backend = {"gemini": gemini.BACKEND, "amp": amp.BACKEND}[engine]
    return Story(engine, name, lambda: backend.build({}, Path("untether.toml")), lambda: rows, session, **more)


INIT: dict[str, dict[str, Any]] = {
    "gemini": {"type": "init", "session_id": "T-1"},
    "amp": {"type": "system", "subtype": "init", "session_id": "T-1"},
}
USE: dict[str, dict[str, Any]] = {
    "gemini": {"type": "tool_use", "tool_id": "t1", "tool_name": "run_shell_command", "parameters": {"command": "ls"}},
    "amp": {
        "type": "assistant",
        "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]},
    },
}
SAID: dict[str, dict[str, Any]] = {
    "gemini": {"type": "message", "role": "assistant", "content": "Done."},
    "amp": {"type": "assistant", "message": {"content": [{"type": "text", "text": "Done."}]}},
}
SUCCESS: dict[str, dict[str, Any]] = {
    "gemini": {"type": "result", "status": "success"},
    "amp": {"type": "result", "subtype": "success"},
}
for one in ("gemini", "amp"):
    whole = frames(INIT[one], USE[one], SAID[one], SUCCESS[one])
    STORIES += [
        one_shot(one, "answer", whole, ok=True, answer="Done."),
        one_shot(one, "resumed", frames(INIT[one], SAID[one], SUCCESS[one]), ok=True, answer="Done.", resumed=True),
        one_shot(one, "noise", [b"npm warn", *whole, b"{", *whole], ok=True, answer="Done."),
        one_shot(one, "no result", frames(INIT[one], USE[one], SAID[one]), ok=False),
        one_shot(one, "nothing at all", [], session=None, ok=False),
        one_shot(one, "crash", [*frames(INIT[one], USE[one]), End(ProcessExit(signal="SIGSEGV"))], ok=False),
    ]
