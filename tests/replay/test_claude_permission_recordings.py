"""What the recordings say about permissions, plans and questions: exact requests, and the lines that answer them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.replay_claude import Replay, replay
from untether.model import Interaction

VERSIONS = ("claude", "claude-2.1.332")


def asked(replayed: Replay) -> list[Interaction]:
    return [event.interaction for event in replayed.opened]


def bodies(replayed: Replay) -> list[Any]:
    return [answer["response"] for answer in replayed.answers.values()]


def modes(replayed: Replay) -> list[str]:
    found = [frame["request"] for frame in replayed.writes if frame["type"] == "control_request"]
    return [request["mode"] for request in found if request["subtype"] == "set_permission_mode"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_with_a_file(version: str) -> None:
    replayed = replay(f"{version}/plan_file_exit")
    plans = [each for each in asked(replayed) if each.kind == "plan"]
    assert [plan.body[0].text for plan in plans] == ["# The plan\n\n1. Do it"] * 2
    assert [piece.form for piece in plans[1].body] == ["markdown", "json"]  # what it wants to be allowed along
    assert bodies(replayed)[0]["behavior"] == "deny"
    assert bodies(replayed)[1]["behavior"] == "allow"
    assert modes(replayed) == ["plan"]  # set again at the end of the turn


def test_a_plan_that_is_not_in_the_request_is_asked_for() -> None:
    replayed = replay("claude-2.1.332/plan_exit")
    questions = [f["request_id"] for f in replayed.writes if (f.get("request") or {}).get("subtype") == "get_plan"]
    assert questions[0] == "ut_get_plan_1"
    assert all(each.kind == "plan" for each in asked(replayed)[:1])


@pytest.mark.parametrize("version", VERSIONS)
def test_sub_agents_that_ask_at_once(version: str) -> None:
    replayed = replay(f"{version}/subagents_parallel")
    found = asked(replayed)
    assert len({each.id for each in found}) == len(found) >= 2
    assert all(each.asked_by for each in found)
    assert {each.body[0].text for each in found} >= {'python3 -c "print(1)"', 'python3 -c "print(2)"'}
    first = found[0]
    assert [choice.id for choice in first.choices] == ["session:0", "always:0"]


@pytest.mark.parametrize("name", ["claude/auto_mode_blocked", "claude-2.1.332/auto_mode_server_blocks"])
def test_what_the_automatic_check_refused_three_times_is_asked(name: str) -> None:
    replayed = replay(name)
    found = asked(replayed)
    assert found
    assert all("consecutive actions were blocked" in each.note for each in found)


@pytest.mark.parametrize("version", VERSIONS)
def test_questions_in_the_words_of_the_recording(version: str) -> None:
    replayed = replay(f"{version}/ask_user_question")
    found = [each for each in asked(replayed) if each.kind == "question"]
    assert [[question.text for question in each.questions] for each in found[:4]] == [
        ["Which database?"],
        ["Which extras?"],
        ["Which extras?"],
        ["Which database?", "Which extras?"],
    ]
    assert [question.multiple for question in found[3].questions] == [False, True]
    assert bodies(replayed)[0]["updatedInput"]["answers"] == {"Which database?": "SQLite"}


def test_suggestions_of_the_recording_become_choices() -> None:
    found = asked(replay("claude/permission_updates"))
    assert [[choice.label for choice in each.choices] for each in found[:2]] == [
        ['This session: Bash(python3 -c "print\\(1\\)")', 'Always here: Bash(python3 -c "print\\(1\\)")'],
        ["Accept edits this session"],
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_bypass_asks_for_plans_and_questions_only(version: str) -> None:
    replayed = replay(f"{version}/bypass_permissions")
    assert {each.kind for each in asked(replayed)} <= {"plan", "question", "permission"}
    assert not [each for each in asked(replayed) if each.act == "Run a command?"]


def test_a_plan_set_again_by_the_host_of_the_recording_needs_no_second_request() -> None:
    replayed = replay("claude-2.1.332/plan_rearmed_no_auto_during_plan")
    assert modes(replayed)
    assert set(modes(replayed)) == {"plan"}
