"""What Codex asks: approvals with their scopes, questions, MCP servers, plans; and bad JSON-RPC."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.codex_talk import THREAD, Talk
from untether.model import (
    ActionEvent,
    Allow,
    Answers,
    CompletedEvent,
    Content,
    Decision,
    Deny,
    Interaction,
    StartedEvent,
)

AMENDMENT = ["touch", "x"]
COMMAND = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"
INPUT = "item/tool/requestUserInput"
MCP = "mcpServer/elicitation/request"


def choice(interaction: Interaction, id: str) -> str:
    """The label of a choice."""
    return next(choice.label for choice in interaction.choices if choice.id == id)


# ------------------------------------------------------------------------------------------------------- commands


def test_a_command_is_asked_whole_and_request_0_counts() -> None:
    talk = Talk().began()
    command = "/bin/bash -lc 'touch x && echo \"two words\"'"
    asked = talk.asks_command(0, command, reason="May I?", cwd="/elsewhere", proposedExecpolicyAmendment=AMENDMENT)
    assert (asked.kind, asked.act, asked.note, asked.step_id) == ("permission", "Run a command?", "May I?", "item-1")
    assert asked.body == (
        Content("command", 'touch x && echo "two words"'),
        Content("text", "/elsewhere", "In the folder"),
    )
    assert choice(asked, "always") == "Always “touch x …” (for ever, in /home/ann/.codex/rules/default.rules)"
    assert talk.waits == [("human", "Run a command?")]
    talk.decide("0", Allow())
    assert talk.replies(0) == [{"decision": "accept"}]
    assert talk.waits == [("model", "")]


@pytest.mark.parametrize(
    ("decision", "wire"),
    [
        (Allow(), "accept"),
        (Allow("session"), "acceptForSession"),
        (Allow("always"), {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": AMENDMENT}}),
        (
            Allow("network:0"),
            {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "example.com", "action": "allow"}}},
        ),
        (Allow("network:7"), "accept"),
        (Deny(), "decline"),
        (Deny(interrupt=True), "cancel"),
    ],
)
def test_decisions_on_a_command(decision: Decision, wire: Any) -> None:
    talk = Talk().began()
    network = [{"host": "example.com", "action": "allow"}]
    talk.asks_command(proposedExecpolicyAmendment=AMENDMENT, proposedNetworkPolicyAmendments=network)
    talk.decide("0", decision)
    assert talk.replies(0) == [{"decision": wire}]
    assert talk.sent("turn/steer") == []


def test_a_scope_that_was_not_offered_is_only_this_once() -> None:
    talk = Talk().began()
    assert [each.id for each in talk.asks_command().choices] == ["session"]
    talk.decide("0", Allow("always"))
    assert talk.replies(0) == [{"decision": "accept"}]


def test_a_reason_is_said_before_the_refusal() -> None:
    """The reply has no room for it, and the next model call is to have read it."""
    talk = Talk().began()
    talk.asks_command()
    talk.decide("0", Deny("use make"))
    assert talk.closed == [("0", "resolved", "denied")]
    steer = talk.written[-1]
    assert steer["method"] == "turn/steer"
    assert steer["params"]["expectedTurnId"] == "turn-1"
    assert steer["params"]["input"][0]["text"] == "I refused this: use make"
    assert talk.replies(0) == []  # not before the reason was taken
    talk.answer("turn/steer", error="turn cannot be steered")
    assert talk.replies(0) == [{"decision": "decline"}]
    warnings = [event.action.title for event in talk.of(ActionEvent) if event.action.kind == "warning"]
    assert warnings == ["Codex could not be told why that was refused"]


def test_a_network_request_names_the_host() -> None:
    talk = Talk().began()
    asked = talk.asks_command(command=None, networkApprovalContext={"host": "example.com", "protocol": "https"})
    assert asked.act == "Connect to example.com?"
    assert asked.body[0].text == "https example.com"


# --------------------------------------------------------------------------------------------------------- patches


def test_a_patch_shows_the_diff_of_its_item() -> None:
    talk = Talk().began()
    changes = [
        {"path": "/repo/a.txt", "kind": {"type": "update", "move_path": None}, "diff": "@@ -1 +1 @@\n-one\n+two\n"},
        {"path": "/out/b.txt", "kind": {"type": "add"}, "diff": "hello\nyou\n"},
        {"path": "/repo/c.txt", "kind": {"type": "delete"}, "diff": "gone\n"},
    ]
    talk.item("fileChange", at="started", changes=changes, status="inProgress")
    asked = talk.asks(PATCH, reason="needed", grantRoot="/out")
    assert asked.act == "Change 3 files?"
    assert asked.body == (
        Content("diff", "@@ -1 +1 @@\n-one\n+two", "a.txt", added=1, removed=1),
        Content("diff", "+hello\n+you", "Write /out/b.txt", added=2, removed=0),
        Content("diff", "-gone", "Delete c.txt", added=0, removed=1),
    )
    assert "/out" in asked.note
    talk.decide("0", Allow("session"))
    assert talk.replies(0) == [{"decision": "acceptForSession"}]
    [step] = talk.of(ActionEvent)
    assert step.action.title == "a.txt, /out/b.txt, c.txt"
    assert (step.action.detail["added"], step.action.detail["removed"]) == (3, 2)
    assert "+++ /out/b.txt" in step.action.detail["diff"]
    talk.item("fileChange", changes=changes, status="declined")
    assert (talk.of(ActionEvent)[-1].ok, talk.of(ActionEvent)[-1].message) == (False, "Denied.")


def test_a_patch_whose_change_is_not_known_says_so() -> None:
    talk = Talk().began()
    assert talk.asks(PATCH).body == (Content("text", "Codex did not tell the change."),)


def test_more_permissions() -> None:
    talk = Talk().began()
    wanted = {"network": {"enabled": True}, "fileSystem": None}
    talk.asks("item/permissions/requestApproval", permissions=wanted)
    talk.decide("0", Allow("session"))
    assert talk.replies(0) == [{"permissions": {"network": {"enabled": True}}, "scope": "session"}]
    talk.asks("item/permissions/requestApproval", 1, permissions=wanted)
    talk.decide("1", Deny())
    assert talk.replies(1) == [{"permissions": {}, "scope": "turn"}]


# ------------------------------------------------------------------------------------------------------- questions


QUESTIONS = [
    {
        "id": "q1",
        "header": "Choice",
        "question": "Which colour?",
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "Blue"}],
    },
    {"id": "q2", "header": "", "question": "How many?", "options": None, "isSecret": True},
]


def test_questions() -> None:
    talk = Talk().began()
    asked = talk.asks(INPUT, questions=QUESTIONS)
    assert (asked.kind, asked.act) == ("question", "Answer 2 questions?")
    first, second = asked.questions
    assert [(option.label, option.description) for option in first.options] == [("Red", "warm"), ("Blue", "")]
    assert second.options == ()
    assert "secret" in asked.note
    talk.decide("0", Answers({"Which colour?": "Blue", "How many?": "2"}))
    assert talk.replies(0) == [{"answers": {"q1": {"answers": ["Blue"]}, "q2": {"answers": ["2"]}}}]
    assert talk.closed == [("0", "resolved", "answered")]


def test_a_question_that_is_skipped_is_told_to_the_agent() -> None:
    talk = Talk().began()
    talk.asks(INPUT, questions=QUESTIONS[:1])
    talk.decide("0", Deny())
    talk.answer("turn/steer", {"turnId": "turn-1"})
    assert talk.replies(0) == [{"answers": {}}]
    assert "Decide yourself" in talk.sent("turn/steer")[0]["input"][0]["text"]


def test_questions_may_be_switched_off() -> None:
    talk = Talk(ask_questions=False).began()
    talk.feed({"method": INPUT, "id": 0, "params": {"threadId": THREAD, "turnId": "turn-1", "questions": QUESTIONS}})
    talk.answer("turn/steer", {"turnId": "turn-1"})
    assert (talk.opened_requests, talk.replies(0)) == ([], [{"answers": {}}])
    assert "switched off" in talk.sent("turn/steer")[0]["input"][0]["text"]
    assert talk.asks_command(1).kind == "permission"


# ----------------------------------------------------------------------------------------------------- MCP servers


TOOL = {
    "serverName": "demo",
    "mode": "form",
    "message": "Allow?",
    "_meta": {
        "codex_approval_kind": "mcp_tool_call",
        "persist": ["session", "always"],
        "tool_name": "add",
        "tool_params": {"a": 1},
    },
    "requestedSchema": {"type": "object", "properties": {}},
}


@pytest.mark.parametrize(
    ("decision", "reply"),
    [
        (Allow(), {"action": "accept", "content": {}, "_meta": None}),
        (Allow("session"), {"action": "accept", "content": {}, "_meta": {"persist": "session"}}),
        (Allow("always"), {"action": "accept", "content": {}, "_meta": {"persist": "always"}}),
        (Deny(), {"action": "decline", "content": None, "_meta": None}),
        (Deny(interrupt=True), {"action": "cancel", "content": None, "_meta": None}),
    ],
)
def test_a_tool_of_an_mcp_server(decision: Decision, reply: Any) -> None:
    talk = Talk().began()
    asked = talk.asks(MCP, **TOOL)
    assert (asked.act, json.loads(asked.body[0].text)) == ("Use add of demo?", {"a": 1})
    assert choice(asked, "always") == "Always this tool (for ever, in /home/ann/.codex/config.toml)"
    talk.decide("0", decision)
    assert talk.replies(0) == [reply]


def test_a_tool_whose_request_does_not_name_it() -> None:
    """0.166.0 leaves the name out; the item that began before has it."""
    talk = Talk().began()
    talk.item("mcpToolCall", "m1", at="started", server="other", tool="sub", status="inProgress")
    talk.item("mcpToolCall", "m2", at="started", server="demo", tool="add", status="inProgress")
    meta = {"codex_approval_kind": "mcp_tool_call", "tool_params": {}}
    asked = talk.asks(MCP, **{**TOOL, "_meta": meta})
    assert (asked.act, asked.step_id, asked.choices) == ("Use add of demo?", "m2", ())
    assert talk.waits == [("human", "Use add of demo?"), ("tool", "other: sub")]


def test_a_form_of_an_mcp_server() -> None:
    talk = Talk().began()
    fields = {
        "name": {"type": "string", "title": "Name", "description": "yours"},
        "size": {"type": "integer"},
        "sure": {"type": "boolean"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "many": {"type": "array", "items": {"enum": ["x", "y"]}},
    }
    asked = talk.asks(MCP, serverName="demo", message="Tell me", requestedSchema={"properties": fields})
    assert [question.text for question in asked.questions] == ["Name: yours", "size", "sure", "kind", "many"]
    assert [option.label for option in asked.questions[3].options] == ["a", "b"]
    answers = {"Name: yours": "Ann", "size": "3", "sure": "yes", "kind": "b", "many": "x, y"}
    talk.decide("0", Answers(answers))
    assert talk.replies(0)[0]["content"] == {"name": "Ann", "size": 3, "sure": True, "kind": "b", "many": ["x", "y"]}


def test_a_page_of_an_mcp_server() -> None:
    talk = Talk().began()
    asked = talk.asks(MCP, serverName="demo", mode="url", message="Log in", url="https://example.com/x")
    assert (asked.act, asked.body[1].text) == ("Open a page for demo?", "https://example.com/x")


# --------------------------------------------------------------------------------------------------- ends of requests


def test_a_request_that_codex_closes_itself_is_withdrawn() -> None:
    talk = Talk().began()
    talk.asks_command(0)
    talk.asks_command("abc", itemId="item-2")
    talk.tell("serverRequest/resolved", requestId=0)
    assert talk.closed == [("0", "withdrawn", "")]
    talk.ends("interrupted")
    assert talk.closed[-1] == ('"abc"', "withdrawn", "The turn is over.")
    assert talk.decide("0", Allow()) == []
    assert talk.replies(0) == []


def test_a_second_decision_and_a_repeated_request_do_nothing() -> None:
    talk = Talk().began()
    talk.asks_command()
    talk.decide("0", Allow())
    assert talk.decide("0", Deny()) == []
    talk.asks_command()
    assert talk.replies(0) == [{"decision": "accept"}]
    assert len(talk.opened_requests) == 1


def test_a_decision_that_makes_no_sense_leaves_it_open() -> None:
    talk = Talk().began()
    talk.asks_command()
    talk.decide("0", Answers({"x": "y"}))
    assert (talk.replies(0), talk.closed) == ([], [])


def test_denying_and_stopping_ends_the_turn() -> None:
    talk = Talk().began()
    talk.asks_command()
    talk.decide("0", Deny(interrupt=True))
    talk.ends("interrupted")
    assert talk.of(CompletedEvent)[0].outcome == "stopped"


@pytest.mark.parametrize(
    ("method", "params", "reply", "words"),
    [
        (COMMAND, {"command": "/bin/bash -lc 'touch x'"}, {"decision": "decline"}, "Run a command: touch x"),
        (INPUT, {"questions": QUESTIONS[:1]}, {"answers": {}}, "Answer a question: Choice"),
        (MCP, TOOL, {"action": "decline", "content": None, "_meta": None}, "Use add of demo"),
    ],
)
def test_unattended_it_is_refused_at_once(method: str, params: dict[str, Any], reply: Any, words: str) -> None:
    talk = Talk(attended=False).began()
    talk.feed({"method": method, "id": 0, "params": {"threadId": THREAD, "turnId": "turn-1", **params}})
    assert talk.opened_requests == []
    talk.answer("turn/steer", {"turnId": "turn-1"})
    assert talk.replies(0) == [reply]
    assert "Nobody is there" in talk.sent("turn/steer")[0]["input"][0]["text"]
    talk.says("Did what I could.")
    talk.ends()
    answer = talk.of(CompletedEvent)[0].answer
    assert answer.startswith("Did what I could.\n\nNobody could be asked, so this was refused:\n- " + words)


# ------------------------------------------------------------------------------------------------------------ plans


def planned(**settings: Any) -> Talk:
    talk = Talk(permission_mode="plan", **settings).began()
    talk.says("Some words.")
    talk.item("plan", "p1", text="# Plan\n- step one\n")
    talk.ends()
    return talk


def test_a_plan_waits_for_a_person_and_is_then_carried_out() -> None:
    talk = planned()
    assert talk.sent("turn/start")[0]["collaborationMode"]["mode"] == "plan"
    [asked] = talk.opened_requests
    assert (asked.kind, asked.body) == ("plan", (Content("markdown", "# Plan\n- step one\n"),))
    assert talk.of(CompletedEvent) == []
    assert talk.waits == [("human", "Carry out this plan?")]
    talk.decide(asked.id, Allow())
    turn = talk.sent("turn/start")[-1]
    assert turn["collaborationMode"]["mode"] == "default"
    assert "sandboxPolicy" not in turn  # it asks before each change, as before
    assert turn["input"][0]["text"] == "Implement the plan."
    talk.turn("turn-2").says("Done.")
    talk.ends(id="turn-2")
    [completed] = talk.of(CompletedEvent)
    assert (completed.answer, completed.ok) == ("Done.", True)
    assert (talk.of(StartedEvent)[-1].meta or {})["permission_mode"] == "default"


def test_a_plan_may_be_approved_together_with_edits() -> None:
    talk = planned()
    talk.decide(talk.opened_requests[0].id, Allow("accept_edits"))
    assert talk.sent("turn/start")[-1]["sandboxPolicy"]["type"] == "workspaceWrite"


def test_a_plan_that_is_sent_back() -> None:
    talk = planned()
    talk.decide(talk.opened_requests[0].id, Deny("shorter", choice="revise"))
    turn = talk.sent("turn/start")[-1]
    assert (turn["input"][0]["text"], "collaborationMode" in turn) == ("shorter", False)
    talk.turn("turn-2").item("plan", "p2", text="# Short")
    talk.ends(id="turn-2")
    assert talk.opened_requests[-1].body[0].text == "# Short"
    assert talk.of(CompletedEvent) == []


def test_a_plan_that_is_denied_is_the_answer() -> None:
    talk = planned()
    talk.decide(talk.opened_requests[0].id, Deny())
    [completed] = talk.of(CompletedEvent)
    assert (completed.ok, completed.answer) == (True, "Some words.\n\n# Plan\n- step one")
    assert len(talk.sent("turn/start")) == 1


def test_a_message_while_the_plan_waits_goes_on_with_the_run() -> None:
    talk = planned()
    talk.say(2, text="and the tests?")
    assert talk.closed == [("plan-1", "withdrawn", "A message came instead.")]
    talk.turn("turn-2").says("They too.")
    talk.ends(id="turn-2")
    assert [id[-1] for id in talk.of(CompletedEvent)[0].prompts] == ["1", "2"]


def test_a_stop_while_the_plan_waits() -> None:
    talk = planned()
    talk.interrupt()
    [completed] = talk.of(CompletedEvent)
    assert (completed.outcome, completed.answer) == ("stopped", "Some words.\n\n# Plan\n- step one")
    assert talk.closed == [("plan-1", "withdrawn", "The run was stopped.")]


def test_unattended_the_plan_is_the_answer() -> None:
    talk = planned(attended=False)
    assert talk.opened_requests == []
    assert talk.of(CompletedEvent)[0].answer == "Some words.\n\n# Plan\n- step one"


def test_a_plan_that_is_approved_by_itself() -> None:
    talk = Talk(permission_mode="plan-auto").began()
    talk.item("plan", "p1", text="# Plan")
    talk.ends()
    assert talk.opened_requests == []
    assert talk.sent("turn/start")[-1]["input"][0]["text"] == "Implement the plan."


# ----------------------------------------------------------------------------------------------------- bad JSON-RPC


def test_a_request_that_nobody_knows_is_refused() -> None:
    talk = Talk().began()
    talk.feed({"method": "brand/new", "id": 0, "params": {}})
    talk.feed({"method": "item/tool/call", "id": "x"})
    assert [talk.replies(id)[0]["code"] for id in (0, "x")] == [-32601, -32601]
    assert talk.session.unknown == {"brand/new": 1, "item/tool/call": 1}


def test_answers_that_nobody_waits_for_mean_nothing() -> None:
    talk = Talk().began()
    before = len(talk.events), len(talk.lines)
    for id in (99, "x", 1, None):
        talk.feed({"id": id, "result": {}})
        talk.feed({"id": id, "error": {"code": 1, "message": "no"}})
    assert (len(talk.events), len(talk.lines)) == before
    assert talk.session.unknown == {"response": 8}
    talk.says("Done.")
    talk.ends()
    assert talk.of(CompletedEvent)[0].ok


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not JSON",
        b"[1, 2]",
        b"null",
        b'"text"',
        b"{",
        b"{}",
        b'{"method": 3}',
        b'{"method": "turn/completed"}',
        b'{"method": "turn/completed", "params": []}',
        b'{"method": "turn/completed", "params": {"threadId": "other"}}',
        b'{"method": "item/started", "params": {"item": {"type": "zork", "id": "z"}}}',
        b'{"method": "item/started", "params": {}}',
        b'{"method": "item/completed", "params": {"item": null}}',
        b'{"method": "item/commandExecution/requestApproval", "id": 7, "params": null}',
        b'{"method": "item/fileChange/requestApproval", "id": 7}',
        b'{"method": "mcpServer/elicitation/request", "id": 7, "params": {"_meta": 3, "requestedSchema": "x"}}',
        b'{"method": "thread/tokenUsage/updated", "params": {"tokenUsage": "x"}}',
        b'{"id": {"a": 1}, "result": {}}',
        b'{"id": 1.5, "result": {}}',
        b'\xff\xfe{"method": "turn/started"}',
        b'{"method": "a", "params": "' + b"\xed\xa0\x80" + b'"}',
        b"[" * 5000,
    ],
)
def test_a_malformed_line_does_not_break_a_run(line: bytes) -> None:
    talk = Talk().began()
    talk.feed(line)
    talk.item("commandExecution", "c9", command="ls", status="completed", exitCode=0)
    talk.says("Done.")
    if not talk.of(CompletedEvent):
        talk.ends()
    assert talk.of(ActionEvent)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
METHODS = ["turn/started", "turn/completed", "item/started", "item/completed", COMMAND, PATCH, INPUT, MCP, "error"]
FIELDS = ["threadId", "turn", "item", "questions", "changes", "error", "requestId", "_meta", "availableDecisions"]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "method": st.sampled_from(METHODS) | json_values,
                "id": json_values,
                "params": st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4) | json_values,
                "result": json_values,
                "error": json_values,
            },
        ),
        max_size=6,
    )
)
def test_whatever_comes_the_run_ends_in_one_way(frames: list[dict[str, Any]]) -> None:
    talk = Talk().began()
    for frame in frames:
        talk.feed(json.dumps(frame).encode())
    talk.end(code=0)
    assert len(talk.of(CompletedEvent)) == 1
    assert all(event.action.id for event in talk.of(ActionEvent))
    assert len({id for id, _, _ in talk.closed}) == len(talk.opened_requests) == len(talk.closed)
    assert talk.waits == []


def test_a_line_that_was_too_long_is_told() -> None:
    talk = Talk().began()
    talk.did(talk.session.skipped(70_000_000, talk.now))
    assert talk.of(ActionEvent)[-1].action.title == "A line of 70 MB from Codex was too long and is left out"


@pytest.mark.parametrize(
    ("chosen", "approval", "sandbox", "mode"),
    [
        ({}, "on-request", "read-only", "default"),
        ({"permission_mode": "acceptEdits"}, "on-request", "workspace-write", "acceptEdits"),
        ({"permission_mode": "untrusted"}, "untrusted", "workspace-write", "untrusted"),
        ({"permission_mode": "safe"}, "on-request", "read-only", "safe"),
        ({"permission_mode": "dontAsk"}, "never", "read-only", "dontAsk"),
        ({"permission_mode": "bypassPermissions"}, "on-request", "read-only", "default"),
        ({"permission_mode": "bogus"}, "on-request", "read-only", "default"),
        ({"dangerously_skip_permissions": True}, "never", "danger-full-access", "bypassPermissions"),
        (
            {"dangerously_skip_permissions": True, "permission_mode": "default"},
            "on-request",
            "read-only",
            "default",
        ),
    ],
)
def test_permission_modes(chosen: dict[str, Any], approval: str, sandbox: str, mode: str) -> None:
    talk = Talk(**chosen)
    talk.opened(approvalPolicy=approval, sandbox=None)
    [start] = talk.sent("thread/start")
    assert (start["approvalPolicy"], start["sandbox"]) == (approval, sandbox)
    assert (talk.of(StartedEvent)[0].meta or {})["permission_mode"] == mode
    talk.turn()
    asked = chosen.get("permission_mode", mode)
    told = [event.action.title for event in talk.of(ActionEvent) if event.action.kind == "warning"]
    assert told == (
        [] if asked == mode else [f"Codex has no permission mode {asked!r} here, so it asks (mode 'default')"]
    )


def test_a_policy_that_is_not_the_one_asked_for_is_told() -> None:
    """Managed settings of a machine may say otherwise."""
    talk = Talk().began(approvalPolicy="never", sandbox={"type": "dangerFullAccess"})
    [warning] = [event for event in talk.of(ActionEvent) if event.action.kind == "warning"]
    assert warning.action.title == (
        "Codex runs with approvals never and sandbox danger-full-access, not on-request and read-only"
    )
