"""Every recording of Pi through the real session, and what comes of those that matter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.replay_pi import check, recordings, replay
from untether.model import Content, SessionChangedEvent, Usage

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", recordings())
def test_every_recording_keeps_the_contract(name: str) -> None:
    replayed = replay(name)
    check(replayed)
    # What the host of that time asked besides is answered to nobody here.
    assert replayed.session.unknown.keys() <= {"response"}


def test_there_are_recordings_of_both_forms() -> None:
    assert sum(name.startswith("rpc_") for name in recordings()) >= 15
    assert sum(name.startswith("json_") for name in recordings()) >= 7


def test_the_hash_seed_changes_nothing() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.replay_pi"],
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
        ("rpc_text", "Hello from the fake model, in pieces."),
        ("rpc_gate_allow", "Done."),
        ("rpc_gate_deny", "Done."),
        ("rpc_gate_allow_after_150s", "Done."),
        ("rpc_ask_question", "Done."),
        ("rpc_resume_2", "Second."),
        ("json_text", "Hello from the fake model, in pieces."),
        ("old_json_text", "Hello."),
        ("json_session_id", "Mine."),
    ],
)
def test_the_answer(name: str, answer: str) -> None:
    completed = replay(name).completed
    assert (completed.ok, completed.answer) == (True, answer)


def test_the_usage_is_of_the_run() -> None:
    replayed = replay("rpc_text")
    per_call = Usage(1200, 34, 200, 0.001088, 1234, 128000, replayed.completed.usage.duration_s, 1)  # type: ignore[union-attr]
    assert replayed.completed.usage == per_call
    (turn,) = replayed.turns
    assert turn.usage is not None
    assert (turn.answer, turn.usage.input_tokens, turn.usage.cost_usd) == ("Second.", 1200, 0.001088)


def test_a_call_of_a_tool_is_asked_with_its_command() -> None:
    replayed = replay("rpc_gate_allow")
    assert [event.interaction.body for event in replayed.asked] == [
        (Content("command", "echo one"),),
        (Content("command", "echo two"),),
    ]
    assert replayed.closed == [("resolved", "approved")] * 2
    assert list(replayed.replies.values()) == [{"value": "Allow"}] * 2
    assert replayed.actions("command")[-1] == ("completed", "echo two", True)


def test_a_denied_call_fails_and_the_turn_goes_on() -> None:
    replayed = replay("rpc_gate_deny")
    assert list(replayed.replies.values()) == [{"value": "Deny"}] * 2
    assert replayed.last("echo one").ok is False
    assert replayed.completed.ok


def test_a_stop_takes_back_what_pi_holds_before_it_aborts() -> None:
    replayed = replay("rpc_abort")
    assert replayed.commands[:4] == ["prompt", "clear_queue", "abort", "prompt"]
    assert (replayed.completed.ok, replayed.completed.outcome) == (False, "stopped")
    (turn,) = replayed.turns
    assert (turn.ok, turn.answer) == (True, "After.")


@pytest.mark.parametrize("name", ["rpc_gate_abort", "rpc_gate_abort_nosignal"])
def test_a_stop_withdraws_what_was_asked(name: str) -> None:
    replayed = replay(name)
    assert [phase for phase, _ in replayed.closed] == ["withdrawn"]
    assert list(replayed.replies.values()) == [{"cancelled": True}]
    assert replayed.completed.outcome == "stopped"


def test_what_is_steered_is_taken_when_pi_shows_it() -> None:
    replayed = replay("rpc_steer")
    assert replayed.completed.prompts[0] == replayed.prompts[0]
    assert len(replayed.completed.prompts) == 2
    assert "steer" in replayed.commands


def test_an_agent_that_was_killed_with_a_dialog_open_leaves_none() -> None:
    assert replay("rpc_crash_1").closed == [("withdrawn", "The agent has ended.")]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("json_error_401", {"error": "Pi is not logged in to this provider, or its login has expired."}),
        ("json_resume_bad_id", {"error": "The session to continue was not found."}),
    ],
)
def test_errors_in_words(name: str, facts: dict[str, Any]) -> None:
    completed = replay(name).completed
    assert not completed.ok
    assert {key: getattr(completed, key) for key in facts} == facts
    assert completed.advice


def test_retries_are_one_note() -> None:
    titles = [title for phase, title, _ in replay("json_retry_500").actions("note") if phase == "started"]
    assert titles == ["The provider is overloaded, retry 1 of 3"]


def test_the_one_shot_form_says_that_it_cannot_ask() -> None:
    warnings = [title for _, title, _ in replay("json_text").actions("warning")]
    assert warnings == ["This form cannot ask: what needs your permission is refused."]


def test_nothing_is_promoted_that_is_whole() -> None:
    assert not [event for event in replay("json_resume").events if isinstance(event, SessionChangedEvent)]
