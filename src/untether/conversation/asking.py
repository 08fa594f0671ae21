"""What people do with requests: taps on their buttons, and words that they type for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from ..model import Allow, Choice, Decision, Deny
from ..store import awaited, deliveries, interactions, updates
from ..store.awaited import Awaited, Purpose
from ..store.interactions import Given, Pending
from ..store.updates import Update
from ..transport import MessageIn, TapIn
from . import asked_cards, requests
from .asked_cards import Press
from .desk import Desk
from .services import Services

Toast = Callable[[str], Awaitable[None]]

_UNKNOWN = "This button is not known any more"
_TYPE_IT = "Type it beside the button first"


class Typed(NamedTuple):
    """Words for an open request: what they are taken as, and the row that asked for them, if one did."""

    pending: Pending
    purpose: Purpose
    about: int
    row: Awaited | None


class Moved(Exception):
    """The questions are no longer where this button or reply belongs; the text says so."""


class Asking:
    def __init__(self, services: Services, desk: Desk) -> None:
        self._services = services
        self._desk = desk

    # ------------------------------------------------------------------------------------------------------- taps

    async def tap(self, update: Update, tap: TapIn, about: str, toast: Toast) -> None:
        """A tap on a button of a request; `about` is its data behind the first colon."""
        key, _, rest = about.partition(":")
        pending = self._desk.pending(key)
        if pending is None or not self._belongs(tap, pending):
            await toast("This request is not known any more")
            return
        services = self._services
        if not services.transports[tap.chat.transport].shows_all:
            now, zone = services.clock.now(), services.options.zone
            await services.db.write(lambda conn: requests.turned_up(conn, pending, tap.message_id, now, zone))
            services.outbox.kick()
        press = asked_cards.read_press(rest)
        if press is None:
            await toast(_UNKNOWN)
        elif pending.state != "open":
            await toast(asked_cards.late(pending, services.options.zone))
        else:
            await toast(await self._pressed(update, tap, pending, press, toast))

    async def _pressed(self, update: Update, tap: TapIn, pending: Pending, press: Press, toast: Toast) -> str:
        """Do what a button of an open request says. Returns what to say of it."""
        if press.letter in (asked_cards.RUN_THIS, asked_cards.NEVER_MIND):
            return await self._confirmed(update, tap, pending, press, toast)
        if asked_cards.step(pending.interaction, pending.answers) is not None and press.letter != asked_cards.DENY:
            return await self._question_pressed(update, tap, pending, press, toast)
        found = _meaning(pending, press)
        if isinstance(found, str):
            return found
        if isinstance(found, tuple):
            return await self._want(update, tap, pending, *found)
        return await self._desk.decide(pending.key, found, tap.sender, toast, update)

    def _belongs(self, tap: TapIn, pending: Pending) -> bool:
        """A tap counts in the chat where the request was shown, and on a transport that shows all."""
        if self._services.transports[tap.chat.transport].shows_all or pending.delivery_id is None:
            return True
        shown = self._services.db.read(lambda conn: deliveries.get(conn, pending.delivery_id or 0))
        return shown is not None and shown.chat.transport == tap.chat.transport and shown.chat.chat == tap.chat.chat

    async def _want(self, update: Update, tap: TapIn, pending: Pending, purpose: Purpose, about: int) -> str:
        """Ask the person who tapped for words."""
        services = self._services
        if services.transports[tap.chat.transport].shows_all:
            return _TYPE_IT
        now = services.clock.now()
        wanted = Awaited(0, pending.key, tap.chat, tap.sender.id, purpose, about, "", None)

        def job(conn: sqlite3.Connection) -> None:
            requests.want(conn, services, pending, wanted, tap.message_id, now)
            updates.done(conn, update.id)

        await services.db.write(job)
        services.outbox.kick()
        if purpose == "answer":
            return "Reply to the question with your answer"
        return "Send the new text as your next message" if purpose == "edit" else "Send it as your next message"

    async def _confirmed(self, update: Update, tap: TapIn, pending: Pending, press: Press, toast: Toast) -> str:
        """`Run this` or `Back` under what asked for words."""
        services = self._services
        row = services.db.read(lambda conn: awaited.get(conn, press.numbers[0]))
        if row is None or row.interaction != pending.key:
            return "This text was changed or given up meanwhile"
        if press.letter == asked_cards.RUN_THIS:
            if row.purpose != "confirm":
                return _UNKNOWN
            decision = Allow(updated_input={pending.interaction.editable: row.text})
            return await self._desk.decide(pending.key, decision, tap.sender, toast, update)

        def job(conn: sqlite3.Connection) -> None:
            requests.stop_waiting_for(conn, row, services.clock.now())
            updates.done(conn, update.id)

        await services.db.write(job)
        services.outbox.kick()
        return "Nothing was decided"

    # -------------------------------------------------------------------------------------------------- questions

    async def _question_pressed(self, update: Update, tap: TapIn, pending: Pending, press: Press, toast: Toast) -> str:
        interaction = pending.interaction
        at = asked_cards.step(interaction, pending.answers)
        assert at is not None
        if press.letter == asked_cards.SEND:
            if at < len(interaction.questions):
                return "There is a question left"
            decision = asked_cards.all_answers(interaction, pending.answers)
            return await self._desk.decide(pending.key, decision, tap.sender, toast, update)
        if not press.numbers or press.letter not in _QUESTION_LETTERS:
            return _UNKNOWN
        if press.numbers[0] != at:
            return _moved(pending, press.numbers[0])
        given = asked_cards.given_at(pending.answers, at)
        match press.letter:
            case asked_cards.BACK if at > 0:
                return await self._back(update, pending, at)
            case asked_cards.OTHER if press.text:
                return await self._give(update, tap, pending, at, _with_words(pending, at, press.text), toast)
            case asked_cards.OTHER:
                return await self._want(update, tap, pending, "answer", at)
            case asked_cards.DONE:
                if not given.options and not given.text:
                    return "Tick at least one, or use Other…"
                return await self._give(update, tap, pending, at, given, toast)
            case asked_cards.OPTION if press.numbers[1] < len(interaction.questions[at].options):
                if interaction.questions[at].multiple:
                    return await self._tick(update, pending, at, press.numbers[1])
                return await self._give(update, tap, pending, at, Given((press.numbers[1],)), toast)
            case _:
                return _UNKNOWN

    async def _give(
        self, update: Update, by: TapIn | MessageIn, pending: Pending, at: int, given: Given, toast: Toast
    ) -> str:
        """Take the answer to a question: a single one is sent at once, else the next one is asked."""
        interaction = pending.interaction
        if len(interaction.questions) == 1:
            decision = asked_cards.all_answers(interaction, (given,))
            return await self._desk.decide(pending.key, decision, by.sender, toast, update)
        services = self._services

        def give(conn: sqlite3.Connection, now: float, it: Pending) -> None:
            for row in awaited.of_interaction(conn, it.key):
                requests.stop_waiting_for(conn, row, now)
            requests.give(conn, services, it, at, given, now)

        if failed := await self._moved_on(update, pending, at, give):
            return failed
        said = asked_cards.answer_text(interaction.questions[at], given)
        await toast(said)
        return said

    async def _back(self, update: Update, pending: Pending, at: int) -> str:
        def back(conn: sqlite3.Connection, now: float, it: Pending) -> None:
            requests.back(conn, self._services, it, at, now)

        return await self._moved_on(update, pending, at, back)

    async def _tick(self, update: Update, pending: Pending, at: int, number: int) -> str:
        def tick(conn: sqlite3.Connection, now: float, it: Pending) -> None:
            given = asked_cards.given_at(it.answers, at)
            ticked = sorted({*given.options} ^ {number})
            answers = (*it.answers[:at], msgspec.structs.replace(given, options=tuple(ticked)))
            interactions.set_answers(conn, it.key, answers)
            requests.repaint(conn, self._services, msgspec.structs.replace(it, answers=answers), now)

        return await self._moved_on(update, pending, at, tick)

    async def _moved_on(
        self,
        update: Update,
        pending: Pending,
        at: int,
        change: Callable[[sqlite3.Connection, float, Pending], None],
    ) -> str:
        """Change an open request whose questions are still at the step `at`. Returns "", else why nothing was done."""
        services = self._services
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> None:
            again = interactions.get(conn, pending.key) or pending
            if again.state != "open":
                raise Moved(asked_cards.late(again, services.options.zone))
            if asked_cards.step(again.interaction, again.answers) != at:
                raise Moved(_moved(again, at))
            change(conn, now, again)
            updates.done(conn, update.id)

        try:
            await services.db.write(job)
        except Moved as moved:
            return str(moved)
        services.outbox.kick()
        services.hub.changed()
        return ""

    # ------------------------------------------------------------------------------------------------ typed words

    def typed(self, message: MessageIn) -> Typed | None:
        """What the words of a message are for: a request that they reply to, or one that asked their sender for them.

        None for everything else, which stays a message.
        """
        if not message.text.strip():
            return None
        db = self._services.db
        if (reply := message.reply_to) is not None:
            shown = db.read(lambda conn: deliveries.of_message(conn, message.chat, reply.message_id))
            pending = self._desk.of_message(shown)
            if shown is None or pending is None or pending.state != "open":
                return None
            row = db.read(lambda conn: awaited.of_delivery(conn, shown.id))
            return Typed(pending, row.purpose, row.about, row) if row is not None else _plain_reply(pending, shown.id)
        row = db.read(lambda conn: awaited.of_sender(conn, message.chat, message.sender.id))
        if row is None or row.purpose not in ("reason", "choice", "edit"):
            return None  # an answer needs a reply, and what waits for `Run this` needs a tap
        pending = self._desk.pending(row.interaction)
        return Typed(pending, row.purpose, row.about, row) if pending is not None and pending.state == "open" else None

    async def take(self, update: Update, message: MessageIn, typed: Typed) -> str:
        """Take words for what they are. Returns what went wrong, "" when nothing did."""
        pending, text = typed.pending, message.text.strip()
        done = False

        async def told(verdict: str) -> None:
            nonlocal done
            done = True

        match typed.purpose:
            case "edit" | "confirm":
                await self._show_back(update, message, typed)
                return ""
            case "answer":
                at = asked_cards.step(pending.interaction, pending.answers)
                if at != typed.about or at >= len(pending.interaction.questions):
                    return _moved(pending, typed.about)
                said = await self._give(update, message, pending, at, _with_words(pending, at, text), told)
                return "" if done else said
            case "choice":
                choice = asked_cards.choice_at(pending.interaction, typed.about)
                decision: Decision = _chosen(choice, text) if choice is not None else Deny(text)
            case _:
                decision = Deny(text)
        said = await self._desk.decide(pending.key, decision, message.sender, told, update)
        return "" if done else said

    async def _show_back(self, update: Update, message: MessageIn, typed: Typed) -> None:
        """Show a changed text whole. Only a tap on `Run this` sends it."""
        services, pending = self._services, typed.pending
        wanted = Awaited(0, pending.key, message.chat, message.sender.id, "confirm", 0, message.text.rstrip("\n"), None)
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> None:
            if typed.row is not None:
                requests.stop_waiting_for(conn, typed.row, now)
            requests.want(conn, services, pending, wanted, message.message_id, now)
            updates.done(conn, update.id)

        await services.db.write(job)
        services.outbox.kick()


_QUESTION_LETTERS = (asked_cards.OPTION, asked_cards.DONE, asked_cards.OTHER, asked_cards.BACK)


def _meaning(pending: Pending, press: Press) -> Decision | tuple[Purpose, int] | str:
    """What a button of a permission or plan means: a decision, words to ask for, or why it means nothing."""
    interaction, text = pending.interaction, press.text
    allows = "allow" in interaction.offers and interaction.kind != "question"
    match press.letter:
        case asked_cards.APPROVE if allows:
            return Allow()
        case asked_cards.DENY:
            return Deny(reason=text)
        case asked_cards.STOP:
            return Deny(reason=text, interrupt=True)
        case asked_cards.WHY:
            return Deny(reason=text) if text else ("reason", 0)
        case asked_cards.EDIT if interaction.editable:
            return Allow(updated_input={interaction.editable: text}) if text else ("edit", 0)
        case asked_cards.CHOICE:
            choice = asked_cards.choice_at(interaction, press.numbers[0])
            if choice is None:
                return _UNKNOWN
            return ("choice", press.numbers[0]) if choice.wants_text and not text else _chosen(choice, text)
        case _:
            return _UNKNOWN


def _chosen(choice: Choice, text: str) -> Decision:
    return Allow(scope=choice.id) if choice.decides == "allow" else Deny(reason=text, choice=choice.id)


def _plain_reply(pending: Pending, delivery_id: int) -> Typed:
    """What a reply to a request itself is: an answer to its question, else the reason of a denial. Never a command."""
    interaction = pending.interaction
    at = asked_cards.step(interaction, pending.answers)
    if at is not None:
        asked = (number for number, given in enumerate(pending.answers) if given.delivery_id == delivery_id)
        return Typed(pending, "answer", next(asked, at), None)
    for number, choice in enumerate(interaction.choices):
        if choice.wants_text and choice.decides == "deny":
            return Typed(pending, "choice", number, None)
    return Typed(pending, "reason", 0, None)


def _with_words(pending: Pending, at: int, text: str) -> Given:
    """Words as the answer to a question; beside what is ticked already when several are possible."""
    if pending.interaction.questions[at].multiple:
        return Given(asked_cards.given_at(pending.answers, at).options, text)
    return Given(text=text)


def _moved(pending: Pending, at: int) -> str:
    """Why a question that is not the one to be answered now takes no answer."""
    questions = pending.interaction.questions
    if asked_cards.step(pending.interaction, pending.answers) == len(questions):
        return "Tap Send, or Back to change an answer"
    given = asked_cards.given_at(pending.answers, at)
    if at < len(questions) and given.done:
        return f"Already answered: {asked_cards.answer_text(questions[at], given)}. Back changes it"
    return "Another question is to be answered first"
