"""Whom the run waits for, at every moment."""

from __future__ import annotations

from typing import Any

from tests.support.claude_talk import SESSION, Talk
from untether.model import Allow, Wait

RETRY: dict[str, Any] = {"attempt": 1, "max_retries": 10, "retry_delay_ms": 9000.0, "error_status": 529}


def test_from_the_first_moment_the_model_is_awaited_until_the_result() -> None:
    talk = Talk()
    assert talk.waits == [("model", "")]
    talk.init()
    talk.text("Working.")
    at = talk.now
    talk.use("t1", "Bash", {"command": "make"})
    assert talk.session.waits == (Wait("tool", at, None, "make", "t1"),)
    talk.returned("t1")
    assert talk.waits == [("model", "")]
    talk.result()
    assert talk.waits == []
    talk.say(2)
    assert talk.waits == [("model", "")]


def test_a_sign_of_life_starts_the_wait_anew() -> None:
    talk = Talk()
    talk.init()
    talk.feed({"type": "stream_event", "parent_tool_use_id": None, "event": {"type": "content_block_delta"}})
    assert talk.session.waits == (Wait("model", talk.now - 1),)
    talk.feed({"type": "stream_event", "parent_tool_use_id": "t1", "event": {}})
    talk.feed({"type": "tool_progress", "tool_use_id": "t1-heartbeat-0", "parent_tool_use_id": "t1"})
    assert talk.session.waits == (Wait("model", talk.now - 3),)


def test_a_tool_that_needs_permission_waits_for_a_person() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Bash", {"command": "make"})
    talk.ask("r1", "Bash", {"command": "make"}, tool_use_id="t1")
    assert talk.waits == [("human", "Run a command?")]
    talk.decide("r1", Allow())
    assert talk.waits == [("tool", "make")]


def test_steps_of_a_foreground_agent_count_and_those_of_a_background_agent_do_not() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Agent", {"description": "look", "run_in_background": False})
    talk.use("t2", "Bash", {"command": "ls"}, parent_tool_use_id="t1")
    assert talk.waits == [("tool", "look"), ("tool", "ls")]
    talk.use("t3", "Agent", {"description": "long look", "run_in_background": True})
    talk.system("task_started", task_id="b1", tool_use_id="t3", description="long look", task_type="local_agent")
    talk.returned("t3", "Async agent launched")
    talk.use("t4", "Bash", {"command": "ps"}, parent_tool_use_id="t3")
    assert talk.waits == [("tool", "look"), ("tool", "ls"), ("background", "long look")]


def test_a_retry_has_an_end() -> None:
    talk = Talk()
    talk.init()
    talk.system("api_retry", error="overloaded", **RETRY)
    (wait,) = talk.session.waits
    assert (wait.kind, wait.label) == ("retry", "the provider is overloaded, retry 1 of 10")
    assert wait.until == wait.since + 9
    talk.text("Recovered.", id="msg_2")
    assert talk.waits == [("model", "")]


def test_a_retry_without_an_answer_of_the_provider() -> None:
    talk = Talk()
    talk.init()
    talk.system("api_retry", **RETRY | {"error_status": None, "error": "unknown"})
    assert talk.waits == [("retry", "the provider does not answer, retry 1 of 10")]
    talk.system("api_retry", **RETRY | {"error_status": 502, "error": "strange", "attempt": 2})
    assert talk.waits == [("retry", "the provider answers with error 502, retry 2 of 10")]


def test_compaction() -> None:
    talk = Talk()
    talk.init()
    talk.system("status", status="compacting")
    since = talk.session.waits[0].since
    talk.system("status", status="compacting")  # 2.1.332 repeats it
    assert talk.session.waits == (Wait("compaction", since, since + 900, "", "compaction-1"),)
    talk.system("status", status=None, compact_result="success")
    assert talk.waits == [("model", "")]


def test_a_used_up_limit_waits_for_its_reset_and_no_longer() -> None:
    talk = Talk()
    talk.init()
    info = {"status": "rejected", "resetsAt": 1100, "rateLimitType": "five_hour", "isUsingOverage": False}
    talk.feed({"type": "rate_limit_event", "rate_limit_info": info})
    talk.result("", is_error=True, api_error_status=429)
    assert [(wait.kind, wait.until) for wait in talk.session.waits] == [("quota", 1100)]
    talk.now = 1100
    talk.feed({"type": "keep_alive"})
    assert talk.waits == []


def test_a_limit_that_is_paid_for_or_past_is_no_wait() -> None:
    talk = Talk()
    talk.init()
    for more in ({"isUsingOverage": True, "resetsAt": 5000}, {"resetsAt": 900}):
        talk.feed({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", **more}})
    talk.result()
    assert talk.waits == []


def test_hooks() -> None:
    talk = Talk()
    talk.system("hook_started", hook_id="h1", hook_name="SessionStart:startup")
    assert talk.waits == [("hook", "SessionStart:startup")]
    talk.system("hook_response", hook_id="h1", outcome="success")
    assert talk.waits == [("model", "")]


def background(**fields: Any) -> Talk:
    talk = Talk()
    talk.init()
    talk.use("t1", "Bash", {"command": "serve"})
    talk.system("task_started", task_id="b1", tool_use_id="t1", description="serve", task_type="local_bash", **fields)
    return talk


def test_a_slow_command_is_no_background_work() -> None:
    """Any command gets a task after 3 s, also one that is waited for."""
    talk = background()
    assert talk.waits == [("tool", "serve")]
    talk.system("task_notification", task_id="b1", tool_use_id="t1", status="completed", output_file="")
    talk.returned("t1")
    talk.result()
    assert talk.waits == []


def test_a_task_that_outlives_its_call_is_background_work() -> None:
    talk = background()
    talk.returned("t1", "moved to the background")
    talk.result()
    assert talk.waits == [("background", "serve")]
    talk.system("task_updated", task_id="b1", patch={"status": "completed"})
    assert talk.waits == []


def test_the_newer_cli_tells_the_whole_set() -> None:
    talk = background(is_backgrounded=False)
    tasks = [{"task_id": "b1", "task_type": "local_bash", "description": "serve"}, {"task_id": "b2"}]
    talk.system("background_tasks_changed", tasks=tasks)
    talk.returned("t1")
    talk.result()
    assert [wait.id for wait in talk.session.waits] == ["b1", "b2"]
    talk.system("background_tasks_changed", tasks=[])
    assert talk.waits == []


def test_an_ended_process_waits_for_nobody() -> None:
    talk = background()
    talk.ask("r1", "Bash", {"command": "x"})
    talk.end(code=1)
    assert talk.waits == []


def test_a_process_of_another_session_waits_for_nobody() -> None:
    talk = Talk(resume="00000000-0000-4000-8000-000000000000")
    talk.init(session_id=SESSION)
    assert talk.waits == []
