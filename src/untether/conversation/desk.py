"""The desk: every open request for a person, and the one place where a tap or a reply decides it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from ..faults import point
from ..model import Allow, Decision
from ..process.driver import Ended
from ..session import Decide
from ..store import deliveries, grants, interactions, updates
from ..store.database import StoreError
from ..store.interactions import Pending
from ..store.threads import Thread
from ..store.updates import Update
from ..transport import Sender
from . import asked_cards
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

        The claim, the rules that it grants, the session's input and that the update is dealt with are one commit. What
        is returned is for a toast: a late, repeated or withdrawn decision says which it was. `told` is called with the
        toast as soon as the claim counts, before the agent has it.
        """
        services = self._services
        pending = self.pending(key)
        if pending is None:
            return "This request is not known any more"
        live = self._scheduler.process(pending.process_id)
        if live is not None:
            await live.ready.wait()  # it may be one that is being taken up again
        if live is None or live.driver is None or live.ended.is_set():
            if pending.state != "open":
                return asked_cards.late(pending, services.options.zone)
            return "The agent that asked has ended"
        now = services.clock.now()
        name = by.name or by.id

        def claim(conn: sqlite3.Connection) -> None:
            if not interactions.claim(conn, key, decision, name, now):
                again = interactions.get(conn, key)
                raise Late(asked_cards.late(again or pending, services.options.zone))
            keep_rule(conn, live.thread, pending, decision, name, now)
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
        verdict = asked_cards.toast(pending.interaction, decision)
        await told(verdict)
        decided = msgspec.structs.replace(pending, state="decided", decision=decision, decided_by=name, decided=now)
        await live.tell_decided(decided, receipts)
        return verdict


def keep_rule(
    conn: sqlite3.Connection, thread: Thread, pending: Pending, decision: Decision, by: str, now: float
) -> None:
    """A scope that holds for good is kept as rules of ours, which are sent at every start where the thread works.

    Its choice has them as its description, one a line.
    """
    if isinstance(decision, Allow) and decision.scope.startswith("always:"):
        choice = asked_cards.choice_of(pending.interaction, decision.scope)
        for rule in choice.description.splitlines() if choice is not None else ():
            grants.add(conn, thread, rule, by, now)
