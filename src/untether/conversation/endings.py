"""How a run ends: its row, the answer that is sent for it, and its status message, as parts of one transaction."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec
import structlog

from ..model import CompletedEvent, ResumeToken, TurnEvent, Usage
from ..store import deliveries, ledger, runs, schedules
from ..text import words
from ..transport import Card, ChatRef
from . import cards, logged_out, money_cards, planned, queue
from .budget import Budget
from .engines import CANNOT_ASK, Engine
from .live_run import LiveRun
from .progress import step_text
from .services import Services

log = structlog.get_logger(__name__)

_LAST_STEPS = 5  # shown of what an interrupted run had done


class Endings:
    """Ends the runs of one engine's processes."""

    def __init__(self, services: Services, engine: Engine) -> None:
        self._services = services
        self._engine = engine
        self._budget = Budget(services)

    def end(
        self,
        conn: sqlite3.Connection,
        view: LiveRun,
        event: CompletedEvent | TurnEvent,
        resume: ResumeToken | None,
        offset: int,
        now: float,
        *,
        answering: bool,
        lost: bool = False,
    ) -> None:
        """Close a run with what its turn came to. `answering`: the answer is told for this run, and not for another
        that the same turn answered. `lost`: its agent was not seen to its end."""
        usage = _plain(event.usage)
        model = str(view.tracker.meta.get("model") or "")
        state = _state(event, lost)
        if not runs.end_run(
            conn,
            view.run_id,
            state,
            now,
            answer=event.answer,
            error=event.error or "",
            advice=event.advice,
            raw_error=event.raw_error,
            usage=usage if answering else {},  # what a turn cost counts once
            steps=view.tracker.count,
            model=model,
            ended_offset=offset,
        ):
            return
        took = now - view.tracker.started
        log.info("run.ended", run=view.run_id, state=state, took=words.duration(took), error=event.error or None)
        if answering:
            ledger.add(conn, view.run_id, usage, model, now)
        if event.ok:
            logged_out.regain(conn, self._engine.id)
        if view.message is not None:
            queue.moved(conn, view.message.prompt_id, "answered", now)
        if answering:
            role: deliveries.Role = "answer"
            if state == "interrupted":
                done = [step_text(step, now) for step in view.tracker.last(_LAST_STEPS)]
                card = cards.interrupted(view.run_id, view.title, done, event.answer, reply_to=view.reply_to)
                role = "notice"
            else:
                card = self._card(view, event, resume, usage, model, took)
            card = money_cards.with_lines(card, self._budget.remarks(conn, view.run_id, now))
            if state == "failed" and event.detail.get("login"):
                card = self._login_lost(conn, view, card, now)
            offered = None
            if state == "failed":
                card, offered = planned.offer(conn, self._services, view.chat, view.run_id, event.detail, card, now)
            parts = self._services.parts(view.chat, card)
            sent = deliveries.add_send(conn, view.chat, parts, role, now, run_id=view.run_id)
            if offered is not None:
                schedules.set_delivery(conn, offered, sent[-1])
        if view.status_delivery is not None:
            deliveries.add_delete(conn, view.status_delivery, now)

    def _login_lost(self, conn: sqlite3.Connection, view: LiveRun, card: Card, now: float) -> Card:
        """The login of the engine is lost: its messages wait from now on. That is said once for all chats."""
        found = logged_out.lose(conn, self._engine.id)
        if found == "known":
            return card
        backend, services = self._engine.backend, self._services
        # On a transport that shows all, a page stands for the card of a failure: there it is told beside it.
        shows_all = (
            services.transports[view.chat.transport].shows_all if view.chat.transport in services.transports else False
        )
        owner = services.options.owner or (view.chat if shows_all else None)
        can_log_in = backend.login is not None
        if found == "new" and owner is not None and (shows_all or owner != view.chat):
            told = money_cards.login_lost(backend.id, backend.title, can_log_in=can_log_in)
            deliveries.add_send(conn, owner, [told], "notice", now)
        line = money_cards.login_lost_line(backend.id)
        return money_cards.with_lines(card, (line,), money_cards.login_buttons(backend.id, can_log_in=can_log_in))

    def drop(self, conn: sqlite3.Connection, view: LiveRun, now: float) -> None:
        """Its message went back to the queue: this run never happened."""
        runs.end_run(conn, view.run_id, "interrupted", now, error="handed back to the queue")
        if view.status_delivery is not None:
            deliveries.add_delete(conn, view.status_delivery, now)

    def _card(
        self,
        view: LiveRun,
        event: CompletedEvent | TurnEvent,
        resume: ResumeToken | None,
        usage: dict[str, Any],
        model: str,
        took: float,
    ) -> Card:
        line = self._resume_line(view.chat, resume)
        if event.outcome == "stopped":
            return cards.stopped(took, event.answer, resume=line, reply_to=view.reply_to)
        if not event.ok:
            error = event.error or "The agent ended without an answer."
            return cards.failure(
                view.run_id,
                error,
                event.advice,
                so_far=event.answer if event.answer != error else "",
                details=bool(event.raw_error),
                resume=line,
                reply_to=view.reply_to,
            )
        mode = str(view.tracker.meta.get("permission_mode") or "") if self._engine.runner.interactive else CANNOT_ASK
        small = cards.footer(took, view.tracker.count, model, usage, mode)
        return cards.answer(event.answer, small, resume=line, reply_to=view.reply_to)

    def _resume_line(self, chat: ChatRef, resume: ResumeToken | None) -> str:
        options = self._services.options
        if not options.show_resume_line or chat.transport not in options.stateless or not resume:
            return ""
        return self._engine.runner.format_resume(resume).strip("`")


def _state(event: CompletedEvent | TurnEvent, lost: bool) -> str:
    if event.outcome == "stopped":
        return "stopped"
    if event.ok:
        return "done"
    return "interrupted" if lost else "failed"


def _plain(usage: Usage | dict[str, Any] | None) -> dict[str, Any]:
    if usage is None:
        return {}
    plain = usage if isinstance(usage, dict) else msgspec.to_builtins(usage)
    return dict(plain)
