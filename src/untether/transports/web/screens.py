"""The pages of the console as HTML. Every text is escaped; only what `text.blocks` rendered passes as it is."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from datetime import datetime, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from ...clock import Clock
from ...conversation.views import Overview, Page, RunRow, RunView
from ...model import Record
from ...text import words
from ...text.blocks import Block, Markdown, to_html, to_plain
from ...text.clean import clean_text
from .entries import AskedEntry, RunEntry, Said, open_entries, queued_entries, run_entry, split_sign
from .said import Notice

_HERE = Path(__file__).parent
_ROW_SIGNS = {
    "waiting": "⏸",
    "running": "▸",
    "queued": "⏳",
    "done": "✓",
    "failed": "✗",
    "stopped": "■",
    "interrupted": "■",
}
_RENDERED = 256  # ended runs, answers and requests that are kept as HTML
_RUNS = 20  # runs of a conversation that are shown without being asked for
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Choices(Record, frozen=True):
    """What a person may choose for a new conversation: engines and projects by name, and what answers by default."""

    engines: tuple[str, ...]
    default_engine: str
    projects: tuple[str, ...] = ()
    default_project: str = ""


class Box(NamedTuple):
    """What the box holds when a message was not taken, and why."""

    text: str = ""
    error: str = ""
    engine: str = ""
    project: str = ""
    branch: str = ""


class Frame(NamedTuple):
    """What every page of a paired browser has. `here` is the page's own address; `seen` the state it shows."""

    form_token: str
    here: str
    seen: str
    toast: str
    overview: Overview


class Row(NamedTuple):
    id: int
    state: str
    said: Said
    title: str
    where: str
    engine: str
    age: str
    last: str


class Section(NamedTuple):
    """A run of a conversation: what never needs a button as HTML, and the rest of it while it lives."""

    id: int
    state: str
    html: str
    live: RunEntry | None
    has_message: bool
    open: tuple[AskedEntry, ...] = ()


class Static(NamedTuple):
    content: bytes
    media_type: str
    tag: str


class Screens:
    """Renders pages; keeps compiled templates, static files, and the HTML of what does not change any more."""

    def __init__(self, clock: Clock, zone: tzinfo | None = None) -> None:
        """Clock times are shown in `zone`; None: this machine's."""
        self._clock = clock
        self._zone = zone
        self.static = _static_files()
        self._html = lru_cache(maxsize=_RENDERED)(_markup)
        self._plain = lru_cache(maxsize=_RENDERED)(_without_markup)
        self._ended: OrderedDict[Hashable, str] = OrderedDict()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["clean"] = clean_text
        self._templates.filters["clock"] = self._clock_time
        self._templates.filters["iso"] = _iso
        self._templates.filters["blocks"] = self._html
        self._templates.globals["static"] = self._static_link

    # ------------------------------------------------------------------------------------------------- pages

    def home(self, frame: Frame, choices: Choices, notices: tuple[Notice, ...], box: Box) -> str:
        return self._page("home.html", frame, choices=choices, notices=notices, box=box, title="Untether")

    def run(self, frame: Frame, page: Page, run_id: int, notices: tuple[Notice, ...], box: Box, *, whole: bool) -> str:
        """The conversation of a run. `whole` shows steps that are left out of long runs."""
        wanted = next(index for index, view in enumerate(page.runs) if view.run.id == run_id)
        views = page.runs if whole else page.runs[min(wanted, max(0, len(page.runs) - _RUNS)) :]
        sections = [self._section(view, page, whole=whole) for view in views]
        title = words.one_line(page.runs[0].run.title, 200) if page.runs[0].run.title.strip() else f"Run {run_id}"
        return self._page(
            "run.html",
            frame,
            run_id=run_id,
            thread=page.thread,
            where=clean_text(page.where),
            earlier=len(page.runs) - len(views),
            sections=sections,
            active=next((section.live for section in reversed(sections) if section.live), None),
            queued=queued_entries(page.queued),
            notices=notices,
            box=box,
            title=title,
        )

    def _section(self, view: RunView, page: Page, *, whole: bool) -> Section:
        """One run. An ended one stays as it is, so it is rendered once: a page is looked at again at every change."""
        run, now = view.run, self._clock.now()
        if run.state == "running":
            entry = run_entry(view, page, now, self._html, whole=whole, zone=self._zone)
            return Section(run.id, run.state, self._entry(entry), entry, view.message is not None, entry.open)
        asked = tuple((pending.key, pending.state) for pending in view.asked)
        today = datetime.fromtimestamp(now, self._zone).date()  # times of other days are shown with their date
        key = (run.id, run.state, run.ended, run.answer, view.tracker.version, asked, view.alive, today, whole)
        html = self._ended.get(key)
        if html is None:
            entry = run_entry(view, page, now, self._html, whole=whole, zone=self._zone)
            html = self._ended[key] = self._entry(entry)
            if len(self._ended) > _RENDERED:
                self._ended.popitem(last=False)
        self._ended.move_to_end(key)
        return Section(run.id, run.state, html, None, view.message is not None, open_entries(view, self._html))

    def _entry(self, entry: RunEntry) -> str:
        return Markup(self._bare("entry.html", run=entry))

    def chat(self, frame: Frame, thread: str, notices: tuple[Notice, ...], box: Box, *, waiting: bool) -> str:
        """A conversation that no run has begun for. `waiting` says that its message was sent a moment ago."""
        return self._page(
            "chat.html", frame, thread=thread, notices=notices, box=box, waiting=waiting, title="New conversation"
        )

    def login(self, *, error: str = "") -> str:
        return self._bare("login.html", title="Pair this browser", error=error)

    def onward(self, path: str, text: str) -> str:
        """A page that goes on to `path` by itself: unlike a redirect it makes the next request one of our own site."""
        return self._bare("onward.html", title="Untether", path=path, text=text)

    def trouble(self, title: str, text: str) -> str:
        return self._bare("trouble.html", title=title, text=text)

    # ------------------------------------------------------------------------------------------------ helpers

    def _page(self, template: str, frame: Frame, **values: Any) -> str:
        overview = frame.overview
        return self._bare(
            template,
            frame=frame,
            needs_you=[self._row(row) for row in overview.needs_you],
            running=[self._row(row) for row in overview.running],
            recent=[self._row(row) for row in overview.recent],
            **values,
        )

    def _bare(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(values)

    def _row(self, row: RunRow) -> Row:
        # An answer is Markdown; the line of a step or an error is literal.
        text = self._plain(row.last) if row.state in ("done", "stopped") else row.last
        return Row(
            row.run_id,
            row.state,
            split_sign(_ROW_SIGNS.get(row.state, "·")),
            words.one_line(row.title, 120) if row.title.strip() else "Untitled",
            clean_text(row.where),
            row.engine,
            words.age(row.started, self._clock.now()),
            words.one_line(text, 120) if text.strip() else "",
        )

    def _clock_time(self, at: float) -> str:
        return words.clock_time(at, self._zone, self._clock.now())

    def _static_link(self, name: str) -> str:
        return f"/static/{name}?v={self.static[name].tag}"


def _markup(blocks: tuple[Block, ...]) -> str:
    return Markup(to_html(blocks))  # to_html escapes all that is not markup of its own


def _without_markup(source: str) -> str:
    return to_plain((Markdown(source),))


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


def _static_files() -> Mapping[str, Static]:
    """The files by name. They are read once, so an upgrade under a running bridge changes nothing."""
    found = {}
    for path in sorted((_HERE / "static").rglob("*")):
        if (media_type := _TYPES.get(path.suffix)) is not None:
            content = path.read_bytes()
            found[path.name] = Static(content, media_type, hashlib.sha256(content).hexdigest()[:12])
    return found
