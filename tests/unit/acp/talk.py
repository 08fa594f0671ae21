"""Talking to an ACP session without a process: an agent that is written line by line."""

from __future__ import annotations

from typing import Any

import msgspec

from untether.model import (
    ActionEvent,
    CompletedEvent,
    Decision,
    Interaction,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
)
from untether.runners.acp.session import AcpSession
from untether.session import ProcessExit, Prompt, StartFacts, Step

FIRST = Prompt("00000000-0000-4000-8000-000000000001", "Do it")
SECOND = Prompt("00000000-0000-4000-8000-000000000002", "And this")
ABLE = {"loadSession": True, "promptCapabilities": {"image": True, "embeddedContext": True}}
OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow ls", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class Talk:
    """A session, what it wrote and what it told. Methods play the agent, or the person."""

    def __init__(self, agent: str = "", resume: str = "", **settings: Any) -> None:
        self.session = AcpSession("acp", "Robo")
        self.events: list[UntetherEvent] = []
        self.writes: list[dict[str, Any]] = []
        self.steps: list[Step] = []
        self.now = 0.0
        token = ResumeToken("acp", resume) if resume else None  # type: ignore[arg-type]
        facts = StartFacts("process-1", "acp", "/repo", resume=token, settings={"agent": agent, **settings})
        self.took(self.session.begin(facts, FIRST, self.now))

    def took(self, step: Step) -> Step:
        self.now += 1
        self.steps.append(step)
        self.events += step.events
        for line in step.writes:
            assert line.endswith(b"\n")
            assert line.count(b"\n") == 1
            self.writes.append(msgspec.json.decode(line))
        return step

    # -------------------------------------------------------------------------------------------------- the agent

    def line(self, line: bytes) -> Step:
        return self.took(self.session.feed(line, self.now))

    def send(self, **frame: Any) -> Step:
        return self.line(msgspec.json.encode({"jsonrpc": "2.0", **frame}))

    def result(self, method: str, result: Any) -> Step:
        """Answer the latest request of this method."""
        return self.send(id=self.request(method)["id"], result=result)

    def error(self, method: str, code: int, message: str, **more: Any) -> Step:
        return self.send(id=self.request(method)["id"], error={"code": code, "message": message, **more})

    def greet(self, **more: Any) -> Step:
        return self.result("initialize", {"protocolVersion": 1, "agentCapabilities": ABLE, **more})

    def opened(self, **more: Any) -> Step:
        """Greet, and open the session; nothing is left to be set."""
        self.greet()
        method = "session/load" if self.sent("session/load") else "session/new"
        return self.result(method, {"sessionId": "s-1", **more})

    def update(self, name: str, /, *, session: str = "s-1", **more: Any) -> Step:
        params = {"sessionId": session, "update": {"sessionUpdate": name, **more}}
        return self.send(method="session/update", params=params)

    def says(self, text: str, **more: Any) -> Step:
        return self.update("agent_message_chunk", content={"type": "text", "text": text}, **more)

    def asks(
        self, id: Any = 0, call: dict[str, Any] | None = None, options: Any = OPTIONS, session: str = "s-1"
    ) -> Interaction:
        call = call or {"toolCallId": "t1", "kind": "execute", "title": "ls", "rawInput": {"command": "ls -la"}}
        params = {"sessionId": session, "toolCall": call, "options": options}
        self.send(id=id, method="session/request_permission", params=params)
        return self.asked[-1]

    def ends(self, reason: str = "end_turn", **more: Any) -> Step:
        return self.result("session/prompt", {"stopReason": reason, **more})

    def exits(self, code: int | None = 0, **more: Any) -> Step:
        return self.took(self.session.end(ProcessExit(code=code, **more), self.now))

    # ------------------------------------------------------------------------------------------------- the person

    def decide(self, interaction: Interaction, decision: Decision) -> Step:
        return self.took(self.session.decide(interaction.id, decision, self.now))

    def say(self, prompt: Prompt = SECOND, when: Any = "next") -> Step:
        return self.took(self.session.say(prompt, when, self.now))

    def interrupt(self, *, cancel_queued: bool = False) -> Step:
        return self.took(self.session.interrupt(self.now, cancel_queued=cancel_queued))

    # ---------------------------------------------------------------------------------------------- what came of it

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The params of what was sent by this method."""
        return [frame["params"] for frame in self.writes if frame.get("method") == method]

    def request(self, method: str) -> dict[str, Any]:
        return [frame for frame in self.writes if frame.get("method") == method][-1]

    def answer(self, id: Any) -> dict[str, Any]:
        """The one answer to a request of the agent."""
        [found] = [frame for frame in self.writes if "method" not in frame and frame["id"] == id]
        return found

    @property
    def asked(self) -> list[Interaction]:
        return [event.interaction for event in self.of(InteractionEvent) if event.phase == "opened"]

    @property
    def completed(self) -> CompletedEvent:
        found: list[CompletedEvent] = self.of(CompletedEvent)
        assert len(found) == 1
        return found[0]

    @property
    def actions(self) -> list[ActionEvent]:
        return self.of(ActionEvent)

    @property
    def started(self) -> list[StartedEvent]:
        return self.of(StartedEvent)

    @property
    def turns(self) -> list[TurnEvent]:
        return self.of(TurnEvent)

    @property
    def prompts(self) -> list[tuple[str, str]]:
        return [(event.prompt_id, event.state) for event in self.of(PromptEvent)]

    def warnings(self) -> list[str]:
        return [event.action.title for event in self.actions if event.action.kind == "warning"]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
