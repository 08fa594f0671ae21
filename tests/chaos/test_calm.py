"""The scripted conversation with nothing in its way: what the other scenarios are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.conversation import talk
from tests.chaos.invariants import check
from tests.chaos.world import world

pytestmark = pytest.mark.anyio


async def test_nothing_in_the_way(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await check(w, await talk(w))
        print(w.faults.passed)
