"""A chat that plans first, with the demo agent: what the settings of the bridge make of an approved plan."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.chat import FakeChat, engines_for, office_with
from untether.session import StartFacts
from untether.store import runs

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("again", [True, False])
async def test_plan_mode_comes_back_only_where_it_is_wanted(tmp_path: Path, again: bool) -> None:
    chat = FakeChat()
    engines = engines_for({"permission_mode": "plan"})
    async with office_with(tmp_path, chat, engines=engines, rearm_plan_mode=again) as office:
        await chat.say("plan")
        asked = await chat.shown("Leave plan mode?", button="Approve")
        assert ("Plan mode resumes when this reply ends" in asked.text) == again
        (process,) = office.services.db.read(runs.open_processes)
        facts = msgspec.json.decode(process.start, type=StartFacts)
        assert facts.settings["rearm_plan_mode"] is again
