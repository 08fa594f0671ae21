"""Results that say nothing, logins that are lost, and what the conversation may do about it."""

from __future__ import annotations

from typing import Any

from tests.support.claude_talk import SESSION, Talk
from untether.model import ActionEvent, CompletedEvent, TextEvent, TurnEvent


def completed(talk: Talk) -> CompletedEvent:
    (event,) = talk.of(CompletedEvent)
    return event


# ------------------------------------------------------------------------------------------------ nothing was said


def resumed(text: str = "go on", **result: Any) -> Talk:
    talk = Talk(resume=SESSION)
    talk.init()
    talk.result("", **{"num_turns": 0, **result})
    return talk


def test_an_empty_turn_after_a_resume_may_be_tried_once_more_in_a_new_session() -> None:
    event = completed(resumed())
    assert (event.ok, event.detail) == (False, {"fresh": "empty"})
    assert event.error == "The resumed session gave no answer."


def test_an_empty_turn_of_a_new_session_is_what_it_is() -> None:
    talk = Talk()
    talk.init()
    talk.result("", num_turns=0)
    assert completed(talk).ok


def test_a_turn_that_called_the_model_is_not_empty() -> None:
    talk = Talk(resume=SESSION)
    talk.init()
    talk.use("t1", "Bash", {"command": "ls"})
    talk.returned("t1")
    talk.result("", num_turns=2)
    assert completed(talk).ok


def test_a_command_of_the_cli_is_not_empty() -> None:
    assert completed(resumed(local_command="clear")).ok


def compact(**end: Any) -> TurnEvent:
    talk = Talk(resume=SESSION)
    talk.init()
    talk.result("First.")
    talk.say(2, text="//compact")
    talk.system("status", status="compacting")
    talk.system("status", status=None, **end)
    talk.init()
    if end["compact_result"] == "success":
        figures = {"trigger": "manual", "pre_tokens": 6000, "post_tokens": 600}
        talk.system("compact_boundary", compact_metadata=figures)
    talk.result("", num_turns=0)
    return talk.of(TurnEvent)[-1]


def test_a_manual_compaction_that_succeeded_is_its_own_answer() -> None:
    turn = compact(compact_result="success")
    assert (turn.ok, turn.answer) == (True, "Compacted the conversation: 6.0 k → 0.6 k tokens.")


def test_a_manual_compaction_that_failed_is_a_failure() -> None:
    """Though its result says otherwise (claude-protocol §9)."""
    turn = compact(compact_result="failed", compact_error="Not enough messages to compact.")
    assert (turn.ok, turn.error) == (False, "The conversation could not be compacted.")
    assert turn.raw_error == "Not enough messages to compact."


def test_an_automatic_compaction_exempts_nothing() -> None:
    talk = Talk(resume=SESSION)
    talk.init()
    talk.system("status", status="compacting")
    talk.system("status", status=None, compact_result="success")
    talk.system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 6000, "post_tokens": 600})
    talk.result("", num_turns=0)
    assert completed(talk).detail == {"fresh": "empty"}


# ------------------------------------------------------------------------------------------------------- the login


def refuse(talk: Talk, attempt: int) -> None:
    facts = {"max_retries": 10, "retry_delay_ms": 500, "error_status": 401, "error": "authentication_failed"}
    talk.system("api_retry", attempt=attempt, **facts)


def test_a_refused_login_is_not_tried_again() -> None:
    talk = Talk()
    talk.init()
    refuse(talk, 1)
    refuse(talk, 2)
    asked = [frame["request"]["subtype"] for frame in talk.written if frame["type"] == "control_request"]
    assert asked == ["initialize", "interrupt"]
    talk.result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    event = completed(talk)
    assert (event.ok, event.outcome, event.detail) == (False, "", {"login": True})
    assert event.raw_error == "authentication_failed (401)"
    notes = [event for event in talk.of(ActionEvent) if event.action.detail.get("retry")]
    assert notes[-1].ok is False


def test_the_one_shot_form_is_stopped_instead() -> None:
    talk = Talk(interactive=False)
    talk.init()
    refuse(talk, 1)
    assert talk.last.stop
    talk.end(signal="SIGTERM", stopped=True)
    assert completed(talk).detail == {"login": True}


def test_a_login_that_was_lost_before_is_forgotten_with_its_turn() -> None:
    talk = Talk()
    talk.init()
    refuse(talk, 1)
    talk.result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    talk.say(2)
    talk.init()
    talk.result("Back again.")
    assert talk.of(TurnEvent)[-1].ok


# ------------------------------------------------------------------------------------------------ what is written


def test_pieces_of_an_answer_are_told_apart_and_those_of_sub_agents_left_out() -> None:
    talk = Talk()
    talk.init()

    def piece(event: dict[str, Any], parent: str | None = None) -> None:
        talk.feed({"type": "stream_event", "parent_tool_use_id": parent, "event": event})

    for number in (1, 2):
        piece({"type": "message_start", "message": {"id": f"m{number}", "content": [], "usage": {}}})
        piece({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}})
        piece({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": f"Part {number}"}})
        piece({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "x"}}, "t1")
        piece({"type": "content_block_stop", "index": 1})
    assert [(event.message, event.text) for event in talk.of(TextEvent)] == [("m1", "Part 1"), ("m2", "Part 2")]


def test_a_turn_of_an_origin_that_is_not_known_is_named_by_it() -> None:
    talk = Talk()
    talk.init()
    talk.result("First.")
    talk.init()
    talk.result("Somebody wrote.", origin={"kind": "peer-message"})
    assert talk.of(TurnEvent)[-1].reason == "peer message"
