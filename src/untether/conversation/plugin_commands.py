"""Commands that packages bring: found by their word, run with a limit, and answered with what they return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import structlog

from ..command_backends import CommandBackend, CommandCall
from ..store import threads
from ..text import words
from ..text.blocks import Line, Markdown
from ..transport import Card, MessageIn
from . import cards
from .services import Services

log = structlog.get_logger(__name__)


class PluginCommands:
    """`tables` are the settings of each, by word."""

    def __init__(
        self,
        backends: Mapping[str, CommandBackend] | None = None,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._backends = dict(backends or {})
        self._tables = dict(tables or {})

    def __contains__(self, word: str) -> bool:
        return word in self._backends

    def lines(self) -> list[Line]:
        return [Line(f"/{word}  {backend.what}") for word, backend in self._backends.items()]

    def menu(self) -> list[tuple[str, str]]:
        """Each word, and what it does."""
        return [(word, backend.what) for word, backend in self._backends.items()]

    def help(self, word: str) -> Card:
        backend = self._backends[word]
        lines = [Line(backend.form or f"/{word}", "bold"), Line(f"{backend.what[:1].upper()}{backend.what[1:]}.")]
        if backend.example:
            lines.append(Line(f"Example: {backend.example}"))
        return Card(tuple(lines))

    async def run(self, services: Services, message: MessageIn, word: str, rest: str) -> Card:
        """The reply to a command."""
        backend = self._backends[word]
        chat = message.chat
        project = services.project_of(chat, services.db.read(lambda conn: threads.chat(conn, chat)).project)
        known = services.projects.get(project) if project is not None else None
        call = CommandCall(
            word,
            rest,
            message.sender.name or message.sender.id,
            chat.transport,
            chat.chat,
            project or "",
            str(known.path) if known is not None else services.options.home,
            self._tables.get(word, {}),
        )
        try:
            with anyio.fail_after(backend.timeout_s):
                text = await backend.run(call)
        except ValueError as error:
            return cards.notice(f"✗ {error}")
        except TimeoutError:
            return cards.notice(
                f"✗ /{word} did not finish within {words.duration(backend.timeout_s)}, and was stopped."
            )
        except Exception as error:  # a package's code: whatever it raises, the chat goes on
            log.warning("command.failed", word=word, exc_info=True)
            return cards.notice(f"✗ /{word} failed: {type(error).__name__}.", "The log has the details.")
        return Card((Markdown(str(text)),)) if text else cards.notice(f"✓ /{word} is done.", silent=True)
