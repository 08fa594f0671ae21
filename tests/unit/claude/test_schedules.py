"""Jobs that the agent schedules inside Claude Code: seen by hooks, shown, and held open."""

from __future__ import annotations

from typing import Any

from tests.support.claude_talk import Talk
from untether.model import ActionEvent, TurnEvent

CREATED = "Scheduled recurring job 0de3632a (Every minute). Session-only."


def hooked(talk: Talk, tool: str, hook: str, call: str, input: dict[str, Any]) -> None:
    talk.use(call, tool, input)
    event = {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input}
    request = {"subtype": "hook_callback", "callback_id": hook, "input": event, "tool_use_id": call}
    talk.feed({"type": "control_request", "request_id": f"hook-{call}", "request": request})


def scheduled(**more: Any) -> Talk:
    talk = Talk()
    talk.init()
    job = {"cron": "* * * * *", "prompt": "check\nthe build", **more}
    hooked(talk, "CronCreate", "ut_loop_cron_create", "t1", job)
    talk.returned("t1", CREATED)
    talk.result()
    return talk


def test_the_hooks_are_registered_with_the_greeting() -> None:
    hooks = Talk().written[0]["request"]["hooks"]["PreToolUse"]
    assert [(hook["matcher"], hook["hookCallbackIds"]) for hook in hooks] == [
        ("CronCreate", ["ut_loop_cron_create"]),
        ("CronDelete", ["ut_loop_cron_delete"]),
        ("ScheduleWakeup", ["ut_loop_wakeup"]),
    ]
    assert all(hook["timeout"] > 0 and hook["onFailure"] == "block" for hook in hooks)


def test_the_owner_may_leave_them_out() -> None:
    assert "hooks" not in Talk(own_schedule=False).written[0]["request"]


def test_a_hook_is_answered_without_an_opinion_and_the_job_is_shown() -> None:
    talk = scheduled()
    assert talk.written[-1]["response"] == {"subtype": "success", "request_id": "hook-t1", "response": {}}
    note = next(event.action for event in talk.of(ActionEvent) if event.action.kind == "note")
    assert note.title == "Scheduled inside Claude Code: * * * * * · check the build"
    assert note.detail["schedule"]["id"] == "0de3632a"
    assert [(wait.kind, wait.label, wait.id) for wait in talk.session.waits] == [
        ("wakeup", "* * * * * · check the build", "0de3632a")
    ]


def test_a_call_that_failed_schedules_nothing() -> None:
    talk = Talk()
    talk.init()
    hooked(talk, "CronCreate", "ut_loop_cron_create", "t1", {"cron": "x", "prompt": "y"})
    talk.returned("t1", "Invalid cron, job 0de3632a", is_error=True)
    talk.result()
    assert talk.waits == []


def test_a_job_is_removed() -> None:
    talk = scheduled()
    talk.say(2)
    talk.init()
    hooked(talk, "CronDelete", "ut_loop_cron_delete", "t2", {"id": "0de3632a"})
    talk.returned("t2", "Cancelled job 0de3632a.")
    talk.result()
    assert talk.waits == []
    titles = [event.action.title for event in talk.of(ActionEvent)]
    assert "Schedule removed: * * * * * · check the build" in titles


def test_a_job_that_fires_once_is_over_with_its_turn() -> None:
    talk = scheduled(recurring=False)
    talk.init()
    assert talk.of(TurnEvent)[-1].reason == "schedule"
    talk.result()
    assert talk.waits == []


def test_a_recurring_job_stays() -> None:
    talk = scheduled()
    talk.init()
    talk.result()
    assert [kind for kind, _ in talk.waits] == ["wakeup"]


def test_a_wake_up_is_awaited_until_its_time() -> None:
    talk = Talk()
    talk.init()
    hooked(talk, "ScheduleWakeup", "ut_loop_wakeup", "t1", {"delaySeconds": 60, "prompt": "look again"})
    at = talk.now
    talk.returned("t1", "Next wakeup scheduled for 22:29:00 (in 87s). If you owe")
    talk.result()
    (wait,) = talk.session.waits
    assert (wait.kind, wait.until, wait.label) == ("wakeup", at + 87, "once · look again")
    talk.feed({"type": "command_lifecycle", "command_uuid": "x", "state": "started", "wakeup_source": "loop_wakeup"})
    assert talk.waits == []


def test_a_wake_up_that_never_comes_is_given_up() -> None:
    talk = Talk()
    talk.init()
    hooked(talk, "ScheduleWakeup", "ut_loop_wakeup", "t1", {"delaySeconds": 60})
    talk.returned("t1", "Next wakeup scheduled for 22:29:00 (in 87s).")
    talk.result()
    talk.now += 300
    talk.feed({"type": "keep_alive"})
    assert talk.waits == []


def test_hooks_of_others_are_answered_too() -> None:
    talk = Talk()
    request = {"subtype": "hook_callback", "callback_id": "theirs", "input": {}}
    talk.feed({"type": "control_request", "request_id": "h", "request": request})
    assert talk.reply == {"subtype": "success", "request_id": "h", "response": {}}
