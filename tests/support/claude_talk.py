"""A scripted Claude Code for tests of the session: frames in, events and decoded lines out."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from untether.model import (
    Decision,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    StartedEvent,
    UntetherEvent,
)
from untether.runners.claude.session import ClaudeSession
from untether.session import ProcessExit, Prompt, SessionChange, StartFacts, Step

SESSION = "11111111-2222-4333-8444-555555555555"
PROMPT = Prompt("aaaaaaaa-0000-4000-8000-000000000001", "do it")

E = TypeVar("E")


class Talk:
    """One session with what came of it. Time passes a second at a time."""

    def __init__(self, *, resume: str = "", engine: str = "claude", **settings: Any) -> None:
        self.session = ClaudeSession(engine)
        self.now = 1_000.0
        self.events: list[UntetherEvent] = []
        self.lines: list[bytes] = []
        self.last = Step()
        token = ResumeToken(engine, resume) if resume else None  # type: ignore[arg-type]
        start = StartFacts("process-1", engine, "/repo", resume=token, settings=settings)
        self.did(self.session.begin(start, PROMPT, self.now))

    def did(self, step: Step) -> list[UntetherEvent]:
        self.now += 1
        self.last = step
        self.events += step.events
        self.lines += step.writes
        return list(step.events)

    # what the agent prints

    def feed(self, frame: dict[str, Any] | bytes) -> list[UntetherEvent]:
        line = frame if isinstance(frame, bytes) else msgspec.json.encode(frame)
        return self.did(self.session.feed(line, self.now))

    def system(self, subtype: str, **fields: Any) -> list[UntetherEvent]:
        return self.feed({"type": "system", "subtype": subtype, "session_id": SESSION, **fields})

    def init(self, **fields: Any) -> list[UntetherEvent]:
        facts = {"session_id": SESSION, "cwd": "/repo", "model": "claude-x", "permissionMode": "default"}
        return self.system("init", **{**facts, "claude_code_version": "2.1.332", **fields})

    def text(self, text: str, **fields: Any) -> list[UntetherEvent]:
        return self.assistant({"type": "text", "text": text}, **fields)

    def use(self, id: str, name: str, input: Any, **fields: Any) -> list[UntetherEvent]:
        return self.assistant({"type": "tool_use", "id": id, "name": name, "input": input}, **fields)

    def assistant(self, *blocks: Any, id: str = "msg_1", model: str = "claude-x", **fields: Any) -> list[UntetherEvent]:
        message = {"id": id, "model": model, "role": "assistant", "content": list(blocks)}
        if "usage" in fields:
            message["usage"] = fields.pop("usage")
        return self.feed({"type": "assistant", "message": message, **fields})

    def returned(self, id: str, content: Any = "fine", is_error: bool = False, **fields: Any) -> list[UntetherEvent]:
        block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
        return self.feed({"type": "user", "message": {"role": "user", "content": [block]}, **fields})

    def ask(self, id: str, tool: str, input: Any, **fields: Any) -> list[UntetherEvent]:
        request = {"subtype": "can_use_tool", "tool_name": tool, "input": input, **fields}
        return self.feed({"type": "control_request", "request_id": id, "request": request})

    def result(self, text: str = "Done.", **fields: Any) -> list[UntetherEvent]:
        facts = {"subtype": "success", "is_error": False, "result": text, "num_turns": 1}
        return self.feed({"type": "result", "session_id": SESSION, **facts, **fields})

    # what the host does

    def say(self, number: int, when: Any = "next", text: str = "more") -> list[UntetherEvent]:
        return self.did(self.session.say(message(number, text), when, self.now))

    def decide(self, id: str, decision: Decision) -> list[UntetherEvent]:
        return self.did(self.session.decide(id, decision, self.now))

    def interrupt(self, *, cancel_queued: bool = False) -> list[UntetherEvent]:
        return self.did(self.session.interrupt(self.now, cancel_queued=cancel_queued))

    def change(self, change: SessionChange) -> list[UntetherEvent]:
        return self.did(self.session.configure(change, self.now))

    def acknowledge(self, **payload: Any) -> list[UntetherEvent]:
        """The CLI answers the last request of the host with success."""
        id = [frame["request_id"] for frame in self.written if frame["type"] == "control_request"][-1]
        response = {"subtype": "success", "request_id": id, **({"response": payload} if payload else {})}
        return self.feed({"type": "control_response", "response": response})

    def end(self, **exit: Any) -> list[UntetherEvent]:
        return self.did(self.session.end(ProcessExit(**exit), self.now))

    # what to look at

    @property
    def written(self) -> list[dict[str, Any]]:
        """All lines for the agent, decoded."""
        return [msgspec.json.decode(line) for line in self.lines]

    @property
    def reply(self) -> Any:
        """The response in the last line for the agent."""
        return self.written[-1]["response"]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def started(self) -> StartedEvent:
        return self.of(StartedEvent)[0]

    @property
    def asked(self) -> InteractionEvent:
        return self.of(InteractionEvent)[-1]

    @property
    def prompts(self) -> list[tuple[str, str]]:
        """What became of the messages: the last letter of each id, and its state."""
        return [(event.prompt_id[-1], event.state) for event in self.of(PromptEvent)]

    @property
    def waits(self) -> list[tuple[str, str]]:
        """Kind and label of each wait."""
        return [(wait.kind, wait.label) for wait in self.session.waits]


def message(number: int, text: str = "more") -> Prompt:
    return Prompt(f"aaaaaaaa-0000-4000-8000-00000000000{number}", text)
