"""Permission requests of ACP agents: what is shown, the agent's own options, and how each answer is written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.acp.talk import OPTIONS, SECOND, Talk
from untether.model import Allow, Answers, Deny, InteractionEvent

CANCELLED = {"outcome": {"outcome": "cancelled"}}


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def talking(agent: str = "", **settings: Any) -> Talk:
    talk = Talk(agent, **settings)
    talk.opened()
    return talk


def test_what_is_asked() -> None:
    talk = talking()
    asked = talk.asks()
    assert (asked.kind, asked.act, asked.offers) == ("permission", "Run a command?", ("allow", "deny"))
    assert [(piece.form, piece.text) for piece in asked.body] == [("command", "ls -la")]
    assert [(choice.id, choice.label, choice.decides) for choice in asked.choices] == [
        ("always", "Always allow ls", "allow")
    ]
    assert asked.step_id == "t1"
    assert [wait.kind for wait in talk.session.waits] == ["human"]
    assert talk.actions[0].action.title == "ls -la", "a tool call that was never announced is taken as new"


@pytest.mark.parametrize("id", [0, 1, "0", "7c0c5e0e-8c0c", None, 1.5])
def test_answers_go_to_the_id_that_asked(id: Any) -> None:
    talk = talking()
    talk.decide(talk.asks(id), Allow())
    assert talk.answer(id)["result"] == selected("yes")


@pytest.mark.parametrize(
    ("decision", "option", "reason"),
    [(Allow(), "yes", "approved"), (Allow("always"), "always", "approved"), (Deny(), "no", "denied")],
)
def test_decisions(decision: Any, option: str, reason: str) -> None:
    talk = talking()
    asked = talk.asks()
    talk.decide(asked, decision)
    assert talk.answer(0)["result"] == selected(option)
    last = talk.of(InteractionEvent)[-1]
    assert (last.phase, last.reason) == ("resolved", reason)
    talk.decide(asked, Deny())  # a second decision
    assert talk.answer(0)["result"] == selected(option)


@pytest.mark.parametrize("decision", [Allow("no"), Allow("made-up"), Answers({})])
def test_a_decision_that_makes_no_sense_answers_nothing(decision: Any) -> None:
    talk = talking()
    asked = talk.asks()
    assert talk.decide(asked, decision).empty
    assert asked.id in [wait.id for wait in talk.session.waits]


def test_options_by_kind_whatever_their_ids() -> None:
    options = [
        {"optionId": "never", "name": "Never", "kind": "reject_always"},
        {"optionId": "abort", "name": "Abort", "kind": "reject_once"},
        {"optionId": "other", "name": "Edit first", "kind": "future_kind"},
        {"optionId": "approved", "name": "Yes", "kind": "allow_once"},
        {"optionId": "also", "name": "Yes, and stay", "kind": "allow_once"},
    ]
    talk = talking()
    asked = talk.asks(options=options)
    assert [(choice.id, choice.decides) for choice in asked.choices] == [
        ("never", "deny"),
        ("other", "allow"),
        ("also", "allow"),
    ]
    talk.decide(asked, Deny(choice="never"))
    assert talk.answer(0)["result"] == selected("never")
    talk.decide(talk.asks(1, options=options), Allow("also"))
    assert talk.answer(1)["result"] == selected("also")


def test_without_a_plain_approval_none_is_offered() -> None:
    talk = talking()
    asked = talk.asks(options=OPTIONS[1:])
    assert asked.offers == ("deny",)
    assert talk.decide(asked, Allow()).empty


def test_without_a_rejection_a_denial_cancels_the_turn() -> None:
    talk = talking()
    asked = talk.asks(options=OPTIONS[:1])
    assert asked.note == "This agent cannot refuse a single step: a denial ends the turn."
    talk.decide(asked, Deny())
    assert talk.answer(0)["result"] == CANCELLED
    assert len(talk.sent("session/cancel")) == 1


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("codex", "A denial ends the agent's turn."),
        ("claude", "After a denial the agent goes on"),
        ("", "is not known"),
    ],
)
def test_what_a_denial_does_to_the_turn_is_said(agent: str, said: str) -> None:
    talk = Talk(agent, mode="default" if agent != "codex" else "read-only")
    talk.greet()
    modes: dict[str, Any] = {"currentModeId": "read-only" if agent == "codex" else "default", "availableModes": []}
    talk.result("session/new", {"sessionId": "s-1", "modes": modes})
    assert said in talk.asks().note


def test_deny_and_stop() -> None:
    talk = talking()
    asked = talk.asks()
    other = talk.asks(1, {"toolCallId": "t2", "title": "rm", "kind": "execute"})
    talk.decide(asked, Deny(interrupt=True))
    assert talk.answer(0)["result"] == selected("no")
    assert talk.answer(1)["result"] == CANCELLED
    assert [event.interaction.id for event in talk.of(InteractionEvent) if event.phase == "withdrawn"] == [other.id]
    assert len(talk.sent("session/cancel")) == 1
    talk.ends("cancelled")
    assert talk.completed.outcome == "stopped"


def test_the_reason_of_a_denial_is_the_next_message_of_the_same_turn() -> None:
    talk = talking("opencode")
    talk.decide(talk.asks(), Deny("use make"))
    assert len(talk.sent("session/prompt")) == 1
    talk.ends("end_turn")
    assert talk.sent("session/prompt")[1]["prompt"] == [{"type": "text", "text": "I refused this: ls -la\nuse make"}]
    talk.says("I use make.")
    talk.ends()
    assert (talk.completed.ok, talk.completed.answer) == (True, "I use make.")


@pytest.mark.parametrize(("agent", "reason"), [("codex", "cancelled"), ("opencode", "end_turn")])
def test_an_agent_that_ends_its_turn_with_a_denial_is_told_to_go_on(agent: str, reason: str) -> None:
    talk = talking(agent)
    talk.decide(talk.asks(), Deny())
    talk.update("tool_call_update", toolCallId="t1", status="failed")
    talk.ends(reason)
    assert talk.sent("session/prompt")[1]["prompt"][0]["text"].startswith("I refused this: ls -la\nGo on without it")
    talk.says("Then not.")
    talk.ends()
    assert (talk.completed.ok, talk.completed.answer) == (True, "Then not.")


def test_a_turn_of_an_unknown_agent_that_ends_with_a_denial_is_told_as_that() -> None:
    talk = talking()
    talk.decide(talk.asks(), Deny())
    talk.ends("cancelled")
    assert (talk.completed.ok, talk.completed.outcome) == (False, "stopped")
    assert talk.completed.error == "Robo ended the turn after the denial."


def test_an_agent_that_goes_on_after_a_denial() -> None:
    talk = talking("claude")
    talk.decide(talk.asks(), Deny())
    talk.says("Then not.")
    talk.ends()
    assert (talk.completed.ok, talk.completed.answer) == (True, "Then not.")


def test_unattended_requests_are_denied_at_once_and_the_agent_is_told_once() -> None:
    talk = talking("codex", attended=False)
    call = {"toolCallId": "t1", "title": "ls", "kind": "execute"}
    params = {"sessionId": "s-1", "options": OPTIONS, "toolCall": call}
    for id in (0, 1):
        talk.send(id=id, method="session/request_permission", params=params)
        assert talk.answer(id)["result"] == selected("no")
        talk.ends("cancelled")
    assert talk.asked == []
    assert talk.warnings()[1:] == ["Denied, since nobody is there to be asked: ls"] * 2
    told = [params["prompt"][0]["text"] for params in talk.sent("session/prompt")]
    assert len(told) == 2
    assert "Nobody is there to approve" in told[1]


def test_an_interrupt_answers_what_is_open() -> None:
    talk = talking()
    talk.asks()
    talk.interrupt()
    assert talk.answer(0)["result"] == CANCELLED
    talk.send(
        id=1, method="session/request_permission", params={"sessionId": "s-1", "toolCall": {}, "options": OPTIONS}
    )
    assert talk.answer(1)["result"] == CANCELLED, "nothing is asked any more in a turn that is being stopped"


def test_the_end_of_the_turn_and_of_the_agent_withdraw_what_is_open() -> None:
    talk = talking()
    talk.asks()
    talk.ends()
    assert talk.answer(0)["result"] == CANCELLED
    talk = talking()
    talk.asks()
    talk.exits(1)
    assert talk.of(InteractionEvent)[-1].phase == "withdrawn"


def test_a_repeated_request_is_asked_once_and_an_id_may_come_again() -> None:
    talk = talking()
    asked = talk.asks()
    talk.asks()
    assert talk.asked == [asked]
    other = talk.asks("0")  # text, so another one
    assert other.id != asked.id
    talk.decide(asked, Allow())
    again = talk.asks(0)
    assert again.id not in (asked.id, other.id)


def test_a_request_of_which_little_can_be_read_is_asked_all_the_same() -> None:
    talk = talking()
    talk.send(id=0, method="session/request_permission", params={"sessionId": 1, "toolCall": "x", "options": 5})
    assert talk.asked[-1].offers == ("deny",)
    talk.decide(talk.asked[-1], Deny())
    assert talk.answer(0)["result"] == CANCELLED


def test_a_sub_agent_that_asks_is_named() -> None:
    assert talking().asks(session="s-2").asked_by == "a sub-agent"


# ---------------------------------------------------------------------------------------------------------- contents


def body(call: dict[str, Any]) -> list[tuple[str, str, str]]:
    asked = talking().asks(call={"toolCallId": "t1", **call})
    return [(piece.form, piece.label, piece.text) for piece in asked.body]


def test_a_change_is_shown_as_a_diff_and_its_texts_not_again() -> None:
    call = {
        "kind": "edit",
        "title": "Edit a.txt",
        "content": [{"type": "diff", "path": "/repo/a.txt", "oldText": "one\n", "newText": "two\n"}],
        "rawInput": {"file_path": "/repo/a.txt", "old_string": "one", "new_string": "two", "replace_all": True},
    }
    assert body(call) == [
        ("diff", "/repo/a.txt", "@@ -1,1 +1,1 @@\n-one\n+two"),
        ("json", "Input", '{\n  "replace_all": true\n}'),
    ]


def test_an_argument_vector_and_a_reason() -> None:
    raw = {"command": ["/bin/bash", "-lc", "touch x"], "reason": "May I?", "call_id": "c"}
    assert body({"kind": "execute", "rawInput": raw}) == [("command", "", "touch x"), ("text", "", "May I?")]


def test_a_command_that_is_only_the_title() -> None:
    texts = [{"type": "content", "content": {"type": "text", "text": "[in /repo]"}}]
    assert body({"kind": "execute", "title": "rm -rf x", "content": texts}) == [
        ("command", "", "rm -rf x"),
        ("text", "", "[in /repo]"),
    ]


def test_unknown_tools_show_their_whole_input() -> None:
    assert body({"kind": "magic", "title": "Wave", "rawInput": {"wand": 3}}) == [
        ("text", "", "Wave"),
        ("json", "Input", '{\n  "wand": 3\n}'),
    ]


def test_what_was_told_before_counts_too() -> None:
    talk = talking()
    talk.update("tool_call", toolCallId="t1", kind="execute", title="Terminal", rawInput={"command": "make all"})
    assert talk.asks(call={"toolCallId": "t1"}).body[0].text == "make all"


def test_a_plan() -> None:
    texts = [{"type": "content", "content": {"type": "text", "text": "# Plan\n1. Look"}}]
    options = [
        {"optionId": "acceptEdits", "name": "Yes, and accept edits", "kind": "allow_always"},
        {"optionId": "default", "name": "Yes", "kind": "allow_once"},
        {"optionId": "plan", "name": "No, keep planning", "kind": "reject_once"},
    ]
    talk = talking()
    asked = talk.asks(call={"toolCallId": "t1", "kind": "switch_mode", "content": texts}, options=options)
    assert (asked.kind, asked.act) == ("plan", "Approve this plan?")
    assert (asked.body[0].form, asked.body[0].text) == ("markdown", "# Plan\n1. Look")
    assert [choice.id for choice in asked.choices] == ["acceptEdits"]


def test_waiting_messages_go_after_a_decision() -> None:
    talk = talking()
    asked = talk.asks()
    talk.say(SECOND)
    talk.decide(asked, Allow())
    assert len(talk.sent("session/prompt")) == 1
    talk.ends()
    assert len(talk.sent("session/prompt")) == 2
