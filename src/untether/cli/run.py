"""`untether`: the bridge in the foreground. The composition root: everything is made here and wired together."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import click
import structlog

from ..clock import Clock
from ..conversation.commands import COMMANDS
from ..conversation.context import Project
from ..conversation.engines import Engines
from ..conversation.hub import Hub
from ..conversation.office import Office
from ..conversation.outbox import Outbox
from ..conversation.plugin_commands import PluginCommands
from ..conversation.preamble import preamble_of
from ..conversation.services import Options, Services, WatchLimits
from ..conversation.spending import BudgetLimits
from ..conversation.times import ReminderTimes
from ..faults import Steering, point
from ..plugins import LoadError
from ..process.environment import agent_environment
from ..process.guard import RoomLimits
from ..process.host import Host
from ..process.hosts import Children, Keepers
from ..process.kept import KeeperLimits
from ..process.scope import keeper_prefix
from ..runner import Runner
from ..sd_notify import Notifier
from ..settings import ConfigError, Settings, load
from ..settings.model import MIB, CostBudget, Reminders, Telegram, quiet_hours
from ..store import kv, moves
from ..store.database import Database, StoreError
from ..store.lock import AlreadyRunning, StateLock
from ..store.migrate import load_migrations
from ..store.retention import DAY_S, Policy, Retention
from ..transport import ChatRef, Transport
from ..transports import TransportContext
from ..transports.telegram.transport import TelegramTransport
from ..transports.web.screens import Choices
from ..transports.web.transport import WebTransport
from . import engines as engine_list
from . import logs, plugged
from .errors import told
from .oneoff import run_unattended
from .screen import first_screen

log = structlog.get_logger(__name__)

_FLUSH_S = 5.0


@click.command()
@click.option("--debug", is_flag=True, help="Log more.")
@click.option("--unattended", is_flag=True, help="Run PROMPT without a chat: what would need a person is denied.")
@click.option("--engine", "engine_id", help="With --unattended: the engine that answers.")
@click.argument("prompt", required=False)
def run(debug: bool = False, unattended: bool = False, engine_id: str | None = None, prompt: str | None = None) -> None:
    """Start the bridge in the foreground. Ctrl-C or SIGTERM stops it; what runs goes on, and is taken up again.

    With --unattended, run one PROMPT in this folder instead, and print the answer.
    """
    if unattended != (prompt is not None) or (engine_id is not None and not unattended):
        raise click.UsageError("A prompt is run with: untether run --unattended [--engine NAME] 'PROMPT'")
    environment = dict(os.environ)
    notifier = Notifier.from_environment(os.environ)  # first of all: what is started from here on has none of it
    with told(ConfigError, code=2):
        settings = load()
        level = logging.DEBUG if debug else logging.WARNING if unattended else logging.INFO
        logs.set_up(settings.secrets, level=level)
        engines, errors = engine_list.build(settings, os.environ)
    if prompt is not None:
        engine = engines.get(engine_id or engines.default)
        if engine is None:
            raise click.UsageError(f"There is no engine {engine_id!r}. Known: {', '.join(engines.ids())}.")
        raise SystemExit(run_unattended(settings, engine, prompt))
    for problem in settings.unread_tables(engines.ids(), plugged.transport_ids(settings)):
        click.echo(f"· {problem}", err=True)
    commands, wrong_commands = plugged.commands(settings)
    errors += wrong_commands
    lock = _locked(settings.state_dir)
    bot = _locked_bot(settings)
    try:
        with told(StoreError):
            db = Database(settings.state_dir / "untether.db", migrations=load_migrations())
        again = anyio.run(Bridge(settings, engines, db, lock, notifier, commands, errors).run)
    finally:
        lock.release()
        if bot is not None:
            bot.release()
    if again:
        # The same process with new code: whoever started it, a service manager too, sees it go on.
        safe = ["-P"] if sys.flags.safe_path else []
        os.execve(sys.executable, [sys.executable, *safe, "-m", "untether", *sys.argv[1:]], environment)


def _locked(folder: Path) -> StateLock:
    """The lock on the state folder, held; says who holds it else, and exits."""
    lock = StateLock(folder)
    try:
        with told(StoreError):
            lock.acquire()
    except AlreadyRunning as running:
        click.echo(f"Untether is running already with this state folder ({folder}).", err=True)
        if running.note and running.note.console_url:
            click.echo(f"  console    {running.note.console_url}", err=True)
            click.echo(
                f"  To pair another browser: kill -USR1 {running.note.pid} prints a new link in its log.", err=True
            )
        raise SystemExit(3) from running
    return lock


def _locked_bot(settings: Settings) -> StateLock | None:
    """The lock on the bot, held: two programs that poll one bot take each other's messages."""
    if settings.telegram is None:
        return None
    digest = hashlib.sha256(settings.telegram.bot_token.get_secret_value().encode()).hexdigest()[:16]
    lock = StateLock(Path.home() / ".local/state/untether/bots" / digest)
    try:
        lock.acquire()
    except AlreadyRunning as running:
        process = f" (process {running.note.pid})" if running.note else ""
        click.echo(f"Another Untether on this machine uses this bot{process}: stop it, or use another bot.", err=True)
        raise SystemExit(3) from running
    except StoreError as error:
        log.warning("bot.not_locked", error=str(error))  # Telegram itself tells a second one, later
        return None
    return lock


@dataclass
class Bridge:
    """The running program."""

    settings: Settings
    engines: Engines
    db: Database
    lock: StateLock
    notifier: Notifier
    commands: PluginCommands
    errors: list[LoadError]
    """What is wrong with plugins."""

    async def run(self) -> bool:
        """Serve until a signal; then stop receiving, let what is ready leave, and end. True: it is to start again."""
        again = False
        steering, hub = Steering(), Hub()
        clock = steering.clock
        telegram, console = self._telegram(clock), self._console(clock)
        transports: dict[str, Transport] = {made.name: made for made in (telegram, console) if made is not None}
        plugged_in, wrong = plugged.build_transports(self.settings, partial(self._context, clock))
        transports |= plugged_in
        services = self._services(clock, hub, transports, await self._host(clock))
        office = Office(services, self.commands)
        if console is not None:
            self._bind(console, office, hub)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(steering.run)
                tasks.start_soon(office.run)
                tasks.start_soon(
                    first_screen,
                    self.settings,
                    self.engines,
                    console.pairing_link() if console is not None else None,
                    telegram.api if telegram is not None else None,
                    [*self.errors, *wrong],
                )
                receiving = anyio.CancelScope()
                tasks.start_soon(_receive, transports, office, receiving, frozenset(plugged_in))
                tasks.start_soon(self._retention(clock).run)
                tasks.start_soon(self._tell_manager, clock, office, telegram)
                async for number in _signals():
                    if number == signal.SIGUSR1 and console is not None:
                        console.new_code()
                        click.echo(f"  console    {console.pairing_link()}")
                        continue
                    if receiving.cancel_called:
                        break  # asked twice: now
                    again = number == signal.SIGUSR2
                    log.info("bridge.stopping", signal=signal.Signals(number).name, again=again)
                    if not again:  # else a service manager would wait for the end of this process
                        self.notifier.stopping()
                    point("bridge.stopping")
                    receiving.cancel()
                    tasks.start_soon(_finish, services.outbox, tasks.cancel_scope)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                if telegram is not None:
                    await telegram.close()
                await self.db.close()
        log.info("bridge.stopped")
        return again

    async def _tell_manager(self, clock: Clock, office: Office, telegram: TelegramTransport | None) -> None:
        """Tell the service manager that all is up, and from then on that it is still."""
        await office.started.wait()
        if telegram is not None:
            await telegram.under_way()

        def status() -> str:
            return (telegram.health() if telegram is not None else "") or "Serving"

        self.notifier.ready(status())
        await self.notifier.keep_alive(clock, status)

    # ------------------------------------------------------------------------------------------------- wiring

    def _context(self, clock: Clock, id: str) -> TransportContext:
        """What a transport of a package is made with."""
        return TransportContext(self.settings.transport(id), clock, self.settings.zone, _Facts(self.db, f"plugin:{id}"))

    def _telegram(self, clock: Clock) -> TelegramTransport | None:
        settings = self.settings
        if settings.telegram is None:
            return None
        return TelegramTransport(
            settings.telegram,
            clock=clock,
            zone=settings.zone,
            project_chats=[table.chat_id for table in settings.projects.values() if table.chat_id is not None],
            commands=[*((name, entry.what) for name, entry in COMMANDS.items()), *self.commands.menu()],
            group_chat_rps=settings.progress.group_chat_rps,
            facts=_Facts(self.db, "telegram"),
            moved=self.db.read(lambda conn: moves.all_of(conn, "telegram")),
        )

    def _console(self, clock: Clock) -> WebTransport | None:
        web, zone = self.settings.web, self.settings.zone
        return WebTransport(web, clock=clock, zone=zone, store=_Facts(self.db, "console")) if web.enabled else None

    def _services(self, clock: Clock, hub: Hub, transports: Mapping[str, Transport], host: Host) -> Services:
        projects = self.settings.projects
        return Services(
            db=self.db,
            clock=clock,
            options=self._options(),
            projects={
                alias: Project(alias, str(table.path), table.worktrees_dir, table.worktree_base, table.default_engine)
                for alias, table in projects.items()
            },
            transports=transports,
            engines=self.engines,
            outbox=self._outbox(clock, hub, transports),
            hub=hub,
            host=host,
            environment=self._environment(),
            project_chats={
                ChatRef("telegram", str(table.chat_id)): alias
                for alias, table in projects.items()
                if table.chat_id is not None
            },
            restart=partial(os.kill, os.getpid(), signal.SIGUSR2),
        )

    async def _host(self, clock: Clock) -> Host:
        """Where agents run: behind keepers, of which each start takes control with an epoch of its own."""
        folder, limit = self.settings.state_dir / "processes", self.settings.watchdog.max_line_bytes
        if not hasattr(socket, "AF_UNIX"):
            return Children(folder, clock=clock, line_limit=limit)
        epoch = await self.db.write(lambda conn: kv.count(conn, "epoch"))
        prefix = partial(keeper_prefix, os.environ)
        await anyio.to_thread.run_sync(prefix, "")  # the probe, which a spawn is not to wait for
        watchdog = self.settings.watchdog
        limits = KeeperLimits(
            cap=watchdog.process_output_max_bytes,
            floor=watchdog.disk_min_free_bytes,
            orphan=float(watchdog.orphan_max_s),
        )
        return Keepers(folder, epoch=epoch, line_limit=limit, limits=limits, prefix=prefix)

    def _outbox(self, clock: Clock, hub: Hub, transports: Mapping[str, Transport]) -> Outbox:
        settings = self.settings
        dated_after_s = settings.telegram.dated_after_s if settings.telegram else 3600.0
        files = settings.state_dir / "outbox"
        return Outbox(self.db, transports, clock, hub, dated_after_s=dated_after_s, files=files, random=random.random)

    def _options(self) -> Options:
        settings = self.settings
        telegram = settings.telegram
        stateless = telegram is not None and telegram.session_mode == "stateless"
        return Options(
            state_dir=str(settings.state_dir),
            home=str(_home(settings)),
            default_project=settings.default_project,
            stateless=frozenset({"telegram"}) if stateless else frozenset(),
            show_resume_line=telegram.show_resume_line if telegram else True,
            max_actions=settings.progress.max_actions,
            verbose=settings.progress.verbosity == "verbose",
            min_render_interval=settings.progress.min_render_interval,
            heartbeat_interval=settings.progress.heartbeat_interval,
            idle_close_s=settings.watchdog.post_result_limbo_grace,
            preamble=preamble_of(settings.preamble),
            own_schedule=settings.loop.own_schedule,
            background_hold_s=settings.watchdog.post_result_bg_max_hold,
            rearm_plan_mode=settings.watchdog.rearm_plan_mode,
            join_s=telegram.forward_coalesce_s if telegram else 1.0,
            max_line_bytes=settings.watchdog.max_line_bytes,
            watch=WatchLimits(
                silence=settings.watchdog.pre_result_silence_timeout,
                run=settings.watchdog.live_session_max_s,
                stuck=settings.watchdog.liveness_timeout,
            ),
            room=RoomLimits(
                warn=settings.watchdog.prespawn_ram_warn_mb,
                block=settings.watchdog.prespawn_ram_block_mb,
                reserve=settings.watchdog.prespawn_ram_per_run_reserve_mb,
                most=settings.watchdog.max_concurrent_engine_runs,
            ),
            zone=settings.zone,
            reminders=_reminder_times(settings.reminders),
            busy=settings.chat.busy,
            budget=_budget(settings.cost_budget),
            auto_continue=settings.chat.auto_continue,
            owner=_owner(telegram),
            max_file_bytes=settings.chat.max_file_mb * MIB,
        )

    def _retention(self, clock: Clock) -> Retention:
        kept = self.settings.retention
        policy = Policy(
            journals=kept.journal_days * DAY_S,
            journal_bytes=kept.journal_max_bytes,
            messages=kept.message_days * DAY_S,
            runs=kept.run_days * DAY_S,
        )
        return Retention(self.db, self.settings.state_dir / "processes", policy, clock)

    def _environment(self) -> Callable[[Runner, str], dict[str, str]]:
        security = self.settings.security

        def environment(runner: Runner, process_id: str) -> dict[str, str]:
            return agent_environment(
                os.environ,
                engine_names=runner.env_names,
                process_id=process_id,
                extra_allow=security.env_extra_allow,
                extra_prefix_allow=security.env_extra_prefix_allow,
                secrets=self.settings.secrets,
            )

        return environment

    def _bind(self, console: WebTransport, office: Office, hub: Hub) -> None:
        settings = self.settings
        choices = Choices(
            tuple(self.engines.ids()), self.engines.default, tuple(settings.projects), settings.default_project or ""
        )
        console.attach(office.views, hub, choices)
        wanted = settings.web.port
        address = console.bind()
        if wanted and not address.endswith(f":{wanted}"):
            click.echo(f"Port {wanted} is taken; the console is on the next free one.", err=True)
        self.lock.note(console_url=settings.web.public_url or address)


def _reminder_times(table: Reminders) -> ReminderTimes:
    quiet = quiet_hours(table.quiet_hours) if table.quiet_hours is not None else None
    return ReminderTimes(table.first_after if table.enabled else 0.0, table.every, quiet)


def _budget(table: CostBudget) -> BudgetLimits:
    enabled = table.enabled is not False
    return BudgetLimits(
        per_run=(table.max_cost_per_run or None) if enabled else None,
        per_day=(table.max_cost_per_day or None) if enabled else None,
        warn_at=table.warn_at_pct / 100,
        stops=table.auto_cancel,
        outlier=table.warn_run_above_usd if table.notify_run_outlier else 0.0,
    )


def _owner(telegram: Telegram | None) -> ChatRef | None:
    """The private chat of the first user who is named, else the chat that is set when that is a private one."""
    if telegram is None:
        return None
    named = telegram.allowed_user_ids[0] if telegram.allowed_user_ids else telegram.chat_id
    return ChatRef("telegram", str(named)) if named > 0 else None


def _home(settings: Settings) -> Path:
    """Where agents work without a project: the folder that Untether was started in, when that is one of a person's.

    Not the root of the machine, as under a service manager, and not Untether's own source, as under `make run`.
    """
    here = Path.cwd()
    if here != Path("/") and not here.joinpath("src", "untether", "cli", "run.py").exists():
        return here
    workspace = settings.state_dir / "workspace"
    workspace.mkdir(mode=0o700, exist_ok=True)
    return workspace


class _Facts:
    """What a transport keeps over a restart, such as the paired browsers of the console."""

    def __init__(self, db: Database, owner: str) -> None:
        self._db = db
        self._owner = owner

    def get(self, key: str) -> str | None:
        return self._db.read(lambda conn: kv.get(conn, f"{self._owner}:{key}"))

    async def put(self, key: str, value: str) -> None:
        def job(conn: sqlite3.Connection) -> None:
            kv.put(conn, f"{self._owner}:{key}", value)

        await self._db.write(job)


async def _receive(
    transports: Mapping[str, Transport], office: Office, scope: anyio.CancelScope, foreign: frozenset[str]
) -> None:
    """`foreign` are the transports of packages."""
    with scope:
        async with anyio.create_task_group() as tasks:
            for name, transport in transports.items():
                run = partial(plugged.contained, transport) if name in foreign else transport.run
                tasks.start_soon(run, office.inbox)


async def _finish(outbox: Outbox, scope: anyio.CancelScope) -> None:
    await outbox.flush(_FLUSH_S)
    scope.cancel()


async def _signals() -> AsyncIterator[int]:
    wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    with anyio.open_signal_receiver(*wanted) as received:
        async for number in received:
            yield number
