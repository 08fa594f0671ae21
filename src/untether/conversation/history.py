"""What a run did, read again: the fold of its process's journal and inputs, between its beginning and its end."""

from __future__ import annotations

import msgspec

from ..model import ActionEvent
from ..process.replay import fold
from ..session import StartFacts
from ..store import runs
from ..store.runs import Run
from .progress import ProgressTracker
from .recovery import stored_inputs
from .services import Services


def tracker_of(services: Services, run: Run) -> ProgressTracker:
    """The progress of a run that has ended; no steps without a journal (pruned, or nothing was spawned)."""
    tracker = ProgressTracker(run.started)
    process_id = run.process_id
    if process_id is None:
        return tracker
    raw = services.db.read(lambda conn: runs.start_facts(conn, process_id))
    if raw is None:
        return tracker
    start = msgspec.json.decode(raw, type=StartFacts)
    engine = services.engines.get(start.engine)
    if engine is None:
        return tracker
    last = run.ended_offset
    lines = services.host.journal(process_id)
    inputs = services.db.read(lambda conn: stored_inputs(conn, process_id))
    for step, place, now, _ in fold(engine.runner.session(start), lines, inputs):
        if last is not None and place.offset > last:
            break
        if place.offset > run.began_offset or run.began_offset == 0:
            for event in step.events:
                if isinstance(event, ActionEvent):
                    tracker.note_event(event, now)
    return tracker
