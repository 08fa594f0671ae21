"""Each pinned CLI starts against the fake model, says its version and answers: the ground of the tests beside this."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_anthropic import FakeAnthropic, Scenario
from tests.support.clis import pinned

SCENARIOS = Path(__file__).resolve().parent.parent / "fakes" / "scenarios"


@pytest.mark.parametrize("version", pinned("claude"))
def test_claude_answers(
    version: str, claude_cli: Callable[[str], Path], claude_home: dict[str, str], tmp_path: Path
) -> None:
    with FakeAnthropic(Scenario.load(SCENARIOS / "hello.json")) as fake:
        env = {**claude_home, "ANTHROPIC_BASE_URL": fake.base_url, "ANTHROPIC_API_KEY": "sk-ant-test-dummy"}
        done = subprocess.run(
            [claude_cli(version), "-p", "--output-format", "stream-json", "--verbose"],
            input="say hello",
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        frames = [json.loads(line) for line in done.stdout.splitlines()]
        init = next(frame for frame in frames if frame.get("subtype") == "init")
        assert init["claude_code_version"] == version
        assert frames[-1]["result"] == "Hello from the fake model."
        assert any(call["path"].startswith("/v1/messages") for call in fake.calls)
