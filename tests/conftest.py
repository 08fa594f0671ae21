"""Fixtures of all tests. Paths to the fakes and to this folder are set in pyproject.toml (``pythonpath``)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.bridge import QUIET_CLAUDE
from tests.support.clis import pinned

settings.register_profile("untether", deadline=None)  # a busy machine is no failure
settings.load_profile("untether")

ROOT = Path(__file__).resolve().parent.parent

AgentCli = Callable[..., Path]  # (engine: str, version: str | None = None)
ClaudeCli = Callable[..., Path]  # (version: str | None = None)


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that the bridge runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def agent_cli() -> AgentCli:
    """``agent_cli("claude", "2.1.197")`` is the program of that pinned release, installed when it is missing.

    Without a version: the first release that tests/clis.toml pins. Skips the test only when the CLI is absent and npm
    cannot bring it.
    """

    def find(engine: str, version: str | None = None) -> Path:
        name = f"{engine}@{version or pinned(engine)[0]}"
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "install-clis", name], capture_output=True, text=True, check=False
        )
        if done.returncode == 3:
            pytest.skip(f"{name} is not installed and cannot be: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.splitlines()[0].split("\t")[2])

    return find


@pytest.fixture(scope="session")
def claude_cli(agent_cli: AgentCli) -> ClaudeCli:
    """``claude_cli("2.1.197")`` is ``agent_cli("claude", "2.1.197")``."""

    def find(version: str | None = None) -> Path:
        return agent_cli("claude", version)

    return find


@pytest.fixture
def claude_home(tmp_path: Path) -> dict[str, str]:
    """The environment of a Claude Code of its own: private home, no updates, no telemetry; nothing of the developer's.

    Keys for a model server (``ANTHROPIC_BASE_URL``, ``ANTHROPIC_API_KEY``) are left to the test.
    """
    home = tmp_path / "home"
    folders = {"HOME": home, "CLAUDE_CONFIG_DIR": home / ".claude", "CLAUDE_CODE_TMPDIR": tmp_path / "claude-tmp"}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        **{name: str(folder) for name, folder in folders.items()},
        **QUIET_CLAUDE,
    }
