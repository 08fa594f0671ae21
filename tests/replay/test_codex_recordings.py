"""Every recording of Codex through the real session, and what comes of those that matter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.replay_codex import check, recordings, replay
from untether.model import Content, InteractionEvent, Usage

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", recordings())
def test_every_recording_keeps_the_contract(name: str) -> None:
    replayed = replay(name)
    check(replayed)
    # What the host of that time asked besides is answered to nobody here.
    assert replayed.session.unknown.keys() <= {"response"}


def test_there_are_recordings_of_both_forms() -> None:
    assert sum(name.startswith("as_") for name in recordings()) >= 40
    assert sum(name.startswith("exec_") for name in recordings()) >= 20


def test_the_hash_seed_changes_nothing() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.replay_codex"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate(timeout=50)[0].splitlines() for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert len(first) == len(recordings())
    assert first == second


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("as_text", "Hello from the fake model, streamed in several pieces."),
        ("as_tools", "Done: created b.txt."),
        ("as_resume_2", "Second."),
        ("as_code_mode_approval", "Done."),
        ("as_exec_accept_after_150s", "x"),
        ("as_mcp_accept", "It is 3."),
        ("as_user_input", "Chosen."),
        ("exec_text", "Hello from the fake model."),
        ("exec_tools", "Done: created b.txt."),
        ("exec_stream_cut", "Whole answer."),
        ("exec_fork", "Forked."),
    ],
)
def test_answers(name: str, answer: str) -> None:
    completed = replay(name).completed
    assert (completed.ok, completed.answer, completed.error) == (True, answer, None)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("as_error_401", "Codex is not logged in, or its login has expired."),
        ("as_error_500", "The provider is overloaded or has an error."),
        ("as_error_context", "The conversation is too long for the model."),
        ("as_error_usage_limit", "The usage limit is reached."),
        ("exec_error_401", "Codex is not logged in, or its login has expired."),
        ("exec_error_429", "The provider limits requests right now."),
        ("exec_error_500", "The provider is overloaded or has an error."),
        ("exec_error_usage_limit", "The usage limit is reached."),
        ("exec_resume_bad_id", "The session to continue was not found."),
    ],
)
def test_errors(name: str, error: str) -> None:
    completed = replay(name).completed
    assert (completed.ok, completed.error) == (False, error)
    assert "127.0.0.1" not in (completed.error or "")
    assert completed.raw_error


def test_steps() -> None:
    replayed = replay("as_tools")
    assert [(title, ok) for phase, title, ok in replayed.actions("command") if phase == "completed"] == [
        ("for i in 1 2 3; do echo line $i; sleep 0.6; done", True),
        ("cat a.txt", True),
        ("sh -c 'echo bad; exit 3'", False),
    ]
    assert replayed.last("for i in 1 2 3; do echo line $i; sleep 0.6; done").message == "line 1\nline 2\nline 3\n"
    written, edited = replayed.last("b.txt").action.detail, replayed.last("a.txt").action.detail
    assert (written["verb"], written["added"], written["removed"]) == ("Write", 2, 0)
    assert (edited["verb"], edited["added"], edited["removed"]) == ("Edit", 1, 1)
    assert replayed.last("how to be fake").action.kind == "web_search"
    assert replayed.actions("note") == [
        ("completed", "Looking around", True),
        ("completed", "I will look around first.", True),
    ]


@pytest.mark.parametrize(
    ("name", "decision"),
    [
        ("as_exec_accept", "accept"),
        ("as_exec_session", "acceptForSession"),
        ("as_exec_decline", "decline"),
        ("as_exec_cancel", "cancel"),
        ("as_patch_accept", "accept"),
        ("as_patch_decline", "decline"),
        (
            "as_exec_amend",
            {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "/outside/file-r"]}},
        ),
    ],
)
def test_the_first_request_of_a_process_has_id_0_and_is_answered(name: str, decision: Any) -> None:
    replayed = replay(name)
    assert replayed.replies[0] == {"decision": decision}
    assert replayed.closed[0][0] == "resolved"


def test_a_command_that_was_allowed_for_the_session_is_not_asked_again() -> None:
    replayed = replay("as_exec_session")
    assert len(replayed.asked) == 1
    assert [ok for phase, _, ok in replayed.actions("command") if phase == "completed"] == [True, True]


def test_a_patch_is_asked_with_its_diff() -> None:
    first, second = (event.interaction.body for event in replay("as_patch_accept").asked)
    assert first == (Content("diff", "@@ -1 +1 @@\n-one\n+two", "a.txt", added=1, removed=1),)
    assert second == (Content("diff", "+hello", "Write new.txt", added=1, removed=0),)


def test_an_mcp_tool_is_asked_by_name() -> None:
    replayed = replay("as_mcp_accept")
    assert replayed.asked[0].interaction.act == "Use add of demo?"
    assert replayed.replies[0]["action"] == "accept"
    assert replay("as_mcp_decline").replies[0]["action"] == "decline"


def test_a_question_is_answered_by_its_id() -> None:
    replayed = replay("as_user_input")
    assert [option.label for option in replayed.asked[0].interaction.questions[0].options] == ["Red", "Blue"]
    assert replayed.replies[0] == {"answers": {"q1": {"answers": ["Blue"]}}}


def test_a_plan_waits_for_a_person() -> None:
    replayed = replay("as_plan_mode")
    [asked] = [event.interaction for event in replayed.asked]
    assert (asked.kind, asked.body[0].text) == ("plan", "# Plan\n- step one\n- step two\n")
    assert replayed.closed == [("withdrawn", "The agent has ended.")]


def test_an_approval_that_was_open_when_codex_died_is_withdrawn() -> None:
    replayed = replay("as_crash_1")
    assert [event.phase for event in replayed.events if isinstance(event, InteractionEvent)] == ["opened", "withdrawn"]
    assert replayed.completed.ok is False


def test_a_stop_ends_the_terminals_too() -> None:
    assert replay("as_interrupt").methods[-3:] == [
        "turn/interrupt",
        "thread/backgroundTerminals/clean",
        "turn/start",
    ]
    assert replay("as_interrupt").completed.outcome == "stopped"


def test_a_message_is_taken_in_the_turn_it_is_said_into() -> None:
    replayed = replay("as_steer")
    assert replayed.completed.answer == "I saw your steer."
    assert len(replayed.completed.prompts) == 2


@pytest.mark.parametrize(
    ("name", "input_tokens", "output_tokens"),
    [("as_text", 1500, 60), ("as_tools", 7200, 204), ("as_resume_2", 1200, 34), ("exec_tools", 6000, 170)],
)
def test_usage_is_that_of_the_run(name: str, input_tokens: int, output_tokens: int) -> None:
    usage = replay(name).completed.usage
    assert isinstance(usage, Usage)
    assert (usage.input_tokens, usage.output_tokens) == (input_tokens, output_tokens)


def test_usage_of_a_later_turn_and_of_a_resumed_exec() -> None:
    later = replay("as_text").turns[0].usage
    assert later is not None
    assert later.input_tokens == 1200
    assert replay("exec_resume").completed.usage is None


@pytest.mark.parametrize("name", ["as_end_eof", "as_end_sigterm", "as_end_sigkill", "exec_sigkill", "exec_sigterm"])
def test_a_stream_that_ends_early_is_never_a_success(name: str) -> None:
    assert replay(name).completed.ok is False
