"""Plan mode again after an approved plan: when it is set, when it is put off, and what happens when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.claude_talk import SESSION, Talk
from untether.model import ActionEvent, Allow, CompletedEvent, TurnEvent
from untether.session import SetPermissionMode


def approved(mode: str = "plan", **settings: Any) -> Talk:
    """A turn in which a plan was approved."""
    talk = Talk(permission_mode=mode, **settings)
    talk.init(permissionMode="plan")
    talk.ask("r1", "ExitPlanMode", {"plan": "# Plan"}, tool_use_id="t1")
    talk.decide("r1", Allow())
    talk.system("status", status=None, permissionMode="default")
    return talk


def rearms(talk: Talk) -> list[str]:
    found = [f for f in talk.written if f.get("request", {}).get("subtype") == "set_permission_mode"]
    assert all(frame["request"]["mode"] == "plan" for frame in found)
    return [frame["request_id"] for frame in found]


def answer(talk: Talk, subtype: str = "success", *, status: bool = True) -> None:
    response = {"request_id": rearms(talk)[-1], "subtype": subtype, "response": {"mode": "plan"}, "error": "no"}
    talk.feed({"type": "control_response", "response": response})
    if status and subtype == "success":
        talk.system("status", status=None, permissionMode="plan")


def test_at_the_end_of_the_turn_with_the_closing_event() -> None:
    talk = approved()
    assert rearms(talk) == []
    talk.result()
    assert rearms(talk) == [f"ut_plan_rearm_{SESSION}_1"]
    assert len(talk.last.writes) == 1
    assert isinstance(talk.last.events[-1], CompletedEvent)


def test_once_and_again_after_the_next_approval() -> None:
    talk = approved()
    talk.result()
    answer(talk)
    talk.say(2)
    talk.init(permissionMode="plan")
    talk.result()
    assert len(rearms(talk)) == 1
    talk.init(permissionMode="plan")
    talk.ask("r2", "ExitPlanMode", {"plan": "# More"}, tool_use_id="t2")
    talk.decide("r2", Allow())
    talk.system("status", status=None, permissionMode="default")
    talk.result()
    assert rearms(talk)[-1] == f"ut_plan_rearm_{SESSION}_2"


def test_one_request_at_a_time() -> None:
    talk = approved()
    talk.result()
    talk.say(2)
    talk.init(permissionMode="default")  # it began before the request was read
    talk.result()
    assert len(rearms(talk)) == 1
    assert not [event for event in talk.of(ActionEvent) if event.action.kind == "warning"]


def test_an_answer_alone_settles_it() -> None:
    """No status follows when the mode was the same already."""
    talk = approved()
    talk.result()
    answer(talk, status=False)
    talk.say(2)
    assert len(rearms(talk)) == 1


def test_plan_auto_waits_for_the_next_message() -> None:
    talk = approved("plan-auto")
    talk.result()
    assert rearms(talk) == []
    talk.init(permissionMode="default")  # a wake-up
    talk.result()
    assert rearms(talk) == []
    talk.say(2)
    kinds = [frame.get("request", {}).get("subtype") or frame["type"] for frame in talk.written[-2:]]
    assert kinds == ["set_permission_mode", "user"]


def test_a_message_into_the_running_turn_changes_no_mode() -> None:
    talk = approved("plan-auto")
    talk.say(2, "now")
    assert rearms(talk) == []


@pytest.mark.parametrize(
    ("mode", "settings"), [("default", {}), ("acceptEdits", {}), ("plan", {"rearm_plan_mode": False})]
)
def test_only_where_plans_come_first_and_unless_it_is_switched_off(mode: str, settings: dict[str, Any]) -> None:
    talk = approved(mode, **settings)
    talk.result()
    talk.say(2)
    assert rearms(talk) == []


def test_not_after_the_owner_chose_another_mode() -> None:
    talk = approved()
    talk.did(talk.session.configure(SetPermissionMode("acceptEdits"), talk.now))
    talk.result()
    sent = [frame["request"] for frame in talk.written if "request" in frame]
    assert [request["mode"] for request in sent if request["subtype"] == "set_permission_mode"] == ["acceptEdits"]


def test_not_where_plan_mode_never_was() -> None:
    talk = Talk(permission_mode="plan")
    talk.init(permissionMode="default")
    talk.result()
    assert rearms(talk) == []


# ------------------------------------------------------------------------------------------------------- put off


def behind(talk: Talk, id: str = "a1", kind: str = "local_agent") -> None:
    talk.system(
        "task_started", task_id=id, tool_use_id=f"use-{id}", description="look", task_type=kind, is_backgrounded=True
    )


def deferred(**settings: Any) -> Talk:
    talk = approved(**settings)
    behind(talk)
    talk.result()
    return talk


def test_agents_of_the_turn_put_it_off_until_they_end() -> None:
    talk = deferred()
    assert rearms(talk) == []
    assert talk.last.deadline is not None
    talk.say(2)
    assert rearms(talk) == []
    talk.init(permissionMode="default")
    started = talk.of(TurnEvent)[-1]
    assert started.detail == {"plan_deferred": True}
    assert [e.action.title for e in talk.of(ActionEvent) if e.action.kind == "warning"] == [
        "Not in plan mode: background agents of the approved plan are still at work"
    ]
    talk.system("task_updated", task_id="a1", patch={"status": "completed"})
    assert rearms(talk) == []  # not in the middle of a turn
    talk.result()
    assert len(rearms(talk)) == 1
    assert talk.of(TurnEvent)[-1].detail == {"plan_deferred": True}
    assert talk.last.deadline is None


def test_at_once_when_they_end_between_turns() -> None:
    talk = deferred()
    talk.system("task_notification", task_id="a1", status="completed")
    assert len(rearms(talk)) == 1
    answer(talk)
    talk.init(permissionMode="plan")
    assert talk.of(TurnEvent)[-1].detail == {}


def test_the_whole_set_tells_their_end_too() -> None:
    talk = deferred()
    talk.system("background_tasks_changed", tasks=[])
    assert len(rearms(talk)) == 1


@pytest.mark.parametrize("kind", ["local_bash", "monitor"])
def test_a_shell_puts_nothing_off(kind: str) -> None:
    talk = approved()
    behind(talk, kind=kind)
    talk.result()
    assert len(rearms(talk)) == 1


def test_nor_does_an_agent_of_an_earlier_turn() -> None:
    talk = Talk(permission_mode="plan")
    talk.init(permissionMode="plan")
    behind(talk)
    talk.result()
    talk.say(2)
    talk.init(permissionMode="plan")
    talk.ask("r1", "ExitPlanMode", {"plan": "# Plan"}, tool_use_id="t1")
    talk.decide("r1", Allow())
    talk.system("status", status=None, permissionMode="default")
    talk.result()
    assert len(rearms(talk)) == 1


def test_quiet_agents_are_waited_for_no_longer_than_the_hold() -> None:
    talk = deferred(post_result_bg_max_hold=100)
    closed = talk.now - 1
    assert talk.last.deadline == closed + 100
    talk.now = closed + 60
    talk.system("task_progress", task_id="a1", tool_use_id="use-a1", description="reading")
    assert talk.last.deadline == closed + 160
    talk.did(talk.session.tick(closed + 159))
    assert rearms(talk) == []
    talk.did(talk.session.tick(closed + 160))
    assert len(rearms(talk)) == 1
    assert talk.last.deadline is None


def test_nor_longer_than_a_session_lives() -> None:
    talk = deferred(post_result_bg_max_hold=100, live_session_max_s=150)
    closed = talk.now - 1
    talk.now = closed + 90
    talk.system("task_progress", task_id="a1", tool_use_id="use-a1", description="reading")
    assert talk.last.deadline == closed + 150


# ------------------------------------------------------------------------------------------------------- refused


def test_a_refusal_ends_the_idle_process_and_the_next_message_goes_to_another() -> None:
    talk = approved()
    talk.result()
    answer(talk, "error")
    assert talk.last.close_stdin
    talk.say(2)
    assert talk.prompts[-1] == ("2", "handed_back")
    assert rearms(talk) == [f"ut_plan_rearm_{SESSION}_1"]


def test_a_refusal_waits_for_what_goes_on() -> None:
    talk = approved()
    talk.result()
    talk.say(2)
    talk.init(permissionMode="default", user_message_uuids=["aaaaaaaa-0000-4000-8000-000000000002"])
    answer(talk, "error")
    assert talk.last.writes == ()
    closings = [talk.last.close_stdin]
    talk.result("Fine.")
    assert [*closings, talk.last.close_stdin] == [False, True]
    titles = [event.action.title for event in talk.of(ActionEvent) if event.action.kind == "warning"]
    assert titles == ["Claude Code did not go back to plan mode; the next message continues in a new process"]
