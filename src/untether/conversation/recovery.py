"""What the store holds of a process that an earlier start of the bridge left open, for taking it up again."""

from __future__ import annotations

import sqlite3

import msgspec

from ..model import Record
from ..process.replay import StoredInput
from ..session import Begin, Input, Place, Prompt, Say, StartFacts
from ..store import deliveries, runs, threads
from ..store.threads import Thread
from .live_run import LiveRun

_INPUT: msgspec.json.Decoder[Input] = msgspec.json.Decoder(Input)
_START = msgspec.json.Decoder(StartFacts)


class Left(Record, frozen=True):
    """A process that was left open. `applied` is the place up to which its effects are committed."""

    start: StartFacts
    thread: Thread
    applied: Place
    history: tuple[StoredInput, ...]

    @property
    def first(self) -> Prompt | None:
        """The message that it began with; None when its agent was not told it yet."""
        return next((stored.item.prompt for stored in self.history if isinstance(stored.item, Begin)), None)

    @property
    def prompts(self) -> set[str]:
        """Ids of the messages that it was handed."""
        return {stored.item.prompt.id for stored in self.history if isinstance(stored.item, Begin | Say)}


def left_open(conn: sqlite3.Connection) -> list[Left]:
    """The open processes, oldest first."""
    found = []
    for process in runs.open_processes(conn):
        thread = threads.thread(conn, process.thread_id)
        assert thread is not None  # its row refers to it
        history = tuple(stored_inputs(conn, process.id))
        found.append(Left(_START.decode(process.start), thread, Place(*process.applied), history))
    return found


def stored_inputs(conn: sqlite3.Connection, process_id: str) -> list[StoredInput]:
    """The inputs of a process, in order."""
    return [
        StoredInput(ordinal, offset, time, _INPUT.decode(item))
        for ordinal, offset, time, item in runs.inputs(conn, process_id)
    ]


class Rows:
    """The runs of a process as stored, to be met again while it is folded."""

    def __init__(self, by_prompt: dict[str, LiveRun], by_offset: dict[int, LiveRun]) -> None:
        self._by_prompt = by_prompt
        self._by_offset = by_offset

    def of_prompt(self, prompt_id: str) -> LiveRun | None:
        """The run of a message."""
        return self._by_prompt.get(prompt_id)

    def at(self, offset: int) -> LiveRun | None:
        """The run of a turn that nobody asked for, which began at `offset`."""
        return self._by_offset.get(offset)


NO_ROWS = Rows({}, {})


def rows_of(conn: sqlite3.Connection, left: Left) -> Rows:
    by_prompt: dict[str, LiveRun] = {}
    by_offset: dict[int, LiveRun] = {}
    for run in runs.of_process(conn, left.start.process_id):
        message = threads.message(conn, run.message_id) if run.message_id is not None else None
        status = deliveries.status_of_run(conn, run.id)
        chat = message.chat if message is not None else status.chat if status is not None else left.thread.chat
        view = LiveRun(message, chat, run.title, run.started)
        view.run_id = run.id
        view.began_offset = run.began_offset
        view.stopping = run.stop_asked
        view.status_delivery = status.id if status is not None else None
        if message is not None:
            by_prompt[message.prompt_id] = view
        else:
            by_offset[run.began_offset] = view
    return Rows(by_prompt, by_offset)
