"""Commands and buttons: what a `/word` or a tap does that is not a message for an agent."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial

from ..model import Record
from ..store import deliveries, interactions, kv, runs, threads, updates
from ..store.updates import Update
from ..text import words
from ..text.blocks import Line
from ..transport import Button, Card, ChatRef, MessageIn, Priority, TapIn
from . import cards, context, logged_out, money_cards, planned, queue, repeat, twins
from .asking import Asking
from .budget import Budget
from .continue_at import ContinueAt
from .desk import Desk
from .directives import command, one_off
from .granted import Granted
from .login import Login
from .modes import Modes
from .plugin_commands import PluginCommands
from .scheduler import Scheduler
from .services import Services
from .takeover import RESTARTED
from .while_busy import Toast, WhileBusy

_SHOWN_QUEUED = 5  # messages of one thread in /status


class Help(Record, frozen=True):
    form: str
    what: str
    example: str


# The commands that exist, in the order in which the menu shows them.
COMMANDS: dict[str, Help] = {
    "status": Help("/status", "what waits for you, what runs, what is queued", "/status"),
    "cancel": Help("/cancel", "stop the run of this chat and withdraw what is queued", "/cancel"),
    "new": Help("/new", "the next message starts a new session", "/new"),
    "ctx": Help(
        "/ctx [set PROJECT [@branch] | clear]", "show or bind the project of this chat", "/ctx set shop @fix-cart"
    ),
    "restart": Help("/restart", "start Untether again; what runs goes on", "/restart"),
    "planmode": Help(
        "/planmode [on | plan-auto | auto | off | show | clear | MODE]",
        "what agents may do here without asking",
        "/planmode on",
    ),
    "ask": Help("/ask [on | off | clear]", "whether agents may ask you questions here", "/ask off"),
    "grants": Help("/grants", "what is allowed for good, and how to revoke it", "/grants"),
    "queue": Help("/queue [MESSAGE]", "messages wait while the agent works here; with one: only it", "/queue"),
    "steer": Help(
        "/steer [MESSAGE]", "messages go into the running turn; with one: only it", "/steer look at the tests first"
    ),
    "usage": Help("/usage", "what was spent today and this week, and on what", "/usage"),
    "autocontinue": Help(
        "/autocontinue [on | off | clear]",
        "whether runs go on by themselves when a spent quota is renewed",
        "/autocontinue on",
    ),
    "auth": Help("/auth [ENGINE]", "log an agent in again; for the owner", "/auth claude"),
    "help": Help("/help [all | COMMAND]", "this list", "/help ctx"),
}

# Words of later versions: known, and said to be missing rather than sent to an agent.
UNAVAILABLE = frozenset(
    (
        "agent",
        "at",
        "browse",
        "config",
        "continue",
        "export",
        "file",
        "health",
        "listen",
        "loop",
        "model",
        "ping",
        "reasoning",
        "schedule",
        "sessions",
        "stats",
        "stop",
        "topic",
        "trigger",
        "verbose",
    )
)


class Commands:
    URGENT = frozenset((*COMMANDS, "start")) - {
        "ctx",
        "planmode",
        "ask",
        "queue",
        "steer",
        "autocontinue",
    }  # not behind messages

    def __init__(
        self, services: Services, scheduler: Scheduler, desk: Desk, plugins: PluginCommands | None = None
    ) -> None:
        self._services = services
        self._plugins = plugins or PluginCommands()
        self._scheduler = scheduler
        self.asking = Asking(services, desk)
        self._granted = Granted(services, scheduler)
        self._modes = Modes(services, scheduler)
        self.while_busy = WhileBusy(services, scheduler)
        self.continue_at = ContinueAt(services, scheduler)
        self.login = Login(services, scheduler)
        self._budget = Budget(services)
        # How a tap on an example becomes a message; the router sets it, which routes all messages.
        self.send_prompt: Callable[[Update, MessageIn], Awaitable[None]]

    async def tell(self, chat: ChatRef, card: Card, *handled: Update) -> None:
        """Store a notice, and with it that updates are dealt with."""
        services = self._services
        now = services.clock.now()
        parts = services.parts(chat, card)

        def job(conn: sqlite3.Connection) -> None:
            deliveries.add_send(conn, chat, parts, "notice", now)
            for update in handled:
                updates.done(conn, update.id)

        await services.db.write(job)
        services.outbox.kick()

    async def run(self, update: Update, message: MessageIn, word: str, rest: str) -> bool:
        """Run a command. False when the word is none of ours: then it is for the agent."""
        match word:
            case "start":
                card = self._welcome(message.chat)
            case "help":
                card = self._help(rest)
            case "status":
                card = self._status()
            case "new":
                await self._new(update, message.chat)
                return True
            case "cancel":
                await self._cancel(update, message)
                return True
            case "queue" | "steer":
                card = await self.while_busy.choose(message.chat, word)
            case "restart":
                await self._restart(update, message.chat)
                return True
            case "ctx":
                card = await self._ctx(message.chat, rest)
            case "planmode":
                card = await self._modes.planmode(message.chat, rest)
            case "ask":
                card = await self._modes.ask(message.chat, rest)
            case "usage":
                card = self._budget.usage()
            case "autocontinue":
                card = await self.continue_at.choose(message.chat, rest)
            case "auth":
                card = await self.login.begin(message.chat, message.sender, rest)
            case "grants":
                card = self._granted.card()
            case _ if word in self._services.projects or word in self._services.engines.ids():
                return False
            case _ if word in self._plugins:
                card = await self._plugins.run(self._services, message, word, rest)
            case _ if word in UNAVAILABLE:
                card = cards.notice(f"/{word} is not available in this version.", "/help lists what is.")
            case _:
                return False
        await self.tell(message.chat, card, update)
        return True

    # ------------------------------------------------------------------------------------------------- commands

    def _welcome(self, chat: ChatRef) -> Card:
        services = self._services
        project = services.project_of(chat, services.db.read(lambda conn: threads.chat(conn, chat)).project)
        place = f"project {project}" if project else f"the folder {services.options.home}"
        example = "Explain what this project does"
        return Card(
            (
                Line("Untether: your coding agents, from this chat. Send a task in plain words.", "bold"),
                Line(f"{services.engines.default} answers here, in {place}."),
                Line("For example:", "quiet"),
            ),
            buttons=((Button(example, f"{cards.EXAMPLE}:{example}"[:64]),),),
        )

    def _help(self, rest: str) -> Card:
        word = rest.strip().lstrip("/").lower()
        if word in COMMANDS:
            entry = COMMANDS[word]
            return Card(
                (
                    Line(entry.form, "bold"),
                    Line(f"{entry.what[0].upper()}{entry.what[1:]}."),
                    Line(f"Example: {entry.example}"),
                )
            )
        if word in self._plugins:
            return self._plugins.help(word)
        lines = [Line(f"/{name}  {entry.what}") for name, entry in COMMANDS.items()] + self._plugins.lines()
        if word and word != "all":
            lines.insert(0, Line(f"There is no command /{words.one_line(word, 40)}. There are:"))
        if word == "all":
            engines = ", ".join(f"/{engine}" for engine in self._services.engines.ids())
            projects = ", ".join(f"/{project}" for project in self._services.projects) or "none yet (untether init)"
            lines += [
                Line("At the start of a message:", "bold"),
                Line(f"engine: {engines}"),
                Line(f"project: {projects}"),
                Line("branch: @name works in a worktree of that branch"),
                Line(
                    "Reply to an answer to continue its session. Reply to a request to deny it with a reason.", "quiet"
                ),
            ]
        return Card(tuple(lines))

    def _status(self) -> Card:
        """Waiting for you first, then running, then queued, over all chats; then the machine and today's cost."""
        services = self._services
        now = services.clock.now()
        lines: list[Line] = []

        def since(then: float) -> str:
            return words.duration(now - then)

        for pending in services.db.read(interactions.all_open):
            lines.append(Line(f"⏸ {pending.interaction.act} · {self._title(pending.run_id)} · {since(pending.opened)}"))
        for run in services.db.read(runs.running):
            lines.append(Line(f"▸ {self._title(run.id)} · {words.duration(now - run.started)}"))
        for thread_id in services.db.read(threads.threads_with_queued):
            for message in services.db.read(partial(threads.queued, thread_id=thread_id, limit=_SHOWN_QUEUED)):
                lines.append(Line(f"⏳ queued: {words.one_line(message.text, 60)}"))
            more = services.db.read(partial(threads.count_queued, thread_id=thread_id)) - _SHOWN_QUEUED
            if more > 0:
                lines.append(Line(f"⏳ and {more} more behind them"))
        if not lines:
            lines.append(Line("Nothing runs and nothing waits."))
        for engine_id in services.engines.ids():
            if services.db.read(partial(logged_out.is_lost, engine=engine_id)):
                lines.append(Line(f"✗ {engine_id} is not logged in: its messages wait"))
        for transport in services.transports.values():
            if trouble := transport.health():
                lines.append(Line(f"✗ {transport.name}: {trouble}"))
        lines.append(Line(services.machine_line(), "quiet"))
        lines.append(Line(self._budget.today_line(now), "quiet"))
        return Card(tuple(lines))

    def _title(self, run_id: int) -> str:
        found = self._services.db.read(lambda conn: runs.run(conn, run_id))
        if found is None:
            return "a run"
        thread = self._services.db.read(lambda conn: threads.thread(conn, found.thread_id))
        place = f"{thread.where}: " if thread else ""
        return f"{place}{words.one_line(found.title, 60)}"

    async def _new(self, update: Update, chat: ChatRef) -> None:
        def said(withdrawn: int) -> Card:
            tail = f" {_messages(withdrawn)} withdrawn." if withdrawn else ""
            return cards.notice(f"✓ The next message starts a new session.{tail}")

        await self._stop_all(update, chat, said, forget=True)

    async def _cancel(self, update: Update, message: MessageIn) -> None:
        """A run that was stopped tells so itself."""
        if self.login.cancel(message.chat):
            await self.tell(message.chat, cards.notice("■ The login is given up.", silent=True), update)
            return
        thread_ids = None
        if message.reply_to is not None:
            reply = message.reply_to
            found = self._services.thread_of(message.chat, reply.message_id)
            thread_ids = [found.id] if found is not None else None
        ids = self._threads(message.chat) if thread_ids is None else thread_ids
        turns, background = await self._scheduler.going_on(ids)

        def said(withdrawn: int) -> Card | None:
            if withdrawn:
                return cards.notice(f"■ {_messages(withdrawn)} withdrawn.", silent=True)
            if background and not turns:
                return cards.notice("■ Stopped what went on in the background.", silent=True)
            return None if turns else cards.notice("Nothing runs in this chat.", silent=True)

        await self._stop_all(update, message.chat, said, thread_ids=thread_ids)

    def _threads(self, chat: ChatRef) -> list[int]:
        return self._services.db.read(lambda conn: threads.threads_of_chat(conn, chat))

    async def _stop_all(
        self,
        update: Update,
        chat: ChatRef,
        said: Callable[[int], Card | None],
        *,
        thread_ids: list[int] | None = None,
        forget: bool = False,
    ) -> None:
        """Withdraw what came before this command and is not taken, then stop what runs; see `Scheduler.stop`.

        What is withdrawn, what is to be stopped, what is `said` of it and that the command is dealt with are one
        commit: it acts once, however often it comes, and a stop that a crash cuts short is done by the next start.
        """
        services = self._services
        ids = self._threads(chat) if thread_ids is None else thread_ids
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> bool:
            if not updates.done(conn, update.id):
                return False
            withdrawn = threads.withdraw_queued(conn, ids, update.id)
            for message in withdrawn:
                queue.withdrawn(conn, message, now)
            given_up = planned.drop(conn, ids, now)
            # Messages of this chat that are stored but not routed yet are withdrawn too: they came before.
            unrouted = 0
            if thread_ids is None:
                unrouted = updates.withdraw_before(conn, chat.transport, update.id, self._is_message_of(chat))
            if forget:
                threads.set_chat(conn, chat, current=None)
            runs.ask_stop(conn, ids)
            if (card := said(len(withdrawn) + unrouted + given_up)) is not None:
                deliveries.add_send(conn, chat, services.parts(chat, card), "notice", now)
            return True

        if await services.db.write(job):
            services.outbox.kick()
            await self._scheduler.stop(ids, withdraw=True)

    async def _restart(self, update: Update, chat: ChatRef) -> None:
        """The command is dealt with before it acts: a copy of it that comes again does not restart twice."""
        services = self._services
        if services.restart is None:
            await self.tell(chat, cards.notice("This Untether cannot restart itself."), update)
            return
        now = services.clock.now()

        def job(conn: sqlite3.Connection) -> None:
            (told,) = deliveries.add_send(conn, chat, [cards.notice("↻ Restarting…", silent=True)], "notice", now)
            kv.put(conn, RESTARTED, str(told))
            updates.done(conn, update.id)

        await services.db.write(job)
        services.outbox.kick()
        services.restart()

    def _is_message_of(self, chat: ChatRef) -> Callable[[bytes], bool]:
        transport = self._services.transports[chat.transport]

        def check(raw: bytes) -> bool:
            try:
                inbound = transport.decode(raw)
                ours = inbound is not None and transport.may_act(inbound)
            except Exception:  # the inbox logs it and sets it aside
                return False
            if not ours or not isinstance(inbound, MessageIn) or inbound.edited or inbound.chat != chat:
                return False
            word = command(inbound.text)
            return word is None or word[0] not in COMMANDS or one_off(inbound.text) is not None

        return check

    async def _ctx(self, chat: ChatRef, rest: str) -> Card:
        services = self._services
        verb, _, argument = rest.strip().partition(" ")
        if verb == "clear":
            await services.db.write(lambda conn: threads.set_chat(conn, chat, project=None, branch=None, current=None))
            return cards.notice("✓ This chat is no longer bound to a project.")
        if verb == "set":
            return await self._bind(chat, argument.split())
        if verb:
            return cards.notice("Form: /ctx [set PROJECT [@branch] | clear]")
        bound = services.db.read(lambda conn: threads.chat(conn, chat))
        project = services.project_of(chat, bound.project)
        if project is None:
            return cards.notice(
                f"No project is bound: agents work in {services.options.home}.", "/ctx set PROJECT binds one."
            )
        branch = f" @{bound.branch}" if bound.branch else ""
        how = "bound to this chat" if bound.project else "by default"
        return cards.notice(f"{project}{branch}, {how}.")

    async def _bind(self, chat: ChatRef, arguments: list[str]) -> Card:
        services = self._services
        name = arguments[0].lstrip("/") if arguments else ""
        branch = arguments[1].removeprefix("@") if len(arguments) > 1 else None
        project = next((p for alias, p in services.projects.items() if alias.lower() == name.lower()), None)
        if project is None:
            known = ", ".join(services.projects) or "none yet: run untether init in a project's folder"
            return cards.notice(f"✗ There is no project {name or '(no name given)'}. Known: {known}.")
        try:
            where = await context.resolve(project, branch, services.options.home)
        except context.ContextError as error:
            return cards.notice(f"✗ {error}")
        await services.db.write(
            lambda conn: threads.set_chat(conn, chat, project=project.alias, branch=branch, current=None)
        )
        return cards.notice(f"✓ This chat works in {where.title}. The next message starts a new session there.")

    # ------------------------------------------------------------------------------------------------------ taps

    async def tap(self, update: Update, tap: TapIn, toast: Toast) -> None:
        what, _, about = tap.data.partition(":")
        if what == cards.INTERACTION:
            await self.asking.tap(update, tap, about, toast)
        elif what == cards.GRANT and about.isdigit():
            await self._tap_grant(update, tap, int(about), toast)
        elif what == cards.MODE:
            card = await self._modes.planmode(tap.chat, about)
            await toast("Done")
            await self.tell(tap.chat, card, update)
        elif what == cards.EXAMPLE:
            await toast("Sent")
            await self.send_prompt(update, MessageIn(tap.chat, tap.sender, "", about))
        elif what == cards.BUSY:
            card = await self.while_busy.choose(tap.chat, about)
            await toast("Done")
            await self._change(update, tap, card)
        elif what in (money_cards.LOGIN, money_cards.TRY_NOW):
            if (told := await self.login.tap(tap, what, about, toast)) is not None:
                await self.tell(tap.chat, told, update)
        elif what in ContinueAt.BUTTONS and about.isdigit():
            await self.continue_at.tap(update, tap, what, int(about), toast)
        elif what in WhileBusy.BUTTONS and about.isdigit():
            await self.while_busy.tap(update, tap, what, int(about), toast)
        elif about.isdigit():
            await self._tap_run(update, tap, what, int(about), toast)
        else:
            await toast("This button is not known any more")

    async def _change(self, update: Update, tap: TapIn, card: Card) -> None:
        """Let the message that was tapped show something else."""
        services = self._services

        def job(conn: sqlite3.Connection) -> None:
            if (shown := deliveries.of_message(conn, tap.chat, tap.message_id)) is not None:
                deliveries.show(conn, shown.id, card, services.clock.now())
            updates.done(conn, update.id)

        await services.db.write(job)
        services.outbox.kick()

    async def _tap_grant(self, update: Update, tap: TapIn, grant_id: int, toast: Toast) -> None:
        said, card = await self._granted.revoke(grant_id)
        await toast(said)
        services = self._services
        left = self._granted.card()

        def job(conn: sqlite3.Connection) -> None:
            if (shown := deliveries.of_message(conn, tap.chat, tap.message_id)) is not None:
                deliveries.add_edit(conn, shown.id, left, services.clock.now(), priority=Priority.NOTICE)

        await services.db.write(job)
        services.outbox.kick()
        if card is not None:
            await self.tell(tap.chat, card, update)

    async def _tap_run(self, update: Update, tap: TapIn, what: str, run_id: int, toast: Toast) -> None:
        services = self._services
        if not services.transports[tap.chat.transport].shows_all:
            now = services.clock.now()
            await services.db.write(lambda conn: twins.tapped(conn, tap, now))
            services.outbox.kick()
        run = services.db.read(lambda conn: runs.run(conn, run_id))
        found = self._scheduler.view(run_id)
        if run is None:
            await toast("This run is not known any more")
        elif what in (cards.STOP, cards.VERBOSE) and found is None:
            await toast("It has ended already")
        elif what == cards.STOP and found is not None:
            live, _ = found
            await toast("Stopping…")
            await live.stop()
        elif what == cards.VERBOSE and found is not None:
            live, view = found
            view.verbose = not view.verbose
            live.show()
            await toast("")
        elif what == cards.DETAILS:
            await toast("")
            await self.tell(tap.chat, cards.details(run.raw_error or run.error or "Nothing more is known."), update)
        elif what in (cards.AGAIN, cards.RESUME, money_cards.ANYWAY):
            if await repeat.tapped(services, update, tap, run, what, toast):
                self._scheduler.wake(run.thread_id)
        else:
            await toast("This button is not known any more")


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
