"""What runners share: one run a session at a time, and the resume line by which a person continues a session."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TypeAlias
from weakref import WeakValueDictionary

import anyio

from .model import EngineId, ResumeToken, UntetherEvent

RunFunction: TypeAlias = Callable[[str, ResumeToken | None], AsyncIterator[UntetherEvent]]


@asynccontextmanager
async def closing(events: AsyncIterator[UntetherEvent]) -> AsyncIterator[AsyncIterator[UntetherEvent]]:
    """Close `events` at the end, in this task: a generator left to the garbage collector ends its agent too late."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


class SessionLockMixin:
    """Serialises the runs of one session.

    A resumed run holds its session's lock before anything is spawned; a new run takes it when its session id is
    known, before its started event is handed on. Both hold it until they are over.
    """

    engine: EngineId

    @cached_property
    def session_locks(self) -> WeakValueDictionary[str, anyio.Semaphore]:
        """Locks by "engine:session". Weak: a lock is gone when no run holds or awaits it."""
        return WeakValueDictionary()

    def lock_for(self, token: ResumeToken) -> anyio.Semaphore:
        """The lock of a session. A semaphore, because a run may be closed by another task than began it."""
        key = f"{token.engine}:{token.value}"
        lock = self.session_locks.get(key)
        if lock is None:
            lock = self.session_locks[key] = anyio.Semaphore(1)
        return lock

    async def run_with_resume_lock(
        self, prompt: str, resume: ResumeToken | None, run: RunFunction
    ) -> AsyncIterator[UntetherEvent]:
        """`run`, with the lock of the resumed session held around it.

        :raises RuntimeError: when `resume` is another engine's
        """
        if resume is None:
            async with closing(run(prompt, None)) as events:
                async for event in events:
                    yield event
            return
        if resume.engine != self.engine:
            raise RuntimeError(f"a session of {resume.engine!r} cannot be resumed by {self.engine!r}")
        async with self.lock_for(resume), closing(run(prompt, resume)) as events:
            async for event in events:
                yield event


class ResumeTokenMixin:
    """Writes and reads resume lines such as `` `codex resume 0199a213` ``.

    `resume_re` matches a whole line, with and without the backticks, and has the token in the group "token" (or in
    its first group); give it the flags `(?im)`, so that it is found in a text of several lines.
    """

    engine: EngineId
    resume_re: re.Pattern[str]

    def format_resume(self, token: ResumeToken) -> str:
        """The canonical resume line, in backticks. Override it when the command is not `ENGINE resume TOKEN`.

        :raises RuntimeError: when the token is another engine's
        """
        if token.engine != self.engine:
            raise RuntimeError(f"a session of {token.engine!r} has no resume line of {self.engine!r}")
        return f"`{self.engine} resume {token.value}`"

    def extract_resume(self, text: str | None) -> ResumeToken | None:
        """The token of the last resume line in `text`."""
        last = None
        for match in self.resume_re.finditer(text or ""):
            last = match["token" if "token" in self.resume_re.groupindex else 1] or last
        return ResumeToken(self.engine, last) if last else None

    def is_resume_line(self, line: str) -> bool:
        """Whether `line` is nothing but a resume line, to be left out of the prompt."""
        return self.resume_re.fullmatch(line.strip()) is not None
