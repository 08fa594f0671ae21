"""The real Claude Code in a chat when its quota is spent, and when its login is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from fake_anthropic import FakeAnthropic
from tests.support.bridge import API_KEY
from tests.support.chat import FakeChat, office_with
from tests.support.claude_live import says, scenario
from tests.support.clis import pinned
from untether.clock import SteeredClock
from untether.conversation.engines import Engine, Engines
from untether.conversation.office import Office
from untether.conversation.repeat import CONTINUE
from untether.runners.claude import BACKEND
from untether.text import words
from untether.transport import ChatRef

pytestmark = pytest.mark.anyio

HOUR = 3600
PATIENCE_S = 40.0
PRIVATE = "7"  # Ann's


@pytest.fixture(params=pinned("claude"))
def claude(request: pytest.FixtureRequest, claude_cli: Callable[[str], Path]) -> Path:
    return claude_cli(request.param)


@asynccontextmanager
async def talking(
    folder: Path, chat: FakeChat, claude: Path, fake: Any, env: dict[str, str], clock: SteeredClock
) -> AsyncIterator[Office]:
    config = {"command": str(claude), "use_api_billing": True, "env": {**env, "ANTHROPIC_BASE_URL": fake.base_url}}
    engine = Engine("claude", BACKEND, BACKEND.build(config, folder / "untether.toml"), str(claude))
    owner = ChatRef("fake", PRIVATE)
    engines = Engines({"claude": engine}, "claude")
    async with office_with(folder, chat, engines=engines, clock=clock, zone=UTC, owner=owner) as office:
        yield office


async def test_a_spent_quota_is_gone_on_with_when_it_is_renewed(
    tmp_path: Path, claude: Path, claude_home: dict[str, str]
) -> None:
    clock, chat = SteeredClock(), FakeChat()
    due = int(clock.now()) + HOUR
    names = {"status": "rejected", "reset": due, "representative-claim": "five_hour", "5h-reset": due}
    spent = {
        "error": {"status": 429, "type": "rate_limit_error", "message": "This request would exceed your limit."},
        "headers": {f"anthropic-ratelimit-unified-{name}": str(value) for name, value in names.items()},
    }
    env = {**claude_home, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test-dummy"}
    with FakeAnthropic(scenario(spent, says("Built."), project=tmp_path), full_record=True) as fake:
        async with talking(tmp_path, chat, claude, fake, env, clock):
            at = words.clock_time(due, UTC, clock.now())
            await chat.say("build it")
            failed = await chat.shown("✗ The usage limit is reached", button=f"Continue at {at}", seconds=PATIENCE_S)
            await chat.tap(failed, f"Continue at {at}")
            await chat.shown(f"⏳ continues at {at}", button="Cancel")
            await clock.advance(HOUR + 30)
            await chat.shown("Built.", seconds=PATIENCE_S)
            last = fake.calls[-1]["request"]["messages"][-1] if "request" in fake.calls[-1] else str(fake.calls[-1])
            assert CONTINUE in str(last)


async def test_a_lost_login_holds_messages_and_its_login_runs_here(
    tmp_path: Path, claude: Path, claude_home: dict[str, str]
) -> None:
    clock, chat = SteeredClock(), FakeChat()
    refused = {"error": {"status": 401, "type": "authentication_error", "message": "invalid x-api-key"}}
    env = {**claude_home, "ANTHROPIC_API_KEY": API_KEY}
    turns = scenario(refused, says("Here again."), project=tmp_path)
    with FakeAnthropic(turns, full_record=True) as fake:
        async with talking(tmp_path, chat, claude, fake, env, clock):
            await chat.say("one")
            failed = await chat.shown("✗ Claude Code is not logged in", "Messages for claude wait", seconds=PATIENCE_S)
            await chat.say("two")
            await chat.shown("⏳ waits for the login of claude")
            await chat.tap(failed, "Log in")
            link = await chat.shown("⏸ Log in to Claude Code", "https://claude", button="Open", seconds=PATIENCE_S)
            assert link.chat == ChatRef("fake", PRIVATE)
            await chat.say("/cancel", chat=PRIVATE)
            await chat.shown("■ The login is given up.")
            await chat.tap(failed, "Try now")
            await chat.shown("Here again.", seconds=PATIENCE_S)
