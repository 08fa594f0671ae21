"""Driver, process and journal together: what happened live is what a fold of the stored streams gives again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.abc
import pytest

from tests.unit.process.agents import launch
from untether.clock import SystemClock
from untether.model import (
    Action,
    ActionEvent,
    CompletedEvent,
    Decision,
    Deny,
    EngineId,
    UntetherEvent,
    Wait,
)
from untether.process.direct import DirectProcess
from untether.process.driver import Also, Driver, Ended, read_file
from untether.process.host import Line, Receipt, Rung, WriteFailed
from untether.process.journal import JournalReader
from untether.process.replay import Folded, StoredInput, fold
from untether.session import (
    Begin,
    CallResult,
    Capabilities,
    Decide,
    End,
    Input,
    Interrupt,
    Place,
    ProcessExit,
    Prompt,
    ReadFile,
    Say,
    SessionChange,
    StartFacts,
    Step,
    When,
)

pytestmark = pytest.mark.anyio

TOY = EngineId("toy")
BEGIN = Begin(StartFacts(process_id="p1", engine="toy", cwd="/"), Prompt("m1", "hello"))

# Echoes each line with a counter; "burst" gives many lines, "bye" ends it.
ECHO = """
for n, line in enumerate(sys.stdin):
    word = line.strip()
    for i in range(2000 if word == "burst" else 1): say(f"{n} {word} {i}")
    if word == "bye": sys.exit(4)
"""


class ToySession:
    """Tells every line as an action; a line may make it read a file, wait for a deadline, or stop."""

    capabilities = Capabilities()
    waits: tuple[Wait, ...] = ()
    unknown: Mapping[str, int] = {}

    def __init__(self) -> None:
        self.count = 0
        self.deadline: float | None = None

    def _step(self, title: str, now: float, **more: object) -> Step:
        self.count += 1
        action = Action(f"a{self.count}", "note", title, {"now": now})
        return Step((ActionEvent(TOY, action, "completed", ok=True),), deadline=self.deadline, **more)  # type: ignore[arg-type]

    def begin(self, start: StartFacts, prompt: Prompt, now: float) -> Step:
        return self._step("began", now, writes=(prompt.text.encode() + b"\n", b"second\n"))

    def feed(self, line: bytes, now: float) -> Step:
        word, _, rest = line.decode().partition(" ")[2].partition(" ")
        if word.startswith("read:"):
            return self._step(word, now, calls=(ReadFile("c1", word[5:], 4),))
        if word == "wait":
            self.deadline = now + 0.05
            return Step(deadline=self.deadline)
        if word == "halt":
            return self._step(word, now, stop=True)
        if word == "burst" and rest != "0":
            return Step(deadline=self.deadline)
        return self._step(word, now)

    def decide(self, interaction_id: str, decision: Decision, now: float) -> Step:
        return self._step(f"decided {interaction_id}", now, writes=(b"decided\n",))

    def say(self, prompt: Prompt, when: When, now: float) -> Step:
        return self._step("said", now, writes=(prompt.text.encode() + b"\n",))

    def interrupt(self, now: float, *, cancel_queued: bool = False) -> Step:
        return self._step("interrupted", now, close_stdin=True)

    def configure(self, change: SessionChange, now: float) -> Step:
        return Step()

    def answer(self, call_id: str, result: CallResult, now: float) -> Step:
        return self._step(f"{call_id}: {result.text or result.error}", now)

    def tick(self, now: float) -> Step:
        self.deadline = None
        return self._step("ticked", now)

    def skipped(self, length: int, now: float) -> Step:
        return self._step(f"skipped {length}", now)

    def end(self, exit: ProcessExit, now: float) -> Step:
        self.count += 1
        return Step((CompletedEvent(TOY, ok=exit.code == 0, answer=f"{self.count} steps", error=exit.signal),))


class Effect(NamedTuple):
    events: Sequence[UntetherEvent]
    place: Place
    now: float


class Recorder:
    """Input log and effects in memory."""

    def __init__(self) -> None:
        self.inputs: list[StoredInput] = []
        self.effects: list[Effect] = []
        self.recalled: list[Input] = []
        self.caught_up_after: int | None = None
        self.exit: ProcessExit | None = None
        self.news = anyio.Event()

    async def append(self, item: Input, offset: int, now: float, also: Also | None) -> int:
        await anyio.lowlevel.checkpoint()
        if also is not None:
            also(self)
        self.inputs.append(StoredInput(len(self.inputs) + 1, offset, now, item))
        return len(self.inputs)

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.effects.append(Effect(events, place, now))
        self.news.set()
        self.news = anyio.Event()

    async def settled(self) -> None:
        pass

    async def recall(self, item: Input) -> None:
        self.recalled.append(item)

    async def caught_up(self, decided: Mapping[str, Sequence[Receipt]]) -> None:
        self.caught_up_after = len(self.effects)

    async def over(self, exit: ProcessExit, now: float) -> None:
        self.exit = exit

    def titles(self) -> list[str]:
        return [e.action.title for effect in self.effects for e in effect.events if isinstance(e, ActionEvent)]

    async def until(self, title: str) -> None:
        with anyio.fail_after(5):
            while title not in self.titles():
                await self.news.wait()


class Live(NamedTuple):
    driver: Driver
    recorder: Recorder
    ended: anyio.Event


@asynccontextmanager
async def driven(folder: Path, source: str = ECHO, line_limit: int = 1 << 20) -> AsyncIterator[Live]:
    recorder = Recorder()
    process = DirectProcess.spawned(launch(source), clock=SystemClock(), folder=folder, line_limit=line_limit)
    async with process as agent, anyio.create_task_group() as tasks:
        driver = Driver(ToySession(), agent, inputs=recorder, effects=recorder, clock=SystemClock())
        live = Live(driver, recorder, anyio.Event())

        async def run(task_status: anyio.abc.TaskStatus[None]) -> None:
            await driver.run(BEGIN, task_status=task_status)
            live.ended.set()

        await tasks.start(run)
        yield live
        tasks.cancel_scope.cancel()


async def finish(live: Live) -> None:
    with anyio.fail_after(10):
        await live.ended.wait()


def folded(folder: Path, inputs: Sequence[StoredInput], line_limit: int = 1 << 20) -> list[Effect]:
    steps = fold(ToySession(), JournalReader(folder, line_limit).lines(), inputs)
    return [Effect(step.events, place, now) for step, place, now, _ in steps if step.events]


async def test_inputs_get_ordinals_and_the_offset_at_which_they_came(tmp_path: Path) -> None:
    async with driven(tmp_path / "p") as live:
        await live.recorder.until("second")
        await live.driver.submit(Say(Prompt("m2", "bye")))
        await finish(live)
    stored = [(row.ordinal, row.offset, type(row.item)) for row in live.recorder.inputs]
    text = b"0 hello 0\n1 second 0\n2 bye 0\n"
    assert stored == [(1, 0, Begin), (2, len(b"0 hello 0\n1 second 0\n"), Say), (3, len(text), End)]
    assert (tmp_path / "p" / "out.jsonl").read_bytes() == text


async def test_a_fold_of_the_stored_streams_gives_the_same_steps(tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("plan and more")
    async with driven(tmp_path / "p") as live:
        for word in ["burst", f"read:{tmp_path}/plan", "wait", "burst"]:
            await live.driver.submit(Say(Prompt("m", word)))
        await live.driver.submit(Decide("r1", Deny()))
        await live.recorder.until("c1: plan")
        await live.recorder.until("ticked")
        await live.driver.submit(Say(Prompt("m", "bye")))
        await finish(live)
    assert {"began", "hello", "burst", "decided r1", "bye"} <= set(live.recorder.titles())
    assert folded(tmp_path / "p", live.recorder.inputs) == live.recorder.effects


async def test_places_and_times_only_grow(tmp_path: Path) -> None:
    async with driven(tmp_path / "p") as live:
        async with anyio.create_task_group() as tasks:
            for word in ["burst", "a", "b", "burst", "c"]:
                tasks.start_soon(live.driver.submit, Say(Prompt("m", word)))
        await live.driver.submit(Say(Prompt("m", "bye")))
        await finish(live)
    places = [effect.place for effect in live.recorder.effects]
    assert places == sorted(set(places))
    times = [effect.now for effect in live.recorder.effects]
    assert times == sorted(times)


async def test_a_refused_input_leaves_no_trace(tmp_path: Path) -> None:
    def refuse(_: object) -> None:
        raise PermissionError("taken by someone else")

    async with driven(tmp_path / "p") as live:
        await live.recorder.until("second")
        with pytest.raises(PermissionError):
            await live.driver.submit(Decide("r1", Deny()), also=refuse)
        await live.driver.submit(Say(Prompt("m2", "bye")), also=lambda log: None)
        await finish(live)
    assert [type(row.item) for row in live.recorder.inputs] == [Begin, Say, End]
    assert live.recorder.titles() == ["began", "hello", "second", "said", "bye"]


async def test_the_end_comes_once_after_all_output(tmp_path: Path) -> None:
    async with driven(tmp_path / "p") as live:
        await live.driver.submit(Say(Prompt("m2", "bye")))
        await finish(live)
        with pytest.raises(Ended):
            await live.driver.submit(Interrupt())
    completed = [e for effect in live.recorder.effects for e in effect.events if isinstance(e, CompletedEvent)]
    assert completed == [CompletedEvent(TOY, ok=False, answer="6 steps", error="")]
    assert live.recorder.effects[-1].events == tuple(completed)
    assert isinstance(live.recorder.inputs[-1].item, End)


async def test_a_receipt_tells_what_reached_the_agent(tmp_path: Path) -> None:
    async with driven(tmp_path / "p", "os.close(0); say('0 closed'); time.sleep(60)") as live:
        await live.recorder.until("closed")
        (receipt,) = await live.driver.submit(Say(Prompt("m2", "hello?")))
        with anyio.fail_after(5), pytest.raises(WriteFailed):
            await receipt.written()
        await live.driver.process.stop([Rung("SIGKILL", 2.0)])
        await finish(live)
    assert folded(tmp_path / "p", live.recorder.inputs) == live.recorder.effects


async def test_a_step_may_close_stdin(tmp_path: Path) -> None:
    async with driven(tmp_path / "p") as live:
        await live.recorder.until("second")
        await live.driver.submit(Interrupt())
        await finish(live)
    end = live.recorder.inputs[-1].item
    assert end == End(ProcessExit(code=0))


async def test_a_step_may_stop_the_agent(tmp_path: Path) -> None:
    async with driven(tmp_path / "p") as live:
        await live.driver.submit(Say(Prompt("m2", "halt")))
        await finish(live)
    end = live.recorder.inputs[-1].item
    assert isinstance(end, End)
    assert end.exit.stopped
    assert folded(tmp_path / "p", live.recorder.inputs) == live.recorder.effects


async def test_a_line_over_the_limit_is_told_and_folds_alike(tmp_path: Path) -> None:
    source = "say('0 up'); say('x' * 5000); say('1 more'); os.write(1, b'2 half')"
    async with driven(tmp_path / "p", source, line_limit=1000) as live:
        await finish(live)
    assert live.recorder.titles() == ["began", "up", "skipped 5000", "more", "half"]
    assert folded(tmp_path / "p", live.recorder.inputs, 1000) == live.recorder.effects


async def test_an_answer_that_comes_as_the_agent_ends_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("plan")
    source = f"say('0 read:{tmp_path}/plan')"
    for _ in range(5):
        folder = tmp_path / str(_)
        async with driven(folder, source) as live:
            await finish(live)
        assert folded(folder, live.recorder.inputs) == live.recorder.effects


def test_an_input_folds_between_the_lines_where_it_came() -> None:
    lines = [Line(10, 1.0, b"0 one"), Line(20, 2.0, b"0 two")]
    inputs = [StoredInput(1, 0, 0.5, BEGIN), StoredInput(2, 10, 5.0, Say(Prompt("m", "x")))]
    steps: list[Folded] = list(fold(ToySession(), lines, inputs))
    assert [(place.offset, place.ordinal, now) for _, place, now, _ in steps] == [
        (0, 1, 0.5),
        (10, 1, 1.0),
        (10, 2, 5.0),
        (20, 2, 5.0),
    ]
    assert json.dumps([step.writes[0].decode() for step, *_ in steps if step.writes]) == '["hello\\n", "x\\n"]'


async def test_a_file_is_read_only_within_the_folder_it_must_lie_in(tmp_path: Path) -> None:
    folder, outside = tmp_path / "plans", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("secret")
    (folder / "plan.md").write_text("the plan")
    (folder / "link.md").symlink_to(outside)

    async def read(path: Path) -> CallResult:
        return await read_file(ReadFile("c1", str(path), 100, within=f"{folder}/"))

    assert await read(folder / "plan.md") == CallResult(text="the plan")
    for path in (folder / "link.md", folder / ".." / "secret", outside):
        assert await read(path) == CallResult(error=f"it does not lie in {folder}/")
