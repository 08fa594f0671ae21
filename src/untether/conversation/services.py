"""What every part of the conversation works with, put together once by the composition root."""

from __future__ import annotations

import secrets
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TypeVar

import msgspec
import structlog

from ..clock import Clock
from ..model import Record
from ..process.guard import RoomLimits
from ..process.host import Host
from ..process.machine import Machine, machine_facts
from ..runner import Runner
from ..store import moves, runs, threads
from ..store.database import Database
from ..store.threads import Busy, Thread
from ..text import words
from ..text.blocks import Code, Markdown
from ..transport import Card, ChatRef, Sender, Transport
from .context import Project
from .engines import Engines
from .hub import Hub
from .outbox import Outbox
from .persistence import persist
from .spending import BudgetLimits
from .times import ReminderTimes

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Without vowels, digits that look like letters and signs: short, and never a word.
_KEY_LETTERS = "bcdfghjkmnpqrstvwxz23456789"


def new_key() -> str:
    """A random key of 10 letters (47 bits) for a button."""
    return "".join(secrets.choice(_KEY_LETTERS) for _ in range(10))


class WatchLimits(Record, frozen=True):
    """Limits of a run, in seconds. `silence` and `run` end it, 0: never; from `stuck` on it is called perhaps stuck.

    See `watch`.
    """

    silence: float = 3600.0
    run: float = 14_400.0
    stuck: float = 600.0


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
    watch: WatchLimits = WatchLimits()
    room: RoomLimits = RoomLimits()
    zone: tzinfo | None = None  # in which clock times are shown; None: this machine's
    reminders: ReminderTimes = ReminderTimes()
    background_hold_s: float = 1800.0  # how long work in the background may put off what comes after an answer
    preamble: str = ""  # what agents are told beside their messages
    own_schedule: bool = True  # jobs that an agent schedules inside its own program are looked at
    rearm_plan_mode: bool = True  # plan mode comes back after an approved plan, where plans come first
    busy: Busy = "queue"  # what becomes of a message that is sent while its agent works
    budget: BudgetLimits = BudgetLimits()
    auto_continue: bool = False  # a run that a spent quota cut is gone on with by itself, where no chat has chosen
    owner: ChatRef | None = None  # the private chat of the owner, who has its id; None: only who is at the console
    max_file_bytes: int = 20 * 1024 * 1024  # of one that comes with a message


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
    host: Host
    environment: Callable[[Runner, str], Mapping[str, str]]
    """The environment of an agent, from its runner and its process id."""
    machine: Callable[[], Machine] = machine_facts
    new_key: Callable[[], str] = new_key
    new_id: Callable[[], str] = field(default=lambda: str(uuid.uuid4()))
    project_chats: Mapping[ChatRef, str] = field(default_factory=dict)
    restart: Callable[[], None] | None = None
    """Ask the program to stop and start again; None where it cannot."""

    def project_of(self, chat: ChatRef, bound: str | None) -> str | None:
        """The project of a chat: the one bound to it, else the one whose configuration names it, else the default."""
        named = self.project_chats.get(ChatRef(chat.transport, chat.chat))
        if bound is None and named is None:
            for old in self.db.read(lambda conn: moves.former(conn, chat.transport, chat.chat)):
                named = named or self.project_chats.get(ChatRef(chat.transport, old))
        return bound or named or self.options.default_project

    def machine_line(self) -> str:
        """What the machine has left, and the engines that can be used: `1.9 GB free · load 0.4 · claude, demo`."""
        facts = self.machine()
        engines = ", ".join(engine.id for engine in self.engines if engine.available)
        return f"{words.memory(facts.available)} free · load {facts.load:.1f} · {engines}"

    def is_owner(self, chat: ChatRef, sender: Sender) -> bool:
        """Whether somebody may spend beyond limits and log in: the owner, and whoever sees all of every chat."""
        if self.transports[chat.transport].shows_all:
            return True
        owner = self.options.owner
        return owner is not None and (chat.transport, sender.id) == (owner.transport, owner.chat)

    async def persist(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Write what has happened already and must not be refused; see `persistence.persist`."""
        return await persist(self.db, self.clock, job)

    def parts(self, chat: ChatRef, card: Card) -> list[Card]:
        """The messages that a card becomes. A defect in its rendering costs the formatting, never the message."""
        transport = self.transports.get(chat.transport)
        if transport is None:
            return [card]  # it is switched off now; the card leaves when it is back
        try:
            return transport.parts(card)
        except Exception:  # whatever an agent writes may bring out a defect of a renderer
            log.exception("card.not_rendered", transport=chat.transport, chat=chat.chat)
            return transport.parts(_unformatted(card))

    def thread_of(self, chat: ChatRef, message_id: str) -> Thread | None:
        """The thread of a message; a transport that shows all names runs of every chat as `run:ID`."""
        kind, _, run_id = message_id.partition(":")
        if kind == "run" and run_id.isdigit() and self.transports[chat.transport].shows_all:
            found = self.db.read(lambda conn: runs.run(conn, int(run_id)))
            thread_id = found.thread_id if found is not None else 0
            return self.db.read(lambda conn: threads.thread(conn, thread_id))
        return self.db.read(lambda conn: threads.of_message(conn, chat, message_id))


def _unformatted(card: Card) -> Card:
    blocks = (Code(block.source) if isinstance(block, Markdown) else block for block in card.blocks)
    return msgspec.structs.replace(card, blocks=tuple(blocks))
