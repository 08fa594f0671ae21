"""Runners of engines that print JSON lines: as a generator of events, and as a session."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from structlog.testing import capture_logs

from tests.contract.engines import RESULT, SESSION, TOOL, TOOL_END, frames
from tests.contract.rules import assert_contract
from tests.contract.toy_engine import AGENT, ToyRunner, ToyState
from untether.clock import SystemClock
from untether.events import EventFactory
from untether.exit_text import last_words
from untether.jsonl_session import JsonlSession
from untether.model import (
    ActionEvent,
    Allow,
    CompletedEvent,
    EngineId,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
    Usage,
    Wait,
)
from untether.process.direct import DirectProcess
from untether.process.driver import Driver
from untether.process.host import Receipt
from untether.runner import (
    PRESPAWN_BLOCKED_KEY,
    JsonlStreamState,
    RunOptions,
    RunStreamHandle,
    bind_run,
    prompt_text,
)
from untether.session import Attachment, Begin, Input, Place, ProcessExit, Prompt, SetModel, StartFacts

pytestmark = pytest.mark.anyio

TOY = EngineId("toy")
TOKEN = ResumeToken(TOY, "0199a213-cafe")
OTHER = ResumeToken(TOY, "ffff0000-beef")
PROMPT = Prompt("prompt-1", "Do it")


def orders(*rows: dict[str, Any] | str) -> str:
    """A prompt that makes the toy agent print these frames, or follow these orders."""
    return "\n".join(row if isinstance(row, str) else ">" + json.dumps(row) for row in rows)


async def run(runner: ToyRunner, prompt: str, resume: ResumeToken | None = None) -> list[UntetherEvent]:
    with anyio.fail_after(10):
        return [event async for event in runner.run(prompt, resume)]


def last(events: Sequence[UntetherEvent]) -> CompletedEvent:
    completed = events[-1]
    assert isinstance(completed, CompletedEvent)
    return completed


# ------------------------------------------------------------------------------------------------------- a run


async def test_a_run_from_its_prompt_to_its_answer() -> None:
    events = await run(ToyRunner(), orders(SESSION, TOOL, TOOL_END, RESULT))
    assert_contract(events)
    assert [type(event) for event in events] == [StartedEvent, ActionEvent, ActionEvent, CompletedEvent]
    assert last(events) == CompletedEvent(TOY, True, "Done.", TOKEN, usage={"turns": 1})


async def test_the_last_line_counts_without_a_newline() -> None:
    assert last(await run(ToyRunner(), orders(SESSION, "<" + json.dumps(RESULT)))).answer == "Done."


async def test_an_agent_that_fails_tells_code_session_and_its_last_words() -> None:
    words = "!\x1b[31mError:\x1b[0m cannot open /home/ann/secret/key.pem, see https://example.com/help?u=ann"
    error = last(await run(ToyRunner(), orders(SESSION, words, "=3"), TOKEN))
    assert error.error == (
        "toy ended with exit code 3 (session 0199a213, resumed): Error: cannot open [path], see [url]"
    )
    assert error.resume == TOKEN
    assert error.outcome == "ended_early"
    assert "/home/ann/secret/key.pem" in error.raw_error
    assert "Try again" in error.advice


async def test_an_agent_that_is_killed_tells_the_signal() -> None:
    error = last(await run(ToyRunner(), orders(TOOL, "~SIGKILL")))
    assert error.error == "toy was ended by SIGKILL (new session)"


async def test_an_agent_that_ends_without_a_result() -> None:
    events = await run(ToyRunner(), orders(SESSION, TOOL))
    assert_contract(events)
    assert last(events).error == "toy ended without an answer."


async def test_an_agent_in_another_session_fails_the_run_and_is_ended() -> None:
    handle = RunStreamHandle()
    with bind_run(handle=handle), pytest.raises(RuntimeError, match="opened session ffff0000 in place of 0199a213"):
        await run(ToyRunner(), orders({"type": "session", "id": OTHER.value}, "."), TOKEN)
    assert handle.pid is not None
    assert not psutil.pid_exists(handle.pid)


async def test_an_agent_that_stays_after_its_answer_is_stopped() -> None:
    runner = ToyRunner()
    runner.linger_s = 0.05
    events = await run(runner, orders(SESSION, RESULT, "."))
    assert last(events).ok


async def test_leaving_a_run_ends_its_agent() -> None:
    handle = RunStreamHandle()
    with bind_run(handle=handle), anyio.fail_after(10):
        events = ToyRunner().run(orders(SESSION, "."), None)
        assert isinstance(await anext(events), StartedEvent)
        await events.aclose()  # type: ignore[attr-defined]
    assert handle.pid is not None
    assert not psutil.pid_exists(handle.pid)


async def test_a_cancelled_run_ends_its_agent_and_frees_its_session() -> None:
    runner, handle = ToyRunner(), RunStreamHandle()
    with bind_run(handle=handle), anyio.move_on_after(10) as scope:
        async for _ in runner.run(orders(SESSION, "."), None):
            scope.cancel()
    assert scope.cancelled_caught
    assert handle.pid is not None
    assert not psutil.pid_exists(handle.pid)
    assert runner.lock_for(TOKEN).value == 1


async def test_a_session_of_another_engine_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'claude'"):
        await run(ToyRunner(), "", ResumeToken(EngineId("claude"), "1"))


@pytest.mark.parametrize("resume", [None, TOKEN])
async def test_a_missing_cli_blocks_the_run_and_keeps_the_session(resume: ResumeToken | None) -> None:
    runner, handle = ToyRunner("no-such-program-here"), RunStreamHandle()
    runner.install_cmd = "pip install toy"
    with bind_run(handle=handle):
        [event] = await run(runner, "hello", resume)
    assert isinstance(event, CompletedEvent)
    assert event.usage == {PRESPAWN_BLOCKED_KEY: "cli_missing"}
    assert (event.ok, event.outcome, event.resume) == (False, "blocked", resume)
    assert event.error == "toy was not found: there is no program `no-such-program-here` on the PATH."
    assert "`pip install toy`" in event.advice
    assert (handle.stream, runner.last_pid) == (None, None)


async def test_a_cli_that_is_too_old_blocks_the_run(tmp_path: Path) -> None:
    program = tmp_path / "toy"
    program.write_text("#!/bin/sh\necho toy 1.9.1\n")
    program.chmod(0o755)
    runner = ToyRunner(str(program))
    runner.min_version = "2.0"
    event = last(await run(runner, "hello"))
    assert event.usage == {PRESPAWN_BLOCKED_KEY: "cli_unsupported"}
    assert event.error == "toy 1.9.1 is too old: 2.0 or newer is needed."
    assert runner.cli_version == "1.9.1"


async def test_a_missing_folder_blocks_the_run(tmp_path: Path) -> None:
    with bind_run(folder=str(tmp_path / "gone")):
        event = last(await run(ToyRunner(), "hello", TOKEN))
    assert event.error == f"The folder {tmp_path / 'gone'} does not exist."
    assert event.usage == {PRESPAWN_BLOCKED_KEY: "spawn_folder"}
    assert event.resume == TOKEN


async def test_the_agents_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Configured(ToyRunner):
        def env(self, *, state: ToyState) -> dict[str, str]:
            return {"COLOUR": "blue"}

    monkeypatch.setenv("SOME_SERVICE_TOKEN", "secret")
    monkeypatch.setenv("TOY_HOME", "/toys")
    told = {
        name: last(await run(Configured(), orders(f"${name}"))).answer
        for name in ("UNTETHER_SESSION", "COLOUR", "TOY_HOME", "SOME_SERVICE_TOKEN")
    }
    assert told == {"UNTETHER_SESSION": "1", "COLOUR": "blue", "TOY_HOME": "/toys", "SOME_SERVICE_TOKEN": "-"}


async def test_a_prompt_that_no_pipe_can_carry_is_cleaned() -> None:
    prompt = "\ud800 \0" + "\n" + orders(RESULT)
    assert last(await run(ToyRunner(), prompt)).ok


async def test_a_prompt_larger_than_a_pipe() -> None:
    assert last(await run(ToyRunner(), "x" * 1_000_000 + "\n" + orders(RESULT))).ok


async def test_concurrent_runs_publish_their_streams_to_themselves() -> None:
    runner, handles = ToyRunner(), [RunStreamHandle(), RunStreamHandle()]

    async def one(handle: RunStreamHandle, id: str) -> None:
        with bind_run(handle=handle):
            await run(runner, orders({"type": "session", "id": id}, RESULT))

    async with anyio.create_task_group() as tasks:
        for number, handle in enumerate(handles):
            tasks.start_soon(one, handle, str(number))
    assert handles[0].pid != handles[1].pid
    found = [handle.stream.found_session.value for handle in handles if handle.stream and handle.stream.found_session]
    assert found == ["0", "1"]
    assert runner.last_pid in [handle.pid for handle in handles]
    assert runner.current_stream in [handle.stream for handle in handles]


async def test_the_stream_state_at_the_end() -> None:
    handle = RunStreamHandle()
    with bind_run(handle=handle):
        await run(ToyRunner(), orders(SESSION, RESULT, TOOL, "=4"), TOKEN)
    assert handle.stream == JsonlStreamState(
        expected_session=TOKEN,
        found_session=TOKEN,
        did_emit_completed=True,
        ignored_after_completed=True,
        jsonl_seq=3,
        last_event_type="result",
        saw_result=True,
        proc_returncode=4,
    )


# ----------------------------------------------------------------------------------------------- session locks


async def test_a_resumed_run_waits_for_its_session_before_it_spawns() -> None:
    runner, handle = ToyRunner(), RunStreamHandle()
    lock = runner.lock_for(TOKEN)
    await lock.acquire()
    with bind_run(handle=handle):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, runner, orders(SESSION, RESULT), TOKEN)
            await anyio.wait_all_tasks_blocked()
            assert handle.pid is None
            lock.release()
    assert handle.pid is not None


async def test_a_new_run_takes_its_session_before_it_tells_it_and_holds_it_to_the_end() -> None:
    runner, events = ToyRunner(), list[UntetherEvent]()
    lock = runner.lock_for(TOKEN)
    await lock.acquire()

    async def consume() -> None:
        async for event in runner.run(orders(SESSION, RESULT), None):
            events.append(event)
            assert lock.value == 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        with anyio.fail_after(10):
            while runner.current_stream is None or runner.current_stream.found_session is None:
                await anyio.wait_all_tasks_blocked()
                await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert events == []
        lock.release()
    assert_contract(events)
    assert lock.value == 1


async def test_locks_go_with_their_runs() -> None:
    runner = ToyRunner()
    await run(runner, orders(SESSION, RESULT))
    with pytest.raises(RuntimeError):
        await run(runner, orders({"type": "session", "id": "?"}), TOKEN)
    assert len(runner.session_locks) == 0


async def test_a_run_that_moves_to_another_session_holds_both() -> None:
    runner, held = ToyRunner(), list[set[str]]()
    async for _ in runner.run(orders(SESSION, {"type": "moved", "id": OTHER.value}, RESULT), TOKEN):
        held.append({key for key, lock in runner.session_locks.items() if lock.value == 0})
    assert held[-1] == {"toy:0199a213-cafe", "toy:ffff0000-beef"}


# ------------------------------------------------------------------------------------------------- what lines mean


def opened(runner: ToyRunner | None = None, resume: ResumeToken | None = None, **settings: Any) -> JsonlSession:
    """A session that has begun, at second 0."""
    runner = runner or ToyRunner()
    session = runner.session(StartFacts("process-1", "toy", "/repo", resume=resume, settings=settings))
    assert isinstance(session, JsonlSession)
    session.begin(StartFacts("process-1", "toy", "/repo", resume=resume, settings=settings), PROMPT, 0.0)
    return session


def feed(session: JsonlSession, *rows: dict[str, Any] | bytes) -> list[UntetherEvent]:
    events: list[UntetherEvent] = []
    for now, line in enumerate(frames(*rows), 1):
        events += session.feed(line, now).events
    return events


def warnings(events: Sequence[UntetherEvent]) -> list[str]:
    return [event.action.title for event in events if isinstance(event, ActionEvent) and event.action.kind == "warning"]


async def test_lines_that_cannot_be_used_become_warnings_and_the_run_goes_on() -> None:
    class Picky(ToyRunner):
        def decode_jsonl(self, *, line: bytes) -> Any | None:
            data = super().decode_jsonl(line=line)
            if data and "type" not in data:
                raise ValueError("no type")
            return data

    with capture_logs():
        events = feed(opened(Picky()), SESSION, b"oops", {"a": 1}, {"type": "tool_end", "id": "?"}, b"", b" \r", RESULT)
    assert warnings(events) == [
        "toy printed a line that is not JSON; ignored",
        "toy printed a line that is not understood; ignored",
        "A line from toy could not be translated; ignored",
    ]
    details = [event.action.detail for event in events if isinstance(event, ActionEvent)]
    assert details == [
        {"line": "oops"},
        {"line": '{"a": 1}', "error": "no type"},
        {"error": "'?'", "type": "tool_end"},
    ]
    assert len({event.action.id for event in events if isinstance(event, ActionEvent)}) == 3
    assert last(events).ok


async def test_a_hook_that_fails_itself_costs_only_its_own_events() -> None:
    class Broken(ToyRunner):
        def invalid_json_events(self, *, raw: str, line: str, state: Any) -> list[UntetherEvent]:
            raise KeyError("bug")

        def stream_end_events(self, **facts: Any) -> list[UntetherEvent]:
            raise KeyError("bug")

    session = opened(Broken())
    with capture_logs() as logs:
        events = feed(session, SESSION, b"oops") + list(session.end(ProcessExit(code=0), 9.0).events)
    assert_contract(events)
    assert last(events).error == "toy ended without an answer."
    assert [entry["hook"] for entry in logs if entry["event"] == "jsonl.hook_failed"] == [
        "invalid_json_events",
        "exit_events",
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"\xef\xbb\xbf" + json.dumps(RESULT).encode(),
        b"\0\0" + json.dumps(RESULT).encode() + b"\0",
        b"npm notice {new} " + json.dumps(RESULT).encode(),
        b"\x1b[2K\r" + json.dumps(RESULT).encode() + b"\r",
    ],
    ids=["BOM", "NUL", "text in front", "terminal codes"],
)
async def test_noise_around_a_frame_loses_no_frame(line: bytes) -> None:
    if b"{new}" in line:
        line = line.replace(b"{new} ", b"")
    assert last(feed(opened(), line)).answer == "Done."


async def test_what_comes_before_the_session_is_told_after_it() -> None:
    events = feed(opened(), b"npm warn", TOOL, SESSION, TOOL_END)
    assert [type(event) for event in events] == [StartedEvent, PromptEvent, ActionEvent, ActionEvent, ActionEvent]


async def test_an_agent_that_never_starts_is_not_kept_quiet_for_ever() -> None:
    assert len(warnings(feed(opened(), *[b"noise"] * 250))) == 250


async def test_the_session_may_not_change_unless_declared() -> None:
    session = opened()
    feed(session, SESSION, TOOL)
    step = session.feed(frames({"type": "session", "id": OTHER.value})[0], 9.0)
    assert step.stop
    assert [type(event) for event in step.events] == [ActionEvent, CompletedEvent]
    completed = last(step.events)
    assert (completed.ok, completed.outcome) == (False, "ended_early")
    assert completed.error == "toy opened session ffff0000 in place of 0199a213."
    assert session.feed(frames(RESULT)[0], 10.0).empty
    assert session.end(ProcessExit(signal="SIGKILL", stopped=True), 11.0).empty


async def test_a_foreign_session_keeps_the_one_that_was_resumed() -> None:
    completed = last(feed(opened(resume=TOKEN), {"type": "session", "id": OTHER.value}))
    assert completed.resume == TOKEN
    assert completed.prompts == ("prompt-1",)


@pytest.mark.parametrize("resume", [None, TOKEN])
async def test_a_declared_change_of_session_is_followed(resume: ResumeToken | None) -> None:
    moved = {"type": "moved", "id": OTHER.value}
    for rows in ([SESSION, moved, RESULT], [moved, {"type": "session", "id": OTHER.value}, RESULT]):
        events = feed(opened(resume=resume), *rows)
        assert SessionChangedEvent(TOY, OTHER, "reset") in events
        assert sum(isinstance(event, StartedEvent) for event in events) == 1
        assert last(events).resume == OTHER


async def test_a_second_started_event_passes_only_with_meta() -> None:
    events = feed(opened(), SESSION, SESSION, SESSION | {"model": "big"})
    assert [event.meta for event in events if isinstance(event, StartedEvent)] == [None, {"model": "big"}]


class LiveRunner(ToyRunner):
    followup_turns = True


async def test_later_results_are_turns_when_the_agent_goes_on() -> None:
    session = opened(LiveRunner())
    events = feed(session, SESSION, RESULT, TOOL, TOOL_END, RESULT | {"text": "More."}, RESULT | {"text": "Most."})
    events += session.end(ProcessExit(code=0), 9.0).events
    assert_contract(events)
    answers = [event.answer for event in events if isinstance(event, TurnEvent) and event.phase == "completed"]
    assert answers == ["More.", "Most."]
    assert session.tick(1e9).empty


async def test_the_end_closes_an_open_turn() -> None:
    class Waking(LiveRunner):
        def translate(self, data: Any, *, state: ToyState, **session: Any) -> list[UntetherEvent]:
            if data["type"] == "wake":
                return [EventFactory("toy").turn_started(reason="schedule")]
            return super().translate(data, state=state, **session)

    session = opened(Waking())
    events = feed(session, SESSION, RESULT, {"type": "wake"}, TOOL)
    events += session.end(ProcessExit(code=1), 9.0).events
    assert_contract(events)
    assert [type(event) for event in events[-2:]] == [ActionEvent, TurnEvent]
    turn = events[-1]
    assert isinstance(turn, TurnEvent)
    assert (turn.ok, turn.outcome) == (False, "ended_early")


async def test_usage_of_a_turn() -> None:
    class Priced(LiveRunner):
        def translate(self, data: Any, *, state: ToyState, **session: Any) -> list[UntetherEvent]:
            if data["type"] == "result":
                return [state.events.completed_ok("Done.", usage=Usage(cost_usd=0.5))]
            return super().translate(data, state=state, **session)

    turn = feed(opened(Priced()), SESSION, RESULT, RESULT)[-1]
    assert isinstance(turn, TurnEvent)
    assert turn.usage == Usage(cost_usd=0.5)


# ------------------------------------------------------------------------------------------------------ the session


async def test_the_launch_is_told_once_and_without_the_prompt() -> None:
    class Counting(ToyRunner):
        made = 0

        def new_state(self, prompt: str, resume: ResumeToken | None) -> ToyState:
            self.made += 1
            return super().new_state(prompt, resume)

    runner = Counting()
    settings = runner.start_settings(RunOptions(model="big"))
    assert settings == {"model": "big"}
    start = StartFacts("process-1", "toy", "/repo", resume=TOKEN, settings=settings)
    launch = runner.launch(start, PROMPT, environ={"PATH": "/bin", "TOKEN": "secret"})
    assert launch.argv == (sys.executable, str(AGENT), "--resume", TOKEN.value, "--model", "big")
    assert launch.cwd == "/repo"
    assert launch.stdin
    assert launch.env == {"PATH": "/bin", "UNTETHER_SESSION": "1", "UNTETHER_PROCESS": "process-1"}
    step = runner.session(start).begin(start, PROMPT, 0.0)
    assert step.writes == (b"Do it",)
    assert step.close_stdin
    assert runner.made == 1
    assert runner.session(start).begin(start, PROMPT, 0.0).writes == (b"Do it",)  # a replay
    assert runner.made == 2


async def test_an_environment_that_was_made_for_the_process_is_taken_as_it_is() -> None:
    start = StartFacts("process-1", "toy", "/repo")
    environ = {"PATH": "/bin", "EXTRA": "allowed by the settings", "UNTETHER_PROCESS": "process-1"}
    launch = ToyRunner().launch(start, PROMPT, environ=environ)
    assert launch.env == {**environ, "UNTETHER_SESSION": "1"}


async def test_an_engine_without_stdin() -> None:
    class Argument(ToyRunner):
        def stdin_payload(self, prompt: str, resume: ResumeToken | None, *, state: ToyState) -> bytes | None:
            return None

    start = StartFacts("process-1", "toy", "/repo")
    assert not Argument().launch(start, PROMPT, environ={}).stdin
    assert Argument().session(start).begin(start, PROMPT, 0.0).empty


async def test_a_session_of_a_simple_engine_takes_nothing_meanwhile() -> None:
    session = opened()
    feed(session, SESSION)
    handed_back = PromptEvent(TOY, "prompt-2", "handed_back")
    assert session.say(Prompt("prompt-2", "And this"), "now", 2.0).events == (handed_back,)
    assert session.decide("x", Allow(), 2.0).empty
    assert session.configure(SetModel("big"), 2.0).empty


async def test_an_interrupted_run_is_told_as_stopped() -> None:
    session = opened()
    feed(session, SESSION, TOOL)
    assert session.interrupt(2.0).stop
    events = session.end(ProcessExit(signal="SIGTERM"), 3.0).events
    assert [type(event) for event in events] == [ActionEvent, CompletedEvent]
    completed = last(events)
    assert (completed.ok, completed.outcome, completed.error) == (False, "stopped", "The run was stopped.")
    assert completed.resume == TOKEN
    assert session.interrupt(4.0).empty


async def test_an_end_that_nobody_saw() -> None:
    session = opened()
    completed = last(session.end(ProcessExit(note="The keeper is gone."), 3.0).events)
    assert completed.error == "toy ended without an answer."
    assert completed.raw_error == "The keeper is gone."


async def test_a_skipped_line_is_told() -> None:
    session = opened()
    feed(session, SESSION)
    assert warnings(session.skipped(70_000_000, 2.0).events) == [
        "A line of 70 MB from toy was too long and was skipped"
    ]


async def test_waits() -> None:
    session = opened()
    assert session.waits == (Wait("model", 0.0),)
    feed(session, SESSION, TOOL)
    assert session.waits == (Wait("tool", 2.0, label="ls -la", id="t1"),)
    feed(session, SESSION, SESSION, TOOL_END)
    assert session.waits == (Wait("model", 3.0),)
    feed(session, RESULT)
    assert len(session.waits) == 0


async def test_an_answered_agent_is_stopped_when_it_stays() -> None:
    session = opened()
    [step] = [session.feed(line, 5.0) for line in frames(RESULT)]
    assert step.deadline == 65.0
    assert session.feed(b"late", 6.0).deadline == 65.0
    assert session.tick(64.0).empty
    assert session.tick(65.0).stop
    assert session.tick(66.0).empty


async def test_attached_files_are_named_to_an_engine_that_takes_text() -> None:
    prompt = Prompt("1", "Look", (Attachment("/tmp/a b.png", "a b.png"),))
    assert prompt_text(prompt) == "Look\n\nAttached files:\n- /tmp/a b.png (a b.png)"


class Memory:
    """Inputs and effects of one process, in memory."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.events: list[UntetherEvent] = []

    async def append(self, item: Input, offset: int, now: float, also: Any) -> int:
        self.inputs.append(item)
        return len(self.inputs)

    async def apply(self, events: Sequence[UntetherEvent], place: Place, now: float) -> None:
        self.events += events

    async def settled(self) -> None:
        pass

    async def recall(self, item: Input) -> None:
        raise AssertionError("nothing was stored before")

    async def caught_up(self, decided: Mapping[str, Sequence[Receipt]]) -> None:
        raise AssertionError("nothing was stored before")

    async def over(self, exit: ProcessExit, now: float) -> None:
        pass


async def test_a_plugin_engine_through_the_driver(tmp_path: Path) -> None:
    runner, memory, clock = ToyRunner(), Memory(), SystemClock()
    start = StartFacts("process-1", "toy", str(tmp_path), settings={})
    prompt = Prompt("prompt-1", orders(SESSION, TOOL, TOOL_END, RESULT))
    launch = runner.launch(start, prompt, environ={"PATH": "/usr/bin:/bin"})
    with anyio.fail_after(10):
        async with DirectProcess.spawned(launch, clock=clock) as process:
            driver = Driver(runner.session(start), process, inputs=memory, effects=memory, clock=clock)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(driver.run)
                await anyio.wait_all_tasks_blocked()
                await driver.submit(Begin(start, prompt))
    assert_contract(memory.events)
    assert last(memory.events).answer == "Done."


# ------------------------------------------------------------------------------------------------------ last words


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("", ""),
        ("Error: boom\n\n  at line 3\n", "Error: boom at line 3"),
        ("open '/a/b c': no", "open '[path] c': no"),
        ("~/.ssh/id and ../x/y and C:\\Users\\ann\\k and ./z", "[path] and [path] and [path] and [path]"),
        ("POST https://user:pw@host.example/v1?key=1 (failed)", "POST [url] (failed)"),
        ("3/4 of I/O and/or n/a: / is the root", "3/4 of I/O and/or n/a: / is the root"),
        ("\x1b]0;title\x07\x1b[1;31mred\x1b[0m\a", "red"),
        ("x" * 400, "…" + "x" * 299),
    ],
)
def test_last_words(stderr: str, expected: str) -> None:
    assert last_words(stderr) == expected
