"""A run as a conversation shows it: what was asked for, what was done, what a person decides, and how it ended.

These records are what the templates walk through. Text in them is literal; what is HTML says so in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import tzinfo
from typing import NamedTuple

from ...conversation import asked_cards, cards
from ...conversation.engines import engine_label
from ...conversation.progress import Step, step_text, wait_text
from ...conversation.views import Page, RunView
from ...model import Content, Deny
from ...store.interactions import Pending
from ...store.threads import Message
from ...text import words
from ...text.blocks import Block, Line, Markdown
from ...text.clean import clean_text

TONES = {"▸": "run", "✓": "ok", "✗": "bad", "⏸": "wait", "⏳": "other", "■": "stop", "↻": "retry", "·": "note"}
_RECENT = 5  # entries of a running run that are not folded away
_MOST, _MOST_LIVE = 200, 60  # entries of an ended and of a running run that are sent without being asked for
_LONG_MESSAGE = 20_000  # characters of a person's message from which on only its beginning is sent
_BEGINNING = 1_000


class Said(NamedTuple):
    """A line that begins with a sign; `tone` is the sign's meaning as a CSS class."""

    sign: str
    tone: str
    text: str


class DiffLine(NamedTuple):
    kind: str
    text: str


class Piece(NamedTuple):
    """A part of what is asked, whole. `diff` is empty unless `form` is diff; `html` unless it is markdown."""

    form: str
    label: str
    counts: str
    text: str
    language: str
    diff: tuple[DiffLine, ...]
    html: str


class StepEntry(NamedTuple):
    id: str
    said: Said
    facts: tuple[tuple[str, str], ...]
    output: str
    children: tuple[StepEntry, ...]


class AskButton(NamedTuple):
    """A button of an open request. `asks` says what is typed beside it, "" for nothing; `text` stands there already."""

    label: str
    data: str
    style: str
    asks: str
    text: str


class AskedEntry(NamedTuple):
    """A request: open, with buttons, or closed, as one line that unfolds.

    `approve` and `deny` are the data of the plain answers, "" where there is none; `effects` are what further buttons
    do beyond their labels.
    """

    id: str
    key: str
    said: Said
    pieces: tuple[Piece, ...]
    note: str
    asked_by: str
    reason: str
    approve: str = ""
    deny: str = ""
    rows: tuple[tuple[AskButton, ...], ...] = ()
    effects: tuple[str, ...] = ()


class Spoken(NamedTuple):
    """A message of a person. `length` is 0 when `text` is all of it, else how many characters the whole has."""

    sender: str
    at: float
    text: str
    length: int


class RunEntry(NamedTuple):
    """`folded` and `shown` are steps and closed requests, oldest first; `dropped` counts older ones left out."""

    id: int
    state: str
    message: Spoken | None
    title: str
    dropped: int
    fold_label: str
    folded: tuple[StepEntry | AskedEntry, ...]
    shown: tuple[StepEntry | AskedEntry, ...]
    open: tuple[AskedEntry, ...]
    status: Said | None
    waiting: Said | None
    stopping: bool
    answer_html: str
    end: Said | None
    advice: str
    raw_error: str


class Queued(NamedTuple):
    message: Spoken
    said: Said


Html = Callable[[tuple[Block, ...]], str]


def split_sign(line: str) -> Said:
    """A line of ours as its sign and the rest."""
    sign = line[:1]
    if sign in TONES:
        return Said(sign, TONES[sign], line[1:].lstrip())
    return Said("", "plain", line)


# --------------------------------------------------------------------------------------------------------- a run


def run_entry(
    view: RunView, page: Page, now: float, html: Html, *, whole: bool = False, zone: tzinfo | None = None
) -> RunEntry:
    """`html` renders blocks. With `whole` no step is left out. Clock times are in `zone` (None: this machine's)."""
    run = view.run
    running = run.state == "running"
    asked_open = _still_open(view)
    timed: list[tuple[float, Step | Pending]] = [(step.started, step) for step in _main_steps(view)]
    timed += [(pending.opened, pending) for pending in view.asked if pending not in asked_open]
    timed.sort(key=lambda item: item[0])
    dropped = 0 if whole else max(0, len(timed) - (_MOST_LIVE if running else _MOST))
    steps = _Steps(view, now)
    entries = [_closed(it, html, zone) if isinstance(it, Pending) else steps.entry(it) for _, it in timed[dropped:]]
    split = max(0, len(entries) - _RECENT) if running else len(entries)
    status = waiting = None
    if running:
        sign = "⏸" if asked_open or view.tracker.waiting else "▸"
        status = split_sign(
            f"{sign} {cards.header(engine_label(page.thread.engine, page.cannot_ask), page.where, view.tracker, now)}"
        )
        warning = f"· {view.tracker.warning}" if view.tracker.warning else ""
        line = "■ stopping…" if view.stopping else wait_text(view.tracker, view.waits, now, view.pulse, zone) or warning
        waiting = split_sign(line) if line else None
    return RunEntry(
        id=run.id,
        state=run.state,
        message=None if view.message is None else spoken(view.message),
        title=words.one_line(run.title, 200) if run.title.strip() else "",
        dropped=dropped,
        fold_label=_fold_label(view, running),
        folded=tuple(entries[:split]),
        shown=tuple(entries[split:]),
        open=open_entries(view, html),
        status=status,
        waiting=waiting,
        stopping=view.stopping,
        answer_html=_answer(view, html),
        end=None if running else _end(view),
        advice=clean_text(run.advice),
        raw_error=clean_text(run.raw_error) if run.raw_error.strip() and run.raw_error != run.error else "",
    )


def _fold_label(view: RunView, running: bool) -> str:
    count = view.tracker.count or view.run.steps
    if running:
        return "Earlier steps"
    return f"{count} step{'' if count == 1 else 's'}" if count else "What happened"


def spoken(message: Message) -> Spoken:
    text = clean_text(message.text)
    if len(text) > _LONG_MESSAGE:
        return Spoken(message.sender, message.created, text[:_BEGINNING] + "…", len(text))
    return Spoken(message.sender, message.created, text, 0)


def queued_entries(messages: Iterable[Message]) -> tuple[Queued, ...]:
    """Messages that wait behind the run, with the words of the chats for their place."""
    found = []
    for place, message in enumerate(messages, 1):
        (line,) = cards.queued(place, "").blocks
        found.append(Queued(spoken(message), split_sign(line.text if isinstance(line, Line) else "")))
    return tuple(found)


def _answer(view: RunView, html: Html) -> str:
    run = view.run
    if run.state == "running":
        return ""
    if run.state == "done":
        return html(cards.answer(run.answer, "").blocks[:1])  # without the line under it, which is `end`
    if run.answer.strip() and run.answer != run.error:
        return html((Markdown(run.answer),))
    return ""


def _end(view: RunView) -> Said:
    run = view.run
    took = max(0.0, (run.ended or run.started) - run.started)
    match run.state:
        case "done":
            mode = str(view.tracker.meta.get("permission_mode") or "")
            return split_sign(f"✓ {cards.footer(took, run.steps, run.model, run.usage, mode)}")
        case "stopped":
            return split_sign(f"■ Stopped after {words.duration(took)}")
        case "interrupted":
            return split_sign(f"■ Interrupted: {clean_text(run.error) or 'Untether was stopped while this ran.'}")
        case _:
            return split_sign(f"✗ {clean_text(run.error) or 'The agent ended without an answer.'}")


# --------------------------------------------------------------------------------------------------------- steps


def _main_steps(view: RunView) -> list[Step]:
    """The steps that are not inside another one."""
    steps = view.tracker.steps
    return [step for step in steps.values() if step.parent not in steps]


class _Steps:
    """Makes the entries of a run's steps, each with those of its sub-agent inside."""

    def __init__(self, view: RunView, now: float) -> None:
        self._now = now
        steps = view.tracker.steps
        self._names = {action_id: f"r{view.run.id}-s{number}" for number, action_id in enumerate(steps)}
        self._inside: dict[str, list[Step]] = {}
        for step in steps.values():
            if step.parent in steps:
                self._inside.setdefault(step.parent, []).append(step)

    def entry(self, step: Step) -> StepEntry:
        id = step.action.id
        inside = self._inside.pop(id, [])[-_MOST_LIVE:]  # taken out, so that steps inside each other end somewhere
        said = split_sign(step_text(step, self._now))
        return StepEntry(self._names[id], said, *_unfolded(step), tuple(map(self.entry, inside)))


_FACTS = (("command", "Command"), ("description", "Why"), ("path", "File"), ("pattern", "Pattern"), ("query", "Query"),
          ("url", "Address"))  # fmt: skip


def _unfolded(step: Step) -> tuple[tuple[tuple[str, str], ...], str]:
    """What a step's line does not say already: its facts, and the beginning of its output."""
    detail, title = step.action.detail, step.action.title
    facts = []
    for key, label in _FACTS:
        value = detail.get(key)
        if isinstance(value, str) and value.strip() and (value not in title or len(title) > 90):
            facts.append((label, clean_text(value)))
    return tuple(facts), clean_text(step.message).strip("\n")


# ------------------------------------------------------------------------------------------------------ requests


def _still_open(view: RunView) -> list[Pending]:
    """The requests of a run that can be decided: a background agent may ask after its run has ended."""
    can = view.run.state == "running" or view.alive
    return [pending for pending in view.asked if pending.state == "open" and can]


def open_entries(view: RunView, html: Html) -> tuple[AskedEntry, ...]:
    return tuple(_open(pending, html) for pending in _still_open(view))


def _open(pending: Pending, html: Html) -> AskedEntry:
    asked, key = pending.interaction, pending.key
    act = words.one_line(asked.act, 200) if asked.act.strip() else "May I go on?"
    pieces, note = _pieces(pending, html), clean_text(asked.note)
    if asked_cards.step(asked, pending.answers) is not None:  # the question that is to be answered now, as in a chat
        first, *blocks = asked_cards.asked(key, asked, "", pending.answers).blocks
        act = words.one_line(first.text.removeprefix("⏸ "), 2000) if isinstance(first, Line) else act
        pieces, note = (Piece("markdown", "", "", "", "", (), html(tuple(blocks[:-1]) or (Line(""),))),), ""
        if asked_cards.step(asked, pending.answers) == len(asked.questions):
            pieces = (Piece("markdown", "", "", "", "", (), html(tuple(blocks))),)
    plain = {
        letter: f"{cards.INTERACTION}:{key}:{letter}"
        for letter, offer in ((asked_cards.APPROVE, "allow"), (asked_cards.DENY, "deny"))
        if offer in asked.offers and asked.kind != "question"
    }
    return AskedEntry(
        f"ask-{key}",
        key,
        split_sign(f"⏸ {act}"),
        pieces,
        note,
        clean_text(asked.asked_by) or "the main agent",
        "",
        plain.get(asked_cards.APPROVE, ""),
        plain.get(asked_cards.DENY, ""),
        _ask_rows(pending, set(plain.values())),
        tuple(clean_text(f"{one.label}: {more}") for one in asked.choices if (more := asked_cards.beyond_label(one))),
    )


_ASKS = {asked_cards.EDIT: "The new text", asked_cards.OTHER: "Your answer"}


def _ask_rows(pending: Pending, plain: set[str]) -> tuple[tuple[AskButton, ...], ...]:
    """The buttons beside the plain answers. The reason of a denial is typed beside Deny, so it needs no button."""
    asked, rows = pending.interaction, []
    for row in asked_cards.buttons(pending.key, asked, pending.answers):
        found = []
        for button in row:
            press = asked_cards.read_press(button.data.split(":", 2)[2])
            if button.data in plain or press is None or press.letter == asked_cards.WHY:
                continue
            choice = asked_cards.choice_at(asked, press.numbers[0]) if press.letter == asked_cards.CHOICE else None
            label = clean_text(choice.label) if choice is not None else button.label
            asks = _ASKS.get(press.letter, label) if asked_cards.takes_text(button.data, asked) else ""
            text = clean_text(asked_cards.original(asked)) if press.letter == asked_cards.EDIT else ""
            found.append(AskButton(label, button.data, button.style, asks, text))
        if found:
            rows.append(tuple(found))
    return tuple(rows)


def _closed(pending: Pending, html: Html, zone: tzinfo | None) -> AskedEntry:
    if pending.state == "open":
        said = split_sign("■ The agent that asked has ended")
    else:
        line = asked_cards.outcome(pending, pending.decided_by, pending.decided or pending.opened, zone=zone).blocks[0]
        said = split_sign(line.text if isinstance(line, Line) else "")
    reason = pending.decision.reason if isinstance(pending.decision, Deny) else ""
    return AskedEntry(f"ask-{pending.key}", pending.key, said, _pieces(pending, html), "", "", clean_text(reason))


def _pieces(pending: Pending, html: Html) -> tuple[Piece, ...]:
    return tuple(_piece(content, html) for content in pending.interaction.body)


def _piece(content: Content, html: Html) -> Piece:
    counts = words.changes(content.added, content.removed or 0) if content.added is not None else ""
    text = clean_text(content.text)
    rendered = html((Markdown(content.text),)) if content.form == "markdown" else ""
    diff = tuple(_diff_lines(text)) if content.form == "diff" else ()
    return Piece(content.form, clean_text(content.label), counts, text, content.language, diff, rendered)


def _diff_lines(text: str) -> Iterable[DiffLine]:
    kinds = {"+": "add", "-": "del", "@": "hunk", "\\": "hunk"}
    for line in text.split("\n"):
        yield DiffLine(kinds.get(line[:1], "same"), line)
