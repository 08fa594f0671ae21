"""Plans: which text is shown, what each answer tells the agent, and the outline that may have to come first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.claude_talk import Talk
from untether.model import Allow, Deny, Interaction, InteractionEvent, TurnEvent
from untether.session import CallResult, ReadFile

PLANS = "/home/ann/.claude/plans"
OUTLINE = "1. Look around. " * 13  # 208 characters


def planning(**settings: Any) -> Talk:
    talk = Talk(permission_mode="plan", config_dir="/home/ann/.claude", **settings)
    talk.init(permissionMode="plan")
    return talk


def exit_plan(talk: Talk, id: str = "r1", plan: str = "# Plan", **fields: Any) -> None:
    input = {"plan": plan, "planFilePath": f"{PLANS}/p.md"} if plan else {}
    talk.ask(id, "ExitPlanMode", input, tool_use_id=f"tool-{id}", requires_user_interaction=True, **fields)


def opened(talk: Talk) -> list[str]:
    return [event.interaction.id for event in talk.of(InteractionEvent) if event.phase == "opened"]


def shown(talk: Talk) -> Interaction:
    assert talk.asked.phase == "opened"
    return talk.asked.interaction


def texts(talk: Talk) -> list[tuple[str, str]]:
    return [(piece.label, piece.text) for piece in shown(talk).body]


def reply_of(talk: Talk, id: str) -> Any:
    found = [frame["response"] for frame in talk.written if frame.get("type") == "control_response"]
    return next((response["response"] for response in found if response["request_id"] == id), None)


def answer_get_plan(talk: Talk, number: int = 1, **response: Any) -> None:
    told = {"request_id": f"ut_get_plan_{number}", "subtype": "success", "response": response}
    talk.feed({"type": "control_response", "response": told})


def refuse_get_plan(talk: Talk, number: int = 1) -> None:
    told = {"request_id": f"ut_get_plan_{number}", "subtype": "error", "error": "Unsupported control request subtype"}
    talk.feed({"type": "control_response", "response": told})


# ---------------------------------------------------------------------------------------------------- the plan's text


def test_the_plan_of_the_request() -> None:
    talk = planning()
    exit_plan(talk, plan="# Plan\n\n1. Do it\n")
    assert texts(talk) == [("", "# Plan\n\n1. Do it")]
    assert [(c.id, c.label, c.decides, c.wants_text) for c in shown(talk).choices] == [
        ("accept_edits", "Approve, accept edits", "allow", False),
        ("revise", "Revise…", "deny", True),
        ("outline", "Outline first", "deny", False),
        ("wait", "Approve, but wait", "deny", False),
    ]


def test_else_the_plan_that_the_cli_tells() -> None:
    talk = planning()
    talk.text("x" * 300)
    exit_plan(talk, plan="")
    assert opened(talk) == []
    assert talk.written[-1]["request"] == {"subtype": "get_plan"}
    answer_get_plan(talk, exists=True, content="# From the file\n", path=f"{PLANS}/p.md")
    assert texts(talk) == [("", "# From the file")]
    talk.decide("r1", Allow())
    assert reply_of(talk, "r1") == {"behavior": "allow", "updatedInput": {}}


def test_else_the_plan_file() -> None:
    talk = planning()
    talk.use("w1", "Write", {"file_path": f"{PLANS}/p.md", "content": "# P"})
    exit_plan(talk, plan="")
    refuse_get_plan(talk)
    assert opened(talk) == []
    (call,) = talk.last.calls
    assert call == ReadFile("plan/r1", f"{PLANS}/p.md", 256 * 1024 + 1, within=f"{PLANS}/")
    talk.did(talk.session.answer("plan/r1", CallResult("# P\n"), talk.now))
    assert texts(talk) == [("", "# P")]
    assert not [event for event in talk.events if "warning" in str(event)]


def test_a_plan_file_that_is_too_long_is_cut_and_said_to_be() -> None:
    talk = planning()
    talk.use("w1", "Write", {"file_path": f"{PLANS}/p.md", "content": "# P"})
    exit_plan(talk, plan="")
    refuse_get_plan(talk)
    talk.did(talk.session.answer("plan/r1", CallResult("x" * (256 * 1024 + 1)), talk.now))
    assert shown(talk).note.startswith("The plan file is longer than 256 KiB; this is its beginning.")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", f"{PLANS}/../../.ssh/id_rsa", "/home/ann/.claude/plans.md", "plans/p.md", 7]
)
def test_no_other_file_is_read(path: Any) -> None:
    talk = planning()
    talk.use("w1", "Write", {"file_path": path, "content": "# P"})
    exit_plan(talk, plan="")
    answer_get_plan(talk, exists=False, path=str(path))
    assert talk.last.calls == ()
    assert texts(talk) == [("", "Claude Code gave no text for its plan.")]


@pytest.mark.parametrize("how", ["refused", "unreadable", "late"])
def test_else_the_last_long_text(how: str) -> None:
    talk = planning()
    talk.text(OUTLINE)
    if how == "unreadable":
        talk.use("w1", "Write", {"file_path": f"{PLANS}/p.md", "content": "# P"})
    exit_plan(talk, plan="")
    if how == "late":
        deadline = talk.last.deadline
        assert deadline is not None
        assert deadline == pytest.approx(talk.now - 1 + 5)
        talk.did(talk.session.tick(deadline))
    else:
        refuse_get_plan(talk)
    if how == "unreadable":
        talk.did(talk.session.answer("plan/r1", CallResult(error="No such file"), talk.now))
    assert texts(talk) == [("", OUTLINE)]
    assert shown(talk).note.startswith("It gave no plan; this is what it wrote last.")
    assert talk.last.deadline is None
    answer_get_plan(talk, content="too late")
    assert opened(talk) == ["r1"]


def test_a_request_that_is_withdrawn_while_its_plan_is_looked_for_is_never_shown() -> None:
    talk = planning()
    exit_plan(talk, plan="")
    talk.feed({"type": "control_cancel_request", "request_id": "r1"})
    answer_get_plan(talk, content="# P")
    assert opened(talk) == []


def test_what_else_the_request_holds_is_shown_too() -> None:
    talk = planning()
    input = {"plan": "# P", "allowedPrompts": [{"tool": "Bash", "prompt": "run tests"}]}
    talk.ask("r1", "ExitPlanMode", input)
    assert [piece.form for piece in shown(talk).body] == ["markdown", "json"]


# ---------------------------------------------------------------------------------------------------------- the caption


@pytest.mark.parametrize(
    ("mode", "settings", "sentence"),
    [
        ("plan", {}, "Plan mode resumes when this reply ends, or after the background agents"),
        ("plan", {"rearm_plan_mode": False}, ""),
        ("default", {}, ""),
    ],
)
def test_the_caption_promises_only_what_will_happen(mode: str, settings: dict[str, Any], sentence: str) -> None:
    talk = Talk(permission_mode=mode, **settings)
    talk.init(permissionMode=mode)
    talk.system("status", status=None, permissionMode="plan")
    exit_plan(talk)
    assert shown(talk).note.startswith("Approving ends plan mode: the agent carries the plan out and asks before")
    assert ("Plan mode resumes" in shown(talk).note) == bool(sentence)
    assert sentence in shown(talk).note


def test_the_caption_names_what_the_agent_returns_to() -> None:
    talk = Talk(permission_mode="acceptEdits")
    talk.init(permissionMode="acceptEdits")
    talk.system("status", status=None, permissionMode="plan")
    exit_plan(talk)
    assert "edits files of the project without asking" in shown(talk).note


# ---------------------------------------------------------------------------------------------------------- the answers


def test_approve_and_accept_edits() -> None:
    talk = planning()
    exit_plan(talk)
    talk.decide("r1", Allow(scope="accept_edits"))
    assert talk.reply["response"]["updatedPermissions"] == [
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    ]
    talk.system("status", status=None, permissionMode="acceptEdits")
    assert not [event for event in talk.events if "warning" in str(event)]


def test_edits_that_were_accepted_with_one_plan_are_not_with_the_next() -> None:
    """Claude Code would go back to the mode before plan mode, which is that of the first approval."""
    talk = planning()
    exit_plan(talk)
    talk.decide("r1", Allow(scope="accept_edits"))
    talk.system("status", status=None, permissionMode="acceptEdits")
    talk.result()
    talk.say(2)
    talk.init(permissionMode="plan")
    exit_plan(talk, "r2")
    assert "asks before what changes something" in shown(talk).note
    talk.decide("r2", Allow())
    assert talk.reply["response"]["updatedPermissions"] == [
        {"type": "setMode", "mode": "default", "destination": "session"}
    ]
    talk.system("status", status=None, permissionMode="default")
    exit_plan(talk, "r3")
    talk.decide("r3", Allow())
    assert "updatedPermissions" not in talk.reply["response"]


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Deny("Use a queue instead.", choice="revise"), "Use a queue instead."),
        (Deny(choice="outline"), "The user wants to read an outline before deciding."),
        (Deny(choice="wait"), "The user agrees with this plan in principle, but it must not be started yet."),
        (Deny(), "The user did not approve this plan."),
    ],
)
def test_what_the_agent_is_told(decision: Deny, words: str) -> None:
    talk = planning()
    exit_plan(talk)
    talk.decide("r1", decision)
    assert talk.reply["response"]["behavior"] == "deny"
    assert talk.reply["response"]["message"].startswith(words)


# ---------------------------------------------------------------------------------------------------------- the outline


def outlining(plan: str = "# Plan") -> Talk:
    talk = planning()
    exit_plan(talk, plan=plan)
    talk.decide("r1", Deny(choice="outline"))
    return talk


@pytest.mark.parametrize("written", [[], ["short"], ["x" * 199], ["x" * 150, "y" * 150]])
def test_without_an_outline_the_plan_is_sent_back(written: list[str]) -> None:
    talk = outlining()
    for text in written:
        talk.text(text)
    exit_plan(talk, "r2")
    assert reply_of(talk, "r2")["message"].startswith("The outline that the user asked for is not there yet.")
    assert opened(talk) == ["r1"]


def test_with_an_outline_the_plan_is_held_open() -> None:
    talk = outlining()
    talk.text("On it.")
    talk.text("y" * 200)
    exit_plan(talk, "r2")
    assert texts(talk) == [("Outline", "On it.\n\n" + "y" * 200), ("Plan", "# Plan")]
    assert [choice.id for choice in shown(talk).choices] == ["discuss"]
    assert shown(talk).offers == ("allow", "deny")
    talk.decide("r2", Allow())
    assert reply_of(talk, "r2")["behavior"] == "allow"


def test_text_of_sub_agents_and_from_before_is_no_outline() -> None:
    talk = planning()
    talk.text(OUTLINE)
    exit_plan(talk)
    talk.decide("r1", Deny(choice="outline"))
    talk.text(OUTLINE, parent_tool_use_id="task-1")
    exit_plan(talk, "r2")
    assert reply_of(talk, "r2")["behavior"] == "deny"


@pytest.mark.parametrize(("plan", "behaviour"), [("p" * 200, "held"), ("q" * 200, "deny"), ("p" * 199, "deny")])
def test_a_plan_counts_when_it_is_another_one(plan: str, behaviour: str) -> None:
    talk = outlining(plan="q" * 200)
    exit_plan(talk, "r2", plan=plan)
    assert (reply_of(talk, "r2") or {}).get("behavior", "held") == behaviour


def test_discussing_tells_the_agent_to_talk() -> None:
    talk = outlining()
    talk.text(OUTLINE)
    exit_plan(talk, "r2")
    talk.decide("r2", Deny(choice="discuss"))
    assert reply_of(talk, "r2")["message"].startswith("The user wants to talk about this plan")
    exit_plan(talk, "r3")  # the outline is decided on: plans are asked about as usual
    assert [choice.id for choice in shown(talk).choices] == ["accept_edits", "revise", "outline", "wait"]


def offered() -> Talk:
    """The agent wrote the outline, and ended its turn."""
    talk = outlining()
    talk.text(OUTLINE)
    talk.result("See above.")
    return talk


def test_an_outline_without_a_request_is_offered_by_itself() -> None:
    talk = offered()
    assert (shown(talk).id, shown(talk).act) == ("outline-1", "Approve the outline?")
    assert texts(talk) == [("", OUTLINE.strip())]
    assert talk.waits == [("human", "Approve the outline?")]
    written = len(talk.lines)
    talk.decide("outline-1", Deny(choice="discuss"))
    assert len(talk.lines) == written
    assert talk.waits == []


def test_stopping_where_nothing_goes_on_stops_nothing_later() -> None:
    talk = offered()
    talk.decide("outline-1", Deny(interrupt=True))
    talk.say(2)
    talk.init(permissionMode="plan")
    talk.result("Fine.")
    assert talk.of(TurnEvent)[-1].outcome == ""


def test_approving_it_lets_the_agent_go_on_and_is_used_once() -> None:
    talk = offered()
    talk.decide("outline-1", Allow())
    assert talk.written[-1]["message"]["content"].startswith("I have read the outline and approve the plan.")
    talk.init(permissionMode="plan")
    assert talk.of(TurnEvent)[-1].reason == "the outline was approved"
    exit_plan(talk, "r2")
    assert reply_of(talk, "r2")["behavior"] == "allow"
    exit_plan(talk, "r3")
    assert shown(talk).id == "r3"


def test_an_unused_approval_survives_one_turn_boundary() -> None:
    talk = offered()
    talk.decide("outline-1", Allow())
    talk.init(permissionMode="plan")
    talk.result("Hm.")
    talk.say(2)
    talk.init(permissionMode="plan")
    exit_plan(talk, "r2")
    assert shown(talk).id == "r2"


def test_a_request_takes_the_place_of_the_offer() -> None:
    talk = offered()
    talk.say(2)
    talk.init(permissionMode="plan")
    assert talk.waits[0] == ("human", "Approve the outline?")
    exit_plan(talk, "r2")
    assert [(e.interaction.id, e.phase) for e in talk.of(InteractionEvent)][-2:] == [
        ("outline-1", "withdrawn"),
        ("r2", "opened"),
    ]
    assert [choice.id for choice in shown(talk).choices] == ["discuss"]


def test_the_offer_goes_with_the_process() -> None:
    talk = offered()
    talk.end(code=0)
    assert (talk.asked.interaction.id, talk.asked.phase) == ("outline-1", "withdrawn")


def test_plan_auto_takes_any_plan_at_once() -> None:
    talk = Talk(permission_mode="plan-auto")
    talk.init(permissionMode="plan")
    exit_plan(talk, plan="")
    assert reply_of(talk, "r1") == {"behavior": "allow", "updatedInput": {}}
    assert opened(talk) == []
