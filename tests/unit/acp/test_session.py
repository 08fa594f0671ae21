"""The ACP session: greeting, turns, messages on their way, stops, and what a broken agent may send."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.rules import assert_contract
from tests.unit.acp.talk import FIRST, SECOND, Talk
from untether.session import Attachment, CallResult, ProcessExit, Prompt, SetModel, SetPermissionMode, Withdraw

MODES = {"currentModeId": "auto", "availableModes": [{"id": "auto"}, {"id": "default"}, {"id": "yolo"}]}


def test_the_greeting_offers_nothing_that_is_not_there() -> None:
    [params] = Talk().sent("initialize")
    assert params["protocolVersion"] == 1
    assert params["clientCapabilities"] == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    assert params["clientInfo"]["name"] == "untether"


def test_one_turn() -> None:
    talk = Talk()
    talk.opened()
    assert talk.sent("session/new") == [{"cwd": "/repo", "mcpServers": []}]
    assert talk.sent("session/prompt") == [{"sessionId": "s-1", "prompt": [{"type": "text", "text": "Do it"}]}]
    assert [wait.kind for wait in talk.session.waits] == ["model"]
    talk.says("Hel")
    talk.says("lo.")
    talk.ends(usage={"inputTokens": 10, "outputTokens": 3, "totalTokens": 18, "cachedReadTokens": 5})
    done = talk.completed
    assert (done.ok, done.answer, done.prompts) == (True, "Hello.", (FIRST.id,))
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.cached_tokens) == (15, 3, 5)  # type: ignore
    assert talk.started[0].resume.value == "s-1"
    assert talk.prompts == [(FIRST.id, "taken")]
    assert not talk.session.waits
    talk.exits()
    assert_contract(talk.events)


def test_the_answer_is_what_was_written_last() -> None:
    talk = Talk()
    talk.opened()
    talk.says("I look first.")
    talk.update("tool_call", toolCallId="t1", title="ls", kind="execute", status="completed")
    talk.says("There it is.")
    talk.ends()
    assert talk.completed.answer == "There it is."


def test_messages_are_told_apart_by_their_ids() -> None:
    talk = Talk()
    talk.opened()
    talk.says("", messageId="a")
    talk.says("One", messageId="a")
    talk.says("Two", messageId="b")
    talk.ends()
    assert talk.completed.answer == "Two"


def test_later_messages_are_turns_one_after_the_other() -> None:
    talk = Talk()
    talk.opened()
    talk.says("First.")
    talk.say(SECOND)
    assert len(talk.sent("session/prompt")) == 1, "the second waits for the end of the first"
    talk.ends()
    assert talk.sent("session/prompt")[1]["prompt"] == [{"type": "text", "text": "And this"}]
    talk.says("Second.")
    talk.ends()
    opened, closed = talk.turns
    assert (opened.phase, opened.prompts) == ("started", (SECOND.id,))
    assert (closed.phase, closed.answer, closed.prompts) == ("completed", "Second.", (SECOND.id,))
    assert talk.prompts == [(FIRST.id, "taken"), (SECOND.id, "taken")]


def test_a_message_that_was_not_taken_is_handed_back() -> None:
    talk = Talk()
    talk.opened()
    talk.says("First.")
    talk.ends()
    talk.say(SECOND)
    talk.exits(1)
    assert talk.prompts[-1] == (SECOND.id, "handed_back")
    assert talk.turns == []


def test_a_waiting_message_can_be_withdrawn() -> None:
    talk = Talk()
    talk.opened()
    talk.say(SECOND)
    talk.took(talk.session.configure(Withdraw(SECOND.id), talk.now))
    talk.ends()
    assert (SECOND.id, "withdrawn") in talk.prompts
    assert len(talk.sent("session/prompt")) == 1


def test_steering_joins_the_turn_where_the_agent_takes_it() -> None:
    talk = Talk("opencode")
    talk.opened()
    first = talk.request("session/prompt")["id"]
    talk.says("Hm.")
    talk.say(SECOND, "now")
    second = talk.request("session/prompt")["id"]
    assert second != first
    talk.send(id=first, result={"stopReason": "end_turn"})
    assert not [event for event in talk.events if event.__struct_config__.tag == "completed"]
    talk.send(id=second, result={"stopReason": "end_turn"})
    assert talk.completed.prompts == (FIRST.id, SECOND.id)


def test_replace_cancels_and_goes_next() -> None:
    talk = Talk()
    talk.opened()
    talk.says("Hm.")
    talk.say(SECOND, "replace")
    assert talk.sent("session/cancel") == [{"sessionId": "s-1"}]
    talk.ends("cancelled")
    assert talk.completed.outcome == "stopped"
    assert talk.sent("session/prompt")[-1]["prompt"][0]["text"] == "And this"


# ---------------------------------------------------------------------------------------------------------- resume


def test_resume_loads_and_shows_nothing_of_the_history() -> None:
    talk = Talk(resume="s-1")
    talk.greet()
    assert talk.sent("session/load") == [{"sessionId": "s-1", "cwd": "/repo", "mcpServers": []}]
    talk.says("An old answer.")
    talk.update("tool_call", toolCallId="old", title="rm", kind="execute")
    talk.result("session/load", None)
    talk.says("New.")
    talk.ends()
    assert talk.completed.answer == "New."
    assert [event.action.id for event in talk.actions] == []
    assert talk.started[0].resume.value == "s-1"


def test_resume_without_load() -> None:
    talk = Talk(resume="s-1")
    talk.result("initialize", {"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"resume": {}}}})
    assert len(talk.sent("session/resume")) == 1


def test_an_agent_that_cannot_resume_says_so() -> None:
    talk = Talk(resume="s-1")
    talk.result("initialize", {"protocolVersion": 1})
    assert talk.completed.error == "Robo cannot continue an earlier session."
    assert talk.completed.resume is not None
    assert not talk.session.capabilities.resume


def test_a_session_that_is_gone() -> None:
    talk = Talk(resume="s-1")
    talk.greet()
    talk.error("session/load", -32002, "Resource not found: s-1")
    assert talk.completed.error == "The session to continue was not found."
    assert talk.completed.detail == {"fresh": "not_found"}
    assert talk.completed.resume is None


# ------------------------------------------------------------------------------------------------ modes and models


@pytest.mark.parametrize(
    ("settings", "mode"),
    [({}, "default"), ({"mode": "yolo"}, "yolo"), ({"permission_mode": "default"}, "default"), ({"mode": "auto"}, "")],
)
def test_it_starts_in_a_mode_that_asks_before_any_message(settings: dict[str, str], mode: str) -> None:
    talk = Talk(**settings)
    talk.greet()
    talk.result("session/new", {"sessionId": "s-1", "modes": MODES})
    if mode:
        assert talk.sent("session/set_mode") == [{"sessionId": "s-1", "modeId": mode}]
        assert talk.sent("session/prompt") == []
        talk.result("session/set_mode", {})
    assert len(talk.sent("session/prompt")) == 1
    assert talk.started[0].meta == {"permission_mode": mode or "auto"}


def test_a_known_agent_starts_in_its_own_asking_mode() -> None:
    talk = Talk("codex")
    talk.greet()
    modes = {"currentModeId": "agent", "availableModes": [{"id": "agent"}, {"id": "read-only"}]}
    talk.result("session/new", {"sessionId": "s-1", "modes": modes})
    assert talk.sent("session/set_mode") == [{"sessionId": "s-1", "modeId": "read-only"}]


def test_a_mode_that_is_refused_ends_the_run_before_the_message_leaves() -> None:
    talk = Talk()
    talk.greet()
    talk.result("session/new", {"sessionId": "s-1", "modes": MODES})
    step = talk.error("session/set_mode", -32603, "no")
    assert talk.completed.error == "Robo did not take the mode 'default'."
    assert talk.sent("session/prompt") == []
    assert step.stop


def test_a_mode_or_model_that_does_not_exist() -> None:
    talk = Talk(mode="wild")
    talk.greet()
    talk.result("session/new", {"sessionId": "s-1", "modes": MODES})
    assert talk.completed.error == "Robo has no mode 'wild'."
    assert talk.completed.advice == "It offers: auto, default, yolo. Correct the mode, then try again."
    talk = Talk(model="big")
    talk.opened()
    assert talk.completed.error == "Robo has no model 'big'."


def test_models_and_efforts_by_config_options() -> None:
    talk = Talk(model="big", reasoning="high")
    talk.greet()
    options = [
        {"id": "m", "category": "model", "currentValue": "small", "options": [{"value": "small"}, {"value": "big"}]},
        {"id": "e", "category": "thought_level", "currentValue": "low", "options": [{"group": "g", "options": []}]},
    ]
    talk.result("session/new", {"sessionId": "s-1", "configOptions": options})
    assert talk.sent("session/set_config_option") == [{"sessionId": "s-1", "configId": "m", "value": "big"}]
    options[1]["options"] = [{"group": "g", "options": [{"value": "high"}]}]  # the efforts of the big model
    talk.result("session/set_config_option", {"configOptions": options})
    assert talk.sent("session/set_config_option")[1] == {"sessionId": "s-1", "configId": "e", "value": "high"}
    talk.result("session/set_config_option", {})
    assert talk.started[0].title == "big"
    assert talk.session.capabilities.set_model


def test_changes_of_a_session_that_runs() -> None:
    talk = Talk("gemini")
    talk.greet()
    modes = {"currentModeId": "default", "availableModes": [{"id": "default"}, {"id": "plan"}, {"id": "autoEdit"}]}
    models = {"currentModelId": "a", "availableModels": [{"modelId": "a"}, {"modelId": "b"}]}
    talk.result("session/new", {"sessionId": "s-1", "modes": modes, "models": models})
    talk.took(talk.session.configure(SetPermissionMode("acceptEdits"), talk.now))
    assert talk.sent("session/set_mode") == [{"sessionId": "s-1", "modeId": "autoEdit"}]
    talk.result("session/set_mode", None)
    assert talk.started[-1].meta["permission_mode"] == "autoEdit"  # type: ignore[index]
    talk.took(talk.session.configure(SetModel("b"), talk.now))
    talk.error("session/set_model", -32602, "no such model")
    talk.took(talk.session.configure(SetPermissionMode("dontAsk"), talk.now))
    assert talk.warnings() == []  # held until the turn opens
    talk.says("x")
    assert talk.warnings() == ["Robo did not take the model 'b'", "Robo has no mode for dontAsk"]


def test_commands_are_told() -> None:
    talk = Talk()
    talk.opened()
    talk.update("available_commands_update", availableCommands=[{"name": "init", "description": "x"}])
    assert talk.started[-1].meta == {"commands": ["init"]}


# ----------------------------------------------------------------------------------------------------------- stops


def test_interrupt_cancels_and_the_turn_ends_stopped() -> None:
    talk = Talk()
    talk.opened()
    talk.says("Half")
    talk.interrupt()
    talk.interrupt()
    assert talk.sent("session/cancel") == [{"sessionId": "s-1"}]
    talk.ends("cancelled")
    assert (talk.completed.outcome, talk.completed.answer) == ("stopped", "Half")
    talk.say(SECOND)
    assert len(talk.sent("session/prompt")) == 2


def test_an_error_after_a_cancel_is_the_stop() -> None:
    talk = Talk()
    talk.opened()
    talk.interrupt()
    talk.error("session/prompt", -32603, "aborted")
    assert talk.completed.outcome == "stopped"


def test_interrupt_before_the_session_is_open() -> None:
    talk = Talk()
    step = talk.interrupt()
    assert step.stop
    assert talk.completed.outcome == "stopped"
    talk.exits(None, signal="SIGTERM", stopped=True)
    assert talk.completed.prompts == (FIRST.id,)


def test_interrupt_withdraws_what_waits_when_asked() -> None:
    talk = Talk()
    talk.opened()
    talk.says("x")
    talk.say(SECOND)
    talk.interrupt(cancel_queued=True)
    talk.ends("cancelled")
    assert talk.prompts[-1] == (SECOND.id, "withdrawn")
    assert len(talk.sent("session/prompt")) == 1


def test_an_agent_whose_cancel_leaves_commands_is_stopped() -> None:
    talk = Talk("codex")
    talk.opened()
    assert not talk.session.capabilities.interrupt
    talk.says("x")
    assert talk.interrupt().stop


# -------------------------------------------------------------------------------------------------- files of messages


def test_pictures_texts_and_links() -> None:
    files = (
        Attachment("/in/a b.png", "a b.png"),
        Attachment("/in/n.txt", "n.txt", "text/plain"),
        Attachment("/in/x.zip", "x.zip", "application/zip"),
    )
    talk = Talk()
    talk.opened()
    talk.ends()
    step = talk.say(Prompt(SECOND.id, "Look", files))
    assert [(call.path, call.binary) for call in step.calls] == [("/in/a b.png", True), ("/in/n.txt", False)]
    assert len(talk.sent("session/prompt")) == 1
    picture, text = (call.call_id for call in step.calls)
    talk.took(talk.session.answer(picture, CallResult(text="QUJD"), talk.now))
    talk.took(talk.session.answer(text, CallResult(text="hello"), talk.now))
    assert talk.sent("session/prompt")[1]["prompt"] == [
        {"type": "text", "text": "Look"},
        {"type": "image", "data": "QUJD", "mimeType": "image/png", "uri": "file:///in/a%20b.png"},
        {"type": "resource", "resource": {"uri": "file:///in/n.txt", "text": "hello", "mimeType": "text/plain"}},
        {"type": "resource_link", "uri": "file:///in/x.zip", "name": "x.zip", "mimeType": "application/zip"},
    ]


def test_a_picture_for_an_agent_that_sees_none_is_linked_without_being_read() -> None:
    talk = Talk()
    talk.result("initialize", {"protocolVersion": 1})
    talk.result("session/new", {"sessionId": "s-1"})
    talk.ends()
    assert not talk.session.capabilities.images
    step = talk.say(Prompt(SECOND.id, "Look", (Attachment("/in/a.png", "a.png"),)))
    assert step.calls == ()
    assert talk.sent("session/prompt")[1]["prompt"][1]["type"] == "resource_link"


def test_a_file_that_cannot_be_read_is_linked() -> None:
    talk = Talk()
    talk.opened()
    talk.ends()
    step = talk.say(Prompt(SECOND.id, "", (Attachment("/in/a.png", "a.png"),)))
    talk.took(talk.session.answer(step.calls[0].call_id, CallResult(error="gone"), talk.now))
    assert [block["type"] for block in talk.sent("session/prompt")[1]["prompt"]] == ["resource_link"]
    talk.says("x")
    assert talk.warnings() == ["a.png could not be read and is only linked: gone"]


# --------------------------------------------------------------------------------------------------- agents that fail


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"protocolVersion": 2}, "Robo speaks version 2 of the Agent Client Protocol; version 1 is needed."),
        ({"protocolVersion": 0}, "Robo speaks version 0 of the Agent Client Protocol; version 1 is needed."),
        ({"protocolVersion": "1.0"}, "Robo does not say which version of ACP it speaks."),
        ({}, "Robo does not say which version of ACP it speaks."),
        ([], "The answer of Robo to initialize cannot be read."),
    ],
)
def test_another_version_or_no_acp(result: object, error: str) -> None:
    talk = Talk()
    step = talk.result("initialize", result)
    assert talk.completed.error == error
    assert talk.completed.advice
    assert step.stop
    assert talk.sent("session/new") == []
    talk.exits()
    assert_contract(talk.events, started=False)


def test_an_agent_without_acp() -> None:
    talk = Talk()
    talk.error("initialize", -32601, "Method not found")
    assert talk.completed.error == "Robo does not speak the Agent Client Protocol."
    talk = Talk()
    talk.line(b"Welcome to Robo!")
    talk.exits(2, stderr_tail="unknown option --acp")
    assert talk.completed.error == "Robo ended before it answered the greeting (exit code 2): unknown option --acp"
    assert "must start an agent that speaks ACP" in talk.completed.advice


def test_an_agent_that_never_answers() -> None:
    talk = Talk()
    assert talk.steps[0].deadline == 60.0
    step = talk.took(talk.session.tick(60.0))
    assert talk.completed.error == "Robo did not answer the greeting of the Agent Client Protocol within 60 s."
    assert step.stop
    talk = Talk()
    step = talk.greet()
    assert step.deadline == 121.0
    talk.took(talk.session.tick(121.0))
    assert talk.completed.error == "Robo did not open a session within 120 s."
    talk = Talk()
    assert talk.opened().deadline is None


@pytest.mark.parametrize("method", ["session/new", "session/prompt"])
def test_a_login_is_told_with_what_to_do(method: str) -> None:
    talk = Talk("gemini")
    if method == "session/new":
        talk.greet(authMethods=[{"id": "oauth", "name": "Log in with Google"}])
    else:
        talk.opened()
    talk.error(method, -32000, "Authentication required")
    assert talk.completed.error == "Robo is not logged in, or its login was not accepted."
    assert talk.completed.advice == "Run `gemini` on the machine and log in, or set GEMINI_API_KEY, then try again."
    assert talk.completed.detail == {"login": True}
    assert "Authentication required" in talk.completed.raw_error


def test_the_ways_to_log_in_of_an_unknown_agent() -> None:
    talk = Talk()
    talk.greet(authMethods=[{"id": "oauth", "name": "Log in with Robo"}])
    talk.error("session/new", -32000, "Authentication required")
    assert talk.completed.advice.endswith("It offers: Log in with Robo.")


def test_a_login_method_of_the_settings_is_used() -> None:
    talk = Talk(auth="key")
    talk.greet()
    assert talk.sent("authenticate") == [{"methodId": "key"}]
    assert talk.sent("session/new") == []
    talk.result("authenticate", None)
    assert len(talk.sent("session/new")) == 1


@pytest.mark.parametrize(
    ("message", "data", "error"),
    [
        ("Internal error: Incorrect API key provided", None, "Robo is not logged in, or its login was not accepted."),
        ("Internal error", {"details": "status: 429 RESOURCE_EXHAUSTED"}, "The provider limits requests right now."),
        ("prompt is too long", None, "The conversation is too long for the model."),
        ("503 Service Unavailable", None, "The provider is overloaded or has an error."),
        ("Internal error: the moon is full", None, "Robo reported an error: the moon is full"),
        ("", None, "Robo reported an error."),
    ],
)
def test_errors_in_words(message: str, data: object, error: str) -> None:
    talk = Talk()
    talk.opened()
    talk.error("session/prompt", -32603, message, data=data)
    assert talk.completed.error == error
    assert not talk.completed.ok


@pytest.mark.parametrize(
    ("reason", "ok", "error"),
    [
        ("max_tokens", False, "The answer was longer than the model may write."),
        ("max_turn_requests", False, "The limit of steps for one run is reached."),
        ("refusal", False, "The model declined this request."),
        ("some_new_reason", True, None),
    ],
)
def test_stop_reasons(reason: str, ok: bool, error: str | None) -> None:
    talk = Talk()
    talk.opened()
    talk.says("Text")
    talk.ends(reason)
    assert (talk.completed.ok, talk.completed.error, talk.completed.answer) == (ok, error, "Text")


def test_a_turn_that_the_agent_tells_as_broken_is_no_answer() -> None:
    """As codex-acp does when the provider refuses: the error is written as an answer."""
    talk = Talk("codex")
    talk.opened()
    talk.update("session_info_update", _meta={"codex": {"threadStatus": {"type": "systemError"}}})
    talk.says("exceeded retry limit, last status: 429 Too Many Requests\n\n")
    talk.ends()
    assert (talk.completed.ok, talk.completed.answer) == (False, "")
    assert talk.completed.error == "The provider limits requests right now."


def test_an_agent_that_dies_in_a_turn() -> None:
    talk = Talk()
    talk.opened()
    talk.says("Half")
    talk.update("tool_call", toolCallId="t1", title="ls", kind="execute", status="in_progress")
    talk.exits(None, signal="SIGSEGV")
    assert (talk.completed.ok, talk.completed.outcome, talk.completed.answer) == (False, "ended_early", "Half")
    assert talk.actions[-1].phase == "completed"
    assert_contract(talk.events)


# ------------------------------------------------------------------------------------------------- what nobody asked


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "x/unknown"])
@pytest.mark.parametrize("id", [0, "a-uuid", None, 1.5])
def test_other_requests_are_refused(method: str, id: object) -> None:
    talk = Talk()
    talk.opened()
    talk.send(id=id, method=method, params={"path": "/etc/passwd"})
    assert talk.answer(id)["error"]["code"] == -32601


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    talk = Talk()
    talk.opened()
    first = talk.request("session/prompt")["id"]
    for id in (99, "1", None, True, [1], first + 0.5):
        talk.send(id=id, result={"stopReason": "end_turn"})
        talk.send(id=id, error={"code": 1, "message": "x"})
    talk.send(id=1, result={"protocolVersion": 1})  # a second answer to the greeting
    assert talk.of(type(None)) == []
    talk.says("Still here.")
    talk.ends()
    assert talk.completed.answer == "Still here."
    talk.send(id=first, result={"stopReason": "refusal"})  # a second answer to the prompt
    assert talk.completed.ok
    assert talk.session.unknown["response without a request"] >= 3


def test_malformed_lines_are_told_at_most_three_times() -> None:
    talk = Talk()
    talk.opened()
    talk.says("x")
    for line in (b"", b"  ", b"npm warn", b"{", b"[]", b"1", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b'{"method":1,"id":1}'):
        talk.line(line)
    assert len(talk.warnings()) == 3
    talk.ends()
    assert talk.completed.ok


def test_unknown_updates_are_counted() -> None:
    talk = Talk()
    talk.opened()
    talk.update("brand_new", x=1)
    talk.update("agent_message_chunk", content={"type": "hologram"})
    talk.send(method="session/update", params={"sessionId": "s-1"})
    talk.send(method="_auth/status", params={})
    talk.says("From a sub-agent", session="s-2")
    assert talk.session.unknown == {
        "update brand_new": 1,
        "message content hologram": 1,
        "session/update without an update": 1,
        "_auth/status": 1,
    } | {"update of another session": 1}


def test_costs_are_those_of_the_turn() -> None:
    talk = Talk()
    talk.opened()
    for amount in (0.25, 0.75):
        talk.says("x")
        talk.update("usage_update", used=100, size=1000, cost={"amount": amount, "currency": "USD"})
        talk.ends()
        talk.say(Prompt(f"00000000-0000-4000-8000-0000000000{int(amount * 100)}", "more"))
    assert talk.completed.usage.cost_usd == 0.25  # type: ignore[union-attr]
    assert talk.turns[-1].usage.cost_usd == 0.5  # type: ignore[union-attr]
    assert (talk.turns[-1].usage.context_used, talk.turns[-1].usage.context_window) == (100, 1000)  # type: ignore


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "type", "x"]), inner, max_size=2)
    ),
    max_leaves=3,
)
NAMES = st.sampled_from(["session/update", "session/request_permission", "fs/read_text_file", "x"])
UPDATES = st.sampled_from(["tool_call", "tool_call_update", "plan", "agent_message_chunk", "usage_update", "odd"])
FIELDS = st.sampled_from(["content", "entries", "title", "kind", "status", "locations", "rawInput", "cost", "used"])
PARAMS = st.fixed_dictionaries(
    {"sessionId": st.sampled_from(["s-1", "s-2"]) | JSON},
    optional={
        "update": JSON
        | st.builds(lambda kind, more: {**more, "sessionUpdate": kind}, UPDATES, st.dictionaries(FIELDS, JSON)),
        "toolCall": JSON,
        "options": JSON,
    },
)
FRAMES = st.fixed_dictionaries(
    {},
    optional={"id": JSON, "method": NAMES | JSON, "params": PARAMS | JSON, "result": JSON, "error": JSON},
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(FRAMES.map(lambda frame: json.dumps(frame).encode()) | st.binary(max_size=20), max_size=8))
def test_whatever_an_agent_sends_the_contract_holds(lines: list[bytes]) -> None:
    talk = Talk()
    talk.opened()
    for line in lines:
        talk.line(line)
    talk.took(talk.session.end(ProcessExit(code=0), talk.now))
    assert_contract(talk.events)
