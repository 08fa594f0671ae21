"""The router: who sent it, where it belongs, which engine and thread, and whether it is a message or a command."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from ..model import EngineId, ResumeToken
from ..store import deliveries, threads, updates
from ..store.threads import Busy, File, Message, Part, Thread
from ..store.updates import Update
from ..text import words
from ..transport import Card, ChatRef, Inbound, MessageIn, TapIn
from . import cards, context, files, queue, twins
from .asking import Typed
from .commands import Commands
from .directives import Directives, command, one_off, parse
from .files import Refused, Taken
from .gather import PROBABLY_CUT, Gathered, gather, part_of, printable, whole
from .inbox import StoredInbox
from .scheduler import Scheduler
from .services import Services

log = structlog.get_logger(__name__)

MAX_PROMPT = 1_000_000
_LATE_S = 2.0  # messengers date messages in whole seconds


class _Draft(NamedTuple):
    """A message on its way into a queue: its text, what of it came in files, and the job that finds its thread."""

    text: str
    files: Taken
    thread_of: Callable[[sqlite3.Connection], Thread]


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
        if inbound.edited:
            return False  # an edit follows its message
        word = command(inbound.text)
        if word is not None and word[0] in self._commands.URGENT:
            return True
        return len(inbound.text) < PROBABLY_CUT and self._asking.typed(inbound) is not None

    async def route(self, update: Update, inbound: Inbound) -> None:
        if isinstance(inbound, TapIn):
            await self._tap(update, inbound)
        elif inbound.edited:
            await self._edited(update, inbound)
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
        if await self._commands.login.take(update, message):
            return
        typed = self._asking.typed(message)
        if typed is not None:
            await self._typed(update, message, typed)
            return
        busy = None
        if (spoken := one_off(message.text)) is not None:
            busy, text = spoken
            message = msgspec.structs.replace(message, text=text)
        else:
            word = command(message.text)
            if word is not None and not message.forwarded and await self._commands.run(update, message, *word):
                return
        await self._prompt(update, message, busy)

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
        gathered = await self._gather(update, message)
        message, others = gathered.message, gathered.others
        failed = await self._asking.take(update, message, typed)
        if failed:
            await self.tell(message.chat, cards.notice(f"✗ {failed}.", reply_to=message.message_id), update, *others)
        for other in others:
            await self._services.db.write(partial(updates.done, update_id=other.id))

    async def _gather(self, update: Update, message: MessageIn) -> Gathered:
        services, message = self._services, msgspec.structs.replace(message, text=printable(message.text))
        if self.inbox is None:
            return Gathered(message, (part_of(message),))
        return await gather(message, update, self.inbox.following, services.clock, services.options.join_s)

    async def _prompt(self, update: Update, message: MessageIn, busy: Busy | None = None) -> None:
        """Bring a message to its thread. `busy`: what becomes of it when the agent works, if it says so itself."""
        services = self._services
        gathered = await self._gather(update, message)
        message = gathered.message
        try:
            if await self._joins_leader(update, gathered):
                return
            draft = await self._draft(update, message)
        except (Refused, context.ContextError) as refusal:
            card = cards.notice(f"✗ {refusal}", reply_to=message.message_id)
            await self.tell(message.chat, card, update, *gathered.others)
            return
        if busy is None and self._leader(message) is not None:
            busy = "steer"  # it belongs to what the agent is at
        added = await services.db.write(partial(self._add, update=update, gathered=gathered, draft=draft, busy=busy))
        if added is not None:
            queued, then = added
            if then is not None:
                await self._commands.while_busy.act(queued, then)
            services.outbox.kick()
            self._scheduler.wake(queued.thread_id)

    def _add(
        self, conn: sqlite3.Connection, update: Update, gathered: Gathered, draft: _Draft, busy: Busy | None
    ) -> tuple[Message, Busy | None] | None:
        """Store a message in the queue of its thread, and what to do about the run before it, if there is one.

        None when it was withdrawn while it was on its way.
        """
        if not updates.done(conn, update.id):
            return None
        for other in gathered.others:
            updates.done(conn, other.id)
        services, message = self._services, gathered.message
        now = services.clock.now()
        written = min(now, message.date or now)  # it may have waited for us for long
        thread = draft.thread_of(conn)
        waiting = threads.count_queued(conn, thread.id)
        added = threads.add_message(
            conn,
            thread_id=thread.id,
            chat=message.chat,
            update_id=update.id,
            prompt_id=services.new_id(),
            message_id=message.message_id,
            sender=message.sender.name or message.sender.id,
            text=draft.text,
            now=written,
            options={},
            inlined=draft.files.inlined,
            attachments=draft.files.attachments,
            album=message.album,
            parts=gathered.parts if len(gathered.parts) > 1 or message.album else (),
        )
        threads.set_chat(conn, message.chat, current=thread.id)
        live = self._scheduler.live(thread.id)
        if not waiting and (live is None or live.busy is None):
            return added, None
        queue.announce(conn, added, now, steer=self._scheduler.can_steer(thread))
        then = busy or self._commands.while_busy.of_chat(conn, message.chat)
        if then == "interrupt":
            queue.replace(conn, added, now)
        return threads.message(conn, added.id) or added, then

    async def _draft(self, update: Update, message: MessageIn) -> _Draft:
        """Read a message and fetch its files. Raises Refused and ContextError."""
        directives, resume, text = self._read(message, message.text)
        engine_id, thread_of = await self._place(message, directives, resume)
        taken = await self._taken(update, message, engine_id)
        text = composed(text, taken.inlined, taken.attachments)
        if not text:
            raise Refused("There is no text in this message. Say what the agent should do.")
        if len(text) > MAX_PROMPT:
            raise Refused(f"This message is too long ({len(text):,} characters, at most {MAX_PROMPT:,}).")
        return _Draft(text, taken, thread_of)

    async def _taken(self, update: Update, message: MessageIn, engine_id: str) -> Taken:
        engine = self._services.engines.get(engine_id)
        if not message.files or engine is None:
            return Taken()  # without its engine a thread refuses whatever comes
        taken = await files.take(self._services, message.files, message.chat, update.id, engine, MAX_PROMPT)
        return Taken(printable(taken.inlined), taken.attachments)

    def _read(self, message: MessageIn, text: str) -> tuple[Directives, ResumeToken | None, str]:
        """What the text of a message says: its directives, the session to resume, and what is for the agent."""
        services = self._services
        directives = parse(printable(text), services.engines.ids(), services.projects, self._files_of(message))
        resume, said = self._resume_of(message, directives.text)
        return directives, resume, said

    def _leader(self, message: MessageIn) -> Message | None:
        """The message that one belongs to though it comes late: of its album, or the comment that forwards follow."""
        services = self._services
        if message.album:
            return services.db.read(lambda conn: threads.of_album(conn, message.chat, message.album))
        if not message.forwarded:
            return None
        latest = services.db.read(lambda conn: threads.latest(conn, message.chat))
        if latest is None or latest.sender != (message.sender.name or message.sender.id):
            return None
        since = (message.date or services.clock.now()) - latest.created
        return latest if since <= services.options.join_s + _LATE_S else None

    async def _joins_leader(self, update: Update, gathered: Gathered) -> bool:
        """Add what comes late to the message that it belongs to, if that still waits. Raises Refused."""
        services, message = self._services, gathered.message
        leader = self._leader(message)
        thread = None if leader is None else services.db.read(lambda conn: threads.thread(conn, leader.thread_id))
        if leader is None or thread is None or leader.state != "queued":
            return False
        taken = await self._taken(update, message, thread.engine)
        known = services.db.read(lambda conn: threads.parts(conn, leader.id))
        parts = [*(known or [Part(leader.message_id, leader.text, "\n\n")]), *gathered.parts]
        inlined = "\n\n".join(text for text in (leader.inlined, taken.inlined) if text)
        attachments = (*leader.attachments, *taken.attachments)
        text = composed(self._read(message, whole(parts))[2], inlined, attachments)

        def job(conn: sqlite3.Connection) -> bool:
            fresh = threads.message(conn, leader.id)
            if fresh is None or fresh.state != "queued":
                return False
            for one in (update, *gathered.others):
                updates.done(conn, one.id)
            threads.set_content(conn, fresh.id, text=text, inlined=inlined, attachments=attachments)
            threads.set_parts(conn, fresh.id, parts)
            return True

        return await services.db.write(job)

    async def _edited(self, update: Update, message: MessageIn) -> None:
        """The text of a message changes as long as no agent has it; later its sender is told, once."""
        services = self._services
        known = services.db.read(lambda conn: threads.written(conn, message.chat, message.message_id))
        if known is None:
            return
        parts = [
            msgspec.structs.replace(part, text=message.text) if part.message_id == message.message_id else part
            for part in services.db.read(lambda conn: threads.parts(conn, known.id))
        ]
        said = whole(parts) if parts else message.text
        if (spoken := one_off(said)) is not None:
            said = spoken[1]
        text = composed(self._read(message, said)[2], known.inlined, known.attachments)
        if text == known.text or not text or len(text) > MAX_PROMPT:
            return
        late = cards.notice(
            "Already with the agent; send it as a new message.", silent=True, reply_to=message.message_id
        )

        def job(conn: sqlite3.Connection) -> None:
            fresh = threads.message(conn, known.id)
            if not updates.done(conn, update.id) or fresh is None:
                return
            if fresh.state in ("queued", "withdrawn"):
                threads.set_content(conn, known.id, text=text, inlined=known.inlined, attachments=known.attachments)
                threads.set_parts(conn, known.id, parts)
            elif threads.tell_edit(conn, known.id):
                deliveries.add_send(conn, message.chat, [late], "notice", services.clock.now())

        await services.db.write(job)
        services.outbox.kick()
        services.hub.changed()

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
    ) -> tuple[str, Callable[[sqlite3.Connection], Thread]]:
        """Decide on the engine and the thread; the job finds or makes its row. Raises Refused and ContextError."""
        services = self._services
        ref = message.chat
        read = services.db.read
        if resume is not None and (known := read(lambda conn: threads.of_session(conn, resume.engine, resume.value))):
            return known.engine, lambda conn: known
        continued = self._continued(message) if resume is None else None
        named = directives.engine or directives.project or directives.branch
        if continued is not None and not named:
            return continued.engine, lambda conn: continued
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
        return engine_id, lambda conn: threads.add_thread(
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
        if (leader := self._leader(message)) is not None:
            return services.db.read(lambda conn: threads.thread(conn, leader.thread_id))
        if message.chat.transport in services.options.stateless:
            return None
        current = services.db.read(lambda conn: threads.chat(conn, message.chat)).current
        return None if current is None else services.db.read(lambda conn: threads.thread(conn, current))

    # --------------------------------------------------------------------------------------------------- words

    async def tell(self, chat: ChatRef, card: Card, *handled: Update) -> None:
        await self._commands.tell(chat, card, *handled)


def composed(said: str, inlined: str, attachments: Sequence[File]) -> str:
    """The text of a message for an agent: what was written, then what came in text files. "" for nothing at all."""
    text = "\n\n".join(piece for piece in (said.strip(), inlined) if piece.strip())
    if not text and attachments:
        names = ", ".join(file.name for file in attachments)
        return f"Look at the attached file{'s' if len(attachments) > 1 else ''}: {names}"
    return text
