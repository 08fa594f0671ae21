"""Which message is answered by which turn, with a CLI that names them and with one that does not."""

from __future__ import annotations

from tests.support.claude_talk import SESSION, Talk
from untether.model import ActionEvent, CompletedEvent, StartedEvent, TurnEvent


def uuid(number: int) -> str:
    return f"aaaaaaaa-0000-4000-8000-00000000000{number}"


def lifecycle(talk: Talk, number: int, state: str, **fields: str) -> None:
    talk.feed({"type": "command_lifecycle", "command_uuid": uuid(number), "state": state, **fields})


def replayed(talk: Talk, number: int) -> None:
    message = {"role": "user", "content": "text"}
    talk.feed({"type": "user", "message": message, "uuid": uuid(number), "isReplay": True})


def answered(talk: Talk) -> list[list[str]]:
    """Which messages each run or turn answered, by the last letter of their ids."""
    first, *_ = talk.of(CompletedEvent)
    turns = [event for event in talk.of(TurnEvent) if event.phase == "completed"]
    return [[id[-1] for id in prompts] for prompts in (first.prompts, *(turn.prompts for turn in turns))]


def served(named: bool = False) -> Talk:
    """A process after its first answer."""
    talk = Talk()
    if named:
        lifecycle(talk, 1, "queued")
        lifecycle(talk, 1, "started")
    talk.init(user_message_uuids=[uuid(1)] if named else [])
    talk.text("First.")
    talk.result("First.")
    if named:
        lifecycle(talk, 1, "completed")
    return talk


# ----------------------------------------------------------------------------------------------- a CLI that names them


def test_nothing_comes_before_the_session_is_known() -> None:
    talk = Talk()
    lifecycle(talk, 1, "queued")
    lifecycle(talk, 1, "started")
    assert talk.events == []
    talk.init(user_message_uuids=[uuid(1)])
    assert isinstance(talk.events[0], StartedEvent)
    assert talk.prompts == [("1", "taken")]


def test_a_steered_message_belongs_to_the_running_turn() -> None:
    talk = served(named=True)
    for number in (2, 3):
        talk.say(number)
        lifecycle(talk, number, "queued")
    lifecycle(talk, 2, "started")
    talk.init(user_message_uuids=[uuid(2)])
    lifecycle(talk, 3, "started")
    talk.text("Both.", id="msg_2")
    talk.result("Both.", user_message_uuids=[uuid(2), uuid(3)])
    assert answered(talk) == [["1"], ["2", "3"]]
    assert talk.prompts == [("1", "taken"), ("2", "taken"), ("3", "taken")]


def test_a_turn_that_names_no_message_is_a_wake_up_even_while_one_waits() -> None:
    talk = served(named=True)
    talk.say(2)
    talk.init()
    assert (talk.of(TurnEvent)[-1].prompts, talk.of(TurnEvent)[-1].reason) == ((), "schedule")
    talk.result("Woken.", origin={"kind": "task-notification"})
    assert talk.of(TurnEvent)[-1].reason == "background task"
    lifecycle(talk, 2, "started")
    talk.init(user_message_uuids=[uuid(2)])
    talk.result("Second.")
    assert answered(talk) == [["1"], [], ["2"]]


def test_a_wake_up_by_a_schedule() -> None:
    talk = served(named=True)
    talk.feed({"type": "command_lifecycle", "command_uuid": "x", "state": "started", "wakeup_source": "loop_wakeup"})
    talk.init()
    assert talk.of(TurnEvent)[-1].reason == "schedule"


def test_a_cancelled_message_is_handed_back() -> None:
    talk = served(named=True)
    talk.say(2)
    lifecycle(talk, 2, "queued")
    lifecycle(talk, 2, "cancelled")
    assert talk.prompts[-1] == ("2", "handed_back")
    lifecycle(talk, 1, "cancelled")  # it was taken: nothing comes back
    assert len(talk.prompts) == 2


def test_a_message_that_the_conversation_had_already_fails_instead_of_hanging() -> None:
    """As measured after a resume: a replay and idle, with no init and no result."""
    talk = Talk(resume=SESSION)
    talk.system("session_state_changed", state="running")
    replayed(talk, 1)
    lifecycle(talk, 1, "completed")
    talk.system("session_state_changed", state="idle")
    (completed,) = talk.of(CompletedEvent)
    assert (completed.ok, completed.prompts) == (False, (uuid(1),))
    assert completed.error == "The agent had this message already and does not answer it again."


# ------------------------------------------------------------------------------------------------- one that does not


def test_a_turn_takes_all_that_waits() -> None:
    talk = served()
    talk.say(2)
    talk.say(3)
    talk.init()
    assert talk.of(TurnEvent)[-1].prompts == (uuid(2), uuid(3))
    talk.result("Both.")
    assert answered(talk) == [["1"], ["2", "3"]]


def test_what_is_said_during_a_tool_goes_in_with_its_result() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Bash", {"command": "make"})
    talk.say(2, "now")
    talk.returned("t1")
    assert talk.prompts == [("1", "taken")]
    talk.text("same message", id="msg_1")  # a block of the call that asked for the tool
    assert talk.prompts == [("1", "taken")]
    talk.text("next message", id="msg_2")
    talk.result()
    assert answered(talk) == [["1", "2"]]


def test_what_is_said_during_the_last_text_waits_for_its_own_turn() -> None:
    talk = Talk()
    talk.init()
    talk.text("Writing.", id="msg_1")
    talk.say(2)
    talk.text("More.", id="msg_2")
    talk.result()
    talk.init()
    talk.result("Second.")
    assert answered(talk) == [["1"], ["2"]]


def test_a_replay_between_turns_belongs_to_the_next() -> None:
    talk = served()
    talk.say(2)
    replayed(talk, 2)
    talk.init()
    talk.result("Second.")
    assert answered(talk) == [["1"], ["2"]]


def test_a_message_that_meets_a_wake_up_waits_for_its_own_turn() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Bash", {"command": "serve", "run_in_background": True})
    talk.system("task_started", task_id="b1", tool_use_id="t1", description="serve")
    talk.returned("t1")
    talk.result("First.")
    talk.system("task_notification", task_id="b1", status="completed")
    talk.say(2)
    talk.init()
    assert talk.of(TurnEvent)[-1].prompts == ()
    talk.result("Woken.", origin={"kind": "task-notification"})
    talk.init()
    talk.result("Second.")
    assert answered(talk) == [["1"], [], ["2"]]
    assert [turn.reason for turn in talk.of(TurnEvent) if turn.phase == "completed"] == ["background task", ""]


def test_a_message_may_turn_out_to_be_what_woke_it() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Bash", {"command": "serve", "run_in_background": True})
    talk.system("task_started", task_id="b1", tool_use_id="t1", description="serve")
    talk.returned("t1")
    talk.system("task_notification", task_id="b1", status="completed")  # absorbed into the running turn
    talk.result("First.")
    talk.say(2)
    talk.init()
    talk.result("Second.")
    assert answered(talk) == [["1"], ["2"]]
    assert talk.of(TurnEvent)[-1].reason == ""


# -------------------------------------------------------------------------------------------------------- interrupts


def subtypes(talk: Talk) -> list[str]:
    return [frame["request"]["subtype"] for frame in talk.written if frame["type"] == "control_request"]


def acknowledge(talk: Talk, queued: list[str] | None = None) -> None:
    id = [frame["request_id"] for frame in talk.written if frame["type"] == "control_request"][-1]
    payload = {} if queued is None else {"response": {"still_queued": queued}}
    talk.feed({"type": "control_response", "response": {"subtype": "success", "request_id": id, **payload}})


def test_an_interrupt_before_the_turn_that_did_not_hit_is_sent_again() -> None:
    """As 2.1.332 does when the message and the interrupt meet it idle."""
    talk = served(named=True)
    talk.say(2)
    talk.interrupt()
    lifecycle(talk, 2, "queued")
    acknowledge(talk, [uuid(2)])
    lifecycle(talk, 2, "started")
    talk.init(user_message_uuids=[uuid(2)])
    assert subtypes(talk) == ["initialize", "interrupt", "interrupt"]
    acknowledge(talk, [])
    talk.result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    assert talk.of(TurnEvent)[-1].outcome == "stopped"


def test_an_interrupt_of_a_turn_spares_what_is_queued_behind_it() -> None:
    talk = served(named=True)
    talk.say(2)
    lifecycle(talk, 2, "started")
    talk.init(user_message_uuids=[uuid(2)])
    talk.say(3)
    talk.interrupt()
    acknowledge(talk, [uuid(3)])
    talk.result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    lifecycle(talk, 3, "started")
    talk.init(user_message_uuids=[uuid(3)])
    talk.result("Third.")
    assert subtypes(talk).count("interrupt") == 1
    assert [turn.outcome for turn in talk.of(TurnEvent) if turn.phase == "completed"] == ["stopped", ""]


def test_idle_nothing_is_interrupted() -> None:
    talk = served()
    assert talk.interrupt() == []
    assert talk.last.writes == ()


def test_an_interrupt_that_came_too_late_does_not_colour_the_next_error() -> None:
    talk = Talk()
    talk.init()
    talk.interrupt()
    talk.result("Done.")
    acknowledge(talk)
    talk.say(2)
    talk.init()
    talk.result("", subtype="error_during_execution", is_error=True, errors=["it broke"])
    turn = talk.of(TurnEvent)[-1]
    assert (turn.outcome, turn.error) == ("", "Claude Code reported an error.")


# ------------------------------------------------------------------------------------------------ the steps of a turn


def test_steps_of_a_background_agent_are_shown_only_in_a_turn() -> None:
    talk = served()
    assert talk.use("t9", "Bash", {"command": "ls"}, parent_tool_use_id="t1") == []
    assert talk.returned("t9", parent_tool_use_id="t1") == []
    talk.say(2)
    talk.init()
    talk.use("t10", "Bash", {"command": "ps"}, parent_tool_use_id="t1")
    talk.result("Second.")
    last = talk.of(ActionEvent)[-1]
    assert (last.action.title, last.phase, last.ok, last.message) == (
        "ps",
        "completed",
        None,
        "Goes on in the background.",
    )


def test_an_unfinished_step_ends_with_its_turn() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Agent", {"description": "look"})
    talk.use("t2", "Bash", {"command": "ls"}, parent_tool_use_id="t1")
    talk.result("Cut.")
    assert [(event.phase, event.ok) for event in talk.of(ActionEvent)][-2:] == [("completed", False)] * 2


def test_what_a_sub_agent_does_is_an_update_of_its_step() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Agent", {"description": "look"})
    (update,) = talk.system("task_progress", task_id="b1", tool_use_id="t1", description="Reading a.txt")
    assert isinstance(update, ActionEvent)
    assert (update.phase, update.action.title, update.message) == ("updated", "look", "Reading a.txt")
    assert talk.system("task_progress", task_id="b1", tool_use_id="gone", description="Reading") == []


def test_long_output_is_cut_and_parts_are_joined() -> None:
    talk = Talk()
    talk.init()
    talk.use("t1", "Bash", {"command": "ls"})
    talk.returned("t1", "x" * 10_000)
    talk.use("t2", "Read", {"file_path": "/repo/a"})
    talk.returned(
        "t2", [{"type": "text", "text": "one"}, {"type": "image", "source": {}}, {"type": "text", "text": "two"}]
    )
    talk.use("t3", "Bash", {"command": "true"})
    talk.returned("t3", None)
    long, parts, none = (event.message for event in talk.of(ActionEvent) if event.phase == "completed")
    assert (len(long), long[-1], parts, none) == (500, "…", "one\ntwo", "")


def test_the_context_is_told_once_the_window_is_known() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 2, "output_tokens": 1}
    talk = Talk()
    talk.init(model="claude-x[1m]")
    talk.text("One.", usage=usage)
    talk.text("Sub.", id="msg_s", usage={"input_tokens": 9_999}, parent_tool_use_id="t1")
    assert talk.of(ActionEvent) == []
    talk.result("One.", modelUsage={"claude-x[1m]": {"inputTokens": 42, "contextWindow": 1000}})
    usage_of_run = talk.of(CompletedEvent)[0].usage
    assert (getattr(usage_of_run, "context_used"), getattr(usage_of_run, "context_window")) == (42, 1000)  # noqa: B009
    talk.say(2)
    talk.init()
    talk.text("Two.", id="msg_2", usage=usage | {"input_tokens": 20})
    (told,) = talk.of(ActionEvent)
    assert told.action.kind == "telemetry"
    assert told.action.detail == {"context_used": 52, "context_window": 1000}
