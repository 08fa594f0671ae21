"""The scripted conversation: six messages in two chats, an approval, a long answer, a file, a follow-up, a cancel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from tests.chaos.world import PATIENCE_S, World

HELLO, FOLLOW_UP, APPROVAL, STOPPED, LONG, FILE = "hello", "follow-up", "approval", "stopped", "long", "file"


@dataclass(frozen=True)
class Expected:
    """An answer by the regular expressions of its parts, each in one message of the chat, in order."""

    name: str
    chat: int
    parts: tuple[str, ...]
    asked: int  # the id of the message that it answers


@dataclass
class Talk:
    """What was said, and what must have come of it. `closed` are further messages of ours that may stand there."""

    expected: list[Expected] = field(default_factory=list)
    closed: tuple[str, ...] = (r"^✓ Approved by Ann",)
    approvals: int = 1
    extra: tuple[str, ...] = ()  # messages that a scenario brings with it
    broken: bool = False  # somebody waited in vain: there is no use in waiting for the rest
    repeats: int = 0  # messages that may stand there twice, beside those that the world knows to be in doubt


async def ask(person: Any, said: Talk, text: str, *parts: str, name: str = "") -> None:
    """One message, and its answer."""
    await say(person, said, name or text, text, *parts)
    await person.wait(parts[-1], timeout=PATIENCE_S)


LONG_PARTS = ("A long answer", *(rf"Part {n}\b(?! goes)" for n in range(1, 8)), "the last line is here")


Hook = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    pass


async def talk(world: World, before_tap: Hook = _nothing) -> Talk:
    """Two people talk with their agents; returns when all of it was answered.

    `before_tap` is called when the request is shown, and the person taps when it returns.
    """
    said = Talk()
    failures: list[Exception] = []

    async def one(person: Callable[[Any, Talk], Awaitable[None]], actor: Any) -> None:
        try:
            await person(actor, said)
        except Exception as failure:  # told below, with what was seen
            failures.append(failure)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, partial(_ann, before_tap=before_tap), world.ann)
        tasks.start_soon(one, _bob, world.bob)
    said.broken = bool(failures)
    world.problems += [f"{type(failure).__name__}: {str(failure).splitlines()[0]}" for failure in failures]
    return said


async def say(person: Any, said: Talk, name: str, text: str, *parts: str, sent: Any = None) -> int:
    """Send a message, note what must come of it, and return its id."""
    sent = sent or await person.text(text)
    said.expected.append(Expected(name, person.chat, parts, sent["message_id"]))
    return int(sent["message_id"])


async def _ann(ann: Any, said: Talk, *, before_tap: Hook) -> None:
    await ask(ann, said, "alpha-1, good morning", r"You said:\s+alpha-1", name=HELLO)
    await ask(ann, said, "alpha-2, if I may", r"You said:\s+alpha-2", name=FOLLOW_UP)
    await say(ann, said, APPROVAL, "alpha-3: permission", r"^The command ran")
    asked = await ann.wait(r"Run a command\?", button="Approve", timeout=PATIENCE_S)
    await before_tap()
    await ann.press("Approve", message_id=asked["id"], stale=True)
    await ann.wait(r"^The command ran", timeout=PATIENCE_S)
    last = await say(ann, said, STOPPED, "alpha-4: be silent", r"^■ Stopped after")
    await ann.wait(r"^▸ ", button="Stop", after=last, timeout=PATIENCE_S)
    await ann.text("/cancel")
    await ann.wait(r"^■ Stopped after", timeout=PATIENCE_S)


async def _bob(bob: Any, said: Talk) -> None:
    await ask(bob, said, "beta-1: a long story", *LONG_PARTS, name=LONG)
    sent = await bob.send_document(text="beta-2, from a file", file_name="notes.txt", caption="Please read")
    await say(bob, said, FILE, "", r"You said:\s+Please read\s+beta-2, from a file", sent=sent)
    await bob.wait("beta-2, from a file", timeout=PATIENCE_S)
