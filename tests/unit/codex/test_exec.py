"""The one-shot form of Codex: template methods over what `codex exec --json` prints."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from untether.model import ActionEvent, CompletedEvent, ResumeToken, StartedEvent, UntetherEvent, Usage
from untether.runner_context import RunOptions
from untether.runners.codex import CodexRunner
from untether.session import ProcessExit, Prompt, StartFacts

PROMPT = Prompt("aaaaaaaa-0000-4000-8000-000000000001", "do it")
STARTED = {"type": "thread.started", "thread_id": "t1"}
DONE = {"type": "turn.completed", "usage": {"input_tokens": 10, "cached_input_tokens": 2, "output_tokens": 1}}


def item(type: str, phase: str = "completed", id: str = "item_0", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{phase}", "item": {"id": id, "type": type, **fields}}


def run(*frames: dict[str, Any] | bytes, resume: bool = False, **exit: Any) -> list[UntetherEvent]:
    runner = CodexRunner({"mode": "exec"})
    token = ResumeToken(runner.engine, "t1") if resume else None
    start = StartFacts("p1", "codex", "/repo", resume=token, settings=runner.start_settings(RunOptions()))
    session = runner.session(start)
    steps = [session.begin(start, PROMPT, 1.0)]
    assert steps[0].writes == (b"do it",)
    assert steps[0].close_stdin
    for now, frame in enumerate(frames, 2):
        steps.append(session.feed(frame if isinstance(frame, bytes) else msgspec.json.encode(frame), now))
    steps.append(session.end(ProcessExit(**{"code": 0, **exit}), 99.0))
    return [event for step in steps for event in step.events]


def completed(events: list[UntetherEvent]) -> CompletedEvent:
    [found] = [event for event in events if isinstance(event, CompletedEvent)]
    return found


def steps(events: list[UntetherEvent]) -> list[tuple[str, str, str, bool | None]]:
    found = [event for event in events if isinstance(event, ActionEvent) and event.action.id != "cannot-ask"]
    return [(event.phase, event.action.kind, event.action.title, event.ok) for event in found]


def test_an_answer_and_that_it_cannot_ask() -> None:
    events = run(STARTED, {"type": "turn.started"}, item("agent_message", text="Done."), DONE)
    assert isinstance(events[0], StartedEvent)
    end = completed(events)
    assert (end.ok, end.answer, end.usage) == (True, "Done.", Usage(10, 1, 2))
    notes = [event.action.title for event in events if isinstance(event, ActionEvent)]
    assert notes == ["This form cannot ask: what needs your permission is refused."]


def test_usage_of_a_resumed_run_is_not_known() -> None:
    """What is told is the sum of the whole thread."""
    assert completed(run(STARTED, item("agent_message", text="Done."), DONE, resume=True)).usage is None


def test_a_final_answer_counts_before_the_last_message() -> None:
    messages = [
        item("agent_message", text="Looking.", phase_="x"),
        item("agent_message", text="Done."),
    ]
    messages[0]["item"]["phase"] = "commentary"
    assert completed(run(STARTED, *messages, DONE)).answer == "Done."
    messages[1]["item"]["phase"] = "final_answer"
    assert completed(run(STARTED, *messages, item("agent_message", text="P.S."), DONE)).answer == "Done."


def test_steps() -> None:
    events = run(
        STARTED,
        item("reasoning", text="**Looking around**\n\nList."),
        item("command_execution", "started", "i1", command="/bin/bash -lc 'ls -l'", status="in_progress"),
        item("command_execution", "completed", "i1", command="/bin/bash -lc 'ls -l'", status="failed", exit_code=3),
        item("file_change", "completed", "i2", changes=[{"path": "a.txt", "kind": "add"}], status="completed"),
        item("mcp_tool_call", "started", "i3", server="demo", tool="add", status="in_progress"),
        item("mcp_tool_call", "completed", "i3", server="demo", tool="add", status="failed", error={"message": "no"}),
        item("web_search", "completed", "i4", query="x", action={"type": "open_page", "url": "https://example.com"}),
        item("todo_list", "updated", "i5", items=[{"text": "a", "completed": True}, {"text": "b"}]),
        item("error", "completed", "i6", message="Model metadata not found"),
        item("error", "completed", "i7", message="Model metadata not found"),
        item("collab_tool_call", "completed", "i8"),
        item("brand_new", "completed", "i9"),
        DONE,
    )
    assert steps(events) == [
        ("completed", "note", "Looking around", True),
        ("started", "command", "ls -l", None),
        ("completed", "command", "ls -l", False),
        ("completed", "file_change", "a.txt", True),
        ("started", "tool", "demo: add", None),
        ("completed", "tool", "demo: add", False),
        ("completed", "web_search", "https://example.com", True),
        ("completed", "note", "todo 1/2: b", True),
        ("completed", "warning", "Model metadata not found", False),
    ]
    assert completed(events).ok


def test_calls_to_the_provider_again_are_one_note() -> None:
    again = [{"type": "error", "message": f"Reconnecting... {n}/5 (high demand)"} for n in (1, 2)]
    events = run(STARTED, *again, item("agent_message", text="Whole."), DONE)
    assert steps(events) == [
        ("started", "note", "The provider is overloaded, retry 1 of 5", None),
        ("updated", "note", "The provider is overloaded, retry 2 of 5", None),
        ("completed", "note", "The provider was called again", True),
    ]


def test_an_error_that_ends_the_run_is_told_once() -> None:
    error = {"type": "error", "message": "exceeded retry limit, last status: 429 Too Many Requests"}
    events = run(STARTED, error, {"type": "turn.failed", "error": {"message": error["message"]}}, code=1)
    end = completed(events)
    assert (end.error, end.raw_error) == ("The provider limits requests right now.", error["message"])
    assert steps(events) == []


def test_an_error_that_ends_nothing_is_a_warning() -> None:
    events = run(STARTED, {"type": "error", "message": "Hm."}, item("agent_message", text="Done."), DONE)
    assert steps(events) == [("completed", "warning", "Hm.", False)]
    assert completed(events).ok


@pytest.mark.parametrize("exit", [{"code": 0}, {"code": 1}, {"code": None, "signal": "SIGKILL"}])
def test_a_stream_that_ends_early_is_never_a_success(exit: dict[str, Any]) -> None:
    end = completed(run(STARTED, item("agent_message", text="Half"), **exit))
    assert not end.ok
    assert end.resume == ResumeToken("codex", "t1")  # type: ignore[arg-type]


def test_a_session_that_does_not_exist() -> None:
    said = "Error: thread/resume: no rollout found for thread id t1 (code -32600)"
    end = completed(run(resume=True, code=1, stderr_tail=said))
    assert (end.error, end.detail) == ("The session to continue was not found.", {"fresh": "not_found"})


@pytest.mark.parametrize("line", [b"Reading additional input from stdin...", b"[1]", b"{", b'{"type": 3}', b"{}"])
def test_bad_lines_break_nothing(line: bytes) -> None:
    end = completed(run(STARTED, line, item("agent_message", text="Done."), DONE))
    assert (end.ok, end.answer) == (True, "Done.")
