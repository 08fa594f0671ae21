"""A Pi session by hand: frames in, commands and events out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from untether.model import (
    Allow,
    Answers,
    CompletedEvent,
    Content,
    Deny,
    EngineId,
    Interaction,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    UntetherEvent,
)
from untether.runners.pi.session import PiSession
from untether.session import (
    Attachment,
    CallResult,
    ProcessExit,
    Prompt,
    SetEffort,
    SetModel,
    SetPermissionMode,
    StartFacts,
    Step,
    Withdraw,
)

GATE = {"commands": [{"name": "untether-gate", "source": "extension"}]}


class Talk:
    """A session, the time, and what came of it."""

    def __init__(self, *, resume: str = "", ready: bool = True, prompt: Prompt | None = None, **settings: Any) -> None:
        token = ResumeToken(EngineId("pi"), resume) if resume else None
        self.session = PiSession()
        self.now = 100.0
        self.events: list[UntetherEvent] = []
        self.sent: list[dict[str, Any]] = []
        self.calls: list[Any] = []
        self.deadline: float | None = None
        self.closed = False
        start = StartFacts("p1", "pi", "/repo", resume=token, settings=settings)
        self.did(self.session.begin(start, prompt or Prompt("m1", "go"), self.now))
        if ready:
            self.answer("get_commands", GATE)
            self.answer("get_state", {"sessionId": resume or "abc-1", "model": {"id": "m", "contextWindow": 1000}})

    def did(self, step: Step) -> Step:
        self.events += step.events
        self.sent += [json.loads(line) for line in step.writes]
        self.calls += step.calls
        self.deadline = step.deadline
        self.closed |= step.close_stdin
        return step

    def out(self, type: str, **fields: Any) -> Step:
        return self.did(self.session.feed(json.dumps({"type": type, **fields}).encode(), self.now))

    def answer(self, command: str, data: Any = None, error: str = "") -> Step:
        """Answer the newest command of this type."""
        id = [frame["id"] for frame in self.sent if frame["type"] == command][-1]
        return self.out("response", id=id, command=command, success=not error, data=data, error=error)

    def working(self) -> Talk:
        self.answer("prompt", {"disposition": "started"})
        self.out("agent_start")
        return self

    def says(self, text: str, **more: Any) -> None:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop", **more}
        self.out("message_end", message=message)

    def gate(self, id: str = "u1", tool: str = "bash", call: str = "c1", **input: Any) -> None:
        title = "gate:" + json.dumps({"tool": tool, "id": call, "input": input})
        self.out("extension_ui_request", id=id, method="select", title=title, options=["Allow", "Deny"])

    def responses(self) -> dict[str, Any]:
        kept = [frame for frame in self.sent if frame["type"] == "extension_ui_response"]
        return {frame["id"]: frame.get("value", frame.get("confirmed", frame.get("cancelled"))) for frame in kept}

    @property
    def opened(self) -> list[Interaction]:
        found = [event for event in self.events if isinstance(event, InteractionEvent)]
        return [event.interaction for event in found if event.phase == "opened"]

    @property
    def closings(self) -> list[tuple[str, str]]:
        found = [event for event in self.events if isinstance(event, InteractionEvent)]
        return [(event.phase, event.reason) for event in found if event.phase != "opened"]

    @property
    def completed(self) -> CompletedEvent:
        (event,) = (event for event in self.events if isinstance(event, CompletedEvent))
        return event

    @property
    def commands(self) -> list[str]:
        return [frame["type"] for frame in self.sent][2:]


# ------------------------------------------------------------------------------------------------------ the start


def test_nothing_is_said_before_the_gate_is_seen() -> None:
    talk = Talk(ready=False)
    assert [frame["type"] for frame in talk.sent] == ["get_commands", "get_state"]
    talk.answer("get_commands", {"commands": [{"name": "mcp"}]})
    talk.answer("get_state", {"sessionId": "abc-1"})
    assert talk.commands == []
    assert talk.closed
    assert "did not load the extension" in (talk.completed.error or "")


def test_the_session_is_told_with_model_and_mode() -> None:
    talk = Talk()
    started = next(event for event in talk.events if isinstance(event, StartedEvent))
    assert (started.resume.value, started.meta) == ("abc-1", {"model": "m", "permission_mode": "default"})


@pytest.mark.parametrize("asked", ["abc", "/home/x/sessions/2026_abc-1.jsonl"])
def test_the_beginning_of_an_id_or_a_file_is_promoted(asked: str) -> None:
    talk = Talk(resume=asked, ready=False)
    talk.answer("get_commands", GATE)
    talk.answer("get_state", {"sessionId": "abc-1"})
    (changed,) = (event for event in talk.events if isinstance(event, SessionChangedEvent))
    assert changed.resume.value == "abc-1"


def test_another_session_than_the_one_asked_for_ends_the_run() -> None:
    talk = Talk(resume="xyz", ready=False)
    talk.answer("get_commands", GATE)
    talk.answer("get_state", {"sessionId": "abc-1"})
    assert talk.completed.error == "Pi went on with another session than the one asked for."
    assert talk.commands == []


def test_an_unknown_session_is_told_as_that() -> None:
    talk = Talk(resume="xyz", ready=False)
    talk.did(talk.session.end(ProcessExit(code=1, stderr_tail="No session found matching 'xyz'\n"), 101.0))
    assert talk.completed.error == "The session to continue was not found."
    assert (talk.completed.resume, talk.completed.detail) == (None, {"fresh": "not_found"})


# -------------------------------------------------------------------------------------------------------- approvals


def test_an_approval_for_the_session_covers_this_command_only() -> None:
    talk = Talk().working()
    talk.gate("u1", command="make")
    talk.gate("u2", call="c2", command="make")
    talk.did(talk.session.decide("u1", Allow("session"), 101.0))
    assert talk.responses() == {"u1": "Allow", "u2": "Allow"}
    talk.gate("u3", call="c3", command="make")
    talk.gate("u4", call="c4", command="make clean")
    assert talk.responses().keys() == {"u1", "u2", "u3"}
    assert [choice.label for choice in talk.opened[-1].choices] == ["This command, this session"]


def test_edits_are_shown_as_what_they_change() -> None:
    talk = Talk().working()
    talk.gate("u1", "edit", path="/repo/a.py", edits=[{"oldText": "one", "newText": "two"}])
    talk.gate("u2", "write", path="b.txt", content="x\ny\n")
    talk.gate("u3", "edit", path="a.py", edits="[{}]")
    first, second, third = talk.opened
    assert (first.act, first.body[0].label, first.body[0].added, first.body[0].removed) == (
        "Edit a file?",
        "a.py",
        1,
        1,
    )
    assert (second.act, second.body[0].text) == ("Write a file?", "+x\n+y")
    assert third.body[0].form == "json"  # an input of another form is shown whole


def test_what_else_is_in_the_input_of_a_command_is_shown() -> None:
    talk = Talk().working()
    talk.gate("u1", command="make", timeout=600)
    assert talk.opened[0].body == (
        Content("command", "make"),
        Content("json", '{\n  "timeout": 600\n}', language="json"),
    )


def test_reading_is_not_asked_and_an_unknown_tool_is() -> None:
    talk = Talk().working()
    talk.gate("u1", "read", path="/etc/passwd")
    talk.gate("u2", "mcp__db__drop", table="users")
    assert talk.responses() == {"u1": "Allow"}
    assert [asked.act for asked in talk.opened] == ["Use mcp__db__drop?"]


def test_the_reason_of_a_deny_goes_with_it() -> None:
    talk = Talk().working()
    talk.gate("u1", command="make")
    talk.did(talk.session.decide("u1", Deny("use\ninvoke"), 101.0))
    assert talk.responses() == {"u1": "Deny: use invoke"}
    assert talk.closings == [("resolved", "denied")]


@pytest.mark.parametrize(
    ("mode", "settings", "expected"),
    [
        ("acceptEdits", {}, {"e": "Allow"}),
        ("dontAsk", {}, {"e": "Deny", "b": "Deny"}),
        ("bypassPermissions", {}, {}),  # not allowed by the owner: it asks
        ("bypassPermissions", {"dangerously_skip_permissions": True}, {"e": "Allow", "b": "Allow"}),
        ("no such mode", {}, {}),
    ],
)
def test_modes(mode: str, settings: dict[str, Any], expected: dict[str, str]) -> None:
    talk = Talk(permission_mode="default", **settings).working()
    talk.did(talk.session.configure(SetPermissionMode(mode), 100.0))
    talk.gate("e", "write", path="a", content="x")
    talk.gate("b", command="make")
    assert {id: value.partition(":")[0] for id, value in talk.responses().items()} == expected
    assert len(talk.opened) == 2 - len(expected)


def test_unattended_it_is_refused_with_a_message_and_listed() -> None:
    talk = Talk(attended=False).working()
    talk.gate("u1", command="make")
    assert "Nobody is there to approve this" in talk.responses()["u1"]
    assert not talk.opened
    talk.says("I could not.")
    talk.out("agent_settled", aborted=False)
    assert talk.completed.answer.endswith("this was refused:\n- Run a command: make")


def test_a_call_that_ended_withdraws_its_request_and_a_late_answer_is_nothing() -> None:
    talk = Talk().working()
    talk.gate("u1", command="make")
    talk.out("tool_execution_end", toolCallId="c1", toolName="bash", result={}, isError=True)
    assert talk.closings == [("withdrawn", "")]
    assert talk.session.decide("u1", Allow(), 101.0).empty


def test_a_repeat_is_asked_once() -> None:
    talk = Talk().working()
    talk.gate("u1", command="make")
    talk.gate("u1", command="make")
    assert len(talk.opened) == 1


# ---------------------------------------------------------------------------------------------------------- dialogs


@pytest.mark.parametrize(
    ("frame", "options", "decision", "response"),
    [
        ({"method": "select", "title": "Which?", "options": ["a", "b"]}, ["a", "b"], Answers({"Which?": "b"}), "b"),
        ({"method": "confirm", "title": "Sure?"}, ["Yes", "No"], Answers({"Sure?": "Yes"}), True),
        ({"method": "confirm", "title": "Sure?"}, ["Yes", "No"], Answers({"Sure?": "No"}), False),
        ({"method": "input", "title": "Name?", "placeholder": "Ann"}, [], Answers({"Name?": "Bo"}), "Bo"),
        ({"method": "editor", "title": "Text?", "prefill": "x"}, [], Answers({"Text?": "y"}), "y"),
        ({"method": "input", "title": "Name?"}, [], Deny(), True),  # cancelled
    ],
)
def test_dialogs_of_extensions_are_questions(
    frame: dict[str, Any], options: list[str], decision: Any, response: Any
) -> None:
    talk = Talk().working()
    talk.out("extension_ui_request", id="u1", **frame)
    (asked,) = talk.opened
    assert asked.kind == "question"
    assert [option.label for option in asked.questions[0].options] == options
    talk.did(talk.session.decide("u1", decision, 101.0))
    assert talk.responses() == {"u1": response}


def test_a_dialog_with_a_timeout_is_withdrawn_when_pi_gave_it_up() -> None:
    talk = Talk().working()
    talk.out("extension_ui_request", id="u1", method="confirm", title="Sure?", timeout=5000)
    assert talk.deadline == 105.0
    assert talk.session.tick(104.0).empty
    talk.did(talk.session.tick(105.0))
    assert talk.closings == [("withdrawn", "It was not answered in time.")]


def test_what_an_extension_only_shows_wants_no_answer() -> None:
    talk = Talk().working()
    for method in ("setStatus", "setWidget", "setTitle", "set_editor_text", "hologram"):
        talk.out("extension_ui_request", id=method, method=method)
    assert not talk.responses()
    assert talk.session.unknown == {"extension_ui_request hologram": 1}


# ------------------------------------------------------------------------------------------------------------ turns


def test_messages_wait_for_a_turn_of_their_own() -> None:
    talk = Talk().working()
    talk.did(talk.session.say(Prompt("m2", "second"), "next", 101.0))
    assert talk.commands == ["prompt"]
    talk.says("First.")
    talk.out("agent_end", messages=[], willRetry=False)
    talk.out("agent_settled", aborted=False)
    assert (talk.completed.ok, talk.completed.answer, talk.completed.prompts) == (True, "First.", ("m1",))
    assert talk.sent[-1]["message"] == "second"


def test_a_message_that_waits_can_be_withdrawn() -> None:
    talk = Talk().working()
    talk.did(talk.session.say(Prompt("m2", "second"), "next", 101.0))
    talk.did(talk.session.configure(Withdraw("m2"), 101.0))
    assert PromptEvent(EngineId("pi"), "m2", "withdrawn") in talk.events


def test_what_was_steered_and_not_taken_gets_a_turn_of_its_own() -> None:
    talk = Talk().working()
    talk.did(talk.session.say(Prompt("m2", "left"), "now", 101.0))
    talk.answer("steer", error="Agent is not streaming")
    talk.says("First.")
    talk.out("agent_settled", aborted=False)
    assert (talk.sent[-1]["type"], talk.sent[-1]["message"]) == ("prompt", "left")


def test_a_stop_before_the_turn_began_ends_it_at_its_start() -> None:
    talk = Talk()
    talk.did(talk.session.interrupt(100.0))
    assert talk.commands == ["prompt"]
    talk.working()
    assert talk.commands == ["prompt", "clear_queue", "abort"]
    talk.out("agent_settled", aborted=True)
    assert talk.completed.outcome == "stopped"


def test_a_stop_before_the_session_is_known_says_nothing_to_the_agent() -> None:
    talk = Talk(ready=False)
    talk.did(talk.session.interrupt(100.0))
    talk.answer("get_commands", GATE)
    talk.answer("get_state", {"sessionId": "abc-1"})
    assert talk.commands == []
    assert (talk.completed.outcome, talk.completed.prompts) == ("stopped", ("m1",))


def test_a_prompt_that_pi_refuses_fails_the_run_in_words() -> None:
    talk = Talk()
    talk.answer("prompt", error="No API key found for fake. Use /login.")
    assert talk.completed.detail == {"login": True}
    assert (talk.completed.error or "").startswith("Pi is not logged in")


def test_a_command_of_an_extension_is_done_at_once() -> None:
    talk = Talk()
    talk.answer("prompt", {"disposition": "handled"})
    assert (talk.completed.ok, talk.completed.prompts) == (True, ("m1",))


def test_a_turn_that_an_extension_begins_is_a_turn() -> None:
    talk = Talk().working()
    talk.says("One.")
    talk.out("agent_settled", aborted=False)
    talk.out("agent_start")
    talk.says("Two.")
    talk.out("agent_settled", aborted=False)
    turns = [event for event in talk.events if isinstance(event, TurnEvent)]
    assert [(turn.phase, turn.answer) for turn in turns] == [("started", ""), ("completed", "Two.")]
    assert turns[0].reason == "extension"


def test_compaction_by_command() -> None:
    talk = Talk(prompt=Prompt("m1", "/compact keep the names"))
    assert talk.sent[-1]["customInstructions"] == "keep the names"
    talk.out("compaction_start", reason="manual")
    assert [wait.kind for wait in talk.session.waits] == ["compaction"]
    talk.out("compaction_end")
    talk.answer("compact", {})
    assert (talk.completed.ok, talk.completed.answer) == (True, "The conversation was compacted.")


def test_waits_follow_what_happens() -> None:
    talk = Talk().working()
    assert [wait.kind for wait in talk.session.waits] == ["model"]
    talk.out("auto_retry_start", attempt=1, maxAttempts=3, delayMs=2000, errorMessage="429: {}")
    (retry,) = talk.session.waits
    assert (retry.kind, retry.until, retry.label) == ("retry", 102.0, "the provider limits requests, retry 1 of 3")
    talk.says("", stopReason="toolUse")
    talk.out("tool_execution_start", toolCallId="c1", toolName="bash", args={"command": "make"})
    assert [wait.kind for wait in talk.session.waits] == ["tool"]
    talk.gate("u1", command="make")
    assert [wait.kind for wait in talk.session.waits] == ["human"]
    talk.out("agent_settled", aborted=True)
    assert talk.session.waits == ()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('401: {"message":"no"}', "Pi is not logged in to this provider, or its login has expired."),
        ('429: {"message":"slow down"}', "The provider limits requests right now."),
        ('500: {"message":"boom"}', "The provider is overloaded or has an error."),
        ("fetch failed", "The provider cannot be reached."),
        ("something else", "Pi reported an error."),
    ],
)
def test_errors_in_words(text: str, error: str) -> None:
    talk = Talk().working()
    talk.says("", stopReason="error", errorMessage=text)
    talk.out("agent_end", willRetry=False)
    talk.out("agent_settled", aborted=False)
    assert (talk.completed.ok, talk.completed.error, talk.completed.raw_error) == (False, error, text)
    assert talk.completed.advice


# --------------------------------------------------------------------------------------------- changes and pictures


def test_a_model_is_chosen_among_those_that_pi_lists() -> None:
    talk = Talk().working()
    talk.did(talk.session.configure(SetModel("big"), 101.0))
    talk.answer("get_available_models", {"models": [{"id": "small", "provider": "x"}, {"id": "big", "provider": "y"}]})
    assert talk.sent[-1] == {"id": "5", "type": "set_model", "provider": "y", "modelId": "big"}
    talk.did(talk.session.configure(SetEffort("high"), 101.0))
    assert talk.sent[-1]["level"] == "high"


def test_pictures_go_with_the_message_once_they_are_read() -> None:
    files = (Attachment("/tmp/a.png", "a.png", "image/png"), Attachment("/tmp/b.txt", "b.txt", "text/plain"))
    talk = Talk(prompt=Prompt("m1", "look", files))
    assert talk.commands == []
    (call,) = talk.calls
    assert (call.path, call.binary) == ("/tmp/a.png", True)
    talk.did(talk.session.answer(call.call_id, CallResult("QUJD"), 101.0))
    sent = talk.sent[-1]
    assert sent["images"] == [{"type": "image", "data": "QUJD", "mimeType": "image/png"}]
    assert sent["message"] == "look\n\nAttached files:\n- /tmp/b.txt (b.txt)"


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "line",
    [
        b"npm warn",
        b"[]",
        b"{}",
        b'{"type":0}',
        b'{"type":"new_thing"}',
        b'{"type":"response","id":0,"success":"yes"}',
        b'{"type":"response","id":"77","command":"prompt","success":true}',
        b'{"type":"message_end","message":7}',
        b'{"type":"tool_execution_end"}',
        b'{"type":"extension_ui_request","method":"select","id":"x","title":"gate:{","options":7}',
        b"[" * 10_000,
    ],
)
def test_no_line_breaks_a_run(line: bytes) -> None:
    talk = Talk().working()
    talk.did(talk.session.feed(line, 101.0))
    talk.says("Done.")
    talk.out("agent_settled", aborted=False)
    assert (talk.completed.ok, talk.completed.answer) == (True, "Done.")


def test_a_second_response_means_nothing() -> None:
    talk = Talk().working()
    talk.answer("prompt", error="late")
    assert not [event for event in talk.events if isinstance(event, CompletedEvent)]
    assert talk.session.unknown == {"response": 1}
