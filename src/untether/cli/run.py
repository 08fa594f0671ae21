"""`untether`: the bridge in the foreground. The composition root: everything is made here and wired together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio
import click
import structlog

from ..clock import SystemClock
from ..conversation.context import Project
from ..conversation.engines import Engines
from ..conversation.hub import Hub
from ..conversation.office import Office
from ..conversation.outbox import Outbox
from ..conversation.services import Options, Services
from ..process.environment import agent_environment
from ..runner import Runner
from ..settings import ConfigError, Settings, load
from ..store.database import Database, StoreError
from ..store.lock import AlreadyRunning, StateLock
from ..store.migrate import load_migrations
from ..transport import ChatRef, Transport
from . import engines as engine_list
from . import logs

log = structlog.get_logger(__name__)

_FLUSH_S = 5.0


@click.command()
@click.option("--debug", is_flag=True, help="Log more.")
def run(debug: bool = False) -> None:
    """Start the bridge in the foreground. Ctrl-C or SIGTERM stops it."""
    try:
        settings = load()
        logs.set_up(settings.secrets, debug=debug)
        engines, errors = engine_list.build(settings, os.environ)
    except ConfigError as error:
        click.echo(str(error), err=True)
        raise SystemExit(2) from error
    for load_error in errors:
        click.echo(f"✗ engine {load_error.id}: {load_error.message}", err=True)
    lock = StateLock(settings.state_dir)
    try:
        lock.acquire()
    except AlreadyRunning as running:
        where = f" Its console: {running.note.console_url}" if running.note and running.note.console_url else ""
        click.echo(f"Untether is running already with this state folder ({settings.state_dir}).{where}", err=True)
        raise SystemExit(3) from running
    except OSError as error:
        click.echo(
            f"The state folder {settings.state_dir} cannot be used: {error.strerror}. Make it writable.", err=True
        )
        raise SystemExit(1) from error
    try:
        db = Database(settings.state_dir / "untether.db", migrations=load_migrations())
    except StoreError as error:
        lock.release()
        click.echo(str(error), err=True)
        raise SystemExit(1) from error
    try:
        anyio.run(Bridge(settings, engines, db, lock).run)
    finally:
        lock.release()


@dataclass
class Bridge:
    """The running program."""

    settings: Settings
    engines: Engines
    db: Database
    lock: StateLock

    async def run(self) -> None:
        settings, clock, hub = self.settings, SystemClock(), Hub()
        transports = self._transports(clock)
        outbox = Outbox(self.db, transports, clock, hub)
        services = Services(
            db=self.db,
            clock=clock,
            options=self._options(),
            projects={
                alias: Project(alias, str(table.path), table.worktrees_dir, table.worktree_base, table.default_engine)
                for alias, table in settings.projects.items()
            },
            transports=transports,
            engines=self.engines,
            outbox=outbox,
            hub=hub,
            environment=self._environment(),
            project_chats={
                ChatRef("telegram", str(table.chat_id)): alias
                for alias, table in settings.projects.items()
                if table.chat_id is not None
            },
        )
        office = Office(services)
        link = self._attach_console(transports, office)
        self.lock.note(console_url=link)
        for line in self._first_screen(link):
            click.echo(line)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._serve, office, transports)
                await _stop_signal()
                log.info("bridge.stopping")
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.db.close()
        log.info("bridge.stopped")

    async def _serve(self, office: Office, transports: Mapping[str, Transport]) -> None:
        """Serve until cancelled; then give answers that are ready a moment to leave."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(office.run)
            for transport in transports.values():
                tasks.start_soon(transport.run, office.inbox)

    def _options(self) -> Options:
        settings = self.settings
        telegram = settings.telegram
        stateless = telegram is not None and telegram.session_mode == "stateless"
        return Options(
            state_dir=str(settings.state_dir),
            home=os.getcwd(),
            default_project=settings.default_project,
            stateless=frozenset({"telegram"}) if stateless else frozenset(),
            show_resume_line=telegram.show_resume_line if telegram else True,
            max_actions=settings.progress.max_actions,
            verbose=settings.progress.verbosity == "verbose",
            min_render_interval=settings.progress.min_render_interval,
            heartbeat_interval=settings.progress.heartbeat_interval,
            idle_close_s=settings.watchdog.post_result_limbo_grace,
            join_s=telegram.forward_coalesce_s if telegram else 1.0,
            max_line_bytes=settings.watchdog.max_line_bytes,
        )

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
