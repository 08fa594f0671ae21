"""Which session this is: its id, which may change under way, and the facts about it."""

from __future__ import annotations

from typing import Any

from ...model import EngineId, ResumeToken, SessionChangedEvent, StartedEvent
from ...session import StartFacts
from .output import Output

_TOLD_ANEW = frozenset({"model", "permission_mode"})


class Foreign(Exception):
    """The CLI went on with another session than the one it was asked to continue."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected session {expected}, got {found}")


class Identity:
    """The session of one process."""

    def __init__(self, output: Output, name: str) -> None:
        self._output = output
        self._name = name
        self._start: StartFacts | None = None
        self._facts: dict[str, Any] = {}
        self._told = False
        self.token: ResumeToken | None = None
        self.resets = False  # the conversation is about to go on under another id

    def begin(self, start: StartFacts) -> None:
        self._start = start

    @property
    def expected(self) -> ResumeToken | None:
        """The session that was asked for."""
        return self._start.resume if self._start is not None else None

    def found(self, session_id: str, *, cleared: bool) -> bool:
        """The CLI names its session; True when it is another one than before. `cleared`: a message asked for that.

        Within a process the CLI has the word: it changes the id for `/clear`, and may for commands not known here.
        At the start only a fork may. Raises Foreign.
        """
        token = ResumeToken(self._engine, session_id)
        if not session_id or token == self.token:
            return False
        known, self.token = self.token, token
        if known is not None:
            reason = "clear" if cleared or self.resets else ""
            self.resets = False
            self._output.events.append(SessionChangedEvent(self._engine, token, reason))
            return True
        if self.expected is not None and self.expected != token and not self._forks():
            self.token = self.expected
            raise Foreign(self.expected.value, session_id)
        return False

    def assume(self, session_id: str) -> None:
        """An answer came before the session was named: it is the one that was asked for, else the answer's own."""
        self.token = self.expected or (ResumeToken(self._engine, session_id) if session_id else None)
        self.know()

    def know(self, **facts: Any) -> bool:
        """Facts for `StartedEvent.meta`: told once in full, and again when one that people look at has changed.

        True when the session is announced now.
        """
        facts = {name: value for name, value in facts.items() if value}
        changed = {name for name, value in facts.items() if self._facts.get(name) != value}
        self._facts |= facts
        if self.token is None or (self._told and not changed & _TOLD_ANEW):
            return False
        title = str(self._facts.get("model") or self._name)
        self._output.events.append(StartedEvent(self._engine, self.token, title, dict(self._facts)))
        announced, self._told = not self._told, True
        if announced and self.expected is not None and self.expected != self.token:
            self._output.events.append(SessionChangedEvent(self._engine, self.token, "fork"))
        return announced

    @property
    def told(self) -> bool:
        """True when the session was announced."""
        return self._told

    @property
    def _engine(self) -> EngineId:
        return self._output.engine

    def _forks(self) -> bool:
        settings = self._start.settings if self._start is not None else {}
        arguments = settings.get("extra_args")
        asked = isinstance(arguments, list | tuple) and "--fork-session" in arguments
        return asked or bool(settings.get("fork"))
