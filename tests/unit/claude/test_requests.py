"""Requests of the agent: what is asked of a person and how it is answered, and what is answered at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.claude_talk import Talk
from untether.model import Allow, Answers, CompletedEvent, Decision, Deny, InteractionEvent
from untether.session import SetModel, SetPermissionMode

QUESTIONS = {"questions": [{"question": "Which?", "header": "Pick", "options": [{"label": "A", "description": "a"}]}]}


def asking(tool: str = "Bash", input: Any = None, **fields: Any) -> Talk:
    talk = Talk()
    talk.init()
    talk.use("tool-1", tool, input or {"command": "make"})
    talk.ask("r1", tool, input or {"command": "make"}, tool_use_id="tool-1", **fields)
    return talk


def test_a_request_is_opened_with_two_plain_answers() -> None:
    talk = asking()
    asked = talk.asked
    assert asked.phase == "opened"
    assert (asked.interaction.id, asked.interaction.step_id, asked.interaction.asked_by) == ("r1", "tool-1", "")
    assert (asked.interaction.offers, asked.interaction.choices) == (("allow", "deny"), ())
    assert talk.last.writes == ()


def test_approval_sends_back_the_input_byte_for_byte() -> None:
    input = b'{"command": "echo \\u00e9",  "n": 1.50, "big": 12345678901234567890123}'
    talk = Talk()
    talk.init()
    talk.feed(
        b'{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":'
        + input
        + b"}}"
    )
    talk.decide("r1", Allow())
    assert b'"updatedInput":' + input + b"}" in talk.lines[-1]
    assert talk.reply["subtype"] == "success"
    assert talk.reply["response"]["behavior"] == "allow"


def test_approval_of_something_else() -> None:
    talk = asking()
    talk.decide("r1", Allow(updated_input={"command": "make -n"}))
    assert talk.reply["response"] == {"behavior": "allow", "updatedInput": {"command": "make -n"}}


@pytest.mark.parametrize("input", [b"null", b"[1]", b'"text"', b"7"])
def test_approval_of_what_is_no_object_leaves_it_unchanged(input: bytes) -> None:
    talk = Talk()
    talk.init()
    talk.feed(
        b'{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"X","input":'
        + input
        + b"}}"
    )
    talk.decide("r1", Allow())
    assert talk.reply["response"]["updatedInput"] == {}


def test_an_input_with_half_characters_is_sent_back_as_sound_json() -> None:
    talk = Talk()
    talk.init()
    talk.feed(
        b'{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash",'
        b'"input":{"command":"echo \\ud800"}}}'
    )
    talk.decide("r1", Allow())
    assert talk.reply["response"]["updatedInput"] == {"command": "echo ?"}


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (Deny("Use staging."), {"behavior": "deny", "message": "Use staging."}),
        (Deny("Stop.", interrupt=True), {"behavior": "deny", "message": "Stop.", "interrupt": True}),
    ],
)
def test_a_refusal_with_its_reason(decision: Decision, answer: dict[str, Any]) -> None:
    talk = asking()
    talk.decide("r1", decision)
    assert talk.reply["response"] == answer
    assert (talk.asked.phase, talk.asked.reason) == ("resolved", "denied")


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("Bash", "ask the user what to do instead"),
        ("ExitPlanMode", "Stay in plan mode"),
        ("AskUserQuestion", "did not want to answer"),
    ],
)
def test_a_bare_refusal_tells_the_agent_what_to_do(tool: str, words: str) -> None:
    talk = asking(tool)
    talk.decide("r1", Deny("  "))
    assert words in talk.reply["response"]["message"]


def test_deny_and_stop_is_a_stop() -> None:
    talk = asking()
    talk.decide("r1", Deny("No.", interrupt=True))
    talk.result("", subtype="error_during_execution", is_error=True, errors=["[ede_diagnostic]"])
    assert talk.of(CompletedEvent)[0].outcome == "stopped"


def test_answers_go_in_with_the_questions() -> None:
    talk = asking("AskUserQuestion", QUESTIONS)
    talk.decide("r1", Answers({"Which?": "A"}))
    assert talk.reply["response"] == {"behavior": "allow", "updatedInput": QUESTIONS | {"answers": {"Which?": "A"}}}
    assert talk.asked.reason == "answered"


def test_answers_are_no_approval() -> None:
    talk = asking("Bash")
    assert talk.decide("r1", Answers({"Which?": "A"})) == []
    assert talk.session.waits[0].kind == "human"


def test_one_decision_counts() -> None:
    talk = asking()
    assert talk.decide("r1", Allow())
    written = len(talk.lines)
    assert talk.decide("r1", Deny("late")) == []
    assert talk.decide("never asked", Allow()) == []
    assert len(talk.lines) == written


def test_a_repeated_request_is_not_asked_again() -> None:
    talk = asking()
    assert talk.ask("r1", "Bash", {"command": "make"}) == []
    talk.decide("r1", Allow())
    assert talk.ask("r1", "Bash", {"command": "make"}) == []


def test_parallel_requests_keep_their_answers_apart() -> None:
    talk = asking()
    talk.ask("r2", "Bash", {"command": "two"})
    talk.decide("r2", Deny("not two"))
    talk.decide("r1", Allow())
    first, second = (frame["response"] for frame in talk.written[-2:])
    assert (first["request_id"], first["response"]["behavior"]) == ("r2", "deny")
    assert (second["request_id"], second["response"]["updatedInput"]) == ("r1", {"command": "make"})


def test_the_same_tool_call_is_shown_once_and_both_requests_are_answered() -> None:
    talk = asking()
    assert talk.ask("r2", "Bash", {"command": "make"}, tool_use_id="tool-1") == []
    talk.decide("r1", Allow())
    answers = {frame["response"]["request_id"]: frame["response"]["response"] for frame in talk.written[-2:]}
    assert answers == {id: {"behavior": "allow", "updatedInput": {"command": "make"}} for id in ("r1", "r2")}
    talk.ask("r3", "Bash", {"command": "make"}, tool_use_id="tool-1")  # the first is decided on: this is another one
    assert talk.asked.interaction.id == "r3"


@pytest.mark.parametrize(
    ("tool", "command", "call"), [("Bash", "make", ""), ("Bash", "make", "tool-2"), ("Bash", "rm", "tool-1")]
)
def test_nothing_else_is_merged(tool: str, command: str, call: str) -> None:
    talk = asking()
    talk.ask("r2", tool, {"command": command}, tool_use_id=call)
    assert talk.asked.interaction.id == "r2"


def test_of_two_requests_for_one_call_one_may_be_withdrawn() -> None:
    talk = asking()
    talk.ask("r2", "Bash", {"command": "make"}, tool_use_id="tool-1")
    assert talk.feed({"type": "control_cancel_request", "request_id": "r1"}) == []
    talk.decide("r1", Allow())
    assert [frame["response"]["request_id"] for frame in talk.written if "response" in frame] == ["r2"]


def test_a_question_is_answered_or_skipped() -> None:
    assert asking("AskUserQuestion", QUESTIONS).asked.interaction.offers == ("deny",)


def test_a_withdrawal_closes_the_request_and_writes_nothing() -> None:
    talk = asking()
    (event,) = talk.feed({"type": "control_cancel_request", "request_id": "r1"})
    assert isinstance(event, InteractionEvent)
    assert event.phase == "withdrawn"
    assert talk.decide("r1", Allow()) == []
    assert talk.last.writes == ()


def test_a_request_ends_with_its_step_its_turn_its_agent_and_its_process() -> None:
    talk = asking()
    talk.returned("tool-1", "cancelled", is_error=True)
    assert talk.asked.phase == "withdrawn"

    talk.ask("r2", "Bash", {"command": "x"})
    talk.system("task_started", task_id="t1", tool_use_id="tool-9", description="look", task_type="local_agent")
    talk.ask("r3", "Bash", {"command": "y"}, agent_id="t1")
    assert talk.asked.interaction.asked_by == "look"
    talk.result()
    withdrawn = [event.interaction.id for event in talk.of(InteractionEvent) if event.phase == "withdrawn"]
    assert withdrawn == ["r1", "r2"]  # a background agent still asks after the result

    talk.system("task_updated", task_id="t1", patch={"status": "killed"})
    assert (talk.asked.interaction.id, talk.asked.phase) == ("r3", "withdrawn")

    talk.ask("r4", "Bash", {"command": "z"}, agent_id="t2")
    assert talk.asked.interaction.asked_by == "a sub-agent"
    talk.end(code=0)
    assert (talk.asked.interaction.id, talk.asked.phase) == ("r4", "withdrawn")


# ------------------------------------------------------------------------------------------------ answered at once


def serve(request: Any) -> dict[str, Any]:
    talk = Talk()
    talk.init()
    assert talk.feed({"type": "control_request", "request_id": "r1", "request": request}) == []
    response: dict[str, Any] = talk.reply
    assert response.pop("request_id") == "r1"
    return response


@pytest.mark.parametrize("subtype", ["hook_callback", "initialize", "rewind_files", "interrupt"])
def test_housekeeping_gets_an_empty_success(subtype: str) -> None:
    assert serve({"subtype": subtype, "callback_id": "x", "input": {}}) == {"subtype": "success", "response": {}}


def test_a_foreign_mcp_server_is_not_found() -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    answer = serve({"subtype": "mcp_message", "server_name": "tools", "message": message})
    assert answer["response"]["mcp_response"] == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": -32601, "message": "There is no MCP server 'tools' here."},
    }


def test_an_mcp_notification_is_acknowledged() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answer = serve({"subtype": "mcp_message", "server_name": "tools", "message": message})
    assert answer["response"]["mcp_response"] == {"jsonrpc": "2.0", "id": 0, "result": {}}


@pytest.mark.parametrize("request_", [{"subtype": "elicitation"}, {"subtype": 7}, {}, None, "text"])
def test_whatever_is_unknown_is_refused(request_: Any) -> None:
    answer = serve(request_)
    assert answer["subtype"] == "error"
    assert answer["error"].startswith("Unsupported control request subtype: ")


# --------------------------------------------------------------------------------------------------- our own requests


def respond(talk: Talk, to: str, **response: Any) -> list[Any]:
    id = next(frame["request_id"] for frame in talk.written if frame.get("request", {}).get("subtype") == to)
    return talk.feed({"type": "control_response", "response": {"request_id": id, **response}})


def test_a_refused_change_is_told() -> None:
    talk = Talk()
    talk.init()
    talk.did(talk.session.configure(SetPermissionMode("bypassPermissions"), talk.now))
    (warning,) = respond(talk, "set_permission_mode", subtype="error", error="not launched with it")
    assert warning.action.title == "Claude Code refused the change of the permission mode"
    assert warning.action.detail == {"request": "set_permission_mode", "error": "not launched with it"}


def test_late_and_foreign_answers_mean_nothing() -> None:
    talk = Talk()
    talk.init()
    respond(talk, "initialize", subtype="success", response={"claude_code_version": "2.1.332"})
    assert respond(talk, "initialize", subtype="error", error="again") == []
    assert talk.feed({"type": "control_response", "response": {"subtype": "error", "request_id": "?"}}) == []


@pytest.mark.parametrize(
    ("mode", "sent"),
    [("plan", "plan"), ("plan-auto", "plan"), ("manual", "default"), ("acceptEdits", "acceptEdits")],
)
def test_modes_are_sent_as_the_cli_knows_them(mode: str, sent: str) -> None:
    talk = Talk()
    talk.did(talk.session.configure(SetPermissionMode(mode), talk.now))
    assert talk.written[-1]["request"] == {"subtype": "set_permission_mode", "mode": sent}


def test_an_unknown_mode_is_not_sent() -> None:
    talk = Talk()
    talk.init()
    (warning,) = talk.did(talk.session.configure(SetPermissionMode("bogus"), talk.now))
    assert msgspec.to_builtins(warning)["action"]["title"] == "There is no permission mode 'bogus'"
    assert talk.last.writes == ()


@pytest.mark.parametrize(("model", "fields"), [("opus", {"model": "opus"}), (None, {})])
def test_models(model: str | None, fields: dict[str, str]) -> None:
    talk = Talk()
    talk.did(talk.session.configure(SetModel(model), talk.now))
    assert talk.written[-1]["request"] == {"subtype": "set_model", **fields}
