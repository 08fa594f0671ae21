"""What a person gets to see of the important recordings, with the right values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.replay_claude import Replay, replay
from untether.model import (
    ActionEvent,
    Content,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    Usage,
)

VERSIONS = ("claude", "claude-2.1.332")


def started(replayed: Replay) -> StartedEvent:
    return next(event for event in replayed.events if isinstance(event, StartedEvent))


def taken(replayed: Replay) -> list[str]:
    return [e.prompt_id for e in replayed.events if isinstance(e, PromptEvent) and e.state == "taken"]


# ------------------------------------------------------------------------------------------------ answers and turns


def test_a_text_answer() -> None:
    replayed = replay("claude/text_answer")
    session = ResumeToken(engine="claude", value="178a90c8-bb47-41b1-bce8-68725f4a0ec0")  # type: ignore[arg-type]
    assert started(replayed) == StartedEvent(
        "claude",  # type: ignore[arg-type]
        session,
        "claude-opus-4-8[1m]",
        {"model": "claude-opus-4-8[1m]", "permission_mode": "default", "version": "2.1.197", "cwd": "/repo"},
    )
    completed = replayed.completed
    assert (completed.ok, completed.answer, completed.resume) == (True, "Hello from the fake model.", session)
    assert completed.prompts == tuple(replayed.prompts) == tuple(taken(replayed))
    assert completed.usage == Usage(
        input_tokens=100,
        output_tokens=20,
        cached_tokens=0,
        cost_usd=0.001,
        context_used=100,
        context_window=1_000_000,
        duration_s=0.092,
        turns=1,
    )
    assert not [event for event in replayed.events if isinstance(event, ActionEvent)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_process_is_greeted_and_given_the_message_at_once(version: str) -> None:
    replayed = replay(f"{version}/text_answer")
    greeting, message = replayed.writes[:2]
    matchers = greeting["request"].pop("hooks")["PreToolUse"]
    assert greeting["request"] == {"subtype": "initialize"}
    assert matchers[:2] == [
        {"matcher": tool, "hookCallbackIds": [id], "timeout": 60, "onFailure": "block"}
        for tool, id in (("CronCreate", "ut_loop_cron_create"), ("CronDelete", "ut_loop_cron_delete"))
    ]
    assert message == {
        "type": "user",
        "message": {"role": "user", "content": "say hello"},
        "uuid": replayed.prompts[0],
    }
    assert len(replayed.steps[0].step.writes) == 2


def test_follow_ups_are_turns_and_cost_what_they_add() -> None:
    replayed = replay("claude/followup_turns")
    assert replayed.completed.answer == "a1"
    assert [(turn.ok, turn.answer, turn.prompts, turn.reason) for turn in replayed.turns] == [
        (True, "a2", (replayed.prompts[1],), ""),
        (True, "a3", (replayed.prompts[2],), ""),
    ]
    costs = [turn.usage and (turn.usage.cost_usd, turn.usage.input_tokens) for turn in replayed.turns]
    assert costs == [(0.001, 100), (0.001, 100)]


def test_big_lines_come_through() -> None:
    """The recorder cut the texts; the line that counts is as long as it stores them."""
    replayed = replay("claude/big_lines")
    assert replayed.completed.ok
    assert len(replayed.completed.answer) > 200


def test_an_empty_result_falls_back_to_the_text() -> None:
    answers = [turn.answer for turn in replay("claude/slash_commands").turns]
    assert answers[2] == "Unknown command: /nope"
    assert answers[1] == ""  # `/clear`: "(no content)" is nobody's answer


@pytest.mark.parametrize("version", VERSIONS)
def test_clear_goes_on_in_another_session(version: str) -> None:
    replayed = replay(f"{version}/slash_commands")
    (changed,) = (event for event in replayed.events if isinstance(event, SessionChangedEvent))
    assert changed.reason == "clear"
    assert changed.resume != started(replayed).resume


def test_a_fork_is_followed() -> None:
    replayed = replay("claude/resume_fork")
    (changed,) = (event for event in replayed.events if isinstance(event, SessionChangedEvent))
    assert (changed.resume, changed.reason) == (started(replayed).resume, "fork")
    assert replayed.completed.resume == changed.resume


def test_a_later_mode_is_a_supplement() -> None:
    replayed = replay("claude/plan_exit")
    modes = [
        event.meta["permission_mode"] for event in replayed.events if isinstance(event, StartedEvent) and event.meta
    ]
    assert modes == ["plan", "default", "plan"]


# ------------------------------------------------------------------------------------------------------- steering


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_said_during_a_tool_goes_into_the_turn(version: str) -> None:
    replayed = replay(f"{version}/steer_during_tool")
    assert replayed.completed.prompts == tuple(replayed.prompts)
    assert replayed.completed.answer == "final one"
    assert replayed.turns == []


def test_messages_that_queue_are_answered_together() -> None:
    replayed = replay("claude/steer_during_text")
    first, second, third = replayed.prompts
    assert replayed.completed.prompts == (first,)
    assert [(turn.answer, turn.prompts) for turn in replayed.turns] == [("answer to two", (second, third))]


def test_now_cuts_the_running_turn() -> None:
    replayed = replay("claude/steer_priority_now")
    assert (replayed.completed.ok, replayed.completed.outcome) == (True, "stopped")
    assert replayed.completed.answer.startswith("slow slow")
    assert replayed.turns[0].answer == "answer to two"
    assert replayed.writes[2]["priority"] == "now"


def test_the_lifecycle_tells_who_is_answered() -> None:
    replayed = replay("claude-2.1.332/command_lifecycle_all")
    prompts = [replayed.completed.prompts, *(turn.prompts for turn in replayed.turns)]
    short = [[id[-1] for id in ids] for ids in prompts]
    # The sixth message had the uuid of the fifth: it was in the conversation before, and is not answered again.
    assert short == [["1", "2"], ["5"], ["3", "4"], ["5"], ["6"]]
    repeated = replayed.turns[2]
    assert (repeated.ok, repeated.error) == (False, "The agent had this message already and does not answer it again.")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_is_withdrawn(version: str) -> None:
    """Also in 2.1.197, where nothing but the answer to the request tells it."""
    replayed = replay(f"{version}/steer_cancel_queued")
    returned = [(e.prompt_id, e.state) for e in replayed.events if isinstance(e, PromptEvent) and e.state != "taken"]
    assert returned == [("33333333-3333-4333-8333-333333333333", "withdrawn")]


def test_a_stop_withdraws_what_is_queued() -> None:
    """Each message once; those of the recording that the CLI had taken belong to their turns."""
    replayed = replay("claude-2.1.332/interrupt_cancel_queued")
    states = [e.state for e in replayed.events if isinstance(e, PromptEvent)]
    assert "withdrawn" in states
    assert "handed_back" not in states


# --------------------------------------------------------------------------------------------------------- stopping


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("claude/interrupt_mid_bash", "running"),
        ("claude-2.1.332/interrupt_mid_stream", "word word"),
        ("claude/interrupt_during_api_retry", ""),
        ("claude/interrupt_while_permission_pending", "asking"),
        ("claude/deny_with_interrupt", "asking"),
    ],
)
def test_an_interrupted_run_is_stopped_with_what_was_written(name: str, answer: str) -> None:
    completed = replay(name).completed
    assert (completed.ok, completed.outcome, completed.error) == (False, "stopped", "The run was stopped.")
    assert completed.answer.startswith(answer)
    assert completed.raw_error == completed.advice == ""


def test_an_interrupt_withdraws_what_was_asked() -> None:
    replayed = replay("claude/interrupt_while_permission_pending")
    (asked,) = replayed.opened
    assert asked.interaction.id not in replayed.answers  # the late tap was recorded too, and writes nothing
    assert replayed.turns[0].answer == "after the interrupt"


def test_an_idle_interrupt_is_not_sent() -> None:
    writes = replay("claude/interrupt_while_permission_pending").writes
    assert [frame["request"]["subtype"] for frame in writes if "request" in frame] == ["initialize", "interrupt"]


def test_a_stopped_compaction_is_stopped() -> None:
    turn = replay("claude/interrupt_during_compaction").turns[1]
    assert (turn.outcome, turn.answer) == ("stopped", "")


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "error", "answer"),
    [
        ("claude/error_403", "The provider does not let this account in.", ""),
        ("claude/error_413", "The message is too large for the model.", ""),
        ("claude/error_429_quota", "The provider limits requests right now.", ""),
        ("claude/error_bad_request_400", "The provider did not accept the request.", ""),
        ("claude/error_credit_400", "The credit of this account is used up.", ""),
        ("claude-2.1.332/oneshot_api_error", "The credit of this account is used up.", ""),
        ("claude/error_invalid_model_404", "This model does not exist, or this account may not use it.", ""),
        ("claude/error_max_budget", "The budget of this session is used up.", ""),
        ("claude-2.1.332/error_max_budget", "The budget of this session is used up.", ""),
        ("claude/error_max_turns", "The limit of steps for one run is reached.", ""),
        ("claude/error_prompt_too_long", "The conversation is too long for the model.", ""),
        ("claude/api_retry_exhausted", "The provider is overloaded or has an error.", ""),
        ("claude-2.1.332/api_retry_exhausted", "The provider is overloaded or has an error.", ""),
        ("claude/api_stream_error_event", "The provider is overloaded or has an error.", "part"),
        ("claude-2.1.332/refusal_repeated", "The model declined this request.", "I cannot"),
        ("claude/rate_limit_rejected", "The usage limit is reached; it resets 10:44pm (UTC).", ""),
        ("claude-2.1.332/rate_limit_rejected", "The usage limit is reached; it resets 11:28pm (UTC).", ""),
    ],
)
def test_a_failure_in_words(name: str, error: str, answer: str) -> None:
    completed = replay(name).completed
    assert (completed.ok, completed.error, completed.answer, completed.outcome) == (False, error, answer, "")
    assert completed.advice
    assert completed.raw_error  # the CLI's own words, for the details


def test_a_session_that_does_not_exist_is_not_kept() -> None:
    completed = replay("claude/resume_bad_id").completed
    assert completed.error == "The session to continue was not found."
    assert completed.resume is None
    assert completed.raw_error == "No conversation found with session ID: e901a3ab-76d4-4d53-b3c0-2541b1adda79"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("claude/flag_unknown", "error: unknown option '--nope' (Did you mean --name?)"),
        ("claude/pty_stdin", "Error: Input must be provided either through stdin or as a prompt argument"),
        ("claude/session_id_not_uuid", "Error: Invalid session ID. Must be a valid UUID."),
    ],
)
def test_a_cli_that_does_not_start_says_why(name: str, words: str) -> None:
    completed = replay(name).completed
    assert completed.error is not None
    assert completed.error.startswith(f"Claude Code ended before it answered (exit code 1): {words}")
    assert (completed.ok, completed.outcome) == (False, "ended_early")


def test_a_killed_agent_was_stopped() -> None:
    assert replay("claude/sigkill_during_bash").completed.outcome == "stopped"


# ------------------------------------------------------------------------------------------- steps and permissions


def test_tools_with_approval_and_refusal() -> None:
    replayed = replay("claude/tools_default")
    assert replayed.actions("tool", "command", "file_change") == [
        ("started", "Read a.txt", None),
        ("completed", "Read a.txt", True),
        ("started", "echo hi > b.txt; ls", None),
        ("completed", "echo hi > b.txt; ls", True),
        ("started", "new.txt", None),
        ("completed", "new.txt", False),
        ("started", "a.txt", None),
        ("completed", "a.txt", True),
        ("started", "ls", None),
        ("completed", "ls", True),
    ]
    assert [(event.interaction.act, event.interaction.body) for event in replayed.opened] == [
        ("Run a command?", (Content("command", "echo hi > b.txt; ls"), Content("text", "List"))),
        ("Write a file?", (Content("diff", "+new", "new.txt", added=1, removed=0),)),
        ("Edit a file?", (Content("diff", "@@ edit 1 of 1 @@\n-one\n+uno", "a.txt", added=1, removed=1),)),
    ]
    bash, write, edit = (replayed.answers[event.interaction.id]["response"] for event in replayed.opened)
    assert bash == {
        "behavior": "allow",
        "updatedInput": {"command": "echo changed > b.txt; ls", "description": "List"},
    }
    assert write == {"behavior": "deny", "message": "No new files, please."}
    assert edit["behavior"] == "allow"
    assert edit["updatedInput"]["new_string"] == "uno"


def test_a_short_output_comes_with_the_step() -> None:
    events = [event for event in replay("claude/tools_default").events if isinstance(event, ActionEvent)]
    assert [event.message for event in events if event.action.title == "ls"] == ["", "a.txt\nb.txt"]


def test_parallel_sub_agents_ask_for_themselves() -> None:
    replayed = replay("claude/subagents_parallel")
    asked = [(event.interaction.asked_by, event.interaction.body[0].text) for event in replayed.opened]
    assert asked == [("B", 'python3 -c "print(2)"'), ("A", 'python3 -c "print(1)"')]
    children = {
        (event.action.title, event.parent, event.ok)
        for event in replayed.events
        if isinstance(event, ActionEvent) and event.parent and event.phase == "completed"
    }
    assert children == {
        ('python3 -c "print(1)"', "toolu_fake000001", False),
        ('python3 -c "print(2)"', "toolu_fake000002", True),
    }
    assert replayed.actions("subagent")[-1] == ("completed", "A", True)
    assert replayed.completed.answer == "both done"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_allow_always_has_an_input(version: str) -> None:
    """2.1.197 refuses one without; the recording's host left it out on purpose."""
    replayed = replay(f"{version}/permission_bad_responses")
    allowed = [answer["response"] for answer in replayed.answers.values() if answer["response"]["behavior"] == "allow"]
    refused = [answer["response"] for answer in replayed.answers.values() if answer["response"]["behavior"] == "deny"]
    assert len(allowed) == 3
    commands = [answer["updatedInput"]["command"] for answer in allowed]
    assert commands == [f'python3 -c "print({number})"' for number in (0, 5, 6)]
    assert all(answer["message"].startswith("The user refused this.") for answer in refused)


def test_questions_are_answered_by_name() -> None:
    replayed = replay("claude/ask_user_question")
    first = replayed.opened[0].interaction
    assert (first.kind, first.act) == ("question", "Answer a question?")
    assert first.body == (Content("text", "Which database?\n1 SQLite: one file\n2 Postgres: server", "DB"),)
    given: list[Any] = [replayed.answers[event.interaction.id]["response"] for event in replayed.opened]
    assert given[0]["updatedInput"]["answers"] == {"Which database?": "SQLite"}
    assert given[0]["updatedInput"]["questions"][0]["header"] == "DB"
    assert given[4] == {"behavior": "deny", "message": "The user answered: use DuckDB."}


def test_plans() -> None:
    old, new = replay("claude/plan_exit"), replay("claude-2.1.332/plan_exit")
    plans = [event.interaction for event in old.opened if event.interaction.kind == "plan"]
    assert [(plan.act, plan.body) for plan in plans] == [
        ("Leave plan mode?", (Content("markdown", "# Plan\n1. edit a.txt"),)),
        ("Leave plan mode?", (Content("markdown", "# Plan\n1. edit a.txt carefully"),)),
    ]
    (first, *_) = new.opened
    assert first.interaction.body == (Content("markdown", "Claude Code gave no text for its plan."),)


# -------------------------------------------------------------------------------------------- background and notes


@pytest.mark.parametrize(
    ("name", "reason", "answer"),
    [
        ("claude/background_bash", "background task", "woken: shell finished"),
        ("claude-2.1.332/background_bash", "background task", "woken: shell finished"),
        ("claude-2.1.332/subagent_background", "background task", "woken: the agent finished"),
        ("claude/cron_create_and_fire", "schedule", "cron turn answered"),
        ("claude-2.1.332/cron_create_and_fire", "schedule", "cron turn answered"),
    ],
)
def test_turns_that_nobody_asked_for(name: str, reason: str, answer: str) -> None:
    replayed = replay(name)
    begun = next(event for event in replayed.events if isinstance(event, TurnEvent))
    assert (begun.phase, begun.reason, begun.prompts) == ("started", reason, ())
    assert (replayed.turns[0].reason, replayed.turns[0].answer) == (reason, answer)


def test_a_retry_is_one_note() -> None:
    assert replay("claude/api_retry_529").actions("note") == [
        ("started", "The provider is overloaded, retry 1 of 10", None),
        ("updated", "The provider is overloaded, retry 2 of 10", None),
        ("completed", "The provider is overloaded, retry 2 of 10", True),
    ]
    assert replay("claude/api_retry_exhausted").actions("note")[-1][2] is False


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("claude/compact_manual", "Compacted the conversation: 6.0 k → 0.6 k tokens"),
        ("claude-2.1.332/compact_slow_70s", "Compacted the conversation: 6.0 k → 2.7 k tokens"),
        ("claude/compact_auto", "Compacted the conversation: 185 k → 0.6 k tokens"),
    ],
)
def test_a_compaction_is_one_note(name: str, title: str) -> None:
    assert replay(name).actions("note") == [
        ("started", "Compacting the conversation", None),
        ("completed", title, True),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_are_told_once_each(version: str) -> None:
    assert replay(f"{version}/rate_limit_allowed_and_warning").actions("note") == [
        ("completed", "91% of the 5-hour limit is used", True),
        ("completed", "80% of the weekly limit is used", True),
    ]
    assert replay(f"{version}/rate_limit_rejected").actions("warning") == [
        ("completed", "The 5-hour limit is used up", False)
    ]


# ----------------------------------------------------------------------------------------------------- one-shot form


def test_the_last_result_of_a_one_shot_run_is_the_answer() -> None:
    replayed = replay("claude-2.1.332/oneshot_background_agent")
    assert replayed.completed.answer == "The agent found nothing."
    usage = replayed.completed.usage
    assert isinstance(usage, Usage)
    assert usage.turns == 3
    assert replayed.turns == []


def test_a_one_shot_run_says_that_it_cannot_ask() -> None:
    replayed = replay("claude-2.1.332/oneshot_permission")
    after_start = replayed.events[1]
    assert isinstance(replayed.events[0], StartedEvent)
    assert isinstance(after_start, ActionEvent)
    assert (after_start.action.kind, after_start.action.title) == (
        "warning",
        "This form cannot ask: what needs your permission is refused.",
    )
    assert replayed.completed.answer == "Not allowed."


def test_a_one_shot_prompt_is_text() -> None:
    first = replay("claude-2.1.332/oneshot_text").steps[0].step
    assert first.writes == (b'-- say hello\n\nsecond line, with "quotes" and --flags\n',)
    assert first.close_stdin
