"""What the console shows in tests: views made by hand, and an inbox that hands out what it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import msgspec

from untether.conversation.progress import ProgressTracker
from untether.conversation.views import Overview, Page, RunRow, RunView
from untether.model import (
    Action,
    ActionEvent,
    ActionKind,
    Allow,
    Content,
    Deny,
    EngineId,
    Interaction,
    InteractionEvent,
    ResumeToken,
    StartedEvent,
)
from untether.store.interactions import Pending
from untether.store.runs import Run
from untether.store.threads import Message, Thread
from untether.transport import ChatRef, MessageIn, TapIn

CLAUDE = EngineId("claude")
NOW = 1_700_000_000.0

DIFF = """@@ -3,4 +3,4 @@
 def total(cart):
-    return sum(cart)
+    return sum(item.price * item.count for item in cart)"""


def run(id: int, state: str = "done", **values: Any) -> Run:
    row = Run(
        id=id,
        thread_id=1,
        process_id="p1",
        message_id=id,
        title="Fix the total of the cart",
        state=state,
        started=NOW - 221,
        ended=None if state == "running" else NOW,
        began_offset=0,
        ended_offset=None,
        answer="",
        error="",
        advice="",
        raw_error="",
        usage={},
        steps=0,
        model="",
    )
    return msgspec.structs.replace(row, **values)


def message(id: int, text: str = "Fix the total of the cart", **values: Any) -> Message:
    row = Message(id, 1, ChatRef("telegram", "1001"), f"prompt-{id}", f"m:{id}", "Ann", text, "taken", NOW - 221, None)
    return msgspec.structs.replace(row, **values)


def thread(id: int = 1, chat: ChatRef | None = None, project: str = "shop") -> Thread:
    return Thread(id, chat or ChatRef("telegram", "1001"), "claude", "session", project, "fix-cart", "/srv/shop")


def step(
    id: str,
    title: str,
    *,
    kind: ActionKind = "tool",
    ok: bool | None = True,
    message: str = "",
    parent: str = "",
    **detail: Any,
) -> ActionEvent:
    """A step that has ended, or with `ok=None` one that has begun."""
    phase = "started" if ok is None else "completed"
    return ActionEvent(CLAUDE, Action(id, kind, title, detail), phase, ok, message, parent)  # type: ignore[arg-type]


def tracker(*events: ActionEvent | InteractionEvent, started: float = NOW - 134) -> ProgressTracker:
    made = ProgressTracker(started)
    made.note_event(StartedEvent(CLAUDE, ResumeToken(CLAUDE, "s"), meta={"model": "claude-opus-5-5"}), started)
    for number, event in enumerate(events):
        made.note_event(event, started + 1 + number)
    return made


def pending(
    key: str, *body: Content, act: str = "Run a command?", run_id: int = 1, note: str = "", **values: Any
) -> Pending:
    interaction = Interaction(f"request-{key}", "permission", act, body, note=note)
    row = Pending(key, "p1", run_id, interaction, "open", None, None, "", None, NOW - 5)
    return msgspec.structs.replace(row, **values)


def asked(one: Pending) -> InteractionEvent:
    return InteractionEvent(CLAUDE, one.interaction, "opened")


def allowed(one: Pending) -> Pending:
    return msgspec.structs.replace(one, state="decided", decision=Allow(), decided_by="Ann", decided=NOW - 60)


def denied(one: Pending, reason: str = "") -> Pending:
    return msgspec.structs.replace(one, state="decided", decision=Deny(reason), decided_by="Ann", decided=NOW - 60)


def shown(row: Run, *, text: str | None = None, done: ProgressTracker | None = None, **values: Any) -> RunView:
    said = message(row.id, row.title if text is None else text)
    view = RunView(row, said, done or tracker(), (), ())
    return msgspec.structs.replace(view, **values)


class FakeViews:
    """Conversations by their runs, in memory."""

    def __init__(self, *pages: Page) -> None:
        self.pages = list(pages)

    def overview(self, recent: int = 30) -> Overview:
        lists: dict[str, list[RunRow]] = {"waiting": [], "running": [], "ended": []}
        for page in self.pages:
            for view in page.runs:
                is_open = any(one.state == "open" for one in view.asked)
                state = "waiting" if is_open and view.run.state == "running" else view.run.state
                row = RunRow(
                    view.run.id, state, view.run.title, page.where, page.thread.engine, view.run.started,  # type: ignore[arg-type]
                    view.run.error or view.run.answer[:80],
                )  # fmt: skip
                lists.get(state, lists["ended"]).append(row)
        ended = tuple(lists["ended"][:recent])
        return Overview(tuple(lists["waiting"]), tuple(lists["running"]), ended, "7.5 GB free · load 0.1 · claude")

    def page(self, run_id: int) -> Page | None:
        return next((page for page in self.pages if any(view.run.id == run_id for view in page.runs)), None)

    def latest_run_of_chat(self, chat: ChatRef) -> int | None:
        runs = [view.run.id for page in self.pages if page.thread.chat == chat for view in page.runs]
        return runs[-1] if runs else None


class FakeInbox:
    """Keeps what was stored; `on_store` may react as the router does, and `fail` refuses."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self._decode = decode
        self.stored: list[MessageIn | TapIn] = []
        self.keys: list[tuple[str, str]] = []
        self.fail: Exception | None = None
        self.arrived = anyio.Event()
        self.on_store: Callable[[MessageIn | TapIn], Any] | None = None

    async def moved(self, transport: str, old: str, new: str) -> None:
        raise AssertionError("a chat of the console keeps its id")

    async def tell(self, chat: ChatRef, *lines: str) -> None:
        raise AssertionError("the console says nothing by itself")

    async def store(self, transport: str, updates: Sequence[tuple[str, bytes]]) -> None:
        if self.fail is not None:
            raise self.fail
        for key, raw in updates:
            inbound = self._decode(raw)
            self.keys.append((transport, key))
            self.stored.append(inbound)
            if self.on_store is not None:
                await self.on_store(inbound)


class StillClock:
    """A clock whose times a test sets; sleeping takes no time."""

    def __init__(self) -> None:
        self.wall = NOW
        self.mono = 1000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.mono += seconds
