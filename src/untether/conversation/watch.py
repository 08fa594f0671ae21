"""The watch over one live process: is it at work, quiet, stuck or gone, and has its run come to a limit?

What a run waits for is told by its session alone (`EngineSession.waits`). Only when the agent has been quiet for a
while is its process looked at, for CPU time and programs at work. Silence alone ends no run: that takes silence without
any other sign of life for as long as the limit says, or the limit for the whole run. Time that a person or a used-up
quota takes counts toward neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
import structlog

from ..clock import Clock
from ..model import CompletedEvent, TurnEvent, Wait
from ..process.driver import Driver
from ..process.host import Vitals
from ..session import EngineSession
from ..text import words
from .live_run import Limit, LiveRun
from .progress import Pulse
from .services import WatchLimits

log = structlog.get_logger(__name__)

_EXCUSED = ("human", "quota")
_LOOK_S = 30.0  # between two looks
_QUIET_S = 60.0  # of silence, before the process is looked at
_ACTIVE_SHARE = 0.02  # of one CPU. Claude Code at rest (2.1.197, 2.1.332) uses 0.005
_JUMP_S = 5.0  # wall time over monotonic time: the machine slept, or its clock was set

E = TypeVar("E", bound=CompletedEvent | TurnEvent)


class Subject(Protocol):
    """What is watched: a live process."""

    session: EngineSession
    driver: Driver | None

    @property
    def busy(self) -> LiveRun | None: ...

    async def stop(self) -> None:
        """End the turn that goes on."""

    def show(self) -> None:
        """What is shown of the run may have changed."""


class Meter:
    """Counts the seconds of one run, less those that a person or a quota took.

    `spent` is its whole time, `silent` that since the last line, `lifeless` that since the last sign of life of any
    kind. Times are epoch seconds that never go back.
    """

    def __init__(self, start: float, waits: Sequence[Wait] = ()) -> None:
        self.spent = self.silent = self.lifeless = 0.0
        self.at = start
        self._waits = tuple(waits)

    def note(self, now: float, waits: Sequence[Wait], *, line: bool = False) -> None:
        """It is `now`, and the session has these waits; `line`: the agent has just said something."""
        if now > self.at:
            # What was waited for before may have lasted until now, what is waited for now began when it says.
            counted = now - self.at - _excused((*self._waits, *waits), self.at, now)
            self.spent += counted
            self.silent += counted
            self.lifeless += counted
            self.at = now
        self._waits = tuple(waits)
        if line:
            self.silent = self.lifeless = 0.0

    def skip(self, seconds: float) -> None:
        """These seconds did not take place: the machine slept."""
        self.at += seconds


def _excused(waits: Sequence[Wait], begin: float, end: float) -> float:
    """How many seconds between `begin` and `end` a person or a quota was waited for."""
    total, covered = 0.0, begin
    for wait in sorted((wait for wait in waits if wait.kind in _EXCUSED), key=lambda wait: wait.since):
        until = end if wait.until is None else min(end, wait.until)
        since = max(covered, wait.since)
        if until > since:
            total += until - since
            covered = until
    return total


class Watch:
    """Looks after one process. `note` and `heard` are for the bridge, `pulse` is for the status of the run."""

    def __init__(self, clock: Clock, limits: WatchLimits, subject: Subject) -> None:
        self._clock = clock
        self._limits = limits
        self._subject = subject
        self._run: LiveRun | None = None
        self._meter = Meter(0.0)
        self._offset = 0
        self._sample: tuple[float, Vitals] | None = None  # the last look at the process, by monotonic time
        self._clocks: tuple[float, float] | None = None  # wall and monotonic, once time is no longer that of a fold
        self.heard = clock.now()
        """When the agent said something last, in epoch seconds."""
        self.pulse: Pulse | None = None
        """What is to be said of the run that goes on; None when all is well."""

    # ------------------------------------------------------------------------------------------------- the bridge

    def note(self, now: float, offset: int) -> None:
        """The session has done a step at `now`, after `offset` bytes of output. Also while a process is folded again,
        with the times of then. Call it before the events of the step change which run goes on."""
        self._allow_for_sleep()
        line = offset > self._offset
        if line:
            self._offset = offset
            self.heard = now
        waits, run = self._subject.session.waits, self._subject.busy
        if run is not self._run:
            self._run, self.pulse, self._sample = run, None, None
            # A run that stood behind another one begins when that one has ended.
            began = min(now, max(self._meter.at, run.tracker.started)) if run is not None else now
            self._meter = Meter(began, waits)
        self._meter.note(now, waits, line=line)
        if line:
            self.pulse = self._sample = None

    async def run(self) -> None:
        """Look now and then, until cancelled. To be started when the process is folded, at the live end."""
        self._note_now()
        self._meter.lifeless = 0.0  # nobody has looked for other signs until now
        self._clocks = (self._clock.now(), self._clock.monotonic())
        while True:
            await self._clock.sleep(_LOOK_S)
            try:
                await self.look()
            except Exception:  # watching is a service to the run: a defect in it must not end the run
                log.exception("watch.failed")

    async def look(self) -> None:
        """Look once: measure, judge, and end the run if it has come to a limit."""
        subject = self._subject
        if subject.driver is None:
            return
        self._note_now()
        run, meter, pulse = self._run, self._meter, self.pulse
        if run is None or run.stopping:
            return
        if meter.silent >= _QUIET_S:
            vitals = await subject.driver.process.vitals()
            if self._meter is not meter or meter.silent < _QUIET_S:
                return  # meanwhile it spoke
            self.pulse = self._judge(vitals)
        if (limit := self._limit()) is not None:
            log.warning("run.limit_reached", run=run.run_id, why=limit.error)
            run.limit = limit
            await subject.stop()
        elif self.pulse != pulse:
            subject.show()

    # ---------------------------------------------------------------------------------------------------- judging

    def _note_now(self) -> None:
        driver = self._subject.driver
        self.note(max(self._meter.at, self._clock.now()), driver.offset if driver is not None else 0)

    def _allow_for_sleep(self) -> None:
        """What passed by the wall clock alone was no time of the agent."""
        if self._clocks is None:
            return
        before, self._clocks = self._clocks, (self._clock.now(), self._clock.monotonic())
        jump = (self._clocks[0] - before[0]) - (self._clocks[1] - before[1])
        if jump > _JUMP_S:
            self._meter.skip(jump)

    def _judge(self, vitals: Vitals | None) -> Pulse | None:
        """The state of an agent that has been silent for a while. What cannot be known is no evidence against it."""
        meter, now = self._meter, self._clock.monotonic()
        before, self._sample = self._sample, (now, vitals) if vitals is not None else None
        if vitals is None:
            meter.lifeless = 0.0
            return None
        if not vitals.alive:
            return Pulse("gone", self.heard)
        in_tool = any(wait.kind == "tool" for wait in self._subject.session.waits)
        active = vitals.children > 0 and in_tool
        if before is not None and now > before[0]:
            used = vitals.cpu_seconds - before[1].cpu_seconds
            active |= used >= _ACTIVE_SHARE * (now - before[0]) or vitals.children != before[1].children
        if active:
            meter.lifeless = 0.0
            return Pulse("quiet", meter.at - meter.silent, vitals.children)
        if meter.lifeless < self._limits.stuck:
            return None
        left = min(self._limits.silence - meter.lifeless if self._limits.silence else float("inf"), self._cap_left())
        return Pulse("stuck", meter.at - meter.lifeless, stops=meter.at + left if left < float("inf") else None)

    def _cap_left(self) -> float:
        return self._limits.run - self._meter.spent if self._limits.run else float("inf")

    def _limit(self) -> Limit | None:
        limits, meter = self._limits, self._meter
        if limits.silence and meter.lifeless >= limits.silence:
            return Limit(
                f"No sign of life for {_span(limits.silence)}: no output and no program at work. The run was stopped.",
                "Its session is kept: try again. The limit is watchdog.pre_result_silence_timeout.",
            )
        if limits.run and meter.spent >= limits.run:
            return Limit(
                f"The run took longer than {_span(limits.run)} and was stopped.",
                "Its session is kept: send a message to go on, or try again. The limit is watchdog.live_session_max_s.",
            )
        return None


def _span(seconds: float) -> str:
    """A limit in words, as it is written in the settings: `60 min`, `4h`, `90s`."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if 2 <= minutes <= 90 and minutes == int(minutes) else words.duration(seconds)


def as_told(event: E, run: LiveRun) -> E:
    """The end of a run as it is told: one that came to a limit has failed, and says why and what to do."""
    if run.limit is None or event.ok:
        return event
    return msgspec.structs.replace(event, outcome="", error=run.limit.error, advice=run.limit.advice)
