"""A scripted `codex app-server` for tests of the session: frames in, events and decoded lines out."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from untether.model import Decision, Interaction, InteractionEvent, PromptEvent, ResumeToken, UntetherEvent
from untether.runners.codex.session import CodexSession
from untether.session import Input, ProcessExit, Prompt, StartFacts, Step, apply

THREAD = "01a22e6a-5ce7-7400-821f-ca968db576dd"
TURN = "turn-1"
PROMPT = Prompt("aaaaaaaa-0000-4000-8000-000000000001", "do it")

E = TypeVar("E")


class Talk:
    """One session with what came of it. Time passes a second at a time.

    ``opened`` answers the greeting and opens the thread; ``turn`` begins a turn, as Codex does.
    """

    def __init__(self, *, resume: str = "", latest: bool = False, **settings: Any) -> None:
        self.session = CodexSession()
        self.now = 1_000.0
        self.events: list[UntetherEvent] = []
        self.lines: list[bytes] = []
        token = ResumeToken("codex", resume) if resume else None  # type: ignore[arg-type]
        start = StartFacts("process-1", "codex", "/repo", resume=token, continue_latest=latest, settings={**settings})
        self.did(self.session.begin(start, PROMPT, self.now))

    def did(self, step: Step) -> list[UntetherEvent]:
        self.now += 1
        self.events += step.events
        self.lines += step.writes
        self.closes = step.close_stdin
        return list(step.events)

    # what Codex prints

    def feed(self, frame: dict[str, Any] | bytes) -> list[UntetherEvent]:
        line = frame if isinstance(frame, bytes) else msgspec.json.encode(frame)
        return self.did(self.session.feed(line, self.now))

    def tell(self, method: str, **params: Any) -> list[UntetherEvent]:
        return self.feed({"method": method, "params": {"threadId": THREAD, **params}})

    def answer(self, method: str, result: Any = None, error: str = "") -> list[UntetherEvent]:
        """Answer our latest request of a method."""
        id = [frame["id"] for frame in self.written if frame.get("method") == method][-1]
        if error:
            return self.feed({"id": id, "error": {"code": -32600, "message": error}})
        return self.feed({"id": id, "result": result if result is not None else {}})

    def opened(self, method: str = "thread/start", **fields: Any) -> Talk:
        self.answer("initialize", {"userAgent": "x", "codexHome": "/home/ann/.codex"})
        self.answer(method, thread(**fields))
        return self

    def turn(self, id: str = TURN) -> Talk:
        self.tell("turn/started", turn={"id": id, "status": "inProgress"})
        return self

    def began(self, **fields: Any) -> Talk:
        """Greeted, opened, and in its first turn."""
        return self.opened(**fields).turn()

    def item(self, type: str, id: str = "item-1", *, at: str = "completed", **fields: Any) -> list[UntetherEvent]:
        thread_id = fields.pop("thread", THREAD)
        item = {"type": type, "id": id, **fields}
        return self.tell(f"item/{at}", item=item, turnId=TURN, threadId=thread_id)

    def says(self, text: str, phase: str | None = None) -> list[UntetherEvent]:
        return self.item("agentMessage", f"msg-{len(self.events)}", text=text, phase=phase)

    def asks(self, what: str, id: Any = 0, **params: Any) -> Interaction:
        """A request of Codex; returns what a person is asked."""
        params = {"threadId": THREAD, "turnId": TURN, "itemId": "item-1", **params}
        self.feed({"method": what, "id": id, "params": params})
        return self.opened_requests[-1]

    def asks_command(self, id: Any = 0, command: str | None = "/bin/bash -lc 'touch x'", **params: Any) -> Interaction:
        return self.asks("item/commandExecution/requestApproval", id, command=command, **params)

    def ends(self, status: str = "completed", id: str = TURN, **fields: Any) -> list[UntetherEvent]:
        return self.tell("turn/completed", turn={"id": id, "status": status, **fields})

    def fails(self, info: Any, message: str = "It broke.") -> list[UntetherEvent]:
        return self.ends("failed", error={"message": message, "codexErrorInfo": info})

    # what the host does

    def put(self, item: Input) -> list[UntetherEvent]:
        return self.did(apply(self.session, item, self.now))

    def say(self, number: int, when: Any = "next", text: str = "more") -> list[UntetherEvent]:
        return self.did(self.session.say(message(number, text), when, self.now))

    def decide(self, id: str, decision: Decision) -> list[UntetherEvent]:
        return self.did(self.session.decide(id, decision, self.now))

    def interrupt(self, **more: Any) -> list[UntetherEvent]:
        return self.did(self.session.interrupt(self.now, **more))

    def end(self, **exit: Any) -> list[UntetherEvent]:
        return self.did(self.session.end(ProcessExit(**exit), self.now))

    # what to look at

    @property
    def written(self) -> list[dict[str, Any]]:
        """All lines for Codex, decoded."""
        return [msgspec.json.decode(line) for line in self.lines]

    def sent(self, method: str) -> list[Any]:
        """The parameters of our requests of a method."""
        return [frame["params"] for frame in self.written if frame.get("method") == method]

    def replies(self, id: Any = 0) -> list[Any]:
        """What a request of Codex was answered."""
        found = [frame for frame in self.written if "method" not in frame and frame["id"] == id]
        return [frame.get("result", frame.get("error")) for frame in found]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def opened_requests(self) -> list[Interaction]:
        return [event.interaction for event in self.of(InteractionEvent) if event.phase == "opened"]

    @property
    def closed(self) -> list[tuple[str, str, str]]:
        found = [event for event in self.of(InteractionEvent) if event.phase != "opened"]
        return [(event.interaction.id, event.phase, event.reason) for event in found]

    @property
    def prompts(self) -> list[tuple[str, str]]:
        """What became of the messages: the last letter of each id, and its state."""
        return [(event.prompt_id[-1], event.state) for event in self.of(PromptEvent)]

    @property
    def waits(self) -> list[tuple[str, str]]:
        """Kind and label of each wait."""
        return [(wait.kind, wait.label) for wait in self.session.waits]


def thread(id: str = THREAD, **fields: Any) -> dict[str, Any]:
    """The answer to ``thread/start``."""
    known = {"id": id, "cwd": "/repo", "cliVersion": "0.171.0"}
    facts = {"model": "gpt-x", "approvalPolicy": "on-request", "sandbox": {"type": "readOnly"}}
    return {"thread": known, **facts, **fields}


def message(number: int, text: str = "more") -> Prompt:
    return Prompt(f"aaaaaaaa-0000-4000-8000-00000000000{number}", text)
