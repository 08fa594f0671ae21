"""The router: who sent it, where it belongs, which engine and thread, and whether it is a message or a command."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from ..model import EngineId, ResumeToken
from ..store import deliveries, threads, updates
from ..store.threads import Thread
from ..store.updates import Update
from ..text import words
from ..transport import Card, ChatRef, Inbound, MessageIn, SendFailed, TapIn
from . import cards, context, twins
from .asking import Typed
from .commands import Commands
from .directives import Directives, command, parse
from .inbox import StoredInbox
from .scheduler import Scheduler
from .services import Services

log = structlog.get_logger(__name__)

MAX_PROMPT = 1_000_000
_PROBABLY_CUT = 4000  # characters; messengers cut what is longer than about that into several messages


class Router:
    def __init__(self, services: Services, scheduler: Scheduler, commands: Commands) -> None:
        self._services = services
        self._scheduler = scheduler
        self._commands = commands
        self._asking = commands.asking
        self.inbox: StoredInbox | None = None  # set by the composition root; only for joining cut texts
        commands.send_prompt = self._prompt

    def is_urgent(self, inbound: Inbound) -> bool:
        """Control commands and answers to open requests do not wait behind other messages."""
        if not isinstance(inbound, MessageIn):
            return True
        word = command(inbound.text)
        if word is not None and word[0] in self._commands.URGENT:
            return True
        return len(inbound.text) < _PROBABLY_CUT and self._asking.typed(inbound) is not None

    async def route(self, update: Update, inbound: Inbound) -> None:
        if isinstance(inbound, TapIn):
            await self._tap(update, inbound)
        elif inbound.edited:
            log.info("router.edit_ignored", chat=inbound.chat.chat)
        else:
            await self._message(update, inbound)

    async def parked(self, update: Update, inbound: Inbound) -> None:
        """This update cut Untether down three times while it was handled."""
        text = words.one_line(inbound.text, 60) if isinstance(inbound, MessageIn) else "a tap"
        await self.tell(
            inbound.chat,
            cards.notice(
                f"✗ A message could not be handled, three times over: {text}",
                "It is set aside. Send it in another form.",
            ),
            update,
        )

    async def failed(self, update: Update, inbound: Inbound) -> None:
        """A defect of ours, or the store refused. The update stays stored."""
        reply_to = inbound.message_id if isinstance(inbound, MessageIn) else ""
        card = cards.notice(
            "✗ Something went wrong here, and your message was not handled. It is kept.",
            "It is tried again when Untether starts next; the log has the details.",
            reply_to=reply_to,
        )
        await self.tell(inbound.chat, card)

    # --------------------------------------------------------------------------------------------------- taps

    async def _tap(self, update: Update, tap: TapIn) -> None:
        transport = self._services.transports[tap.chat.transport]
        answered = False

        async def toast(text: str) -> None:
            nonlocal answered
            if not answered:
                answered = True
                try:
                    in_time = await transport.toast(tap, text)
                except Exception:  # a toast is a courtesy: what was tapped must be done all the same
                    log.exception("router.toast_failed", text=text)
                    return
                if not in_time:
                    log.info("router.toast_too_late", text=text)

        await self._commands.tap(update, tap, toast)
        await toast("")

    # ------------------------------------------------------------------------------------------------ messages

    async def _message(self, update: Update, message: MessageIn) -> None:
        await self._recognise(message)
        typed = self._asking.typed(message)
        if typed is not None:
            await self._typed(update, message, typed)
            return
        word = command(message.text)
        if word is not None and await self._commands.run(update, message, *word):
            return
        message, others = await self._joined(message)
        await self._prompt(update, message, others)

    async def _recognise(self, message: MessageIn) -> None:
        """What is replied to may be a message of ours that we did not know to have arrived."""
        services, reply = self._services, message.reply_to
        if reply is None or not reply.ours or services.transports[message.chat.transport].shows_all:
            return
        if services.db.read(lambda conn: deliveries.of_message(conn, message.chat, reply.message_id)) is None:
            now = services.clock.now()
            await services.db.write(lambda conn: twins.answered(conn, message.chat, reply, now))
            services.outbox.kick()

    async def _typed(self, update: Update, message: MessageIn, typed: Typed) -> None:
        """Words for an open request; a long text that was cut is whole again before it counts."""
        message, others = await self._joined(msgspec.structs.replace(message, text=printable(message.text)))
        failed = await self._asking.take(update, message, typed)
        if failed:
            await self.tell(message.chat, cards.notice(f"✗ {failed}.", reply_to=message.message_id), update, *others)
        for other in others:
            await self._services.db.write(partial(updates.done, update_id=other.id))

    async def _joined(self, message: MessageIn) -> tuple[MessageIn, list[Update]]:
        """Join a text that the messenger cut into several messages: same sender, one after the other at once.

        Returns the whole and the updates of the further parts, which are handled when the whole is.
        """
        last, others = message, list[Update]()
        while self.inbox is not None and len(last.text) >= _PROBABLY_CUT:
            found = self.inbox.following(message, 1 + len(others))
            if found is None:
                await self._services.clock.sleep(self._services.options.join_s)
                found = self.inbox.following(message, 1 + len(others))
            if found is None or found[1].reply_to is not None or command(found[1].text):
                break
            update, last = found
            others.append(update)
            message = msgspec.structs.replace(
                message, text=message.text + last.text, files=(*message.files, *last.files)
            )
        return message, others

    async def _prompt(self, update: Update, message: MessageIn, others: Sequence[Update] = ()) -> None:
        """Bring a message to its thread. `others` are the updates that hold the rest of its text."""
        services = self._services
        engines = services.engines
        message = msgspec.structs.replace(message, text=printable(message.text))
        directives = parse(message.text, engines.ids(), services.projects, self._files_of(message))
        try:
            text = await self._with_files(message, directives.text)
            resume, text = self._resume_of(message, text)
            text = printable(text)
            self._check_text(text)
            thread_of = await self._place(message, directives, resume)
        except (Refused, context.ContextError) as refusal:
            await self.tell(message.chat, cards.notice(f"✗ {refusal}", reply_to=message.message_id), update, *others)
            return
        now = services.clock.now()
        written = min(now, message.date or now)  # it may have waited for us for long

        def job(conn: sqlite3.Connection) -> Thread | None:
            if not updates.done(conn, update.id):
                return None  # withdrawn while it was on its way
            for other in others:
                updates.done(conn, other.id)
            thread = thread_of(conn)
            waiting = threads.count_queued(conn, thread.id)
            added = threads.add_message(
                conn,
                thread_id=thread.id,
                chat=message.chat,
                update_id=update.id,
                prompt_id=services.new_id(),
                message_id=message.message_id,
                sender=message.sender.name or message.sender.id,
                text=text,
                now=written,
                options={},
            )
            threads.set_chat(conn, message.chat, current=thread.id)
            live = self._scheduler.live(thread.id)
            if waiting or (live is not None and live.active is not None):
                card = cards.queued(waiting + 1, message.message_id)
                (notice,) = deliveries.add_send(conn, message.chat, [card], "notice", now)
                threads.set_notice(conn, added.id, notice)
            return thread

        thread = await services.db.write(job)
        if thread is not None:
            services.outbox.kick()
            self._scheduler.wake(thread.id)

    def _files_of(self, message: MessageIn) -> Callable[[str], bool]:
        """Whether a name is that of a file where this message would be worked on."""
        services = self._services
        continued = self._continued(message)
        bound = services.db.read(lambda conn: threads.chat(conn, message.chat)).project
        project = services.projects.get(services.project_of(message.chat, bound) or "")
        folder = (
            continued.cwd if continued is not None else project.path if project is not None else services.options.home
        )
        return lambda name: os.path.exists(os.path.join(folder, name))

    async def _with_files(self, message: MessageIn, text: str) -> str:
        """A text file that comes with a message is part of it; other files are not taken yet, which is said."""
        for file in message.files:
            if not (file.mime.startswith("text/") or file.name.lower().endswith((".txt", ".md"))):
                raise Refused(f"{file.name} was not taken: only text files can be sent so far. Send the text itself.")
            if file.size > MAX_PROMPT:
                raise Refused(f"{file.name} is too long for one prompt ({file.size:,} bytes, at most {MAX_PROMPT:,}).")
            try:
                data = await self._services.transports[message.chat.transport].fetch(file, MAX_PROMPT)
            except SendFailed as failure:
                raise Refused(f"{file.name} could not be fetched: {failure.detail}. Send it again.") from failure
            content = data.decode("utf-8", "replace")
            text = f"{text}\n\n{content}" if text.strip() else content
        return text

    @staticmethod
    def _check_text(text: str) -> None:
        if not text.strip():
            raise Refused("There is no text in this message. Say what the agent should do.")
        if len(text) > MAX_PROMPT:
            raise Refused(f"This message is too long ({len(text):,} characters, at most {MAX_PROMPT:,}).")

    def _resume_of(self, message: MessageIn, text: str) -> tuple[ResumeToken | None, str]:
        """A resume line in the message, else in the message that it answers, and the text without it."""
        for engine in self._services.engines:
            if (token := engine.runner.extract_resume(text)) is not None:
                lines = [line for line in text.splitlines() if not engine.runner.is_resume_line(line)]
                return token, "\n".join(lines).strip()
        if message.reply_to is not None:
            for engine in self._services.engines:
                if (token := engine.runner.extract_resume(message.reply_to.text)) is not None:
                    return token, text
        return None, text

    async def _place(
        self, message: MessageIn, directives: Directives, resume: ResumeToken | None
    ) -> Callable[[sqlite3.Connection], Thread]:
        """Decide on the thread; the returned job finds or makes its row. Raises Refused and ContextError."""
        services = self._services
        ref = message.chat
        read = services.db.read
        if resume is not None and (known := read(lambda conn: threads.of_session(conn, resume.engine, resume.value))):
            return lambda conn: known
        continued = self._continued(message) if resume is None else None
        named = directives.engine or directives.project or directives.branch
        if continued is not None and not named:
            return lambda conn: continued
        chat = read(lambda conn: threads.chat(conn, ref))
        project_name = directives.project or services.project_of(ref, chat.project)
        branch = directives.branch or (chat.branch if directives.project is None else None)
        project = services.projects.get(project_name) if project_name else None
        if project_name and project is None:
            raise Refused(f"There is no project {project_name}. Add it with: untether init {project_name}")
        where = await context.resolve(project, branch, services.options.home)
        engine_id = (
            (resume.engine if resume else None)
            or directives.engine
            or (project.default_engine if project else None)
            or services.engines.default
        )
        if services.engines.get(engine_id) is None:
            raise Refused(f"There is no engine {engine_id} here. Known: {', '.join(services.engines.ids())}.")
        now = services.clock.now()
        return lambda conn: threads.add_thread(
            conn,
            ref,
            engine=EngineId(engine_id),
            cwd=where.cwd,
            project=where.project,
            branch=where.branch,
            session=resume.value if resume else None,
            now=now,
        )

    def _continued(self, message: MessageIn) -> Thread | None:
        """The thread that a message goes on with: that of the message it answers, else the current one of a chat."""
        services = self._services
        reply = message.reply_to
        if reply is not None:
            found = services.thread_of(message.chat, reply.message_id)
            if found is not None:
                return found
        if message.chat.transport in services.options.stateless:
            return None
        current = services.db.read(lambda conn: threads.chat(conn, message.chat)).current
        return None if current is None else services.db.read(lambda conn: threads.thread(conn, current))

    # --------------------------------------------------------------------------------------------------- words

    async def tell(self, chat: ChatRef, card: Card, *handled: Update) -> None:
        await self._commands.tell(chat, card, *handled)


class Refused(Exception):
    """A message that is not taken; the text says why and what to do."""


def printable(text: str) -> str:
    """Text that every agent can take: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
