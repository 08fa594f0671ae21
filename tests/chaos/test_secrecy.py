"""What is for the test is not for agents: their environment, and that of their keepers, does not name its socket."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.conversation import Talk, ask
from tests.chaos.test_network import QUIET_TALK, answer_to
from tests.chaos.world import world

pytestmark = pytest.mark.anyio


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_agents_and_keepers_do_not_know_of_the_faults(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path, extra='[security]\nenv_extra_prefix_allow = ["U"]\n') as w:
        await ask(w.ann, Talk(**QUIET_TALK), "alpha-1", answer_to("alpha-1"))
        assert w.faults.passed["store.commit"]  # the bridge itself does
        found = [environment(pid) for pid in w.processes()]
        assert found
        for environ in found:
            assert b"UNTETHER_SESSION=1" in environ
            assert b"UNTETHER_FAULTS" not in environ
            assert str(w.faults.path).encode() not in environ
