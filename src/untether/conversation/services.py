"""What every part of the conversation works with, put together once by the composition root."""

from __future__ import annotations

import secrets
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog

from ..clock import Clock
from ..model import Record
from ..runner import Runner
from ..store import runs, threads
from ..store.database import Database, StoreError
from ..store.threads import Thread
from ..transport import ChatRef, Transport
from .context import Project
from .engines import Engines
from .hub import Hub
from .outbox import Outbox

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Without vowels, digits that look like letters and signs: short, and never a word.
_KEY_LETTERS = "bcdfghjkmnpqrstvwxz23456789"


def new_key() -> str:
    """A random key of 10 letters (47 bits) for a button."""
    return "".join(secrets.choice(_KEY_LETTERS) for _ in range(10))


class Options(Record, frozen=True):
    """The settings that the conversation needs."""

    state_dir: str
    home: str  # where runs without a project work
    default_project: str | None = None
    stateless: frozenset[str] = frozenset()  # transports on which only a reply continues a session
    show_resume_line: bool = True
    max_actions: int = 5
    verbose: bool = False
    min_render_interval: float = 2.0
    heartbeat_interval: float = 30.0
    idle_close_s: float = 60.0
    join_s: float = 1.0
    max_line_bytes: int = 64 << 20


@dataclass
class Services:
    db: Database
    clock: Clock
    options: Options
    projects: Mapping[str, Project]
    transports: Mapping[str, Transport]
    engines: Engines
    outbox: Outbox
    hub: Hub
    environment: Callable[[Runner, str], Mapping[str, str]]
    """The environment of an agent, from its runner and its process id."""
    new_key: Callable[[], str] = new_key
    new_id: Callable[[], str] = field(default=lambda: str(uuid.uuid4()))

    project_chats: Mapping[ChatRef, str] = field(default_factory=dict)

    def project_of_chat(self, chat: ChatRef) -> str | None:
        """The project whose configuration names this chat."""
        return self.project_chats.get(ChatRef(chat.transport, chat.chat))

    async def persist(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Write what has happened already and must not be refused: while the store has no room, wait, and log it."""
        pause = 1.0
        while True:
            try:
                return await self.db.write(job)
            except StoreError as error:
                if error.kind not in ("full", "locked", "io"):
                    raise
                log.error("store.waiting", error=str(error), next_try_s=pause)
                await self.clock.sleep(pause)
                pause = min(pause * 2, 30.0)

    def thread_of(self, chat: ChatRef, message_id: str) -> Thread | None:
        """The thread of a message; a transport that shows all names runs of every chat as `run:ID`."""
        kind, _, run_id = message_id.partition(":")
        if kind == "run" and run_id.isdigit() and self.transports[chat.transport].shows_all:
            found = self.db.read(lambda conn: runs.run(conn, int(run_id)))
            thread_id = found.thread_id if found is not None else 0
            return self.db.read(lambda conn: threads.thread(conn, thread_id))
        return self.db.read(lambda conn: threads.of_message(conn, chat, message_id))

    def process_folder(self, process_id: str) -> Path:
        return Path(self.options.state_dir) / "processes" / process_id
