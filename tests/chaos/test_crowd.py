"""Many runs at once, each with thousands of lines: nothing is lost, and memory grows with their number, not faster."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from anyio import to_thread

from tests.chaos.world import Engine, World, world

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]

RUNS = int(os.environ.get("CHAOS_RUNS", "200"))
LINES = 2000
CROWD = Path(__file__).with_name("crowd.sh")
UUID, SESSION = "11111111-1111-4111-8111-111111111111", "@SESSION@"


def frames(folder: Path) -> Path:
    """What the demo agent prints for `lines 2000`, with places for the ids of the message and the session."""
    message = {"type": "user", "uuid": UUID, "message": {"role": "user", "content": f"lines {LINES}"}}
    arguments = (
        "--output-format",
        "stream-json",
        "--input-format",
        "stream-json",
        "--verbose",
        "--replay-user-messages",
    )
    done = subprocess.run(
        [sys.executable, "-m", "untether.runners.demo.agent", *arguments],
        input=json.dumps(message) + "\n",
        env={"UNTETHER_DEMO_SPEED": "0", "UNTETHER_DEMO_HOME": str(folder / "demo"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    session = json.loads(done.stdout.splitlines()[-1])["session_id"]
    path = folder / "frames.jsonl"
    path.write_text(done.stdout.replace(UUID, "@UUID@").replace(session, SESSION))
    return path


async def crowd(w: World, count: int) -> tuple[int, int]:
    """Let `count` runs go at once. Returns the bridge's memory before them and at its highest, in bytes."""
    process = psutil.Process(w.bridge.sync.pid)
    await w.bridge.wait_for_line("web.serving")
    before = process.memory_info().rss
    began = len(list(w.stdin_log.glob("*.began")))
    for number in range(count):
        await (w.ann, w.bob)[number % 2].text(f"number {number}")
    await w.until(lambda: len(list(w.stdin_log.glob("*.began"))) == began + count, f"{count} agents at work", 120)
    highest = process.memory_info().rss
    (w.stdin_log / "go").touch()

    def all_done() -> bool:
        nonlocal highest
        highest = max(highest, process.memory_info().rss)
        (row,) = w.rows("SELECT COUNT(*) AS count FROM runs WHERE state = 'running'")
        return not row["count"]

    await w.until(all_done, "the end of all runs", 120)
    return before, highest


async def small_and_large(tmp_path: Path, engine: Engine, counts: tuple[int, int]) -> list[float]:
    """Bytes of the bridge for one run, among few and among many; each answer is checked on the way."""
    shares = []
    for count in counts:
        folder = tmp_path / str(count)
        folder.mkdir()
        async with world(folder, engine=engine, mode="stateless", extra=GUARD, hurry=100) as w:
            before, highest = await crowd(w, count)
            shares.append((highest - before) / count)
            await nothing_lost(w, count)
    return shares


# All of them at once, whatever the machine has: it is their number that counts here.
GUARD = """
[progress]
min_render_interval = 30.0
[watchdog]
prespawn_ram_per_run_reserve_mb = 0
max_concurrent_engine_runs = 0
"""


async def nothing_lost(w: World, count: int) -> None:
    runs = w.rows("SELECT state, steps, answer FROM runs")
    assert [row["state"] for row in runs] == ["done"] * count
    assert {row["steps"] for row in runs} == {LINES // 2}
    assert all(f"{LINES:,}" in row["answer"] or str(LINES) in row["answer"] for row in runs)
    journals = [path.read_bytes().count(b"\n") for path in w.state.glob("processes/*/out.jsonl")]
    assert len(journals) == count
    assert min(journals) >= LINES

    def answered() -> bool:
        (row,) = w.rows("SELECT COUNT(*) AS count FROM deliveries WHERE state IN ('pending', 'sending')")
        return not row["count"]

    await w.until(answered, "the last answer", 60)
    shown: list[Any] = [*await w.ann.shows(sender="bot"), *await w.bob.shows(sender="bot")]
    answers = [message for message in shown if re.search(r"(?m)^✓ ", message["text"])]
    assert len(answers) == count
    assert len({(message["chat"], message["reply_to"]) for message in answers}) == count


async def test_many_runs_at_once(tmp_path: Path, chance: random.Random, record_property: Any) -> None:
    made = await to_thread.run_sync(frames, tmp_path)
    engine = Engine(command=CROWD, env={"CHAOS_FRAMES": str(made)})
    few, many = await small_and_large(tmp_path, engine, (RUNS // 5, RUNS))
    record_property("kib_a_run", f"{few / 1024:.0f}/{many / 1024:.0f}")
    assert many < 1.5 * few + 100 * 1024
