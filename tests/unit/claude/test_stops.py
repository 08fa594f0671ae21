"""Stopping a turn, the queue behind it and tasks in the background, and taking messages back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.claude_talk import PROMPT, Talk, message
from untether.model import CompletedEvent, TurnEvent
from untether.session import Rewind, SetEffort, StopTask, Withdraw

DROPS = {"claude_code_version": "2.1.332", "capabilities": ["interrupt_cancel_queued_v1"]}


def busy(capabilities: dict[str, Any] | None = None) -> Talk:
    """A turn that works, and two messages behind it."""
    talk = Talk()
    talk.acknowledge(**(capabilities or {}))
    talk.init()
    talk.text("So far.")
    talk.say(2)
    talk.say(3)
    return talk


def asked(talk: Talk) -> list[dict[str, Any]]:
    """The requests after the greeting, without their ids."""
    return [frame["request"] for frame in talk.written if frame["type"] == "control_request"][1:]


def cancelled(talk: Talk, number: int) -> None:
    talk.feed({"type": "command_lifecycle", "command_uuid": message(number).id, "state": "cancelled"})


def test_the_newer_cli_drops_its_queue_with_the_interrupt() -> None:
    talk = busy(DROPS)
    talk.interrupt(cancel_queued=True)
    assert asked(talk) == [{"subtype": "interrupt", "cancel_queued": True}]
    cancelled(talk, 2)
    cancelled(talk, 3)
    talk.acknowledge(still_queued=[])
    talk.result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    assert talk.prompts == [("1", "taken"), ("2", "withdrawn"), ("3", "withdrawn")]
    (completed,) = talk.of(CompletedEvent)
    assert (completed.outcome, completed.answer, completed.prompts) == ("stopped", "So far.", (PROMPT.id,))


def test_with_the_older_cli_each_message_is_taken_back_first() -> None:
    talk = busy()
    talk.interrupt(cancel_queued=True)
    ids = [frame["request_id"] for frame in talk.written if frame["type"] == "control_request"]
    assert asked(talk) == [
        {"subtype": "cancel_async_message", "message_uuid": message(2).id},
        {"subtype": "cancel_async_message", "message_uuid": message(3).id},
        {"subtype": "interrupt"},
    ]
    for id, came_in_time in ((ids[1], True), (ids[2], False)):
        response = {"subtype": "success", "request_id": id, "response": {"cancelled": came_in_time}}
        talk.feed({"type": "control_response", "response": response})
    assert talk.prompts == [("1", "taken"), ("2", "withdrawn")]
    talk.result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    talk.init()  # the one that was too late to be taken back
    talk.result("Third.")
    assert talk.of(TurnEvent)[-1].prompts == (message(3).id,)


def test_a_plain_stop_spares_the_queue() -> None:
    talk = busy(DROPS)
    talk.interrupt()
    assert asked(talk) == [{"subtype": "interrupt"}]


def test_a_message_that_is_stopped_before_its_turn_is_stopped_and_not_withdrawn() -> None:
    """Its run is the one that the person looks at."""
    talk = Talk()
    talk.acknowledge(**DROPS)
    talk.interrupt(cancel_queued=True)
    cancelled(talk, 1)
    (completed,) = talk.of(CompletedEvent)
    assert (completed.outcome, completed.prompts) == ("stopped", (PROMPT.id,))
    assert talk.waits == []


def test_a_message_is_taken_back() -> None:
    talk = busy()
    talk.change(Withdraw(message(3).id))
    assert asked(talk) == [{"subtype": "cancel_async_message", "message_uuid": message(3).id}]
    talk.acknowledge(cancelled=True)
    assert talk.prompts[-1] == ("3", "withdrawn")
    assert talk.change(Withdraw(message(3).id)) == []
    assert talk.last.empty
    talk.end(code=0)
    assert talk.prompts[-1] == ("2", "handed_back")


def test_the_first_message_may_be_taken_back_too() -> None:
    talk = Talk()
    talk.change(Withdraw(PROMPT.id))
    talk.acknowledge(cancelled=True)
    assert talk.prompts == [("1", "withdrawn")]
    talk.end(code=0)
    (completed,) = talk.of(CompletedEvent)
    assert completed.prompts == ()


def working_behind(*tasks: str) -> Talk:
    talk = Talk()
    talk.init()
    listed = [{"task_id": task, "run_id": f"r-{task}", "description": task} for task in tasks]
    talk.system("background_tasks_changed", tasks=listed)
    talk.result()
    return talk


@pytest.mark.parametrize(("asked_for", "stopped"), [("b", ["b"]), ("", ["a", "b"]), ("c", [])])
def test_tasks_are_stopped_by_their_ids(asked_for: str, stopped: list[str]) -> None:
    talk = working_behind("a", "b")
    talk.change(StopTask(asked_for))
    assert asked(talk) == [{"subtype": "stop_task", "task_id": task} for task in stopped]


def test_a_late_frame_does_not_bring_a_task_back_and_another_run_of_it_does() -> None:
    talk = working_behind("a")
    talk.system("task_updated", task_id="a", patch={"status": "completed"})
    talk.system("task_started", task_id="a", run_id="r-a", description="a", is_backgrounded=True)
    assert talk.waits == []
    talk.system("task_started", task_id="a", run_id="r-2", description="a", is_backgrounded=True)
    assert talk.waits == [("background", "a")]


def test_a_task_tells_what_it_has_used() -> None:
    talk = working_behind("a")
    talk.system("task_progress", task_id="a", description="Reading", usage={"total_tokens": 1200, "tool_uses": 2})
    talk.system("task_progress", task_id="a", description="Running", usage={"total_tokens": 1100})
    (wait,) = talk.session.waits
    assert wait.tokens == 1200


def test_another_effort_waits_for_what_works_in_the_background() -> None:
    talk = working_behind("a")
    talk.change(SetEffort("high"))
    assert not talk.last.close_stdin
    assert talk.say(2)[0] == talk.of(type(talk.events[-1]))[-1]
    assert talk.prompts[-1] == ("2", "handed_back")
    talk.system("background_tasks_changed", tasks=[])
    assert talk.last.close_stdin


def test_idle_another_effort_ends_the_agent_at_once() -> None:
    talk = working_behind()
    talk.change(SetEffort("high"))
    assert talk.last.close_stdin


def test_a_question_that_the_cli_refuses_is_answered() -> None:
    talk = working_behind()
    talk.change(Rewind(PROMPT.id, dry_run=False))
    request = asked(talk)[-1]
    assert request == {"subtype": "rewind_files", "user_message_id": PROMPT.id}
    id = talk.written[-1]["request_id"]
    error = {"subtype": "error", "request_id": id, "error": "File rewinding is not enabled."}
    talk.feed({"type": "control_response", "response": error})
    (report,) = [event for event in talk.events if type(event).__name__ == "ReportEvent"]
    assert (getattr(report, "ok"), getattr(report, "text")) == (False, "File rewinding is not enabled.")  # noqa: B009
