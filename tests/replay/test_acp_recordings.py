"""Recordings of real ACP agents through the session: each keeps the contract, and each trap is told as what it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.rules import assert_contract
from tests.support.replay_acp import Replay, recordings, replay
from untether.model import ActionEvent, CompletedEvent, InteractionEvent, PromptEvent, TurnEvent

ROOT = Path(__file__).resolve().parents[2]
# The second: the recorder's own lines, in question_env. The third: what the host of that time asked and we do not.
KNOWN = {"_auth/status_update", "line: not a JSON object", "response without a request"}


def completed(played: Replay) -> CompletedEvent:
    [found] = [event for event in played.events if isinstance(event, CompletedEvent)]
    return found


def opened(played: Replay) -> list[Any]:
    return [e.interaction for e in played.events if isinstance(e, InteractionEvent) and e.phase == "opened"]


@pytest.mark.parametrize("name", recordings())
def test_every_recording_keeps_the_contract(name: str) -> None:
    played = replay(name)
    assert_contract(played.events)
    assert set(played.session.unknown) <= KNOWN
    told = [row.frame for row in played.rows if row.dir == "out" and isinstance(row.frame, dict)]
    asked = [frame for frame in told if "method" in frame and "id" in frame]
    answers = [frame for frame in played.writes if "method" not in frame]
    assert [frame["id"] for frame in answers] == [frame["id"] for frame in asked], "each request is answered, once"
    prompts = [event for event in played.events if isinstance(event, PromptEvent)]
    assert len({event.prompt_id for event in prompts}) == len(prompts)


@pytest.mark.parametrize("name", recordings())
def test_what_was_decided_then_is_written_the_same_now(name: str) -> None:
    played = replay(name)
    then = [row.frame for row in played.rows if row.dir == "in" and "outcome" in str((row.frame or {}).get("result"))]
    now = [frame for frame in played.writes if "outcome" in str(frame.get("result"))]
    assert [(frame["id"], frame["result"]) for frame in now] == [(frame["id"], frame["result"]) for frame in then]


def test_the_same_whatever_the_hash_seed() -> None:
    code = (
        "from tests.support.replay_acp import *\n"
        "import msgspec\n"
        "for name in recordings(): print(msgspec.json.encode([s.step.events for s in replay(name).steps]))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "4242")
    }
    assert len(told) == 1


@pytest.mark.parametrize(
    ("name", "ok", "answer", "outcome"),
    [
        ("claude_acp_allow", True, "Done.", ""),
        ("claude_acp_reject", True, "Done.", ""),
        ("codex_acp_allow", True, "Done.", ""),
        ("codex_acp_reject", False, "Looking.", "ended_early"),  # it is told to go on, and the recording is over
        ("codex_acp_zed", True, "Done.", ""),
        ("gemini_permission", True, "Done.", ""),
        ("opencode_cancel", False, "", "stopped"),
        ("opencode_load", True, "Again.", ""),
        ("opencode_reject", False, "", "ended_early"),
        ("opencode_prompt_while_busy", True, "Second reply.", ""),
    ],
)
def test_how_it_ended(name: str, ok: bool, answer: str, outcome: str) -> None:
    done = completed(replay(name))
    assert (done.ok, done.answer, done.outcome) == (ok, answer, outcome)


def test_requests_of_gemini_come_without_a_tool_call_before() -> None:
    played = replay("gemini_permission")
    command, change = opened(played)
    assert command.body[0].text == "touch x.txt"
    assert [choice.label for choice in command.choices] == ["Allow for this session"]
    assert (change.act, change.body[0].form, change.body[0].text) == (
        "Change a file?",
        "diff",
        "@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file",
    )
    assert completed(played).usage.input_tokens == 3600  # type: ignore[union-attr]  # told in _meta only


def test_a_request_with_a_text_id() -> None:
    [asked] = opened(replay("codex_acp_zed"))
    assert asked.body[0].text == "touch /outside/file-acp"
    assert [choice.id for choice in asked.choices] == ["approved-execpolicy-amendment"]


def test_a_second_message_steers_opencode_and_both_are_answered_at_once() -> None:
    played = replay("opencode_prompt_while_busy")
    assert len(completed(played).prompts) == 2
    assert not [event for event in played.events if isinstance(event, TurnEvent)]


def test_warnings_of_codex_are_no_part_of_the_answer() -> None:
    played = replay("codex_acp_cancel")
    warnings = [e.action.title for e in played.events if isinstance(e, ActionEvent) and e.action.kind == "warning"]
    assert warnings[0].startswith("Model metadata for `fake-model` not found.")
    assert completed(played).answer == ""


def test_files_of_the_client_are_refused_though_opencode_asks() -> None:
    played = replay("opencode_permission")
    [refused] = [frame for frame in played.writes if "error" in frame]
    assert refused["error"]["code"] == -32601


def test_a_refused_key_is_a_login() -> None:
    done = completed(replay("opencode_error_401"))
    assert done.detail == {"login": True}
    assert done.advice == "Run `opencode auth login` on the machine, then try again."


def test_costs_of_the_run() -> None:
    assert completed(replay("opencode_prompt_while_busy")).usage.cost_usd == 0.002176  # type: ignore[union-attr]
    assert completed(replay("claude_acp_allow")).usage.cost_usd == 0.002  # type: ignore[union-attr]
