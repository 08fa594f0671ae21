"""Live sessions of the real Claude Code, both pinned releases: turns, steering, stopping, waits, and what goes wrong.

The session is driven as the bridge drives it, through the real driver and process, with a scripted model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.claude_live import bash, left_behind, live, says, uses
from tests.support.clis import pinned
from untether.model import (
    ActionEvent,
    CompletedEvent,
    ReportEvent,
    SessionChangedEvent,
    StartedEvent,
    TextEvent,
    TurnEvent,
    Usage,
)
from untether.session import (
    AskContext,
    Attachment,
    Prompt,
    Rewind,
    Say,
    SetEffort,
    SetModel,
    StopTask,
    Withdraw,
)

pytestmark = pytest.mark.anyio
VERSIONS = pinned("claude")
OLD = "2.1.197"

LOOP = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3; done"
LONG = "for i in $(seq 200); do sleep 0.5; done"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def claude(version: str, claude_cli: Callable[[str], Path]) -> Path:
    return claude_cli(version)


Home = dict[str, str]


# ------------------------------------------------------------------------------------- steer, queue, replace, withdraw


async def test_a_steered_message_goes_into_the_running_turn(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, bash(LOOP), says("Both done.")) as talk:
        await talk.step("for i")
        steered = await talk.say("and the tests too", "now")
        (end,) = await talk.ends()
        assert talk.states(steered) == ["taken"]
        assert end.prompts == (talk.first, steered)
        assert end.answer == "Both done."
        assert "and the tests too" in talk.model_calls[-1]["last_text"]


async def test_a_queued_message_waits_for_its_own_turn(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, bash(LOOP), says("First."), says("Second.")) as talk:
        await talk.step("for i")
        queued = await talk.say("after that", "next")
        first, second = await talk.ends(2)
        assert (first.answer, first.prompts) == ("First.", (talk.first,))
        assert (second.answer, second.prompts) == ("Second.", (queued,))
        assert "after that" not in talk.model_calls[1]["last_text"]


async def test_a_queued_message_is_withdrawn(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, bash(LOOP), says("First."), says("Second.")) as talk:
        await talk.step("for i")
        queued = await talk.say("no, not this", "next")
        await talk.change(Withdraw(queued))
        await talk.until(lambda: talk.states(queued))
        assert talk.states(queued) == ["withdrawn"]
        (end,) = await talk.ends()
        assert end.prompts == (talk.first,)
        other = await talk.say("this", "next")
        assert (await talk.ends(2))[1].prompts == (other,)


async def test_a_message_replaces_the_running_turn(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    slow = says("word " * 200, chunk_chars=5, chunk_delay_ms=50)
    async with live(tmp_path, claude, claude_home, slow, says("Instead.")) as talk:
        await talk.calls(1)
        await anyio.sleep(0.5)  # some of the answer is written; nothing tells how much
        other = await talk.say("do this instead", "replace")
        first, second = await talk.ends(2)
        assert (first.outcome, first.prompts) == ("stopped", (talk.first,))
        assert first.answer.startswith("word word")
        assert (second.answer, second.prompts) == ("Instead.", (other,))


# ------------------------------------------------------------------------------------------------------------ stopping


async def test_a_stop_keeps_the_partial_text_and_withdraws_the_queue(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    slow = says("word " * 400, chunk_chars=5, chunk_delay_ms=50)
    async with live(tmp_path, claude, claude_home, slow, says("Later.")) as talk:
        await talk.calls(1)
        await anyio.sleep(0.5)
        queued = [await talk.say(f"queued {number}", "next") for number in (1, 2)]
        await anyio.sleep(0.2)  # they are in the queue of the CLI
        await talk.interrupt(cancel_queued=True)
        (end,) = await talk.ends()
        assert (end.ok, end.outcome, end.prompts) == (False, "stopped", (talk.first,))
        assert end.answer.startswith("word word")
        await talk.until(lambda: all(talk.states(id) for id in queued))
        assert [talk.states(id) for id in queued] == [["withdrawn"], ["withdrawn"]]
        await talk.say("go on")
        assert (await talk.ends(2))[1].answer == "Later."
        assert len(talk.all_ends) == 2


async def test_a_stop_in_a_long_command_leaves_no_process(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, bash(LONG), says("Later.")) as talk:
        await talk.step("for i")
        await talk.until(lambda: any("sleep 0.5" in line for line in left_behind(talk.process_id)))
        await talk.interrupt()
        (end,) = await talk.ends()
        assert end.outcome == "stopped"
        await talk.until(lambda: not any("sleep" in line or "seq" in line for line in left_behind(talk.process_id)))


@pytest.mark.parametrize("behind", [False, True])
async def test_the_ladder_ends_everything(tmp_path: Path, claude: Path, claude_home: Home, behind: bool) -> None:
    """Without an interrupt, a command in the foreground or the background notwithstanding."""
    command = bash(LONG, run_in_background=True) if behind else bash(LONG)
    async with live(tmp_path, claude, claude_home, command, says("Started.")) as talk:
        await talk.step("for i")
        await talk.until(lambda: any("sleep 0.5" in line for line in left_behind(talk.process_id)))
        if behind:
            await talk.ends()
        begun = time.monotonic()
        await talk.process.stop(talk.runner.stop_ladder)
        assert time.monotonic() - begun < 10
        assert left_behind(talk.process_id) == []
        await talk.driver.finished.wait()
        assert talk.all_ends[0].outcome == ("" if behind else "stopped")


async def test_tasks_in_the_background_are_stopped_one_by_one(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    two = {
        "blocks": [
            {"tool_use": {"name": "Bash", "input": {"command": f"{LONG} # {n}", "description": n, **BEHIND}}}
            for n in ("one", "two")
        ]
    }
    async with live(tmp_path, claude, claude_home, two, says("Both started."), says("One is gone.")) as talk:
        await talk.ends()
        waits = await talk.until(lambda: w if len(w := _behind(talk)) == 2 else None)
        await talk.change(StopTask(waits[0].id))
        (left,) = await talk.until(lambda: w if len(w := _behind(talk)) == 1 else None)
        assert left == waits[1]
        await talk.change(StopTask())
        await talk.until(lambda: not _behind(talk))
        await talk.until(lambda: not any("sleep 0.5" in line for line in left_behind(talk.process_id)))


BEHIND = {"run_in_background": True}


def _behind(talk: Any) -> list[Any]:
    return [wait for wait in talk.driver.session.waits if wait.kind == "background"]


# ------------------------------------------------------------------------------------- work that goes on after a result


async def test_a_command_in_the_background_ends_after_the_result(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    turns = (bash("sleep 1.5; echo finished", **BEHIND), says("Started."), says("The job is done."))
    async with live(tmp_path, claude, claude_home, *turns) as talk:
        (first,) = await talk.ends()
        assert first.answer == "Started."
        assert (await talk.wait_for("background")).id
        woken = (await talk.ends(2))[1]
        assert isinstance(woken, TurnEvent)
        assert (woken.reason, woken.prompts, woken.answer) == ("background task", (), "The job is done.")
        assert _behind(talk) == []


async def test_an_agent_in_the_background_ends_after_the_result(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    agent = uses(
        "Agent", description="Long look", prompt="SUB look", subagent_type="general-purpose", run_in_background=True
    )
    sub = {"name": "sub", "match": {"role": "subagent"}, "turns": [bash("sleep 1"), says("Sub done.")]}
    turns = (agent, says("It runs."), says("It is done."))
    async with live(tmp_path, claude, claude_home, *turns, scripted={"others": [sub]}) as talk:
        (first,) = await talk.ends()
        assert first.answer == "It runs."
        wait = await talk.wait_for("background")
        assert wait.label == "Long look"
        woken = (await talk.ends(2))[1]
        assert isinstance(woken, TurnEvent)
        assert (woken.reason, woken.answer) == ("background task", "It is done.")
        assert _behind(talk) == []


async def test_a_job_that_the_agent_schedules_is_shown_and_holds_the_process(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    create = uses("CronCreate", cron="0 9 * * *", prompt="check the build", recurring=True)
    delete = uses("CronDelete", id="${JOB}") | {"capture": {"JOB": "job ([0-9a-f]{6,})"}}
    async with live(tmp_path, claude, claude_home, create, says("Scheduled."), delete, says("Removed.")) as talk:
        (first,) = await talk.ends()
        assert first.answer == "Scheduled."
        note = await talk.step("Scheduled inside Claude Code: 0 9 * * * · check the build")
        wait = await talk.wait_for("wakeup")
        assert (wait.label, wait.id) == ("0 9 * * * · check the build", note.action.detail["schedule"]["id"])
        await talk.say("remove it")
        await talk.ends(2)
        await talk.step("Schedule removed")
        assert [wait for wait in talk.driver.session.waits if wait.kind == "wakeup"] == []


# ------------------------------------------------------------------------------------------- what it is waiting for


async def test_an_overloaded_provider_is_one_note_and_then_an_answer(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    overload = {"error": {"status": 529, "type": "overloaded_error", "message": "Overloaded"}}
    async with live(tmp_path, claude, claude_home, overload, overload, says("At last.")) as talk:
        wait = await talk.wait_for("retry")
        assert wait.until is not None
        assert wait.until > wait.since
        (end,) = await talk.ends()
        assert (end.ok, end.answer) == (True, "At last.")
        notes = [event for event in talk.of(ActionEvent) if event.action.detail.get("retry")]
        assert len({event.action.id for event in notes}) == 1
        assert [event.phase for event in notes] == ["started", "updated", "completed"]


QUOTA_RESET = 4_000_000_000


def _quota(status: str, **more: str) -> dict[str, str]:
    names = {
        "status": status,
        "reset": str(QUOTA_RESET),
        "representative-claim": "five_hour",
        "5h-utilization": "1",
        "5h-reset": str(QUOTA_RESET),
        **more,
    }
    return {f"anthropic-ratelimit-unified-{name}": value for name, value in names.items()}


async def test_a_spent_quota_tells_when_it_is_renewed(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    spent = {
        "error": {"status": 429, "type": "rate_limit_error", "message": "This request would exceed your limit."},
        "headers": _quota("rejected"),
        "repeat": True,
    }
    token = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test-dummy"}
    async with live(tmp_path, claude, claude_home, spent, env=token) as talk:
        (end,) = await talk.ends()
        assert not end.ok
        assert end.error is not None
        assert end.error.startswith("The usage limit is reached")
        assert end.detail == {"quota": True, "resets_at": QUOTA_RESET}
        wait = await talk.wait_for("quota")
        assert (wait.label, wait.until) == ("5-hour limit", QUOTA_RESET)


async def test_a_refused_login_is_not_tried_for_minutes(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    refused = {"error": {"status": 401, "type": "authentication_error", "message": "invalid x-api-key"}, "repeat": True}
    begun = time.monotonic()
    async with live(tmp_path, claude, claude_home, refused) as talk:
        (end,) = await talk.ends()
        assert time.monotonic() - begun < 10
        assert (end.ok, end.outcome, end.detail) == (False, "", {"login": True})
        assert end.error == "Claude Code is not logged in, or its login has expired."


async def test_a_manual_compaction_is_one_row_and_its_own_answer(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    summary = {
        **says("<analysis>x</analysis>\n<summary>We talked.</summary>"),
        "when": {"last_text": "Respond with TEXT ONLY"},
        "delay_ms": 700,
        "repeat": True,
    }
    turns = (says("First."), says("Second."), summary, {**says("After."), "repeat": True})
    async with live(tmp_path, claude, claude_home, *turns) as talk:
        await talk.ends()
        await talk.say("more")
        await talk.ends(2)
        await talk.say("//compact")
        wait = await talk.wait_for("compaction")
        assert wait.until == wait.since + 900
        end = (await talk.ends(3))[2]
        assert end.ok
        assert end.answer.startswith("Compacted the conversation")
        rows = [event for event in talk.of(ActionEvent) if event.action.id.startswith("compaction")]
        assert [event.phase for event in rows] == ["started", "completed"]
        await talk.say("and now")
        assert (await talk.ends(4))[3].answer == "After."


async def test_a_hook_of_the_settings_is_a_wait(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "sleep 1"}]}
    settings = Path(claude_home["CLAUDE_CONFIG_DIR"]) / "settings.json"
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [hook]}}))
    async with live(tmp_path, claude, claude_home, bash("ls"), says("Done.")) as talk:
        assert "PreToolUse" in (await talk.wait_for("hook")).label
        (end,) = await talk.ends()
        assert end.answer == "Done."
        assert not any(wait.kind == "hook" for wait in talk.driver.session.waits)


# -------------------------------------------------------------------------------------------------------- the session


async def test_clear_is_followed_into_another_session(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, says("First."), says("Second.")) as talk:
        await talk.ends()
        await talk.say("//clear")
        cleared = (await talk.ends(2))[1]
        assert cleared.ok
        (changed,) = talk.of(SessionChangedEvent)
        assert changed.reason == "clear"
        assert changed.resume != talk.of(StartedEvent)[0].resume
        await talk.say("again")
        await talk.ends(3)
        assert "First." not in json.dumps(talk.model_calls[-1]["body"]["messages"])


async def test_a_session_is_not_found_in_another_folder(
    tmp_path: Path, claude: Path, claude_home: Home, version: str
) -> None:
    """2.1.332 finds it all the same, and brings the history along."""
    other = tmp_path / "other"
    other.mkdir()
    async with live(tmp_path, claude, claude_home, says("First."), {**says("Second."), "repeat": True}) as talk:
        (first,) = await talk.ends()
        assert isinstance(first, CompletedEvent)
        assert first.resume is not None
        await talk.process.close_stdin()
        await talk.driver.finished.wait()
        again = live(
            tmp_path, claude, claude_home, fake=talk.fake, project=other, resume=first.resume.value, prompt="again"
        )
        async with again as resumed:
            (end,) = await resumed.ends()
            if version == OLD:
                assert (end.ok, end.detail) == (False, {"fresh": "not_found"})
                assert isinstance(end, CompletedEvent)
                assert end.resume is None
            else:
                assert end.answer == "Second."


async def test_a_session_that_does_not_exist(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    gone = "e901a3ab-76d4-4d53-b3c0-2541b1adda79"
    async with live(tmp_path, claude, claude_home, says("Never."), resume=gone) as talk:
        (end,) = await talk.ends()
        assert isinstance(end, CompletedEvent)
        assert (end.ok, end.resume, end.prompts, end.detail) == (
            False,
            None,
            (talk.first,),
            {"fresh": "not_found"},
        )


async def test_a_message_that_the_session_had_already_does_not_hang(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    async with live(tmp_path, claude, claude_home, bash(LONG), {**says("Second."), "repeat": True}) as talk:
        await talk.step("for i")
        await anyio.sleep(0.5)
        session = talk.of(StartedEvent)[0].resume.value
        message = talk.first
        await talk.process.stop([*talk.runner.stop_ladder][-1:])
        await talk.driver.finished.wait()
        again = live(
            tmp_path,
            claude,
            claude_home,
            fake=talk.fake,
            project=talk.project,
            resume=session,
            prompt="go",
            prompt_id=message,
        )
        async with again as resumed:
            (end,) = await resumed.ends()
            assert end.error == "The agent had this message already and does not answer it again."
            await resumed.say("go on")
            assert (await resumed.ends(2))[1].answer == "Second."


async def test_a_fork_goes_on_in_a_new_session(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, says("First."), {**says("Second."), "repeat": True}) as talk:
        (first,) = await talk.ends()
        assert isinstance(first, CompletedEvent)
        assert first.resume is not None
        more: dict[str, Any] = {"fake": talk.fake, "project": talk.project, "settings": {"fork": True}}
        async with live(tmp_path, claude, claude_home, resume=first.resume.value, prompt="fork", **more) as fork:
            await fork.ends()  # the scripted model starts over with the new session id
            (changed,) = fork.of(SessionChangedEvent)
            assert changed.reason == "fork"
            assert changed.resume != first.resume
            assert "First." in json.dumps(fork.model_calls[-1]["body"]["messages"])


async def test_the_model_changes_from_the_next_turn_and_the_effort_with_the_next_start(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    async with live(tmp_path, claude, claude_home, says("First."), says("Second.")) as talk:
        await talk.ends()
        await talk.change(SetModel("claude-haiku-4-5-20251001"))
        await talk.say("more")
        await talk.ends(2)
        assert talk.model_calls[-1]["model"] == "claude-haiku-4-5-20251001"
        await talk.change(SetEffort("low"))
        late = await talk.say("too late for this process")
        assert talk.states(late) == ["handed_back"]
        with anyio.fail_after(5):
            await talk.driver.finished.wait()


async def test_an_effort_that_is_set_in_a_turn_waits_for_its_end(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    async with live(tmp_path, claude, claude_home, bash(LOOP), says("First.")) as talk:
        await talk.step("for i")
        await talk.change(SetEffort("low"))
        (end,) = await talk.ends()
        assert end.answer == "First."
        with anyio.fail_after(5):
            await talk.driver.finished.wait()


# ----------------------------------------------------------------------------------------------- what goes in and out


PIXEL = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0"
    b"\5\0\1\xff\xab\xce6\xb5\0\0\0\0IEND\xaeB`\x82"
)


async def test_pictures_go_in_as_blocks_and_what_cannot_be_read_is_said(
    tmp_path: Path, claude: Path, claude_home: Home
) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(PIXEL)
    files = (Attachment(str(picture), "dot.png", "image/png"), Attachment(str(tmp_path / "gone.png"), "gone.png"))
    async with live(tmp_path, claude, claude_home, says("A dot."), says("Second."), files=files) as talk:
        behind = await talk.say("and this", "next")
        first, *_ = await talk.ends()
        content = json.dumps(talk.model_calls[0]["body"]["messages"])
        assert '"type": "image"' in content
        assert "gone.png): could not be attached: No such file or directory" in content
        await talk.step("gone.png could not be read")
        await talk.until(lambda: talk.states(behind))
        assert first.answer == "A dot."


async def test_an_answer_of_many_megabytes(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    big = {"blocks": [{"text": "0123456789abcdef", "times": 100_000}], "chunk_chars": 100_000}
    async with live(tmp_path, claude, claude_home, big) as talk:
        (end,) = await talk.ends()
        assert len(end.answer) == 1_600_000


async def test_the_answer_comes_in_pieces(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    text = "one two three four five six"
    async with live(tmp_path, claude, claude_home, says(text, chunk_chars=4), partial_messages=True) as talk:
        (end,) = await talk.ends()
        assert end.answer == text
        pieces = talk.of(TextEvent)
        assert len(pieces) > 3
        assert "".join(piece.text for piece in pieces) == text
        assert len({piece.message for piece in pieces}) == 1


async def test_the_preamble_is_in_no_argument(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    settings = {"preamble": "Always mention the word saffron."}
    async with live(tmp_path, claude, claude_home, says("Saffron."), settings=settings) as talk:
        await talk.ends()
        assert "the word saffron" in json.dumps(talk.model_calls[0]["body"]["system"])
        assert not any("saffron" in line for line in left_behind(talk.process_id))


async def test_files_are_put_back(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    write = uses("Write", file_path="${REPO}/n.txt", content="new\n")
    async with live(tmp_path, claude, claude_home, write, says("Written."), checkpoints=True) as talk:
        await talk.ends()
        file = talk.project / "n.txt"
        assert file.exists()
        await talk.change(Rewind(talk.first))
        (dry,) = await talk.until(lambda: talk.of(ReportEvent))
        assert (dry.ok, dry.id, dry.detail["dry_run"]) == (True, talk.first, True)
        assert [Path(path).name for path in dry.detail["files"]] == ["n.txt"]
        assert file.exists()
        await talk.change(Rewind(talk.first, dry_run=False))
        await talk.until(lambda: len(talk.of(ReportEvent)) == 2)
        assert talk.of(ReportEvent)[1].ok
        assert not file.exists()


async def test_without_checkpoints_nothing_is_put_back(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, says("Hello.")) as talk:
        await talk.ends()
        await talk.change(Rewind(talk.first))
        (report,) = await talk.until(lambda: talk.of(ReportEvent))
        assert not report.ok
        assert report.text


async def test_what_fills_the_context(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, says("Hello.")) as talk:
        await talk.ends()
        await talk.change(AskContext())
        (report,) = await talk.until(lambda: talk.of(ReportEvent))
        assert report.ok
        assert report.detail["window"] >= 200_000
        assert dict(report.detail["parts"])["System prompt"] > 0


async def test_each_run_costs_its_own(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, says("First."), says("Second.")) as talk:
        await talk.ends()
        await talk.say("more")
        first, second = (end.usage for end in await talk.ends(2))
        assert isinstance(first, Usage)
        assert isinstance(second, Usage)
        assert first.cost_usd
        assert second.cost_usd == pytest.approx(first.cost_usd)
        assert (second.input_tokens, second.context_used) == (100, 100)


async def test_a_message_that_is_said_while_it_ends_goes_back(tmp_path: Path, claude: Path, claude_home: Home) -> None:
    async with live(tmp_path, claude, claude_home, says("First.")) as talk:
        await talk.ends()
        await talk.process.close_stdin()
        prompt = Prompt("aaaaaaaa-0000-4000-8000-000000000009", "too late")
        await talk.driver.submit(Say(prompt, "next"))
        with anyio.fail_after(10):
            await talk.driver.finished.wait()
        assert talk.states(prompt.id) == ["handed_back"]
