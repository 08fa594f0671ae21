"""The cards: every message of ours, built from facts. The words follow one set of signs and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

import msgspec

from ..model import Wait
from ..text import words
from ..text.blocks import Block, Code, Copyable, Line, Markdown
from ..transport import Button, Card, Rows
from .progress import ProgressTracker, Pulse, step_text, wait_text

# Data of buttons. The first letter says what, the rest whom it is about; at most 64 bytes.
STOP, AGAIN, RESUME, DETAILS, VERBOSE, INTERACTION, EXAMPLE, GRANT, MODE = (
    "stop",
    "again",
    "resume",
    "details",
    "verbose",
    "i",
    "try",
    "grant",
    "mode",
)
STEER, REPLACE, WITHDRAW, SEND_AGAIN, BUSY = "steer", "replace", "withdraw", "requeue", "busy"


def notice(*lines: str, silent: bool = False, reply_to: str = "") -> Card:
    return Card(tuple(Line(line) for line in lines), silent=silent, reply_to=reply_to)


# ------------------------------------------------------------------------------------------------------- status


def header(engine: str, where: str, tracker: ProgressTracker, now: float) -> str:
    """Engine, place, model, elapsed time, step, context used; what is unknown is left out."""
    meta = tracker.meta
    parts = [engine, where]
    if model := meta.get("model"):
        parts.append(words.model_name(str(model)))
    parts.append(words.duration(now - tracker.started))
    if tracker.count:
        parts.append(f"step {tracker.count}")
    if percent := context_percent(meta):
        parts.append(f"{percent} %")
    return " · ".join(part for part in parts if part)


def status(
    run_id: int,
    engine: str,
    where: str,
    tracker: ProgressTracker,
    waits: Sequence[Wait],
    now: float,
    *,
    verbose: bool = False,
    stopping: bool = False,
    blocked: str = "",
    max_actions: int = 5,
    reply_to: str = "",
    pulse: Pulse | None = None,
    zone: tzinfo | None = None,
) -> Card:
    """The one message of a run that is edited while it works. Clock times are in `zone` (None: this machine's)."""
    sign = "⏸" if tracker.waiting else "▸"
    lines = [f"{sign} {header(engine, where, tracker, now)}"]
    if tracker.warning:
        lines.append(f"· {tracker.warning}")
    lines += [step_text(step, now, verbose=verbose) for step in tracker.last(max_actions * (2 if verbose else 1))]
    waiting = "■ stopping…" if stopping else _BLOCKED.get(blocked) or wait_text(tracker, waits, now, pulse, zone)
    if waiting:
        lines.append(waiting)
    buttons = (() if stopping else (Button("Stop", f"{STOP}:{run_id}"),)) + (
        Button("Less" if verbose else "Details", f"{VERBOSE}:{run_id}"),
    )
    return Card(tuple(Line(line) for line in lines), buttons=(buttons,), silent=True, reply_to=reply_to)


# Why an agent has to wait before it can print on: the reasons that its keeper gives.
_BLOCKED = {
    "disk": "⏳ the disk is full: the agent waits until there is room again",
    "journal": "⏳ this run has printed as much as may be kept: stop it, or raise the limit",
}


def context_percent(facts: Mapping[str, Any]) -> int:
    """How full the context is, in percent; 0 when that is not known."""
    used, window = facts.get("context_used"), facts.get("context_window")
    return min(100, round(100 * used / window)) if used and window else 0


# ------------------------------------------------------------------------------------------------------- answer


def footer(duration: float, steps: int, model: str, usage: dict[str, Any], mode: str = "") -> str:
    """The small line under an answer; what is unknown is left out. `duration` is in seconds."""
    parts = [words.duration(duration)]
    if steps:
        parts.append(f"{steps} step{'s' if steps != 1 else ''}")
    if model:
        parts.append(words.model_name(model))
    if mode and mode != "default":
        parts.append(mode)
    if usage.get("cost_usd") is not None:
        parts.append(words.money(usage["cost_usd"]))
    if usage.get("input_tokens") is not None or usage.get("output_tokens") is not None:
        into = usage.get("input_tokens") or 0
        parts.append(f"{words.tokens(into)} in / {words.tokens(usage.get('output_tokens') or 0)} out")
    if percent := context_percent(usage):
        parts.append(f"context {percent} %")
    return " · ".join(parts)


def answer(text: str, small: str, *, resume: str = "", reply_to: str = "") -> Card:
    """The answer first, nothing before it; then one small line, and the resume command where it is needed."""
    said = Markdown(text) if text.strip() else Line("The agent ended its work without a word.", "quiet")
    blocks: list[Block] = [said, Line(f"✓ {small}", "quiet")]
    buttons: Rows = ()
    if resume:
        blocks.append(Copyable("↩", resume))
        buttons = ((Button("Copy resume command", copy=resume),),)
    return Card(tuple(blocks), buttons=buttons, reply_to=reply_to, file_name="answer.md")


def date_line(made: float | None, asked: float | None, now: float) -> Line | None:
    """When an answer was made and when it was asked for, each where that is worth saying; in epoch seconds."""
    said = [f"{what} {_on(at, now)}" for what, at in (("answered", made), ("asked", asked)) if at is not None]
    return Line(" · ".join(said), "quiet") if said else None


def _on(at: float, now: float) -> str:
    """`14:02`, with `on 30 Nov` for another day."""
    date, _, time = words.clock_time(at, None, now).rpartition(" ")
    return f"{time} on {date}" if date else time


def failure(
    run_id: int, error: str, advice: str, *, so_far: str = "", details: bool, resume: str = "", reply_to: str = ""
) -> Card:
    blocks: list[Block] = [Line(f"✗ {error}")]
    if advice:
        blocks.append(Line(advice))
    if so_far.strip():
        blocks += [Line("What was written so far:", "quiet"), Markdown(so_far)]
    if resume:
        blocks.append(Copyable("↩", resume))
    buttons = [Button("Try again", f"{AGAIN}:{run_id}")]
    if details:
        buttons.append(Button("Details", f"{DETAILS}:{run_id}"))
    return Card(tuple(blocks), buttons=(tuple(buttons),), reply_to=reply_to)


def stopped(duration: float, so_far: str, *, resume: str = "", reply_to: str = "") -> Card:
    blocks: list[Block] = [Line(f"■ Stopped after {words.duration(duration)}")]
    if so_far.strip():
        blocks.append(Markdown(so_far))
    if resume:
        blocks.append(Copyable("↩", resume))
    return Card(tuple(blocks), reply_to=reply_to)


def without(card: Card, what: str) -> Card:
    """A card less the buttons that do `what`."""
    rows = (tuple(button for button in row if button.data.partition(":")[0] != what) for row in card.buttons)
    return msgspec.structs.replace(card, buttons=tuple(row for row in rows if row))


def interrupted(run_id: int, title: str, done: Sequence[str] = (), so_far: str = "", *, reply_to: str = "") -> Card:
    """The agent of a run ended while nobody watched. `done` are its last steps, `so_far` what it had written."""
    blocks: list[Block] = [
        Line("■ Interrupted: the agent of this run ended while Untether was away."),
        Line(words.one_line(title, 200), "quiet"),
        *(Line(step) for step in done),
    ]
    if so_far.strip():
        blocks += [Line("What was written so far:", "quiet"), Markdown(so_far)]
    resume = Button("Resume", f"{RESUME}:{run_id}", style="success")
    return Card(tuple(blocks), buttons=((resume,),), reply_to=reply_to, file_name="answer.md")


def details(raw: str) -> Card:
    return Card((Line("What the agent said:", "bold"), Code(raw)), silent=True, file_name="details.txt")


# -------------------------------------------------------------------------------------------------------- small


def queued(place: int, reply_to: str, message_id: int = 0, *, steer: bool = False) -> Card:
    """Under a message that waits for its turn. `steer`: its agent can be told it in the running one."""
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    sooner = (
        Button("Steer now", f"{STEER}:{message_id}") if steer else Button("Stop and send this", _replace(message_id))
    )
    buttons = (sooner, Button("Withdraw", f"{WITHDRAW}:{message_id}"))
    return Card((Line(f"⏳ queued, {place}{ending}"),), buttons=(buttons,), silent=True, reply_to=reply_to)


def _replace(message_id: int) -> str:
    return f"{REPLACE}:{message_id}"


def can_steer(card: Card) -> bool:
    """Whether a card of a queued message offers to tell it in the running turn."""
    return any(button.data.startswith(f"{STEER}:") for row in card.buttons for button in row)


def steering(reply_to: str, message_id: int) -> Card:
    buttons = (Button("Withdraw", f"{WITHDRAW}:{message_id}"),)
    return Card((Line("⏳ on its way into the running turn"),), buttons=(buttons,), silent=True, reply_to=reply_to)


def taken(reply_to: str) -> Card:
    return Card((Line("✓ taken"),), silent=True, reply_to=reply_to)


def withdrawn(reply_to: str, message_id: int) -> Card:
    again = Button("Send again", f"{SEND_AGAIN}:{message_id}")
    return Card((Line("■ withdrawn"),), buttons=((again,),), silent=True, reply_to=reply_to)


_WHEN_BUSY = {
    "queue": ("Queue", "wait for their turn"),
    "steer": ("Steer", "go into the running turn; where the agent cannot take that, they wait"),
    "interrupt": ("Interrupt", "stop the running turn and are next"),
}


def when_busy(busy: str, *, own: bool) -> Card:
    """What becomes of messages that are sent while the agent works, and the other ways. `own`: it was chosen here."""
    line = f"Messages that are sent here while the agent works {_WHEN_BUSY[busy][1]}."
    others = [Button(label, f"{BUSY}:{value}") for value, (label, _) in _WHEN_BUSY.items() if value != busy]
    if own:
        others.append(Button("Default", f"{BUSY}:default"))
    return Card((Line(f"✓ {line}"),), buttons=(tuple(others),))
