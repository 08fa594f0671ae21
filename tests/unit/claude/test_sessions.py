"""Which session it is, and how a process ends."""

from __future__ import annotations

import pytest

from tests.support.claude_talk import PROMPT, SESSION, Talk, message
from untether.model import (
    ActionEvent,
    CompletedEvent,
    InteractionEvent,
    PromptEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TurnEvent,
    Usage,
)
from untether.runners.claude.session import ClaudeSession
from untether.session import (
    Attachment,
    Begin,
    Capabilities,
    End,
    Input,
    Interrupt,
    ProcessExit,
    Prompt,
    Say,
    StartFacts,
    apply,
)

OTHER = "99999999-2222-4333-8444-555555555555"


def test_the_session_is_told_once_and_supplemented() -> None:
    talk = Talk()
    talk.init()
    talk.init()
    assert len(talk.of(StartedEvent)) == 1
    talk.result()
    talk.say(2)
    talk.init(model="claude-y")
    talk.system("status", status=None, permissionMode="plan")
    first, model, mode = talk.of(StartedEvent)
    assert first.title == "claude-x"
    assert first.meta == {"model": "claude-x", "permission_mode": "default", "version": "2.1.332", "cwd": "/repo"}
    assert model.meta == {**first.meta, "model": "claude-y"}
    assert mode.meta == {**first.meta, "model": "claude-y", "permission_mode": "plan"}


def test_another_session_than_the_one_asked_for_fails_the_run_and_stops_the_agent() -> None:
    talk = Talk(resume=OTHER)
    talk.init()
    (completed,) = talk.of(CompletedEvent)
    assert (completed.ok, completed.outcome, completed.prompts) == (False, "", (PROMPT.id,))
    assert completed.error == "Claude Code went on with another session than the one asked for."
    assert completed.resume is not None
    assert completed.resume.value == OTHER  # the stored session is kept
    assert talk.last.stop
    assert talk.text("Too late.") == talk.result() == talk.end(code=0) == []
    assert talk.say(2) == [PromptEvent("claude", message(2).id, "handed_back")]  # type: ignore[arg-type]


def test_a_declared_fork_is_followed() -> None:
    talk = Talk(resume=OTHER, extra_args=["--fork-session"])
    started, changed, *_ = talk.init()
    assert isinstance(started, StartedEvent)
    assert isinstance(changed, SessionChangedEvent)
    assert (started.resume.value, changed.resume.value, changed.reason) == (SESSION, SESSION, "fork")


@pytest.mark.parametrize("declared", [True, False])
def test_within_a_process_the_cli_has_the_word(declared: bool) -> None:
    talk = Talk()
    talk.init()
    talk.result()
    if declared:
        talk.feed({"type": "conversation_reset", "trigger": "clear", "new_conversation_id": "x"})
    talk.init(session_id=OTHER)
    talk.result("After.", session_id=OTHER)
    (changed,) = talk.of(SessionChangedEvent)
    assert (changed.resume.value, changed.reason) == (OTHER, "clear" if declared else "")
    assert not talk.last.stop


def test_an_answer_without_an_init_is_an_answer() -> None:
    talk = Talk()
    talk.result("Here.")
    assert talk.started.resume == ResumeToken("claude", SESSION)  # type: ignore[arg-type]
    assert talk.of(CompletedEvent)[0].answer == "Here."


# ------------------------------------------------------------------------------------------------------------- ends


def test_an_agent_that_dies_in_the_middle() -> None:
    talk = Talk()
    talk.init()
    talk.text("Half of it.")
    talk.use("t1", "Bash", {"command": "make"})
    talk.ask("r1", "Bash", {"command": "make"})
    talk.say(2)
    events = talk.end(signal="SIGKILL", stderr_tail="warming up\nout of memory in /home/ann/x")
    withdrawn, returned, step, completed = events
    assert isinstance(withdrawn, InteractionEvent)
    assert withdrawn.phase == "withdrawn"
    assert returned == PromptEvent("claude", message(2).id, "handed_back")  # type: ignore[arg-type]
    assert isinstance(step, ActionEvent)
    assert (step.phase, step.ok) == ("completed", False)
    assert isinstance(completed, CompletedEvent)
    assert (completed.ok, completed.outcome, completed.answer) == (False, "ended_early", "Half of it.")
    assert completed.error == "Claude Code ended before it answered (SIGKILL): warming up out of memory in [path]"
    assert completed.raw_error == "warming up\nout of memory in /home/ann/x"
    assert completed.prompts == (PROMPT.id,)
    assert completed.resume == ResumeToken("claude", SESSION)  # type: ignore[arg-type]


def test_an_agent_that_never_speaks() -> None:
    talk = Talk(resume=OTHER)
    talk.say(2)
    returned, completed = talk.end(code=0)
    assert returned == PromptEvent("claude", message(2).id, "handed_back")  # type: ignore[arg-type]
    assert isinstance(completed, CompletedEvent)
    assert completed.error == "Claude Code ended before it answered."
    assert completed.prompts == (PROMPT.id,)
    assert completed.resume == ResumeToken("claude", OTHER)  # type: ignore[arg-type]


def test_a_stop_that_was_asked_for() -> None:
    talk = Talk()
    talk.init()
    talk.text("So far.")
    (completed,) = talk.end(code=143, stopped=True)
    assert isinstance(completed, CompletedEvent)
    assert (completed.outcome, completed.answer, completed.error) == ("stopped", "So far.", "The run was stopped.")


def test_an_exit_after_an_error_result_is_no_second_failure() -> None:
    talk = Talk()
    talk.init()
    talk.result("API Error: 400 no", is_error=True, api_error_status=400)
    assert talk.end(code=1) == []


def test_a_later_turn_that_is_cut_off() -> None:
    talk = Talk()
    talk.init()
    talk.result()
    talk.say(2)
    talk.init()
    (turn,) = talk.end(signal="SIGTERM")
    assert isinstance(turn, TurnEvent)
    assert (turn.phase, turn.ok, turn.outcome, turn.prompts) == ("completed", False, "ended_early", (message(2).id,))


def test_a_message_that_was_taken_and_whose_turn_never_opened_is_not_lost() -> None:
    talk = Talk()
    talk.init()
    talk.result()
    talk.say(2)
    talk.feed({"type": "command_lifecycle", "command_uuid": message(2).id, "state": "started"})
    begun, ended = talk.end(signal="SIGKILL")
    assert isinstance(begun, TurnEvent)
    assert isinstance(ended, TurnEvent)
    assert ended.prompts == (message(2).id,)


def test_after_the_end_nothing_reaches_the_agent() -> None:
    talk = Talk()
    talk.init()
    talk.result()
    talk.end(code=0)
    assert talk.say(2) == [PromptEvent("claude", message(2).id, "handed_back")]  # type: ignore[arg-type]
    assert talk.interrupt() == []
    assert talk.last.empty


# ------------------------------------------------------------------------------------------------- the one-shot form


def test_the_one_shot_form_reads_text_and_takes_no_more() -> None:
    session = ClaudeSession()
    prompt = Prompt(PROMPT.id, "-- a\0b \ud800", (Attachment("/tmp/x.png", "x.png"),))
    step = session.begin(StartFacts("p", "claude", "/repo", settings={"interactive": False}), prompt, 0.0)
    assert step.writes == (b"-- a b ?\n\nAttached files:\n- /tmp/x.png (x.png)\n",)
    assert step.close_stdin
    assert session.capabilities == Capabilities(cost=True, continue_latest=True)
    (returned,) = session.say(message(2), "next", 1.0).events
    assert returned == PromptEvent("claude", message(2).id, "handed_back")  # type: ignore[arg-type]
    assert session.interrupt(2.0).empty


def test_a_one_shot_run_ends_with_its_process() -> None:
    talk = Talk(interactive=False)
    started, warning, *_ = talk.init()
    assert isinstance(started, StartedEvent)
    assert isinstance(warning, ActionEvent)
    assert warning.action.title == "This form cannot ask: what needs your permission is refused."
    talk.result("Started.", duration_ms=1000, total_cost_usd=0.5)
    talk.init()
    talk.result("Finished.", duration_ms=500, total_cost_usd=0.75)
    assert not talk.of(CompletedEvent)
    assert not talk.of(TurnEvent)
    (completed,) = talk.end(code=0)
    assert isinstance(completed, CompletedEvent)
    assert completed.answer == "Finished."
    assert isinstance(completed.usage, Usage)
    assert (completed.usage.cost_usd, completed.usage.duration_s, completed.usage.turns) == (0.75, 1.5, 2)


def test_a_one_shot_error_is_the_last_result() -> None:
    talk = Talk(interactive=False)
    talk.init()
    talk.result("Credit balance is too low", is_error=True, api_error_status=400)
    (completed,) = talk.end(code=1)
    assert isinstance(completed, CompletedEvent)
    assert completed.error == "The credit of this account is used up."


# ------------------------------------------------------------------------------------------------------------ others


def test_text_of_any_kind_becomes_one_sound_line() -> None:
    session = ClaudeSession()
    text = 'a\nb\u2028c\0d \ud800 "quoted" {json}'
    step = session.begin(StartFacts("p", "claude", "/repo"), Prompt(PROMPT.id, text), 0.0)
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in step.writes)
    assert b"\\u0000" in step.writes[1]


def test_ids_follow_from_the_process_and_inputs_can_be_stored() -> None:
    def lines(process: str) -> list[bytes]:
        session = ClaudeSession()
        facts = StartFacts(process, "claude", "/repo")
        inputs: list[Input] = [Begin(facts, PROMPT), Interrupt(), Say(message(2), "now"), End(ProcessExit(code=0))]
        return [line for item in inputs for line in apply(session, item, 1.0).writes]

    assert lines("p1") == lines("p1")
    assert lines("p1") != lines("p2")


def test_a_refusal_of_tokens_and_totals_that_start_anew() -> None:
    """Totals of the process only grow; should they fall, the new ones are what was spent since."""
    talk = Talk()
    talk.init()
    for cost in (0.5, 0.2):
        talk.result("x", total_cost_usd=cost, usage={"input_tokens": 3, "output_tokens": 2})
    usages = [talk.of(CompletedEvent)[0].usage, talk.of(TurnEvent)[-1].usage]
    assert [(usage.cost_usd, usage.input_tokens) for usage in usages if isinstance(usage, Usage)] == [
        (0.5, 3),
        (0.2, 6),
    ]


def test_an_answer_whose_init_was_lost_still_names_the_session() -> None:
    talk = Talk()
    talk.text("Half heard.")
    started, completed = talk.result("Here.")
    assert isinstance(started, StartedEvent)
    assert isinstance(completed, CompletedEvent)
    assert completed.resume == started.resume == ResumeToken("claude", SESSION)  # type: ignore[arg-type]
