"""Progress edits: keeps the status message of a process's active run fresh, and calm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import anyio
import structlog

from ..clock import happens
from ..transport import Card, ChatRef
from .progress import ProgressTracker
from .services import Services

log = structlog.get_logger(__name__)


class Shown(Protocol):
    """A run whose status message is kept fresh."""

    run_id: int
    status_delivery: int | None
    chat: ChatRef
    tracker: ProgressTracker
    done: anyio.Event


R = TypeVar("R", bound=Shown)


class ProgressEdits(Generic[R]):
    """Paints one message a run: soon after a change, and now and then for the clock. The newest state wins."""

    def __init__(self, services: Services, active: Callable[[], R | None], card: Callable[[R], Card]) -> None:
        self._services = services
        self._active = active
        self._card = card
        self._changed = anyio.Event()

    def _patience(self) -> float:
        """Seconds until the message is looked at again though nothing happened: a long step shows its time."""
        patience, run = self._services.options.heartbeat_interval, self._active()
        if run is None:
            return patience
        left = run.tracker.next_change(self._services.clock.now())
        return patience if left is None else min(patience, left)

    def changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Paint until cancelled."""
        services = self._services
        shown: tuple[int, Card] | None = None
        while True:
            await happens(self._changed, self._patience(), services.clock)
            self._changed = anyio.Event()
            run = self._active()
            if run is None or run.status_delivery is None:
                continue
            message_id = await services.outbox.message_id(run.status_delivery)
            if message_id is None or run.done.is_set():
                continue
            try:
                card = self._card(run)
                if shown != (run.run_id, card):
                    shown = (run.run_id, card)
                    services.transports[run.chat.transport].paint(run.chat, message_id, card)
            except Exception:  # progress is a courtesy: a defect in showing it must not end the run
                log.exception("progress.not_shown", run=run.run_id)
            # The longer a run, the calmer its message: a chat counts edits like messages.
            age = max(0.0, services.clock.now() - run.tracker.started)
            await services.clock.sleep(min(services.options.min_render_interval + age / 20, 10.0))
