"""Threads and turns of Codex: which message is answered when, and how a turn ends."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.codex_talk import PROMPT, THREAD, Talk
from untether.model import (
    ActionEvent,
    CompletedEvent,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TextEvent,
    TurnEvent,
    Usage,
)
from untether.session import (
    Attachment,
    Configure,
    Prompt,
    Say,
    SetEffort,
    SetModel,
    SetPermissionMode,
    StopTask,
    Withdraw,
)

TOKEN = ResumeToken("codex", THREAD)  # type: ignore[arg-type]


def test_the_order_of_the_opening() -> None:
    talk = Talk()
    assert [frame["method"] for frame in talk.written] == ["initialize"]
    assert talk.written[0]["params"]["capabilities"]["experimentalApi"] is True
    talk.answer("initialize", {"codexHome": "/home/ann/.codex"})
    assert [frame["method"] for frame in talk.written[1:]] == ["initialized", "thread/start"]
    assert talk.sent("thread/start") == [
        {"cwd": "/repo", "approvalPolicy": "on-request", "sandbox": "read-only", "approvalsReviewer": "user"}
    ]
    talk.opened()
    [started] = talk.of(StartedEvent)
    assert started.resume == TOKEN
    assert started.meta == {"model": "gpt-x", "permission_mode": "default", "version": "0.171.0", "cwd": "/repo"}
    [turn] = talk.sent("turn/start")
    assert turn["clientUserMessageId"] == PROMPT.id
    assert turn["input"] == [{"type": "text", "text": "do it", "text_elements": []}]


def test_an_answer() -> None:
    talk = Talk().began()
    assert talk.prompts == [("1", "taken")]
    talk.says("Done.")
    talk.ends()
    [completed] = talk.of(CompletedEvent)
    assert (completed.ok, completed.answer, completed.resume, completed.prompts) == (True, "Done.", TOKEN, (PROMPT.id,))
    assert talk.waits == []


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([("Looking.", "commentary"), ("Done.", "final_answer")], "Done."),
        ([("Done.", "final_answer"), ("By the way.", None)], "Done."),
        ([("First.", None), ("Last.", None)], "Last."),
        ([("Only a remark.", "commentary")], ""),
    ],
)
def test_which_message_is_the_answer(messages: list[tuple[str, str | None]], answer: str) -> None:
    talk = Talk().began()
    for text, phase in messages:
        talk.says(text, phase)
    talk.ends()
    assert talk.of(CompletedEvent)[0].answer == answer
    remarks = [text for text, phase in messages if phase == "commentary"]
    assert [event.action.title for event in talk.of(ActionEvent) if event.action.kind == "note"] == remarks


def test_the_answer_comes_in_pieces_while_it_is_written() -> None:
    talk = Talk().began()
    talk.item("agentMessage", "m1", at="started", text="")
    talk.tell("item/agentMessage/delta", itemId="m1", delta="Half ")
    talk.tell("item/agentMessage/delta", itemId="m1", delta="a word")
    assert [(event.text, event.message) for event in talk.of(TextEvent)] == [("Half ", "m1"), ("a word", "m1")]
    talk.ends("interrupted")
    assert talk.of(CompletedEvent)[0].answer == "Half a word"


def test_messages_wait_for_turns_of_their_own() -> None:
    talk = Talk().began()
    talk.say(2)
    talk.say(3)
    assert len(talk.sent("turn/start")) == 1
    talk.says("One.")
    talk.ends()
    talk.turn("turn-2").says("Two.")
    talk.ends(id="turn-2")
    talk.turn("turn-3").says("Three.")
    talk.ends(id="turn-3")
    turns = [(event.phase, event.answer, event.prompts[0][-1]) for event in talk.of(TurnEvent)]
    assert turns == [
        ("started", "", "2"),
        ("completed", "Two.", "2"),
        ("started", "", "3"),
        ("completed", "Three.", "3"),
    ]


def test_a_message_into_the_running_turn() -> None:
    talk = Talk().began()
    talk.say(2, "now", "look left")
    [steer] = talk.sent("turn/steer")
    assert steer["expectedTurnId"] == "turn-1"
    assert steer["clientUserMessageId"][-1] == "2"
    assert talk.prompts == [("1", "taken")]
    talk.item("userMessage", clientId=steer["clientUserMessageId"])
    assert talk.prompts == [("1", "taken"), ("2", "taken")]
    talk.says("Left.")
    talk.ends()
    assert [id[-1] for id in talk.of(CompletedEvent)[0].prompts] == ["1", "2"]


def test_an_answer_that_a_further_message_ended_stays() -> None:
    talk = Talk().began()
    talk.says("Half done.")
    talk.say(2, "now")
    talk.item("userMessage", clientId=talk.sent("turn/steer")[0]["clientUserMessageId"])
    talk.says("All done.")
    talk.ends()
    assert talk.of(CompletedEvent)[0].answer == "Half done.\n\nAll done."


@pytest.mark.parametrize("late", [True, False])
def test_a_message_that_did_not_get_into_the_turn_gets_its_own(late: bool) -> None:
    """The turn was over before, or ended before the message came up in it."""
    talk = Talk().began()
    talk.say(2, "now")
    if late:
        talk.answer("turn/steer", error="no active turn to steer")
        assert len(talk.sent("turn/start")) == 1
    talk.ends()
    assert talk.sent("turn/start")[-1]["clientUserMessageId"][-1] == "2"
    assert ("2", "handed_back") not in talk.prompts


def test_a_stop_hands_back_what_was_said_into_the_turn() -> None:
    talk = Talk().began()
    talk.say(2, "now")
    talk.interrupt()
    talk.ends("interrupted")
    assert ("2", "handed_back") in talk.prompts
    assert len(talk.sent("turn/start")) == 1


def test_a_message_in_place_of_the_running_turn() -> None:
    talk = Talk().began()
    talk.say(2)
    talk.say(3, "replace")
    assert talk.sent("turn/interrupt") == [{"threadId": THREAD, "turnId": "turn-1"}]
    talk.ends("interrupted")
    assert talk.sent("turn/start")[-1]["clientUserMessageId"][-1] == "3"


def test_a_stop_ends_the_turn_and_its_terminals() -> None:
    talk = Talk().began()
    talk.item("commandExecution", at="started", command="sleep 9", processId="7", status="inProgress")
    talk.interrupt()
    assert talk.sent("turn/interrupt") == [{"threadId": THREAD, "turnId": "turn-1"}]
    assert talk.sent("thread/backgroundTerminals/clean") == [{"threadId": THREAD}]
    talk.ends("interrupted")
    [completed] = talk.of(CompletedEvent)
    assert (completed.outcome, completed.ok) == ("stopped", False)
    assert talk.of(ActionEvent)[-1].ok is False  # Codex does not end the step itself
    assert talk.item("commandExecution", command="sleep 9", status="failed", exitCode=-1) == []
    assert talk.waits == []


@pytest.mark.parametrize("when", ["before the thread", "before the turn"])
def test_a_stop_that_comes_early(when: str) -> None:
    talk = Talk()
    if when == "before the thread":
        talk.interrupt()
        talk.opened()
        assert talk.sent("turn/start") == []
    else:
        talk.opened()
        talk.interrupt()
        assert talk.sent("turn/interrupt") == []
        talk.turn()
        assert len(talk.sent("turn/interrupt")) == 1
        talk.ends("interrupted")
    [completed] = talk.of(CompletedEvent)
    assert (completed.outcome, completed.prompts) == ("stopped", (PROMPT.id,))
    assert talk.prompts == [("1", "taken")]


def test_a_stop_when_idle_does_nothing() -> None:
    talk = Talk().began()
    talk.ends()
    before = len(talk.lines)
    assert talk.interrupt() == []
    assert len(talk.lines) == before


def test_what_waits_may_be_withdrawn() -> None:
    talk = Talk().began()
    for number in (2, 3, 4):
        talk.say(number)
    talk.put(Configure(Withdraw("aaaaaaaa-0000-4000-8000-000000000003")))
    assert talk.prompts[1:] == [("3", "withdrawn")]
    talk.interrupt(cancel_queued=True)
    talk.ends("interrupted")
    assert talk.prompts[2:] == [("2", "withdrawn"), ("4", "withdrawn")]
    assert len(talk.sent("turn/start")) == 1


def test_a_turn_that_codex_begins_by_itself() -> None:
    talk = Talk().began()
    talk.ends()
    talk.turn("turn-2")
    talk.say(2)
    talk.ends(id="turn-2")
    talk.turn("turn-3")
    started = [event for event in talk.of(TurnEvent) if event.phase == "started"]
    assert [(event.prompts, event.reason) for event in started] == [
        ((), "background task"),
        (("aaaaaaaa-0000-4000-8000-000000000002",), ""),
    ]


def test_a_turn_that_was_asked_for_while_another_ran() -> None:
    """Codex puts the message into the running turn, and names that in its answer."""
    talk = Talk().began()
    talk.ends()
    talk.say(2)  # and at the same moment Codex begins a turn by itself
    talk.turn("turn-2")
    talk.answer("turn/start", {"turn": {"id": "turn-2"}})
    assert talk.prompts[-1] == ("2", "taken")
    talk.ends(id="turn-2")
    assert talk.of(TurnEvent)[-1].prompts == ("aaaaaaaa-0000-4000-8000-000000000002",)


def test_compacting() -> None:
    talk = Talk().began()
    talk.ends()
    talk.say(2, text="/compact")
    assert talk.sent("thread/compact/start") == [{"threadId": THREAD}]
    talk.answer("thread/compact/start")
    talk.turn("turn-2")
    talk.item("contextCompaction", at="started")
    assert talk.waits == [("compaction", "")]
    talk.item("contextCompaction")
    talk.ends(id="turn-2")
    assert talk.of(TurnEvent)[-1].answer == "The conversation was compacted."
    assert [event.action.title for event in talk.of(ActionEvent)] == [
        "Compacting the conversation",
        "Compacted the conversation",
    ]


def test_changes_count_from_the_next_turn() -> None:
    talk = Talk(reasoning="low").began()
    assert talk.sent("turn/start")[0]["effort"] == "low"
    for change in (SetModel("gpt-y"), SetEffort("high"), SetPermissionMode("acceptEdits")):
        talk.put(Configure(change))
    talk.ends()
    talk.say(2)
    turn = talk.sent("turn/start")[-1]
    assert (turn["model"], turn["effort"], turn["approvalPolicy"]) == ("gpt-y", "high", "on-request")
    assert turn["sandboxPolicy"]["type"] == "workspaceWrite"
    meta = talk.of(StartedEvent)[-1].meta or {}
    assert (meta["model"], meta["permission_mode"], meta["reasoning"]) == ("gpt-y", "acceptEdits", "high")
    talk.turn("turn-2").ends(id="turn-2")
    talk.put(Configure(SetModel(None)))
    talk.say(3)
    assert talk.sent("turn/start")[-1]["model"] == "gpt-x"  # the one that the thread began with
    assert "sandboxPolicy" not in talk.sent("turn/start")[-1]


def test_pictures_go_as_such_and_files_by_name() -> None:
    talk = Talk().began()
    talk.ends()
    files = (Attachment("/a/b.png", "b.png", "image/png"), Attachment("/a/c.pdf", "c.pdf", "application/pdf"))
    talk.put(Say(Prompt("aaaaaaaa-0000-4000-8000-000000000002", "look", files)))
    text, picture = talk.sent("turn/start")[-1]["input"]
    assert text["text"] == "look\n\nAttached files:\n- /a/c.pdf (c.pdf)"
    assert picture == {"type": "localImage", "path": "/a/b.png"}


def test_resuming() -> None:
    talk = Talk(resume=THREAD)
    talk.opened("thread/resume")
    [resumed] = talk.sent("thread/resume")
    assert (resumed["threadId"], resumed["excludeTurns"], resumed["sandbox"]) == (THREAD, True, "read-only")
    # A thread remembers that it was in plan mode, so it is told that it is not.
    assert talk.sent("turn/start")[0]["collaborationMode"]["mode"] == "default"


def test_the_latest_session_of_the_folder() -> None:
    talk = Talk(latest=True)
    talk.answer("initialize", {})
    assert talk.sent("thread/list")[0]["cwd"] == "/repo"
    talk.answer("thread/list", {"data": [{"id": THREAD}]})
    assert talk.sent("thread/resume")[0]["threadId"] == THREAD
    alone = Talk(latest=True)
    alone.answer("initialize", {})
    alone.answer("thread/list", {"data": []})
    assert len(alone.sent("thread/start")) == 1


def test_a_fork() -> None:
    talk = Talk(resume="01a22e6a-0000", fork=True)
    talk.opened("thread/fork")
    assert talk.of(SessionChangedEvent) == [SessionChangedEvent("codex", TOKEN, "fork")]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "error", "told", "fresh"),
    [
        ("thread/resume", "no rollout found for thread id 1", "The session to continue was not found.", "not_found"),
        ("thread/resume", "thread 1 already has an active writer", "This session is open in another Codex.", None),
        ("initialize", "no", "Codex reported an error.", None),
    ],
)
def test_a_thread_that_cannot_be_opened(method: str, error: str, told: str, fresh: str | None) -> None:
    talk = Talk(resume=THREAD)
    talk.say(2)
    if method != "initialize":
        talk.answer("initialize", {})
    talk.answer(method, error=error)
    [completed] = talk.of(CompletedEvent)
    assert (completed.error, completed.raw_error, completed.detail.get("fresh")) == (told, error, fresh)
    assert completed.resume == (None if fresh else TOKEN)
    assert completed.prompts == (PROMPT.id,)
    assert talk.closes
    assert ("2", "handed_back") in talk.prompts
    assert talk.end(code=0) == []


def test_a_turn_that_codex_refuses() -> None:
    talk = Talk().opened()
    talk.say(2)
    talk.answer("turn/start", error="bad image")
    [completed] = talk.of(CompletedEvent)
    assert (completed.ok, completed.raw_error) == (False, "bad image")
    assert talk.sent("turn/start")[-1]["clientUserMessageId"][-1] == "2"


@pytest.mark.parametrize(
    ("info", "message", "told", "detail"),
    [
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "", "Codex is not logged in", {"login": True}),
        ("unauthorized", "", "Codex is not logged in", {"login": True}),
        ("usageLimitExceeded", "", "The usage limit is reached.", {"quota": True}),
        ("contextWindowExceeded", "", "The conversation is too long", {}),
        ("rateLimitExceeded", "", "The provider limits requests", {}),
        ("other", "exceeded retry limit, last status: 429 Too Many Requests", "The provider limits requests", {}),
        ("serverOverloaded", "", "The provider is overloaded", {}),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "", "The connection to the provider broke", {}),
        ({"httpConnectionFailed": {"httpStatusCode": None}}, "", "The provider cannot be reached", {}),
        ("cyberPolicy", "", "The model declined", {}),
        ("badRequest", "", "The provider did not accept", {}),
        ("brandNew", "Hm.", "Codex reported an error.", {}),
        ({"brandNew": 3}, "Hm.", "Codex reported an error.", {}),
        (None, "Hm.", "Codex reported an error.", {}),
    ],
)
def test_errors_by_their_codes(info: Any, message: str, told: str, detail: dict[str, Any]) -> None:
    talk = Talk().began()
    talk.says("So far.")
    talk.fails(info, message)
    [completed] = talk.of(CompletedEvent)
    assert (completed.error or "").startswith(told)
    assert (completed.answer, completed.raw_error, completed.detail) == ("So far.", message, detail)
    assert completed.advice


def test_a_spent_limit_says_when_it_resets() -> None:
    talk = Talk().began()
    window = {"usedPercent": 100, "windowDurationMins": 300, "resetsAt": 5_000}
    talk.tell(
        "account/rateLimits/updated", rateLimits={"primary": window, "rateLimitReachedType": "rate_limit_reached"}
    )
    assert talk.session.waits[0].kind == "quota"
    assert talk.session.waits[0].until == 5_000
    talk.fails("usageLimitExceeded")
    assert talk.of(CompletedEvent)[0].detail == {"quota": True, "resets_at": 5_000}


def test_a_limit_that_is_nearly_spent_is_told_once() -> None:
    talk = Talk().began()
    for percent in (50, 91, 91):
        window = {"usedPercent": percent, "windowDurationMins": 10080}
        talk.tell("account/rateLimits/updated", rateLimits={"primary": window, "secondary": None})
    assert [event.action.title for event in talk.of(ActionEvent)] == ["91 % of the weekly limit is used"]


def test_the_provider_is_called_again() -> None:
    talk = Talk().began()
    error = {
        "message": "Reconnecting... 2/5",
        "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": 503}},
    }
    talk.tell("error", error=error, willRetry=True)
    assert talk.waits == [("retry", "the provider is overloaded, retry 2 of 5")]
    talk.item("agentMessage", at="started", text="")
    assert talk.waits == [("model", "")]
    notes = [(event.phase, event.ok) for event in talk.of(ActionEvent)]
    assert notes == [("started", None), ("completed", True)]


def tokens(total: int, last: int) -> dict[str, Any]:
    def figures(number: int) -> dict[str, int]:
        return {
            "totalTokens": number * 11,
            "inputTokens": number * 10,
            "cachedInputTokens": number * 2,
            "outputTokens": number,
        }

    return {"tokenUsage": {"total": figures(total), "last": figures(last), "modelContextWindow": 1_000}}


def usage(of: int, last: int) -> Usage:
    return Usage(of * 10, of, of * 2, context_used=last * 11, context_window=1_000)


def test_usage_is_that_of_each_run() -> None:
    talk = Talk().began()
    talk.tell("thread/tokenUsage/updated", **tokens(1, 1))
    talk.tell("thread/tokenUsage/updated", **tokens(3, 2))
    talk.ends()
    talk.say(2)
    talk.turn("turn-2").tell("thread/tokenUsage/updated", **tokens(7, 4))
    talk.ends(id="turn-2")
    talk.say(3)
    talk.turn("turn-3").ends(id="turn-3")

    ends: list[Any] = [*talk.of(CompletedEvent), *talk.of(TurnEvent)]
    found = [event.usage for event in ends if event.usage]
    assert [replace(each, duration_s=None) for each in found if isinstance(each, Usage)] == [
        usage(3, 2),
        usage(4, 4),
        usage(0, 4),
    ]


@pytest.mark.parametrize("told_before", [True, False])
def test_usage_of_a_resumed_thread_leaves_out_what_was_before(told_before: bool) -> None:
    talk = Talk(resume=THREAD).opened("thread/resume")
    if told_before:
        talk.tell("thread/tokenUsage/updated", **tokens(100, 5))
    talk.turn().tell("thread/tokenUsage/updated", **tokens(102, 2))
    talk.ends()
    found = talk.of(CompletedEvent)[0].usage
    assert isinstance(found, Usage)
    assert (found.input_tokens, found.output_tokens) == (20, 2)


def test_a_sub_agent_works_under_its_step() -> None:
    talk = Talk().began()
    spawn: dict[str, Any] = {"tool": "spawnAgent", "prompt": "Look at the tests", "receiverThreadIds": ["sub"]}
    talk.item("collabAgentToolCall", "spawn", at="started", status="inProgress", **spawn)
    talk.item("collabAgentToolCall", "spawn", status="completed", **spawn)
    talk.feed(
        {
            "method": "thread/started",
            "params": {"thread": {"id": "sub", "parentThreadId": THREAD, "agentNickname": "Bo"}},
        }
    )
    talk.item("commandExecution", "c1", at="started", thread="sub", command="pytest", status="inProgress")
    talk.item("agentMessage", "m9", thread="sub", text="Sub is done.")
    asked = talk.asks_command(5, threadId="sub", turnId="sub-turn")
    assert asked.asked_by == "Bo"
    talk.tell("turn/completed", threadId="sub", turn={"id": "sub-turn", "status": "completed"})
    assert talk.closed[-1] == ("5", "withdrawn", "The turn is over.")
    assert talk.of(CompletedEvent) == []
    child = next(event for event in talk.of(ActionEvent) if event.action.id == "c1")
    assert (child.parent, talk.of(ActionEvent)[0].action.kind) == ("spawn", "subagent")
    talk.says("All done.")
    talk.ends()
    assert talk.of(CompletedEvent)[0].answer == "All done."


def test_a_terminal_that_is_left_running_goes_on_in_the_background() -> None:
    talk = Talk().began()
    talk.item("commandExecution", at="started", command="npm start", processId="7", status="inProgress")
    talk.ends()
    assert talk.of(ActionEvent)[-1].ok is None
    assert talk.waits == [("background", "npm start")]
    talk.put(Configure(StopTask("item-1")))
    assert talk.sent("thread/backgroundTerminals/terminate") == [{"threadId": THREAD, "processId": "7"}]
    talk.put(Configure(StopTask()))
    assert len(talk.sent("thread/backgroundTerminals/clean")) == 1
    talk.item("commandExecution", command="npm start", processId="7", status="failed", exitCode=-1)
    assert talk.waits == []


@pytest.mark.parametrize(("exit", "outcome"), [({"code": 0}, "ended_early"), ({"stopped": True}, "stopped")])
@pytest.mark.parametrize("at", ["greeting", "thread", "turn", "second turn"])
def test_a_stream_that_ends_early_is_never_a_success(exit: dict[str, Any], outcome: str, at: str) -> None:
    talk = Talk()
    if at != "greeting":
        talk.opened()
    if "turn" in at:
        talk.turn().says("So far.")
    if at == "second turn":
        talk.ends()
        talk.say(2)
        talk.turn("turn-2")
    talk.say(3)
    talk.end(**exit)
    ends: list[Any] = [*talk.of(CompletedEvent), *(e for e in talk.of(TurnEvent) if e.phase == "completed")]
    assert (ends[-1].ok, ends[-1].outcome) == (False, outcome)
    assert ends[-1].prompts
    assert [event for event in talk.of(PromptEvent) if event.state == "handed_back"][-1].prompt_id[-1] == "3"
    assert talk.waits == []


def test_its_last_words_leave_out_what_it_says_at_every_start() -> None:
    talk = Talk().began()
    noise = "ERROR codex_app_server: Codex could not find bubblewrap on PATH. Install it.\n"
    talk.end(code=101, stderr_tail=noise + "thread main panicked\n")
    error = talk.of(CompletedEvent)[0].error or ""
    assert error == "Codex ended before it answered (exit code 101): thread main panicked"


def test_after_its_end_everything_is_handed_back() -> None:
    talk = Talk().began()
    talk.ends()
    talk.end(code=0)
    assert talk.say(2)[0] == PromptEvent("codex", "aaaaaaaa-0000-4000-8000-000000000002", "handed_back")  # type: ignore[arg-type]
