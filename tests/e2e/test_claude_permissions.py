"""Permissions, plans and questions of the real Claude Code, every pinned release, through the real session and driver.

No chat and no bridge: what a person would do is done here at once. The model is scripted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.claude_real import Real, bash, real, says, script, uses
from tests.support.clis import pinned
from untether.model import (
    ActionEvent,
    Allow,
    Answers,
    CompletedEvent,
    Deny,
    Interaction,
    InteractionEvent,
    PromptEvent,
    StartedEvent,
    TurnEvent,
)
from untether.session import SetPermissionMode

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

CALM = {
    "name": "check",
    "match": {"role": "aux"},
    "turns": [{"blocks": [{"text": "<block>no</block>"}], "repeat": True}],
}
"""The automatic check of 2.1.197 finds nothing wrong; that of 2.1.332 is answered by `safeguards`."""

READ = uses("Read", file_path="${REPO}/README.md")
WRITE_INSIDE = uses("Write", file_path="${REPO}/inside.txt", content="x\n")
WRITE_OUTSIDE = uses("Write", file_path="${OUT}/outside.txt", content="x\n")
TOUCH = bash("touch touched.txt")
SAMPLES = (READ, bash("ls"), TOUCH, WRITE_INSIDE, WRITE_OUTSIDE)
OUTLINE = "First this, then that, and after it the other thing. " * 6

PLAN_FILE = {
    "blocks": [
        {"text": "Planning."},
        {"tool_use": {"name": "Write", "input": {"file_path": "${PLAN}", "content": "# The plan\n\n1. Do it\n"}}},
    ],
    "capture": {"PLAN": r"(/\S+/plans/[\w-]+\.md)"},
}
EXIT = uses("ExitPlanMode")


@pytest.fixture(params=pinned("claude"))
def claude(request: pytest.FixtureRequest, claude_cli: Callable[[str], Path]) -> Path:
    return claude_cli(request.param)


def main_script(*turns: dict[str, Any]) -> dict[str, Any]:
    return script(*turns, says("Finished."), exhausted="repeat_last")


def subject(interaction: Interaction) -> str:
    """What a request is about, in a word."""
    text = interaction.body[0].text
    if interaction.kind != "permission":
        return interaction.kind
    return (
        text.split("/")[-1].split()[0]
        if interaction.act == "Run a command?"
        else interaction.body[0].label.split("/")[-1]
    )


async def to_the_end(r: Real, decision: Any) -> tuple[list[str], CompletedEvent | TurnEvent]:
    """Decide on every request until the turn is over: what was asked, and the end."""
    asked = []
    while isinstance(found := await r.asked_or_answered(), Interaction):
        asked.append(subject(found))
        await r.decide(found, decision)
    return asked, found


# --------------------------------------------------------------------------------------------------------- every mode


class Expected(NamedTuple):
    """What is asked of a person, and which files are there although everything that is asked is denied."""

    asked: list[str]
    made: list[str]


ALL = ["touch", "inside.txt", "outside.txt"]
FILES = ["inside.txt", "outside.txt", "touched.txt"]
MODES = {
    "default": Expected(ALL, []),
    "manual": Expected(ALL, []),
    "plan": Expected(ALL, []),
    "plan-auto": Expected(ALL, []),
    "acceptEdits": Expected(["outside.txt"], ["inside.txt", "touched.txt"]),
    "auto": Expected([], FILES),
    "dontAsk": Expected([], []),
    "bypassPermissions": Expected([], FILES),
}


def made(r: Real) -> list[str]:
    folders = (r.project, r.project.parent / "outside")
    return sorted(path.name for folder in folders for path in folder.glob("*.txt"))


@pytest.mark.parametrize("mode", MODES)
async def test_what_each_mode_asks(claude: Path, mode: str) -> None:
    async with real(claude, main_script(*SAMPLES), CALM, permission_mode=mode, safeguards="not_flagged") as r:
        asked, end = await to_the_end(r, Deny())
        assert (asked, made(r)) == MODES[mode]
        assert (end.ok, end.answer) == (True, "Finished.")
        assert r.warnings == []
        assert len(r.tool_results) == len(SAMPLES)


@pytest.mark.parametrize("mode", MODES)
async def test_unattended_nothing_waits(claude: Path, mode: str) -> None:
    scripts = main_script(*SAMPLES), CALM
    facts = {"attended": False}
    async with real(claude, *scripts, permission_mode=mode, settings=facts, safeguards="not_flagged") as r:
        asked, end = await to_the_end(r, Allow())
        assert (asked, made(r)) == ([], MODES[mode].made)
        listed = end.answer.partition("refused:\n")[2].splitlines()
        assert [line.split("/")[-1].split()[-1] for line in listed] == [
            "touched.txt" if name == "touch" else name for name in MODES[mode].asked
        ]
        told = [text for text in r.tool_results if "the run is unattended" in text]
        assert len(told) == len(listed)


@pytest.mark.parametrize("mode", ["auto", "bypassPermissions"])
async def test_a_rule_of_the_user_is_asked_in_every_mode(claude: Path, mode: str) -> None:
    rules = {"permissions": {"ask": ["Bash(touch *)"]}}
    turns = main_script(TOUCH, WRITE_INSIDE), CALM
    async with real(claude, *turns, permission_mode=mode, user_settings=rules, safeguards="not_flagged") as r:
        asked, _ = await to_the_end(r, Deny())
        assert (asked, made(r)) == (["touch"], ["inside.txt"])


async def test_the_third_denial_of_the_automatic_check_is_asked(claude: Path) -> None:
    flagged = {"name": "check", "match": {"role": "aux"}, "turns": [
        {"blocks": [{"text": "<block>yes</block><reason>no network</reason>"}], "repeat": True}]}  # fmt: skip
    curls = [bash(f"curl http://127.0.0.1:9/{number}") for number in range(3)]
    async with real(claude, main_script(*curls), flagged, permission_mode="auto", safeguards="flagged") as r:
        asked = await r.asked()
        assert asked.body[0].text == "curl http://127.0.0.1:9/2"
        assert "3 consecutive actions were blocked" in asked.note
        await r.decide(asked, Deny())
        assert (await r.answered()).answer == "Finished."


async def test_a_mode_set_on_an_open_process(claude: Path) -> None:
    async with real(claude, script(TOUCH, says("One."), TOUCH, WRITE_INSIDE, says("Two."), says("Three."))) as r:
        assert (await to_the_end(r, Deny()))[0] == ["touch"]
        await r.configure(SetPermissionMode("acceptEdits"))
        await r.say("more")
        assert (await to_the_end(r, Deny()))[0] == []
        assert made(r) == ["inside.txt", "touched.txt"]
        await r.configure(SetPermissionMode("bypassPermissions"))  # not without a start that allows it
        await r.say("and more")
        assert (await to_the_end(r, Deny()))[0] == []
        assert r.warnings == ["Claude Code refused the change of the permission mode"]


async def test_plan_mode_in_a_session_begun_in_bypass_asks_or_goes_to_a_new_process(claude: Path) -> None:
    """2.1.197 would ask for nothing; 2.1.332 asks."""
    async with real(claude, script(says("0"), TOUCH, says("1")), permission_mode="bypassPermissions") as r:
        await r.answered()
        await r.configure(SetPermissionMode("plan"))
        await r.say("more")
        found = await r.until(lambda: r.next_asked() or handed_back(r))
        if isinstance(found, Interaction):
            assert subject(found) == "touch"
            await r.decide(found, Deny())
            await r.answered()
        else:
            await r.driver.finished.wait()
        assert made(r) == []


def handed_back(r: Real) -> PromptEvent | None:
    return next((event for event in r.of(PromptEvent) if event.state == "handed_back"), None)


# ------------------------------------------------------------------------------------------------------------- scopes


async def test_a_rule_for_the_session(claude: Path) -> None:
    run = bash("python3 -c \"print('a, b')\"")
    async with real(claude, main_script(run, run, bash("python3 -c 'print(2)'"))) as r:
        asked = await r.asked()
        labels = {choice.id: choice.label for choice in asked.choices}
        assert list(labels) == ["session:0", "always:0"]
        assert labels["session:0"].startswith("This session: Bash(python3")
        await r.decide(asked, Allow(scope="session:0"))
        asked = await r.asked()
        assert "print(2)" in asked.body[0].text  # the same command was not asked about again
        await r.decide(asked, Deny())
        await r.answered()
        assert not (r.project / ".claude").exists()


async def test_a_rule_for_good_is_given_to_the_next_process(claude: Path) -> None:
    """What the first session suggests, as we keep it, is what the next one takes; in plan mode too."""
    commands = [
        "python3 -c \"print('a, b')\"",
        "python3 -c 'print((1, 2)[0])'",
        r"python3 -c 'print(\"x\\\\y\")'",
        "touch touched.txt && python3 -c 'print(3)'",
    ]
    async with real(claude, main_script(*map(bash, commands))) as r:
        rules = []
        while isinstance(asked := await r.asked_or_answered(), Interaction):
            rules += [choice.description for choice in asked.choices if choice.id == "always:0"]
            await r.decide(asked, Deny())
        assert len(rules) == len(commands)
    for mode in ("default", "plan"):
        script_ = main_script(*map(bash, commands), bash("touch other.txt"))
        async with real(claude, script_, permission_mode=mode, settings={"grants": rules}) as r:
            assert (await to_the_end(r, Deny()))[0] == ["touch"]


async def test_folders_and_edits(claude: Path) -> None:
    again = uses("Write", file_path="${OUT}/again.txt", content="x\n")
    async with real(claude, main_script(WRITE_OUTSIDE, again, WRITE_INSIDE)) as r:
        asked = await r.asked()
        assert [choice.id for choice in asked.choices] == ["mode:0", "dir:1"]
        assert asked.choices[1].label == f"Also allow {r.project.parent}/outside"
        await r.decide(asked, Allow(scope="dir:1"))
        asked = await r.asked()  # within an allowed folder a Write still asks
        assert asked.choices[0].label == "Accept edits this session"
        await r.decide(asked, Allow(scope="mode:0"))
        await r.answered()
        assert made(r) == ["again.txt", "inside.txt", "outside.txt"]
        assert r.warnings == []


async def test_an_edited_command_runs_in_place_of_the_first(claude: Path) -> None:
    async with real(claude, main_script(TOUCH)) as r:
        asked = await r.asked()
        assert asked.editable == "command"
        await r.decide(asked, Allow(updated_input={asked.editable: "touch other.txt"}))
        await r.answered()
        assert made(r) == ["other.txt"]


# -------------------------------------------------------------------------------------------------------------- plans


async def test_plan_mode_asks_for_every_command_at_launch_set_later_and_set_again(claude: Path) -> None:
    async with real(claude, script(TOUCH, says("0"), TOUCH, says("1")), permission_mode="plan") as r:
        assert (await to_the_end(r, Deny()))[0] == ["touch"]

    async with real(claude, script(says("0"), TOUCH, says("1"))) as r:
        await r.answered()
        await r.configure(SetPermissionMode("plan"))
        await r.say("more")
        assert (await to_the_end(r, Deny()))[0] == ["touch"]

    turns = (PLAN_FILE, EXIT, TOUCH, says("Done."), TOUCH, says("Again."))
    async with real(claude, script(*turns), permission_mode="plan") as r:
        assert (await to_the_end(r, Allow()))[0] == ["plan", "touch"]
        await r.mode("plan")
        await r.say("more")
        assert (await to_the_end(r, Deny()))[0] == ["touch"]
        (sent,) = r.requests("set_permission_mode")
        session = r.of(StartedEvent)[0].resume.value
        assert sent["request_id"] == f"ut_plan_rearm_{session}_1"
        modes = [(event.meta or {})["permission_mode"] for event in r.of(StartedEvent)]
        assert modes == ["plan", "default", "plan"]
        assert r.warnings == []


async def test_the_re_arm_is_written_before_the_turn_is_told_as_closed(claude: Path) -> None:
    async with real(claude, script(PLAN_FILE, EXIT, says("Done.")), permission_mode="plan") as r:
        await r.decide(await r.asked(), Allow())
        await r.answered()
        assert len(r.requests("set_permission_mode")) == 1


async def test_a_plan_is_shown_and_revised_and_denied(claude: Path) -> None:
    async with real(claude, main_script(PLAN_FILE, EXIT, EXIT, EXIT), permission_mode="plan") as r:
        asked = await r.asked()
        assert (asked.kind, asked.act) == ("plan", "Leave plan mode?")
        assert asked.body[0].text == "# The plan\n\n1. Do it"
        assert "Plan mode resumes when this reply ends" in asked.note
        await r.decide(asked, Deny("Use a queue.", choice="revise"))
        await r.decide(await r.asked(), Deny(choice="wait"))
        await r.decide(await r.asked(), Deny())
        assert (await r.answered()).answer == "Finished."
        told = r.tool_results[1:]
        assert told[0].startswith("Use a queue.")
        assert "must not be started yet" in told[1]
        assert "did not approve this plan" in told[2]
        assert [(event.meta or {})["permission_mode"] for event in r.of(StartedEvent)] == ["plan"]


async def test_approving_with_edits(claude: Path) -> None:
    turns = script(PLAN_FILE, EXIT, WRITE_INSIDE, says("Done."), EXIT, WRITE_INSIDE, says("Again."))
    async with real(claude, turns, permission_mode="plan") as r:
        await r.decide(await r.asked(), Allow(scope="accept_edits"))
        assert (await to_the_end(r, Deny()))[0] == []
        assert made(r) == ["inside.txt"]
        await r.mode("plan")
        modes = [(event.meta or {})["permission_mode"] for event in r.of(StartedEvent)]
        assert modes == ["plan", "acceptEdits", "plan"]
        await r.say("more")
        await r.decide(await r.asked(), Allow())
        assert (await to_the_end(r, Deny()))[0] == ["inside.txt"]  # that approval was for its turn
        assert r.warnings == []


async def test_an_outline_first(claude: Path) -> None:
    short, long = uses("ExitPlanMode", text="Soon."), uses("ExitPlanMode", text=OUTLINE)
    async with real(claude, main_script(PLAN_FILE, EXIT, short, long, TOUCH), permission_mode="plan") as r:
        await r.decide(await r.asked(), Deny(choice="outline"))
        asked = await r.asked()
        assert [(piece.label, piece.text[:5]) for piece in asked.body] == [("Outline", "Soon."), ("Plan", "# The")]
        assert [choice.id for choice in asked.choices] == ["discuss"]
        assert "is not there yet" in r.tool_results[-1]
        await r.decide(asked, Allow())
        assert (await to_the_end(r, Deny()))[0] == ["touch"]


async def test_an_outline_that_ends_the_turn_is_offered_and_approved(claude: Path) -> None:
    async with real(claude, script(PLAN_FILE, EXIT, says(OUTLINE), EXIT, says("Done.")), permission_mode="plan") as r:
        await r.decide(await r.asked(), Deny(choice="outline"))
        await r.answered()
        offer = await r.asked()
        assert offer.act == "Approve the outline?"
        await r.decide(offer, Allow())
        end = await r.answered()
        assert isinstance(end, TurnEvent)
        assert (end.answer, end.reason) == ("Done.", "the outline was approved")
        assert "approved your plan" in r.tool_results[-1]


async def test_a_plan_without_a_file(claude: Path) -> None:
    """2.1.332 drops the plan of the model then, and knows of none."""
    leave = uses("ExitPlanMode", text=OUTLINE, plan="The plan of the model")
    async with real(claude, main_script(leave), permission_mode="plan") as r:
        asked = await r.asked()
        if r.requests("get_plan"):
            assert asked.body[0].text == OUTLINE
            assert asked.note.startswith("It gave no plan; this is what it wrote last.")
        else:
            assert asked.body[0].text == "The plan of the model"
        await r.decide(asked, Allow())
        await r.answered()
        assert r.warnings == []


async def test_plan_auto(claude: Path) -> None:
    turns = script(TOUCH, PLAN_FILE, EXIT, TOUCH, WRITE_INSIDE, says("Done."), TOUCH, says("Again."))
    async with real(claude, turns, permission_mode="plan-auto") as r:
        assert (await to_the_end(r, Allow()))[0] == ["touch"]
        assert made(r) == ["inside.txt", "touched.txt"]
        assert r.requests("set_permission_mode") == []
        await r.say("more")
        assert (await to_the_end(r, Deny()))[0] == ["touch"]
        assert len(r.requests("set_permission_mode")) == 1


async def test_a_background_agent_of_the_approved_plan_puts_plan_mode_off(claude: Path) -> None:
    agent = uses("Agent", description="look", prompt="AGENT look around", subagent_type="general-purpose",
                 run_in_background=True)  # fmt: skip
    looks = {"name": "agent", "match": {"role": "subagent"}, "turns": [{**says("Looked."), "delay_ms": 3000}]}
    turns = script(PLAN_FILE, EXIT, agent, says("Begun."), TOUCH, says("Meanwhile."), exhausted="repeat_last")
    async with real(claude, turns, looks, permission_mode="plan") as r:
        await r.decide(await r.asked(), Allow())
        assert (await r.answered()).answer == "Begun."
        assert r.requests("set_permission_mode") == []
        await r.until(lambda: r.requests("set_permission_mode") or None)
        await r.mode("plan")
        ended = [frame for frame in r.read if frame.get("subtype") == "task_updated"]
        assert ended[-1]["patch"]["status"] == "completed"


# ---------------------------------------------------------------------------------------------------------- questions


QUESTIONS = [
    {"question": "Which database?", "header": "DB", "multiSelect": False,
     "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "server"}]},
    {"question": "Which extras?", "header": "Extras", "multiSelect": True,
     "options": [{"label": label, "description": "x"} for label in ("Docs", "Tests", "CI")]},
    {"question": "What is it called?", "header": "Name", "multiSelect": False,
     "options": [{"label": "Shop", "description": "s"}, {"label": "Store", "description": "t"}]},
]  # fmt: skip


@pytest.mark.parametrize("mode", ["default", "plan-auto", "bypassPermissions"])
async def test_three_questions(claude: Path, mode: str) -> None:
    ask = uses("AskUserQuestion", questions=QUESTIONS)
    async with real(claude, main_script(ask), permission_mode=mode) as r:
        asked = await r.asked()
        assert [(each.header, each.multiple) for each in asked.questions] == [
            ("DB", False), ("Extras", True), ("Name", False)]  # fmt: skip
        assert [option.label for option in asked.questions[1].options] == ["Docs", "Tests", "CI"]
        assert asked.questions[0].options[1].description == "server"
        answers = {"Which database?": "Postgres", "Which extras?": "Docs, CI", "What is it called?": "“Zoë’s” shop"}
        await r.decide(asked, Answers(answers))
        assert (await r.answered()).answer == "Finished."
        (told,) = r.tool_results
        assert all(answer in told for answer in answers.values())


async def test_a_question_that_is_skipped_and_one_that_may_not_be_asked(claude: Path) -> None:
    ask = uses("AskUserQuestion", questions=QUESTIONS[:1])
    async with real(claude, main_script(ask)) as r:
        await r.decide(await r.asked(), Deny())
        await r.answered()
        assert "did not want to answer" in r.tool_results[-1]
    async with real(claude, main_script(ask), settings={"ask_questions": False}) as r:
        assert (await to_the_end(r, Deny()))[0] == []
        assert "Decide yourself and state your assumptions" in r.tool_results[-1]


# --------------------------------------------------------------------------------------------------- several at a time


async def test_two_sub_agents_ask_at_once_and_each_gets_its_own_answer(claude: Path) -> None:
    def agent(name: str) -> dict[str, Any]:
        return {"tool_use": {"name": "Agent", "input": {
            "description": f"agent {name}", "prompt": f"AGENT {name}", "subagent_type": "general-purpose",
            "run_in_background": False}}}  # fmt: skip

    def work(name: str) -> dict[str, Any]:
        match = {"role": "subagent", "first_user": f"AGENT {name}"}
        return {"name": name, "match": match, "turns": [bash(f"touch {name}.txt"), says(f"{name} is done.")]}

    both = {"blocks": [agent("one"), agent("two")]}
    async with real(claude, main_script(both), work("one"), work("two")) as r:

        def open_ones() -> dict[str, Interaction] | None:
            found = [event.interaction for event in r.of(InteractionEvent) if event.phase == "opened"]
            return {each.asked_by: each for each in found} if len(found) == 2 else None

        asked = await r.until(open_ones)
        assert sorted(asked) == ["agent one", "agent two"]
        assert asked["agent two"].body[0].text == "touch two.txt"
        await r.decide(asked["agent two"], Allow())
        await r.decide(asked["agent one"], Deny("not this one"))
        await r.answered()
        assert made(r) == ["two.txt"]
        steps = {e.action.id: e.parent for e in r.of(ActionEvent) if e.action.title.startswith("touch")}
        assert all(steps.values())
