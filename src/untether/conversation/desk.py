"""The desk: every open request for a person, and the one place where a tap or a reply decides it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from ..faults import point
from ..model import Allow, Answers, Decision, Deny
from ..process.driver import Ended
from ..session import Decide
from ..store import deliveries, interactions, updates
from ..store.database import StoreError
from ..store.interactions import Pending
from ..store.updates import Update
from ..text import words
from ..transport import Sender
from . import cards
from .scheduler import Scheduler
from .services import Services

log = structlog.get_logger(__name__)


class Late(Exception):
    """The request is no longer open; the text says what became of it."""


class Desk:
    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler

    def pending(self, key: str) -> Pending | None:
        return self._services.db.read(lambda conn: interactions.get(conn, key))

    def of_message(self, delivery: deliveries.Delivery | None) -> Pending | None:
        """The request that one of our messages is about."""
        return self.pending(delivery.interaction) if delivery is not None and delivery.interaction else None

    async def decide(
        self, key: str, decision: Decision, by: Sender, told: Callable[[str], Awaitable[None]], update: Update
    ) -> str:
        """Decide a request: claim it, hand it to the agent, then change its message. Returns what to say of it.

        The claim, the session's input and that the update is dealt with are one commit. What is returned is for a
        toast: a late, repeated or withdrawn decision says which it was. `told` is called with the toast as soon as the
        claim counts, before the agent has it.
        """
        services = self._services
        pending = self.pending(key)
        if pending is None:
            return "This request is not known any more"
        live = self._scheduler.process(pending.process_id)
        if live is not None:
            await live.ready.wait()  # it may be one that is being taken up again
        if live is None or live.driver is None or live.ended.is_set():
            return self.late(pending) if pending.state != "open" else "The agent that asked has ended"
        now = services.clock.now()
        name = by.name or by.id

        def claim(conn: sqlite3.Connection) -> None:
            if not interactions.claim(conn, key, decision, name, now):
                again = interactions.get(conn, key)
                raise Late(self.late(again or pending))
            updates.done(conn, update.id)

        try:
            receipts = await live.driver.submit(Decide(pending.interaction.id, decision), claim)
        except Late as late:
            return str(late)
        except Ended:
            return "The agent that asked has ended"
        except StoreError as error:
            log.error("desk.not_stored", key=key, error=str(error))
            return "Could not be stored, nothing was decided. Try again."
        point("tap.claimed")
        verdict = cards.verdict(pending.interaction, decision)
        await told(verdict)
        decided = msgspec.structs.replace(pending, state="decided", decision=decision, decided_by=name, decided=now)
        await live.tell_decided(decided, receipts)
        return verdict

    def late(self, pending: Pending) -> str:
        """What became of a request that is closed."""
        if pending.state == "withdrawn":
            return "No longer needed"
        if pending.state == "decided" and pending.decision is not None and pending.decided is not None:
            verdict = cards.verdict(pending.interaction, pending.decision).lower()
            return f"Already {verdict} {words.clock_time(pending.decided, self._services.options.zone)}"
        return "This request is closed"


def reply_decision(pending: Pending, text: str) -> Decision:
    """What a plain reply to a request means: the answer to a question, else the reason of a deny. Never a command."""
    questions = pending.interaction.questions
    return Answers({question.text: text for question in questions}) if questions else Deny(reason=text)


def decision_of(letter: str, text: str = "") -> Decision | None:
    """The decision that a button's letter (and a typed reason) stands for; None for an unknown letter."""
    if letter == "a":
        return Allow()
    if letter == "d":
        return Deny(reason=text)
    return None
