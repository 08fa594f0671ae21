"""The event factory: how an engine makes its events, in the shapes of `untether.model`.

One factory serves one run. It fills in the engine, remembers the session that was announced last (the default for the
completed event), numbers the warnings, and copies every `detail`, so that an event does not change after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .model import (
    Action,
    ActionEvent,
    ActionKind,
    CompletedEvent,
    EngineId,
    Interaction,
    InteractionEvent,
    Phase,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    Usage,
)

Detail = Mapping[str, Any]


class EventFactory:
    """Makes the events of one run of one engine."""

    def __init__(self, engine: str) -> None:
        self.engine = EngineId(engine)
        self._resume: ResumeToken | None = None
        self._warnings = 0

    @property
    def resume(self) -> ResumeToken | None:
        """The session that was announced last, None before the first."""
        return self._resume

    # ------------------------------------------------------------------------------------------------ session

    def started(self, token: ResumeToken, title: str | None = None, meta: Detail | None = None) -> StartedEvent:
        """The session is known; with `meta` later on: a supplement to the first.

        :raises ValueError: when the token belongs to another engine
        """
        self._remember(token)
        return StartedEvent(self.engine, token, title or "", None if meta is None else dict(meta))

    def session_changed(self, token: ResumeToken, reason: str = "") -> SessionChangedEvent:
        """The engine said that its conversation goes on as `token`.

        :raises ValueError: when the token belongs to another engine
        """
        self._remember(token)
        return SessionChangedEvent(self.engine, token, reason)

    def _remember(self, token: ResumeToken) -> None:
        if token.engine != self.engine:
            raise ValueError(f"a session of {token.engine!r} cannot be announced by {self.engine!r}")
        self._resume = token

    # ------------------------------------------------------------------------------------------------ actions

    def action(
        self,
        phase: Phase,
        action_id: str,
        kind: ActionKind,
        title: str,
        detail: Detail | None = None,
        ok: bool | None = None,
        message: str | None = None,
        parent: str = "",
    ) -> ActionEvent:
        """A step in any phase; `parent` is the id of the sub-agent action that it belongs to."""
        action = Action(action_id, kind, title, dict(detail or {}))
        return ActionEvent(self.engine, action, phase, ok, message or "", parent)

    def action_started(
        self, action_id: str, kind: ActionKind, title: str, detail: Detail | None = None, *, parent: str = ""
    ) -> ActionEvent:
        return self.action("started", action_id, kind, title, detail, parent=parent)

    def action_updated(
        self,
        action_id: str,
        kind: ActionKind,
        title: str,
        detail: Detail | None = None,
        *,
        message: str | None = None,
        parent: str = "",
    ) -> ActionEvent:
        return self.action("updated", action_id, kind, title, detail, message=message, parent=parent)

    def action_completed(
        self,
        action_id: str,
        kind: ActionKind,
        title: str,
        detail: Detail | None = None,
        ok: bool = True,
        message: str | None = None,
        *,
        parent: str = "",
    ) -> ActionEvent:
        return self.action("completed", action_id, kind, title, detail, ok, message, parent)

    def warning(self, title: str, detail: Detail | None = None, *, action_id: str | None = None) -> ActionEvent:
        """Something that went wrong and does not end the run. Numbered unless it has an id (to be replaced later)."""
        if action_id is None:
            self._warnings += 1
            action_id = f"{self.engine}.warning.{self._warnings}"
        return self.action("completed", action_id, "warning", title, detail, ok=False, message=title)

    # ------------------------------------------------------------------------------- interactions and prompts

    def interaction_opened(self, interaction: Interaction) -> InteractionEvent:
        return InteractionEvent(self.engine, interaction, "opened")

    def interaction_closed(
        self, interaction: Interaction, phase: Literal["resolved", "withdrawn"], reason: str = ""
    ) -> InteractionEvent:
        return InteractionEvent(self.engine, interaction, phase, reason)

    def prompt(self, prompt_id: str, state: Literal["taken", "handed_back"]) -> PromptEvent:
        return PromptEvent(self.engine, prompt_id, state)

    # -------------------------------------------------------------------------------------------------- turns

    def turn_started(self, prompts: tuple[str, ...] = (), reason: str = "", detail: Detail | None = None) -> TurnEvent:
        return TurnEvent(self.engine, "started", prompts=prompts, reason=reason, detail=dict(detail or {}))

    def turn_completed(
        self,
        ok: bool,
        answer: str = "",
        error: str | None = None,
        usage: Usage | None = None,
        *,
        outcome: Literal["", "stopped", "ended_early"] = "",
        raw_error: str = "",
        advice: str = "",
        prompts: tuple[str, ...] = (),
        detail: Detail | None = None,
    ) -> TurnEvent:
        return TurnEvent(
            self.engine,
            "completed",
            ok=ok,
            answer=answer,
            error=error,
            usage=usage,
            outcome=outcome,
            raw_error=raw_error,
            advice=advice,
            prompts=prompts,
            detail=dict(detail or {}),
        )

    # -------------------------------------------------------------------------------------------------- the end

    def completed(
        self,
        ok: bool,
        answer: str = "",
        resume: ResumeToken | None = None,
        error: str | None = None,
        usage: Detail | Usage | None = None,
        *,
        outcome: Literal["", "stopped", "ended_early", "blocked"] = "",
        raw_error: str = "",
        advice: str = "",
        prompts: tuple[str, ...] = (),
    ) -> CompletedEvent:
        """The end of the run; `resume` defaults to the session that was announced last."""
        return CompletedEvent(
            self.engine,
            ok,
            answer,
            resume or self._resume,
            error,
            dict(usage) if isinstance(usage, Mapping) else usage,
            outcome,
            raw_error,
            advice,
            prompts,
        )

    def completed_ok(
        self,
        answer: str,
        resume: ResumeToken | None = None,
        usage: Detail | Usage | None = None,
        *,
        prompts: tuple[str, ...] = (),
    ) -> CompletedEvent:
        return self.completed(True, answer, resume, None, usage, prompts=prompts)

    def completed_error(
        self,
        error: str,
        resume: ResumeToken | None = None,
        answer: str = "",
        usage: Detail | Usage | None = None,
        *,
        outcome: Literal["", "stopped", "ended_early", "blocked"] = "",
        raw_error: str = "",
        advice: str = "",
        prompts: tuple[str, ...] = (),
    ) -> CompletedEvent:
        """The run failed; `error` is one sentence for a person, `raw_error` what the engine said."""
        return self.completed(
            False,
            answer,
            resume,
            error,
            usage,
            outcome=outcome,
            raw_error=raw_error,
            advice=advice,
            prompts=prompts,
        )
