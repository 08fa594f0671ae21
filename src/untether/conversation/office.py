"""The conversation put together: inbox, router, scheduler, desk and outbox, started and stopped as one."""

from __future__ import annotations

import anyio

from .commands import Commands
from .desk import Desk
from .inbox import StoredInbox
from .plugin_commands import PluginCommands
from .reminders import Reminders
from .router import Router
from .scheduler import Scheduler
from .services import Services
from .views import Views


class Office:
    def __init__(self, services: Services, plugins: PluginCommands | None = None) -> None:
        self.services = services
        self.started = anyio.Event()
        self.scheduler = Scheduler(services)
        self.desk = Desk(services, self.scheduler)
        commands = self._commands = Commands(services, self.scheduler, self.desk, plugins)
        self.router = Router(services, self.scheduler, commands)
        self.inbox = StoredInbox(
            services.db,
            services.transports,
            services.clock,
            route=self.router.route,
            parked=self.router.parked,
            failed=self.router.failed,
            is_urgent=self.router.is_urgent,
            kick=services.outbox.kick,
            on_caught_up=self.scheduler.may_begin.set,
        )
        self.router.inbox = self.inbox
        self.views = Views(services, self.scheduler)
        self.reminders = Reminders(services)

    async def run(self) -> None:
        """Serve until cancelled. What the last stop left is taken up first."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.services.outbox.run)
            await tasks.start(self.scheduler.run)
            tasks.start_soon(self.inbox.run)
            tasks.start_soon(self.reminders.run)
            tasks.start_soon(self._commands.continue_at.run)
            tasks.start_soon(self._commands.login.run)
            self.started.set()
