"""One run while it lives."""

from __future__ import annotations

import anyio

from ..model import Record
from ..store.threads import Message
from ..transport import ChatRef
from .progress import ProgressTracker


class Limit(Record, frozen=True):
    """Why a run was ended by a limit: what happened, and what to do."""

    error: str
    advice: str


class LiveRun:
    """A run from its beginning to its end: its row, its progress, and its status message."""

    def __init__(self, message: Message | None, chat: ChatRef, title: str, now: float) -> None:
        self.run_id = 0  # of its row, once there is one
        self.message = message  # None for a turn that nobody asked for
        self.chat = chat  # where all of it is told: the chat that asked, whichever chat the thread began in
        self.title = title
        self.tracker = ProgressTracker(now)
        self.status_delivery: int | None = None
        self.verbose = False
        self.stopping = False
        self.limit: Limit | None = None  # the limit for which it was stopped
        self.began_offset = 0  # bytes of the agent's output before it
        self.done = anyio.Event()  # its end is committed

    @property
    def reply_to(self) -> str:
        return self.message.message_id if self.message else ""
