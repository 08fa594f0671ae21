"""The whole path: the bridge as a process, the strict Telegram server, the real Claude Code, a scripted model."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fake_anthropic import FakeAnthropic, Scenario
from fake_telegram import FakeTelegram
from tests.support.bridge import AsyncBridge, Bridge, bridge_env, make_project, write_config
from tests.support.clis import pinned

pytestmark = pytest.mark.anyio
VERSIONS = pinned("claude")
TIMEOUT = 30.0


@dataclass
class World:
    telegram: Any
    model: Any
    ann: Any
    bridge: AsyncBridge
    project: Path


def scenario(project: Path, *turns: dict[str, Any], exhausted: str = "repeat_last") -> Any:
    script = {"name": "main", "turns": list(turns), "exhausted": exhausted}
    return Scenario({"name": "test", "scripts": [script]}, {"REPO": str(project)})


def says(text: str) -> dict[str, Any]:
    return {"blocks": [{"text": text}]}


def uses(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"blocks": [{"tool_use": {"name": tool, "input": arguments}}]}


TOUCH = uses("Bash", command="touch made.txt", description="Make a file")


@asynccontextmanager
async def world(
    tmp_path: Path, claude: Path, home: dict[str, str], *turns: dict[str, Any], **config: Any
) -> AsyncIterator[World]:
    project = make_project(tmp_path / "project")
    with FakeAnthropic(scenario(project, *turns)) as model:
        async with FakeTelegram(limits="off") as telegram:
            ann = await telegram.ctl.user(first_name="Ann")
            path = write_config(
                tmp_path / "state",
                telegram=telegram,
                claude=claude,
                model_url=model.base_url,
                project=project,
                chat_id=ann.chat,
                allowed_user_ids=[ann.chat],
                extra="[transports.web]\nport = 0\n",
                **config,
            )
            async with AsyncBridge(Bridge(path, env=bridge_env(home))) as bridge:
                yield World(telegram, model, ann, bridge, project)


@pytest.fixture(params=VERSIONS)
def claude(request: pytest.FixtureRequest, claude_cli: Callable[[str], Path]) -> Path:
    return claude_cli(request.param)


@pytest.fixture
def newest(claude_cli: Callable[[], Path]) -> Path:
    return claude_cli()


async def test_a_plain_answer(tmp_path: Path, claude: Path, claude_home: dict[str, str]) -> None:
    async with world(tmp_path, claude, claude_home, says("Hello **Ann**.")) as w:
        await w.ann.text("say hello")
        answer = await w.ann.wait("Hello Ann", timeout=TIMEOUT)
        assert re.search(r"^✓ \d+s", answer["text"].splitlines()[-1])
        assert answer["reply_to"] is not None


async def test_two_tools_one_approved_one_denied(tmp_path: Path, claude: Path, claude_home: dict[str, str]) -> None:
    write = uses("Write", file_path="${REPO}/new.txt", content="secret\n")
    async with world(tmp_path, claude, claude_home, TOUCH, write, says("Finished.")) as w:
        await w.ann.text("do the work")
        asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
        assert "touch made.txt" in asked["text"]
        tapped = await w.ann.press("Approve", message_id=asked["id"], wait=5)
        assert tapped["answer"]["text"] == "Approved"
        asked = await w.ann.wait(r"Write a file\?", button="Deny", timeout=TIMEOUT)
        assert "+secret" in asked["text"]
        await w.ann.press("Deny", message_id=asked["id"], wait=5)
        await w.ann.wait("Finished", timeout=TIMEOUT)
        assert (w.project / "made.txt").exists()
        assert not (w.project / "new.txt").exists()
        await w.ann.wait(r"✓ Approved by Ann", timeout=TIMEOUT)
        await w.ann.wait(r"✗ Denied by Ann", timeout=TIMEOUT)


async def test_the_reason_of_a_deny_reaches_the_model(
    tmp_path: Path, newest: Path, claude_home: dict[str, str]
) -> None:
    async with world(tmp_path, newest, claude_home, TOUCH, says("Understood.")) as w:
        await w.ann.text("do the work")
        asked = await w.ann.wait(r"Run a command\?", button="Deny and say why", timeout=TIMEOUT)
        await w.ann.text("use the Makefile instead", reply_to=asked["id"])
        await w.ann.wait("Understood", timeout=TIMEOUT)
        seen = [result["text"] for call in w.model.calls for result in call.get("tool_results", [])]
        assert any("use the Makefile instead" in text for text in seen)
        assert not (w.project / "made.txt").exists()


@pytest.mark.parametrize("mode", ["default", "plan"])
async def test_nothing_is_allowed_beforehand(
    tmp_path: Path, claude: Path, claude_home: dict[str, str], mode: str
) -> None:
    """Without `allowed_tools`, a command that changes something asks, in plan mode too."""
    async with world(tmp_path, claude, claude_home, TOUCH, says("Finished."), permission_mode=mode) as w:
        await w.ann.text("do the work")
        asked = await w.ann.wait(r"Run a command\?", button="Deny", timeout=TIMEOUT)
        assert not (w.project / "made.txt").exists()
        await w.ann.press("Deny", message_id=asked["id"], wait=5)
        await w.ann.wait("Finished", timeout=TIMEOUT)
        assert not (w.project / "made.txt").exists()


async def test_a_follow_up_in_the_live_process(tmp_path: Path, claude: Path, claude_home: dict[str, str]) -> None:
    async with world(tmp_path, claude, claude_home, says("First answer."), says("Second answer.")) as w:
        await w.ann.text("one")
        await w.ann.wait("First answer", timeout=TIMEOUT)
        await w.ann.text("two")
        await w.ann.wait("Second answer", timeout=TIMEOUT)
        last = [call for call in w.model.calls if call.get("n_messages")][-1]
        assert last["n_messages"] > 2  # the same conversation


async def test_resume_after_the_process_has_gone(tmp_path: Path, claude: Path, claude_home: dict[str, str]) -> None:
    async with world(tmp_path, claude, claude_home, says("First answer."), says("Second answer.")) as w:
        await w.ann.text("one")
        await w.ann.wait("First answer", timeout=TIMEOUT)
        await w.bridge.restart()
        await w.ann.text("two")
        await w.ann.wait("Second answer", timeout=TIMEOUT)
        last = [call for call in w.model.calls if call.get("n_messages")][-1]
        assert last["n_messages"] > 2


async def test_cancel(tmp_path: Path, claude: Path, claude_home: dict[str, str]) -> None:
    slow = uses("Bash", command="for i in 1 2 3 4 5 6 7 8 9; do sleep 5; done", description="Wait")
    async with world(tmp_path, claude, claude_home, slow, says("After the stop.")) as w:
        await w.ann.text("take your time")
        asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
        await w.ann.press("Approve", message_id=asked["id"], wait=5)
        await w.ann.wait(r"▸ for i in", timeout=TIMEOUT)
        await w.ann.text("/cancel")
        await w.ann.wait(r"■ Stopped after", timeout=12)
        left = [child for child in w.bridge.sync.descendants() if "sleep" in child.name()]
        assert left == []
        await w.ann.text("go on")
        await w.ann.wait("After the stop", timeout=TIMEOUT)


async def test_an_api_error(tmp_path: Path, claude: Path, claude_home: dict[str, str]) -> None:
    broke = {"error": {"status": 400, "message": "Your credit balance is too low to access the Anthropic API."}}
    async with world(tmp_path, claude, claude_home, {**broke, "repeat": True}) as w:
        await w.ann.text("one")
        failed = await w.ann.wait(r"^✗", button="Try again", timeout=TIMEOUT)
        assert "credit" in failed["text"].lower()


async def test_a_message_sent_while_the_bridge_was_down(
    tmp_path: Path, newest: Path, claude_home: dict[str, str]
) -> None:
    async with world(tmp_path, newest, claude_home, says("Here I am.")) as w:
        await w.bridge.wait_for_line("state")
        await w.bridge.kill()
        await w.ann.text("are you there?")
        await w.bridge.start()
        await w.ann.wait("Here I am", timeout=TIMEOUT)


async def test_the_same_update_twice_is_answered_once(
    tmp_path: Path, newest: Path, claude_home: dict[str, str]
) -> None:
    async with world(tmp_path, newest, claude_home, says("Once.")) as w:
        await w.ann.text("one")
        await w.telegram.ctl.duplicate(count=1, same_id=True)
        await w.ann.wait("Once", timeout=TIMEOUT)
        await w.bridge.restart()
        await w.ann.text("/status")
        await w.ann.wait("Nothing runs", timeout=TIMEOUT)
        assert len([shown for shown in await w.ann.shows(sender="bot") if "Once." in shown["text"]]) == 1
        assert len([call for call in w.model.calls if call.get("last_user")]) == 1


async def test_an_old_button_decides_after_a_kill(tmp_path: Path, claude: Path, claude_home: dict[str, str]) -> None:
    async with world(tmp_path, claude, claude_home, TOUCH, says("Finished.")) as w:
        await w.ann.text("do the work")
        asked = await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
        await w.bridge.kill()
        await w.bridge.start()
        tapped = await w.ann.press("Approve", message_id=asked["id"], wait=15)
        assert tapped["answer"]["text"] == "Approved"
        await w.ann.wait("Finished", timeout=TIMEOUT)
        assert (w.project / "made.txt").exists()
        await w.ann.wait(r"✓ Approved by Ann", timeout=TIMEOUT)
        assert len([shown for shown in await w.ann.shows(sender="bot") if "Finished" in shown["text"]]) == 1


async def test_an_agent_that_died_with_its_keeper_is_told_and_resumed(
    tmp_path: Path, newest: Path, claude_home: dict[str, str]
) -> None:
    async with world(tmp_path, newest, claude_home, TOUCH, says("Resumed.")) as w:
        await w.ann.text("do the work")
        await w.ann.wait(r"Run a command\?", button="Approve", timeout=TIMEOUT)
        await w.bridge.kill()
        for process in w.bridge.sync.descendants():
            process.kill()
        await w.bridge.start()
        told = await w.ann.wait("■ Interrupted", button="Resume", timeout=TIMEOUT)
        await w.ann.wait("■ No longer needed", timeout=TIMEOUT)
        await w.ann.press("Resume", message_id=told["id"], wait=5)
        await w.ann.wait("Resumed", timeout=TIMEOUT)


async def test_the_one_shot_form_says_that_it_cannot_ask(
    tmp_path: Path, claude: Path, claude_home: dict[str, str]
) -> None:
    async with world(tmp_path, claude, claude_home, says("Done in one shot.")) as w:
        config = w.bridge.sync.config
        await w.bridge.stop()
        config.write_text(config.read_text().replace("[claude]\n", "[claude]\ninteractive = false\n"))
        await w.bridge.start()
        await w.ann.text("one")
        answer = await w.ann.wait("Done in one shot", timeout=TIMEOUT)
        assert "cannot ask" in answer["text"].splitlines()[-1]
        status = next(shown for shown in await w.ann.shows(sender="bot", deleted=True) if "▸ claude" in shown["text"])
        assert "cannot ask" in [*status["history"], status["text"]][0]


async def test_a_stranger_gets_silence(tmp_path: Path, newest: Path, claude_home: dict[str, str]) -> None:
    async with world(tmp_path, newest, claude_home, says("For Ann.")) as w:
        eve = await w.telegram.ctl.user(first_name="Eve")
        await eve.text("hello?")
        await w.ann.text("hello")
        await w.ann.wait("For Ann", timeout=TIMEOUT)
        assert await eve.shows(sender="bot") == []
