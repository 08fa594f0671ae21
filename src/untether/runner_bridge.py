"""The names under which others know the bridge; the room is `conversation`."""

from __future__ import annotations

from .conversation.edits import ProgressEdits
from .conversation.scheduler import Scheduler
from .store.threads import Message


async def handle_message(scheduler: Scheduler, thread_id: int, message: Message) -> None:
    """Bring one stored message to the agent of its thread and return when its run has ended."""
    await scheduler.handle_message(thread_id, message)


__all__ = ["ProgressEdits", "handle_message"]
