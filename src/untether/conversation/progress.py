"""Progress: the fold of a run's events into what its status message shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Literal, TypeAlias

import msgspec

from ..model import (
    Action,
    ActionEvent,
    CompletedEvent,
    InteractionEvent,
    Record,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
    Usage,
    Wait,
    WaitKind,
)
from ..text import words

HIDDEN_KINDS = frozenset({"turn", "telemetry"})
SHOWS_TIME_S = 10.0  # a step that runs longer shows for how long
_REMARKS = frozenset({"note", "warning"})  # they are shown and are no steps of the work


class Step(msgspec.Struct, gc=False):
    """One action as shown. Times are epoch seconds."""

    action: Action
    started: float
    ended: float | None = None
    ok: bool | None = None
    message: str = ""
    parent: str = ""


PulseState: TypeAlias = Literal["quiet", "stuck", "gone"]


class Pulse(Record, frozen=True):
    """What is known of an agent that has been silent for a while: at work, perhaps stuck, or ended.

    `since` is when its silence began, `stops` when it will be stopped if nothing changes, both in epoch seconds.
    `children` are the programs that it runs.
    """

    state: PulseState
    since: float
    children: int = 0
    stops: float | None = None


class ProgressTracker:
    """What a run did so far. `note_event` folds one event; the other methods only read."""

    def __init__(self, started: float = 0.0) -> None:
        self.started = started
        self.meta: dict[str, Any] = {}
        self.steps: dict[str, Step] = {}
        self.count = 0
        self.waiting: dict[str, InteractionEvent] = {}
        self.usage: Usage | None = None
        self.finished = False
        self.version = 0
        self.warning = ""  # what the guard had to say when the agent was started

    def note_event(self, event: UntetherEvent, now: float) -> bool:
        """Fold one event. True when something visible changed."""
        if isinstance(event, ActionEvent):  # first and without a detour: they come in thousands
            action = event.action
            kind, id = action.kind, action.id
            if kind in HIDDEN_KINDS:
                if kind == "telemetry":
                    self.meta.update(action.detail)
                return False
            step = self.steps.get(id)
            if step is None:
                if not event.parent and kind not in _REMARKS:
                    self.count += 1
                step = self.steps[id] = Step(action, now, None, None, "", event.parent)
            else:
                step.action = action
            if event.message:
                step.message = event.message
            if event.phase == "completed":
                step.ended, step.ok = now, event.ok
        elif not self._note_other(event):
            return False
        self.version += 1
        return True

    def _note_other(self, event: UntetherEvent) -> bool:
        match event:
            case StartedEvent():
                if event.meta:
                    self.meta.update(event.meta)
            case InteractionEvent():
                if event.phase == "opened":
                    self.waiting[event.interaction.id] = event
                else:
                    self.waiting.pop(event.interaction.id, None)
            case CompletedEvent() | TurnEvent(phase="completed"):
                self.finished = True
                if isinstance(event.usage, Usage):
                    self.usage = event.usage
            case _:
                return False
        return True

    def next_change(self, now: float) -> float | None:
        """Seconds until a running step begins to show its time; None when none will."""
        left = [step.started + SHOWS_TIME_S - now for step in self.last(5) if step.ended is None]
        return min((seconds + 0.1 for seconds in left if seconds > 0), default=None)

    def last(self, limit: int) -> list[Step]:
        """The newest steps of the main agent, oldest first; children of sub-agents are left out."""
        found: list[Step] = []
        for step in reversed(self.steps.values()):
            if len(found) == limit:
                break
            if not step.parent:
                found.append(step)
        found.reverse()
        return found


def step_text(step: Step, now: float, *, verbose: bool = False) -> str:
    """One line for a step: its sign, what it does, what it changed, how long it takes when that is long."""
    action, detail = step.action, step.action.detail
    if step.ended is None:
        sign = "↻" if detail.get("retry") else "▸"
    elif action.kind == "warning":
        sign = "✗" if step.ok is False else "·"
    else:
        sign = "✗" if step.ok is False else "✓"
    title = f"{detail['verb']} {action.title}" if detail.get("verb") else action.title
    text = f"{sign} {words.one_line(title, 200 if verbose else 90)}"
    if detail.get("added") is not None or detail.get("removed") is not None:
        text += f"  +{detail.get('added', 0)} −{detail.get('removed', 0)}"
    if step.ended is None and now - step.started >= SHOWS_TIME_S:
        text += f" · {words.duration(now - step.started)}"
    if verbose and step.message:
        text += f"\n  {words.one_line(step.message, 120)}"
    return text


_HUMAN = {"permission": "permission", "plan": "your word on the plan", "question": "an answer"}
_MODEL_SILENCE_S = 60.0  # of the model, from which on it is mentioned


def wait_text(
    tracker: ProgressTracker,
    waits: Sequence[Wait],
    now: float,
    pulse: Pulse | None = None,
    zone: tzinfo | None = None,
) -> str:
    """The line that says whom the run waits for when it is not simply working; "" when it is.

    `pulse` is what the watch found; clock times are in `zone` (None: this machine's).
    """
    if tracker.waiting:
        kinds = dict.fromkeys(event.interaction.kind for event in tracker.waiting.values())
        return "⏸ waiting for you: " + ", ".join(_HUMAN[kind] for kind in kinds)
    if pulse is not None and pulse.state == "gone":
        return "⏳ the agent has ended; reading what it left"
    by_kind = {wait.kind: wait for wait in waits}
    if held_up := _held_up(by_kind, now, zone):
        return held_up
    if pulse is not None and pulse.state == "stuck":
        ends = f" · stopped in {words.duration(pulse.stops - now)} if it stays so" if pulse.stops is not None else ""
        return f"⏳ stuck? No sign of life for {words.duration(now - pulse.since)}{ends}"
    if wait := by_kind.get("hook"):
        return f"⏳ hook {wait.label}".rstrip()
    background = [wait for wait in waits if wait.kind == "background"]
    if background:
        return _background(background, now)
    if (wait := by_kind.get("model")) and now - wait.since >= _MODEL_SILENCE_S:
        return f"⏳ model, {words.duration(now - wait.since)} of silence (normal)"
    if pulse is not None and "model" not in by_kind:
        return f"⏳ quiet for {words.duration(now - pulse.since)}, but alive: {_at_work(pulse.children)}"
    return ""


def _held_up(by_kind: Mapping[WaitKind, Wait], now: float, zone: tzinfo | None) -> str:
    """What the provider keeps the run from, and until when."""
    if (wait := by_kind.get("quota")) and wait.until is None:
        return "⏳ usage limit"
    if wait and wait.until is not None and wait.until > now:
        resets = words.clock_time(wait.until, zone, now)
        return f"⏳ usage limit, resets {resets} (in {words.duration(wait.until - now)})"
    if wait := by_kind.get("retry"):
        left = wait.until - now if wait.until is not None else 0.0
        return f"↻ {wait.label or 'the provider does not answer'}" + (
            f" in {words.duration(left)}" if left >= 1 else ""
        )
    if wait := by_kind.get("compaction"):
        spent = now - wait.since
        return "⏳ compacting the conversation" + (f" · {words.duration(spent)}" if spent >= SHOWS_TIME_S else "")
    return ""


def _background(waits: Sequence[Wait], now: float) -> str:
    name = f': "{words.one_line(waits[0].label, 50)}"' if waits[0].label else ""
    count = f"{len(waits)} task{'s' if len(waits) > 1 else ''} in the background{name}"
    return f"⏳ {count} · {words.duration(now - min(wait.since for wait in waits))}"


def _at_work(children: int) -> str:
    if not children:
        return "it computes"
    return "1 program at work" if children == 1 else f"{children} programs at work"
