"""The demo runner: the demo agent through the Claude session."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ...model import EngineId
from ...process.environment import Names
from ..claude.runner import ClaudeRunner


class DemoRunner(ClaudeRunner):
    """The demo agent that comes with Untether."""

    engine = EngineId("demo")
    name = "Demo agent"
    resume_re = re.compile(r"(?im)^[ \t]*`?untether-demo[ \t]+(?:--resume|-r)(?:[ \t]+|=)(?P<token>[^`\s]+)`?[ \t]*$")
    resume_line = "`untether-demo --resume {}`"
    install_cmd = ""
    min_version = ""

    def command(self) -> str:
        return self.program()[0]

    def program(self) -> tuple[str, ...]:
        """The configured command, else the script that was installed beside this Python, else the module."""
        if configured := self._config.get("command"):
            return (str(configured),)
        script = Path(sys.executable).parent / "untether-demo"
        return (str(script),) if script.is_file() else (sys.executable, "-m", "untether.runners.demo.agent")

    @property
    def env_names(self) -> Names:
        return Names()
