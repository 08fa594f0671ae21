"""Permission modes: every cell of the table of what is answered without asking, and what the gate adds to it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.support.claude_talk import Talk
from untether.model import ActionEvent, Allow, CompletedEvent, InteractionEvent, StartedEvent
from untether.runners.claude.modes import READ_ONLY, TABLE
from untether.session import SetPermissionMode
from untether.settings.model import PermissionMode, ReadOnlyTool

PROMPTING = ("default", "manual", "acceptEdits", "plan")
AUTONOMOUS = ("auto", "dontAsk", "bypassPermissions")
QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
FLAGS: list[dict[str, Any]] = [
    {"requires_user_interaction": True},
    {"decision_reason_type": "rule"},
    {"decision_reason_type": "hook"},
    {"decision_reason_type": "classifier"},
    {"matched_ask_rule": {"source": "userSettings", "tool_name": "Bash"}, "decision_reason_type": "other"},
]
UNATTENDED = "the run is unattended"


def at_work(mode: str, **settings: Any) -> Talk:
    talk = Talk(permission_mode=mode, **settings)
    talk.init(permissionMode=TABLE[mode].cli)
    return talk


def outcome(talk: Talk, id: str = "r1") -> str:
    """What became of the request: asked, allowed, or why it was denied."""
    for frame in talk.written:
        response = frame.get("response") or {}
        if response.get("request_id") == id:
            return response["response"].get("message", response["response"]["behavior"])  # type: ignore[no-any-return]
    opened = [event.interaction.id for event in talk.of(InteractionEvent)]
    return "ask" if id in opened else "nothing"


def request(talk: Talk, what: str, **fields: Any) -> str:
    if what == "tool":
        talk.ask("r1", "Bash", {"command": "make"}, tool_use_id="t1", **fields)
    elif what == "question":
        talk.ask("r1", "AskUserQuestion", QUESTIONS, tool_use_id="t1", **fields)
    else:
        plan = {"plan": "# Plan", "planFilePath": "/x"}
        talk.ask("r1", "ExitPlanMode", plan, tool_use_id="t1", requires_user_interaction=True, **fields)
    return outcome(talk)


def leave_plan(talk: Talk, back_to: str = "default") -> None:
    """The agent asks to leave plan mode, which is approved: by itself, or by a person."""
    talk.ask("exit", "ExitPlanMode", {"plan": "# Plan"}, tool_use_id="t0")
    talk.decide("exit", Allow())
    talk.system("status", status=None, permissionMode=back_to)


CELLS = {
    **{(mode, "tool"): "ask" for mode in PROMPTING},
    **{(mode, "tool"): "allow" for mode in AUTONOMOUS},
    ("plan-auto", "tool"): "ask",
    **{(mode, "plan"): "ask" for mode in (*PROMPTING, *AUTONOMOUS)},
    ("plan-auto", "plan"): "allow",
    **{(mode, "question"): "ask" for mode in TABLE},
}


def test_the_settings_know_the_modes_and_the_tools_that_only_read() -> None:
    assert set(get_args(PermissionMode)) == set(TABLE)
    assert set(get_args(ReadOnlyTool)) == READ_ONLY


def test_every_mode_has_its_cells() -> None:
    assert set(TABLE) == {*PROMPTING, *AUTONOMOUS, "plan-auto"}
    assert len(CELLS) == len(TABLE) * 3


@pytest.mark.parametrize(("mode", "what", "answer"), [(*cell, answer) for cell, answer in CELLS.items()])
def test_what_is_answered_without_asking(mode: str, what: str, answer: str) -> None:
    assert request(at_work(mode), what) == answer


@pytest.mark.parametrize(("mode", "what", "answer"), [(*cell, answer) for cell, answer in CELLS.items()])
def test_unattended_nothing_waits(mode: str, what: str, answer: str) -> None:
    found = request(at_work(mode, attended=False), what)
    assert found == "allow" if answer == "allow" else UNATTENDED in found


@pytest.mark.parametrize("mode", TABLE)
@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: "-".join(f"{flag}".split("'")[1::2][:2]))
def test_no_mode_answers_what_a_person_is_wanted_for(mode: str, flag: dict[str, Any]) -> None:
    assert request(at_work(mode), "tool", **flag) == "ask"
    assert UNATTENDED in request(at_work(mode, attended=False), "tool", **flag)


@pytest.mark.parametrize(("mode", "answer"), [("plan", "ask"), ("plan-auto", "allow")])
def test_after_the_exit(mode: str, answer: str) -> None:
    talk = at_work(mode)
    leave_plan(talk)
    assert request(talk, "tool") == answer
    assert not [warning for warning in talk.of(ActionEvent) if warning.action.kind == "warning"]


def test_after_the_exit_a_question_and_a_rule_of_the_user_are_still_asked() -> None:
    talk = at_work("plan-auto")
    leave_plan(talk)
    assert request(talk, "question") == "ask"
    talk = at_work("plan-auto")
    leave_plan(talk)
    assert request(talk, "tool", decision_reason_type="rule") == "ask"


def test_an_approval_counts_for_its_turn() -> None:
    talk = at_work("plan-auto")
    leave_plan(talk)
    talk.result()
    talk.init(permissionMode="default")  # a wake-up: plan mode is set again before messages only
    assert request(talk, "tool") == "ask"


@pytest.mark.parametrize("reason", [{}, {"decision_reason_type": "workingDir"}])
def test_tools_that_the_owner_has_approved_without_asking(reason: dict[str, Any]) -> None:
    talk = at_work("default", auto_approve=["Read", "Bash"])
    talk.ask("r1", "Read", {"file_path": "/etc/hosts"}, **reason)
    assert outcome(talk) == "allow"
    talk.ask("r2", "Bash", {"command": "make"})  # not a tool that only reads
    assert outcome(talk, "r2") == "ask"
    talk.ask("r3", "Read", {"file_path": "/etc/shadow"}, decision_reason_type="rule")
    assert outcome(talk, "r3") == "ask"
    assert (talk.started.meta or {})["unasked"] == ["Read", "Bash"]


# ------------------------------------------------------------------------------------------------- modes that differ


def warnings(talk: Talk) -> list[str]:
    return [event.action.title for event in talk.of(ActionEvent) if event.action.kind == "warning"]


@pytest.mark.parametrize(
    ("asked", "reported", "answer"),
    [
        ("bypassPermissions", "default", "ask"),
        ("auto", "acceptEdits", "ask"),
        ("plan", "bypassPermissions", "ask"),
        ("auto", "bypassPermissions", "allow"),
        ("auto", "something new", "ask"),
    ],
)
def test_another_mode_is_told_and_the_stricter_one_counts(asked: str, reported: str, answer: str) -> None:
    talk = Talk(permission_mode=asked)
    talk.init(permissionMode=reported)
    (warning,) = warnings(talk)
    assert warning.startswith(f"Claude Code runs in permission mode {reported!r}, not in {asked!r}")
    assert request(talk, "tool") == answer
    talk.result()
    talk.init(permissionMode=reported)
    assert len(warnings(talk)) == 1


@pytest.mark.parametrize(("asked", "reported"), [("manual", "default"), ("manual", "manual"), ("plan-auto", "plan")])
def test_two_names_of_one_mode_are_no_difference(asked: str, reported: str) -> None:
    talk = Talk(permission_mode=asked)
    talk.init(permissionMode=reported)
    assert warnings(talk) == []


def test_plan_mode_that_the_agent_entered_by_itself_asks() -> None:
    talk = at_work("bypassPermissions")
    talk.system("status", status=None, permissionMode="plan")
    assert request(talk, "tool") == "ask"
    talk.decide("r1", Allow())
    leave_plan(talk, back_to="bypassPermissions")
    talk.ask("r2", "Bash", {"command": "make"})
    assert outcome(talk, "r2") == "allow"
    assert warnings(talk) == []


def test_a_mode_that_changes_without_a_reason_is_told() -> None:
    talk = at_work("default")
    talk.system("status", status=None, permissionMode="bypassPermissions")
    assert len(warnings(talk)) == 1
    assert request(talk, "tool") == "ask"


def answer_change(talk: Talk, subtype: str = "success") -> None:
    id = [f["request_id"] for f in talk.written if f.get("request", {}).get("subtype") == "set_permission_mode"][-1]
    talk.feed({"type": "control_response", "response": {"subtype": subtype, "request_id": id, "error": "no"}})


def test_a_change_on_an_open_process() -> None:
    talk = at_work("bypassPermissions")
    talk.did(talk.session.configure(SetPermissionMode("default"), talk.now))
    assert request(talk, "tool") == "ask"  # at once
    answer_change(talk)
    talk.system("status", status=None, permissionMode="default")
    assert warnings(talk) == []

    talk.did(talk.session.configure(SetPermissionMode("auto"), talk.now))
    talk.init(permissionMode="default")  # was on its way
    answer_change(talk)
    talk.system("status", status=None, permissionMode="auto")
    talk.ask("r2", "Bash", {"command": "make"})
    assert outcome(talk, "r2") == "allow"
    assert warnings(talk) == []


def test_a_change_that_is_refused_is_taken_back() -> None:
    talk = at_work("default")
    talk.did(talk.session.configure(SetPermissionMode("bypassPermissions"), talk.now))
    answer_change(talk, "error")
    assert request(talk, "tool") == "ask"
    talk.result()
    talk.init(permissionMode="default")
    assert warnings(talk) == ["Claude Code refused the change of the permission mode"]


def test_of_two_changes_both_refused_the_first_mode_counts() -> None:
    talk = at_work("default")
    for mode in ("bypassPermissions", "auto"):
        talk.did(talk.session.configure(SetPermissionMode(mode), talk.now))
    first, second = [f["request_id"] for f in talk.written if "request" in f][-2:]
    for id in (first, second):
        talk.feed({"type": "control_response", "response": {"subtype": "error", "request_id": id, "error": "no"}})
    talk.init(permissionMode="default")
    assert not [warning for warning in warnings(talk) if "stricter" in warning]
    assert request(talk, "tool") == "ask"


def test_a_mode_chosen_with_an_approval_is_no_difference() -> None:
    talk = at_work("default")
    suggestion = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    talk.ask("r1", "Write", {"file_path": "/repo/a", "content": "x"}, permission_suggestions=[suggestion])
    talk.decide("r1", Allow(scope="mode:0"))
    assert talk.reply["response"]["updatedPermissions"] == [suggestion]
    talk.system("status", status=None, permissionMode="acceptEdits")
    assert warnings(talk) == []


def test_plan_mode_in_a_session_begun_without_asking_needs_a_new_process() -> None:
    """2.1.197 lets everything run in plan mode then."""
    talk = at_work("bypassPermissions")
    talk.result()
    talk.did(talk.session.configure(SetPermissionMode("plan"), talk.now))
    assert talk.last.close_stdin
    talk.say(2)
    assert talk.prompts[-1] == ("2", "handed_back")


# -------------------------------------------------------------------------------------------- unattended, and no asking


def test_what_was_refused_is_listed_in_the_answer() -> None:
    talk = at_work("default", attended=False)
    talk.ask("r1", "Bash", {"command": "git push"})
    talk.ask("r2", "Write", {"file_path": "/repo/a.txt", "content": "x"})
    talk.result("All else is done.")
    (completed,) = talk.of(CompletedEvent)
    assert completed.answer == (
        "All else is done.\n\nNobody could be asked, so this was refused:\n- Bash: git push\n- Write: a.txt"
    )
    assert talk.of(InteractionEvent) == []
    assert warnings(talk)[0] == "Refused, since nobody is there to ask: Bash: git push"
    talk.init()
    talk.result("Later.")
    assert talk.last.events[-1].answer == "Later."  # type: ignore[union-attr]


def test_questions_can_be_switched_off() -> None:
    talk = at_work("default", ask_questions=False)
    found = request(talk, "question", requires_user_interaction=True)
    assert "Decide yourself and state your assumptions" in found
    talk.ask("r2", "Bash", {"command": "make"})
    assert outcome(talk, "r2") == "ask"


def test_the_one_who_looks_sees_the_mode() -> None:
    talk = at_work("plan-auto")
    leave_plan(talk)
    assert [(event.meta or {})["permission_mode"] for event in talk.of(StartedEvent)] == ["plan", "default"]
