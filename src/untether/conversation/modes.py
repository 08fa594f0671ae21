"""What a chat has chosen for its runs: the permission mode, and whether agents may ask questions.

A topic has its own choice, else that of its chat, else what the settings say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

from ..process.driver import Ended
from ..runner import RunOptions
from ..session import SetPermissionMode
from ..settings.model import PermissionMode
from ..store import threads
from ..text.blocks import Line
from ..transport import Button, Card, ChatRef
from . import cards
from .bridge import LiveProcess
from .engines import Engine
from .scheduler import Scheduler
from .services import Services

MODES: tuple[str, ...] = get_args(PermissionMode)
_SHORT = {"on": "plan", "off": "acceptEdits"}
_BUTTONS = (
    (("Plan first", "on"), ("Plan, approved by itself", "plan-auto")),
    (("Accept edits", "off"), ("Auto", "auto")),
    (("As in the settings", "clear"),),
)


class Modes:
    """The commands `/planmode` and `/ask`."""

    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler

    async def planmode(self, chat: ChatRef, rest: str) -> Card:
        word = rest.strip()
        engine = self._engine(chat)
        if engine is None or not engine.runner.capabilities.plan:
            return self._refused(engine)
        if word in ("", "show"):
            return self._shown(chat, engine)
        mode = None if word == "clear" else _SHORT.get(word, word)
        if mode is not None and mode not in MODES:
            return cards.notice(f"✗ There is no permission mode {word}.", f"There are: {', '.join(MODES)}.")
        await self._services.db.write(partial(threads.set_chat, ref=chat, permission_mode=mode))
        told = await self._tell_open(chat, mode)
        place = "topic" if chat.thread else "chat"
        if mode is None:
            first = f"✓ This {place} has no permission mode of its own any more: {self._mode(chat, engine)} holds."
        else:
            first = f"✓ Permission mode of this {place}: {mode}."
        return cards.notice(first, *(("The agent that is open was told.",) if told else ()))

    async def ask(self, chat: ChatRef, rest: str) -> Card:
        word = rest.strip()
        if word in ("", "show"):
            off = self._services.db.read(lambda conn: threads.chosen(conn, chat, "ask_questions")) is False
            if off:
                return cards.notice("Agents do not ask questions here: they decide and state their assumptions.")
            return cards.notice("Agents may ask questions here. /ask off ends that.")
        if word not in ("on", "off", "clear"):
            return cards.notice("Form: /ask [on | off | clear]")
        value = None if word == "clear" else word == "on"
        await self._services.db.write(partial(threads.set_chat, ref=chat, ask_questions=value))
        renewed = self._scheduler.renew(self._concerns(chat, "ask_questions"))
        first = (
            "✓ Agents decide by themselves here and state their assumptions."
            if value is False
            else "✓ Agents may ask questions here."
        )
        return cards.notice(first, *(("It counts from the next message on.",) if renewed else ()))

    # --------------------------------------------------------------------------------------------------- helpers

    def _engine(self, chat: ChatRef) -> Engine | None:
        """The engine that answers the next message here."""
        services = self._services
        bound = services.db.read(lambda conn: threads.chat(conn, chat))
        current = bound.current
        thread = services.db.read(lambda conn: threads.thread(conn, current)) if current is not None else None
        project = services.projects.get(services.project_of(chat, bound.project) or "")
        default = (project.default_engine if project is not None else None) or services.engines.default
        return services.engines.get(thread.engine if thread is not None else default)

    def _refused(self, engine: Engine | None) -> Card:
        name = engine.id if engine is not None else "The engine of this chat"
        able = [f"/{one.id}" for one in self._services.engines if one.runner.capabilities.plan]
        pointer = f"Engines that have them: {', '.join(able)}." if able else "No engine here has them."
        return cards.notice(
            f"✗ {name} has no permission modes. What it may do is in its table of untether.toml.", pointer
        )

    def _mode(self, chat: ChatRef, engine: Engine) -> str:
        """The mode of the next run here."""
        own = self._services.db.read(lambda conn: threads.chosen(conn, chat, "permission_mode"))
        return str(own or engine.runner.start_settings(RunOptions()).get("permission_mode") or "default")

    def _shown(self, chat: ChatRef, engine: Engine) -> Card:
        read = self._services.db.read
        if read(lambda conn: threads.chat(conn, chat)).permission_mode is not None:
            source = "set for this topic" if chat.thread else "set for this chat"
        elif read(lambda conn: threads.chosen(conn, chat, "permission_mode")) is not None:
            source = "set for the chat of this topic"
        else:
            source = "from the settings"
        lines = (
            Line(f"Permission mode: {self._mode(chat, engine)}, {source}.", "bold"),
            Line(f"/planmode MODE takes any: {', '.join(MODES)}.", "quiet"),
        )
        rows = tuple(tuple(Button(label, f"{cards.MODE}:{word}") for label, word in row) for row in _BUTTONS)
        return Card(lines, buttons=rows)

    def _concerns(self, chat: ChatRef, name: str) -> Callable[[LiveProcess], bool]:
        """Whether a choice of `chat` holds for a process: it works for that chat, or for a topic without its own."""

        def concerns(live: LiveProcess) -> bool:
            other = live.thread.chat
            if other == chat:
                return True
            if chat.thread or (other.transport, other.chat) != (chat.transport, chat.chat):
                return False
            return getattr(self._services.db.read(lambda conn: threads.chat(conn, other)), name) is None

        return concerns

    async def _tell_open(self, chat: ChatRef, mode: str | None) -> int:
        """Change the mode of open processes at once. Returns how many were told."""
        concerns, told = self._concerns(chat, "permission_mode"), 0
        for live in self._scheduler.processes():
            if concerns(live) and live.engine.runner.capabilities.plan:
                try:
                    await live.configure(SetPermissionMode(mode or self._mode(live.thread.chat, live.engine)))
                    told += 1
                except Ended:
                    continue  # the next one starts with it
        return told
