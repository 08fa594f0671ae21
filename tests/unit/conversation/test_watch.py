"""The watch: what it says of a quiet agent, what ends a run, and what never does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from untether.clock import ManualClock
from untether.conversation.live_run import LiveRun
from untether.conversation.progress import Pulse, wait_text
from untether.conversation.services import WatchLimits
from untether.conversation.watch import Meter, Watch, as_told
from untether.model import CompletedEvent, EngineId, Wait
from untether.process.host import Vitals
from untether.transport import ChatRef

pytestmark = pytest.mark.anyio

MINUTE, HOUR = 60.0, 3600.0
RESTING = Vitals(5.0, 2)


class Scene:
    """A live process with scripted waits and vitals, whose run began now."""

    def __init__(
        self, limits: WatchLimits | None = None, *, vitals: Callable[[], Vitals | None] = lambda: RESTING
    ) -> None:
        self.clock = ManualClock()
        self.busy: LiveRun | None = LiveRun(None, ChatRef("fake", "1"), "a task", self.clock.now())
        self.session: Any = SimpleNamespace(waits=())
        self.looked = 0
        self._vitals = vitals
        self.driver: Any = SimpleNamespace(offset=0, process=SimpleNamespace(vitals=self._look))
        self.stopped = anyio.Event()
        self.shown = 0
        self.watch = Watch(self.clock, limits or WatchLimits(), cast(Any, self))

    async def _look(self) -> Vitals | None:
        self.looked += 1
        return self._vitals()

    async def stop(self) -> None:
        self.stopped.set()
        assert self.busy is not None
        self.busy.stopping = True

    def show(self) -> None:
        self.shown += 1

    def waits_for(self, *kinds: Any, until: float | None = None) -> None:
        self.session.waits = tuple(Wait(kind, self.clock.now(), until) for kind in kinds)
        self.watch.note(self.clock.now(), self.driver.offset)

    def prints(self) -> None:
        self.driver.offset += 10
        self.watch.note(self.clock.now(), self.driver.offset)

    @property
    def line(self) -> str:
        assert self.busy is not None
        return wait_text(self.busy.tracker, self.session.waits, self.clock.now(), self.watch.pulse)

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, with the looks that fall into it."""
        await self.clock.advance(seconds)


@pytest.fixture
async def scene(request: pytest.FixtureRequest) -> Any:
    made = Scene(**getattr(request, "param", {}))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.watch.run)
        await made.clock.wait_for_sleepers()
        yield made
        tasks.cancel_scope.cancel()


def scenes(*values: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scene", values, indirect=True)


async def test_an_agent_that_prints_is_left_alone(scene: Scene) -> None:
    for _ in range(20):
        scene.prints()
        await scene.pass_by(50)
    assert scene.looked == 0
    assert scene.line == ""


async def test_no_sign_of_life_ends_the_run_and_says_why(scene: Scene) -> None:
    scene.waits_for("model")
    await scene.pass_by(80)
    assert scene.line == "⏳ model, 1m 20s of silence (normal)"
    await scene.pass_by(10 * MINUTE)
    assert scene.line.startswith("⏳ stuck? No sign of life for 11m 20s · stopped in 48m 4")
    await scene.pass_by(47 * MINUTE)
    assert not scene.stopped.is_set()
    await scene.pass_by(2 * MINUTE)
    assert scene.stopped.is_set()
    assert scene.busy is not None
    event = as_told(CompletedEvent(EngineId("x"), False, "half an answer", outcome="stopped"), scene.busy)
    assert event.error == "No sign of life for 60 min: no output and no program at work. The run was stopped."
    assert "try again" in event.advice
    assert (event.outcome, event.answer) == ("", "half an answer")


async def test_an_answer_that_came_all_the_same_is_told_as_it_is(scene: Scene) -> None:
    await scene.pass_by(2 * HOUR)
    assert scene.busy is not None
    assert scene.busy.limit is not None
    event = CompletedEvent(EngineId("x"), True, "done")
    assert as_told(event, scene.busy) is event


def computing() -> dict[str, Any]:
    seconds = iter(range(10, 100_000, 10))
    return {"vitals": lambda: Vitals(float(next(seconds)), 0)}


@scenes(computing())
async def test_silence_alone_ends_nothing_while_the_agent_computes(scene: Scene) -> None:
    scene.waits_for("tool")
    await scene.pass_by(3 * HOUR + 30)
    assert not scene.stopped.is_set()
    assert scene.line == "⏳ quiet for 3h, but alive: it computes"


async def test_a_tool_whose_program_sleeps_is_alive(scene: Scene) -> None:
    scene.waits_for("tool")
    await scene.pass_by(3 * HOUR)
    assert not scene.stopped.is_set()
    assert scene.line == "⏳ quiet for 3h, but alive: 2 programs at work"


async def test_programs_that_do_nothing_are_no_sign_of_life_while_the_model_is_waited_for(scene: Scene) -> None:
    """Tool servers run as long as the agent does."""
    scene.waits_for("model")
    await scene.pass_by(61 * MINUTE)
    assert scene.stopped.is_set()


@scenes({"vitals": lambda: None})
async def test_what_cannot_be_known_is_no_evidence(scene: Scene) -> None:
    scene.waits_for("model")
    await scene.pass_by(3 * HOUR)
    assert not scene.stopped.is_set()
    await scene.pass_by(HOUR + MINUTE)
    assert scene.busy is not None
    assert scene.busy.limit is not None
    assert scene.busy.limit.error == "The run took longer than 4h and was stopped."


@scenes({"vitals": lambda: Vitals(alive=False)})
async def test_an_agent_that_has_gone_is_told(scene: Scene) -> None:
    scene.waits_for("tool")
    await scene.pass_by(2 * MINUTE)
    assert scene.line == "⏳ the agent has ended; reading what it left"
    assert scene.shown == 1


@pytest.mark.parametrize("kind", ["human", "quota"])
async def test_a_day_of_waiting_for_a_person_or_a_quota_counts_toward_nothing(scene: Scene, kind: Any) -> None:
    await scene.pass_by(50 * MINUTE)
    scene.waits_for(kind)
    await scene.pass_by(24 * HOUR)
    assert not scene.stopped.is_set()
    scene.waits_for("model")
    await scene.pass_by(9 * MINUTE)
    assert not scene.stopped.is_set()
    await scene.pass_by(2 * MINUTE)
    assert scene.stopped.is_set()


async def test_a_quota_that_is_back_counts_again(scene: Scene) -> None:
    scene.waits_for("quota", until=scene.clock.now() + HOUR)
    await scene.pass_by(HOUR + 59 * MINUTE)
    assert not scene.stopped.is_set()
    await scene.pass_by(2 * MINUTE)
    assert scene.stopped.is_set()


async def test_the_sleep_of_the_machine_is_no_time_of_the_agent(scene: Scene) -> None:
    scene.waits_for("model")
    await scene.pass_by(30 * MINUTE)
    scene.clock.jump(8 * HOUR)
    await scene.pass_by(29 * MINUTE)
    assert not scene.stopped.is_set()
    scene.prints()
    scene.clock.jump(8 * HOUR)
    scene.prints()  # before the next look
    await scene.pass_by(MINUTE)
    assert not scene.stopped.is_set()


@scenes({"limits": WatchLimits(silence=0, run=0)})
async def test_limits_that_are_off_end_nothing(scene: Scene) -> None:
    await scene.pass_by(100 * HOUR)
    assert not scene.stopped.is_set()
    assert scene.line == "⏳ stuck? No sign of life for 4d 4h"


@scenes({"limits": WatchLimits(run=600.0), **computing()})
async def test_each_run_of_a_process_has_its_own_time(scene: Scene) -> None:
    await scene.pass_by(9 * MINUTE)
    scene.busy = LiveRun(None, ChatRef("fake", "1"), "the next", scene.clock.now())
    await scene.pass_by(9 * MINUTE)
    assert not scene.stopped.is_set()
    scene.busy = None
    await scene.pass_by(HOUR)
    assert not scene.stopped.is_set()
    assert scene.watch.pulse is None


async def test_a_process_that_is_folded_again_is_not_ended_before_it_was_looked_at() -> None:
    """The times of the fold are those of then; nobody saw whether it was at work meanwhile."""
    old = Scene()
    begin = old.clock.now()
    assert old.busy is not None
    old.watch.note(begin + 1, 10)
    old.clock.jump(3 * HOUR)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(old.watch.run)
        await old.clock.wait_for_sleepers()
        await old.pass_by(30 * MINUTE)
        assert not old.stopped.is_set()
        await old.pass_by(31 * MINUTE)
        assert old.stopped.is_set()
        assert old.busy.limit is not None
        assert "No sign of life" in old.busy.limit.error
        tasks.cancel_scope.cancel()


# ------------------------------------------------------------------------------------------------------ the meter

KINDS = st.sampled_from([(), ("model",), ("tool",), ("human",), ("quota",), ("human", "tool"), ("quota", "human")])


@given(st.lists(st.tuples(KINDS, st.integers(1, 50_000), st.integers(1, 4)), min_size=1, max_size=20))
def test_human_and_quota_time_never_counts(phases: list[tuple[tuple[Any, ...], int, int]]) -> None:
    """Whatever the order of the waits, and however often it is looked at: the rest counts, and nothing else."""
    now, worked = 1000.0, 0.0
    meter = Meter(now)
    for kinds, seconds, looks in phases:
        waits = tuple(Wait(kind, now) for kind in kinds)
        meter.note(now, waits)
        for look in range(looks):
            meter.note(now + seconds * (look + 1) / looks, waits)
        now += seconds
        if not {"human", "quota"} & set(kinds):
            worked += seconds
    assert meter.spent == pytest.approx(worked)
    assert meter.lifeless == meter.silent == meter.spent


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 100))
def test_a_wait_that_began_between_two_looks_counts_from_its_beginning(before: int, waited: int, after: int) -> None:
    meter = Meter(0.0)
    meter.note(float(before + waited), (Wait("human", float(before)),))
    assert meter.spent == before
    meter.note(float(before + waited), ())
    meter.note(float(before + waited + after), ())
    assert meter.spent == before + after


def test_a_line_ends_the_silence_and_not_the_run() -> None:
    meter = Meter(0.0)
    meter.note(100.0, ())
    meter.note(130.0, (), line=True)
    assert (meter.spent, meter.silent, meter.lifeless) == (130.0, 0.0, 0.0)


def test_a_pulse_gives_way_to_what_the_provider_says() -> None:
    scene = Scene()
    scene.watch.pulse = Pulse("stuck", scene.clock.now() - 700)
    scene.session.waits = (Wait("retry", 0.0, scene.clock.now() + 9, "the provider is overloaded, retry 3 of 10"),)
    assert scene.line == "↻ the provider is overloaded, retry 3 of 10 in 9s"
