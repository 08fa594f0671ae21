"""`/auth`: an engine's own login, run here for its owner, who gets the link and sends back the code.

The program runs in pipes, as a child of the bridge; one at a time. Its link goes to the owner's private chat only.
The code is a reply to it, or the next message there that is a single word; it goes to the program, is written to no
log, and is wiped from what is stored of the message. A login that a restart cuts is told, and has to be begun anew.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from subprocess import PIPE, STDOUT

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import structlog

from ..backends import Login as Recipe
from ..model import Record
from ..process.host import Launch
from ..redact import MASK, redact
from ..runner import RunOptions
from ..session import Prompt, StartFacts
from ..store import deliveries, kv, updates
from ..store.updates import Update
from ..text import words
from ..text.clean import clean_text
from ..transport import Card, ChatRef, MessageIn, Priority, Sender, TapIn
from . import cards, logged_out, money_cards
from .engines import Engine
from .scheduler import Scheduler
from .services import Services

log = structlog.get_logger(__name__)

_PATIENCE_S = 960.0  # codes of a device are good for a quarter of an hour
_FOR_A_LINK_S = 60.0
_QUIET_S = 1.0  # after a link: a code may be printed below it
_LONGEST_OUTPUT = 64_000
_SHOWN = 300  # characters of what a program said last

_ASKED = "login_asked"  # in `kv`: the link that was sent last
_LINK = re.compile(r"https?://[^\s\x1b\"'<>]+(?=\s)")
_CODE = re.compile(r"\S{6,2000}")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class _Asked(Record, frozen=True):
    engine: str
    delivery: int
    ended: bool = False


class _Attempt:
    """One login that goes on."""

    def __init__(self, engine: Engine, recipe: Recipe, asked_in: ChatRef, private: ChatRef) -> None:
        self.engine = engine
        self.recipe = recipe
        self.asked_in = asked_in
        self.private = private
        self.delivery: int | None = None  # of the link, once there is one
        self.stdin: anyio.abc.ByteSendStream | None = None
        self.codes: list[str] = []
        self.said = ""  # all that the program printed
        self.linked = anyio.Event()
        self.why = ""  # it was ended before its end
        self.scope = anyio.CancelScope()

    def end(self, why: str) -> None:
        self.why = self.why or why
        self.scope.cancel()


class Login:
    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler
        self._attempt: _Attempt | None = None
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until cancelled. What the last stop cut is told."""
        await self._tell_cut()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await anyio.sleep_forever()

    async def _tell_cut(self) -> None:
        services = self._services
        asked = services.db.read(_asked)
        if asked is None or asked.ended:
            return
        now = services.clock.now()
        card = cards.notice(
            f"■ The login of {asked.engine} was cut by a restart.", f"/auth {asked.engine} begins anew."
        )

        def job(conn: sqlite3.Connection) -> None:
            deliveries.show(conn, asked.delivery, card, now)
            _note_ended(conn)

        await services.persist(job)
        services.outbox.kick()

    # ------------------------------------------------------------------------------------------------------- asked

    async def begin(self, chat: ChatRef, sender: Sender, rest: str) -> Card:
        """`/auth ENGINE`: begin a login, and what to say about that where it was asked for."""
        services = self._services
        if not services.is_owner(chat, sender):
            return cards.notice("✗ Only the owner of this Untether may log in.")
        known = [engine.id for engine in services.engines if engine.backend.login is not None]
        name = rest.strip().lstrip("/").lower()
        engine = services.engines.get(name)
        if engine is None or engine.backend.login is None:
            which = ", ".join(f"/auth {one}" for one in known) or "none: log in on the machine"
            said = f"{words.one_line(name, 40)} has no login that can be done from here. " if name else ""
            return cards.notice(f"{said}Logins that can be done from here: {which}")
        if self._attempt is not None:
            return cards.notice(f"✗ The login of {self._attempt.engine.id} is under way. /cancel gives it up.")
        if self._tasks is None:
            return cards.notice("✗ Untether is just starting. Try again in a moment.")
        private = services.options.owner or chat
        self._attempt = attempt = _Attempt(engine, engine.backend.login, chat, private)
        self._tasks.start_soon(self._log_in, attempt)
        there = "" if private == chat else " Its link comes to your private chat."
        return cards.notice(f"⏳ Beginning the login of {engine.id}…{there}", silent=True)

    async def try_now(self, engine_id: str) -> str:
        """Let one message of an engine go, to see whether its login works again. What to say of it."""
        services = self._services
        if not services.db.read(lambda conn: logged_out.is_lost(conn, engine_id)):
            return "Nothing waits for a login"
        await services.db.write(lambda conn: logged_out.probe(conn, engine_id))
        self._scheduler.logged_in(engine_id)
        return "Trying"

    async def tap(self, tap: TapIn, what: str, engine_id: str, toast: Callable[[str], Awaitable[None]]) -> Card | None:
        """`Log in` or `Try now` under a lost login. What to say in the chat, if anything."""
        if what == money_cards.TRY_NOW:
            await toast(await self.try_now(engine_id))
            return None
        if not self._services.is_owner(tap.chat, tap.sender):
            await toast("Only the owner may log in")
            return None
        await toast("")
        return await self.begin(tap.chat, tap.sender, engine_id)

    def cancel(self, chat: ChatRef) -> bool:
        """Give up the login that goes on, if it was begun in this chat or its link is here."""
        attempt = self._attempt
        if attempt is None or chat not in (attempt.asked_in, attempt.private):
            return False
        attempt.end("cancelled")
        return True

    # ----------------------------------------------------------------------------------------------------- the code

    async def take(self, update: Update, message: MessageIn) -> bool:
        """Take a message as the code of a login. False when it is none: it stays a message."""
        services, attempt = self._services, self._attempt
        text = message.text.strip()
        if text.startswith("/") or not text or not services.is_owner(message.chat, message.sender):
            return False
        asked = services.db.read(_asked)
        replied = asked is not None and self._replies_to(message, asked.delivery)
        waits = attempt is not None and attempt.recipe.takes_code and attempt.delivery is not None
        bare = waits and attempt is not None and message.chat == attempt.private and message.reply_to is None
        if not replied and not (bare and _CODE.fullmatch(text)):
            return False
        said = "Not needed any more: no login is under way."
        if attempt is not None and waits:
            said = "✓ Code taken." if await self._hand_over(attempt, text) else "✗ The login has ended."
        now = services.clock.now()
        card = cards.notice(said, silent=True, reply_to=message.message_id)

        def job(conn: sqlite3.Connection) -> None:
            updates.done(conn, update.id)
            updates.forget(conn, update.id)
            deliveries.add_send(conn, message.chat, [card], "notice", now)

        await services.db.write(job)
        services.outbox.kick()
        return True

    def _replies_to(self, message: MessageIn, delivery_id: int) -> bool:
        reply = message.reply_to
        if reply is None:
            return False
        shown = self._services.db.read(lambda conn: deliveries.of_message(conn, message.chat, reply.message_id))
        return shown is not None and shown.id == delivery_id

    async def _hand_over(self, attempt: _Attempt, code: str) -> bool:
        if attempt.stdin is None:
            return False
        attempt.codes += [code, *code.split("#")]
        try:
            await attempt.stdin.send(code.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return False
        return True

    # -------------------------------------------------------------------------------------------------- the program

    async def _log_in(self, attempt: _Attempt) -> None:
        """One login from beginning to end; however it ends is told."""
        engine_id, status = attempt.engine.id, -1
        log.info("login.begun", engine=engine_id)
        try:
            with attempt.scope:
                status = await self._program(attempt)
        except OSError as error:
            attempt.why = f"its program could not be started: {error.strerror or error}"
        except Exception:  # a defect here must not take the bridge down with it
            log.exception("login.failed", engine=engine_id)
            attempt.why = "something went wrong here; the log has the details"
        finally:
            self._attempt = None
        ok = status == 0 and not attempt.why
        log.info("login.ended", engine=engine_id, ok=ok, why=attempt.why or None)
        await self._tell_end(attempt, ok)

    async def _tell_end(self, attempt: _Attempt, ok: bool) -> None:
        services, engine = self._services, attempt.engine
        now = services.clock.now()
        if ok:
            await services.persist(lambda conn: logged_out.regain(conn, engine.id))
            waiting = self._scheduler.logged_in(engine.id)
            tail = "" if not waiting else f" {waiting} message{'s' if waiting > 1 else ''} that waited go on."
            told = cards.notice(f"✓ {engine.backend.title} is logged in.{tail}")
            left = f"✓ {engine.backend.title} is logged in."
        else:
            left = f"■ The login of {engine.id} was given up."
            if attempt.why != "cancelled":
                left = f"✗ The login of {engine.id} failed."
            said = attempt.why or self._last_words(attempt)
            failed = f"✗ The login of {engine.id} failed" + (f": {said}" if said else ".")
            told = cards.notice(failed, f"/auth {engine.id} begins anew.")

        def job(conn: sqlite3.Connection) -> None:
            if attempt.delivery is not None:
                _note_ended(conn)
                deliveries.show(conn, attempt.delivery, cards.notice(left), now)
            if attempt.why != "cancelled":  # else it was told to whoever cancelled it
                for chat in dict.fromkeys((attempt.private, attempt.asked_in)):
                    deliveries.add_send(conn, chat, [told], "notice", now)

        await services.persist(job)
        services.outbox.kick()

    def _last_words(self, attempt: _Attempt) -> str:
        """The last line that the program printed after its link, without codes."""
        said = attempt.said
        for code in sorted((code for code in attempt.codes if code), key=len, reverse=True):
            said = said.replace(code, MASK)
        said = _LINK.sub("", said)
        lines = [line for line in said.splitlines() if line.strip()]
        # A prompt stands before what is said after the answer to it, on one line: there was no echo.
        return words.one_line(redact(clean_text(lines[-1]).rpartition("> ")[2]), _SHOWN) if lines else ""

    async def _program(self, attempt: _Attempt) -> int:
        """Run the program, send its link, and return its exit status. Raises OSError."""
        launch = self._launch(attempt.engine)
        argv = (launch.argv[0], *attempt.recipe.arguments)
        process = await anyio.open_process(
            argv, stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=launch.cwd, env=launch.env, start_new_session=True
        )
        try:
            attempt.stdin = process.stdin
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._expire, attempt)
                tasks.start_soon(self._send_link, attempt)
                await self._read(attempt, process)
                status = await process.wait()
                attempt.linked.set()
                tasks.cancel_scope.cancel()
            return status
        finally:
            attempt.stdin = None
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)  # and what it may have started, such as a browser's helper
                await process.aclose()

    def _launch(self, engine: Engine) -> Launch:
        """Program, folder and environment as for an agent of this engine, but no browser is opened on the machine."""
        runner, home = engine.runner, self._services.options.home
        process_id = self._services.new_id()
        environ = self._services.environment(runner, process_id)
        start = StartFacts(process_id, engine.id, home, settings=runner.start_settings(RunOptions()))
        launch = runner.launch(start, Prompt(process_id, ""), environ=environ)
        return msgspec.structs.replace(launch, cwd=home, env={**launch.env, "BROWSER": "true"})

    async def _read(self, attempt: _Attempt, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        async for chunk in process.stdout:
            attempt.said = (attempt.said + _ANSI.sub("", chunk.decode(errors="replace")))[-_LONGEST_OUTPUT:]
            if _LINK.search(attempt.said):
                attempt.linked.set()

    async def _expire(self, attempt: _Attempt) -> None:
        clock = self._services.clock
        await clock.sleep(_FOR_A_LINK_S)
        if not attempt.linked.is_set():
            attempt.end("its program gave no link")
        await clock.sleep(_PATIENCE_S - _FOR_A_LINK_S)
        attempt.end("nobody finished it in time")

    async def _send_link(self, attempt: _Attempt) -> None:
        """Send the link to the owner as soon as it is there."""
        await attempt.linked.wait()
        if not attempt.recipe.takes_code:
            await self._services.clock.sleep(_QUIET_S)
        found = _LINK.search(attempt.said)
        if found is None:
            return
        services, now = self._services, self._services.clock.now()
        said = clean_text(attempt.said.strip())
        card = money_cards.login_link(
            attempt.engine.backend.title, found[0], said, takes_code=attempt.recipe.takes_code
        )

        def job(conn: sqlite3.Connection) -> int:
            (delivery,) = deliveries.add_send(
                conn, attempt.private, [card], "notice", now, priority=Priority.INTERACTION
            )
            kv.put(conn, _ASKED, msgspec.json.encode(_Asked(attempt.engine.id, delivery)).decode())
            return delivery

        attempt.delivery = await services.persist(job)
        services.outbox.kick()


def _asked(conn: sqlite3.Connection) -> _Asked | None:
    stored = kv.get(conn, _ASKED)
    return None if stored is None else msgspec.json.decode(stored, type=_Asked)


def _note_ended(conn: sqlite3.Connection) -> None:
    """The link is of no use any more; that it was one is remembered, for late replies to it."""
    if (asked := _asked(conn)) is not None:
        kv.put(conn, _ASKED, msgspec.json.encode(msgspec.structs.replace(asked, ended=True)).decode())
