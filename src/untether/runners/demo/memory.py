"""What the demo agent remembers of its conversations: one small JSON file each.

They live in `$UNTETHER_DEMO_HOME`, else in `$XDG_CACHE_HOME/untether-demo`, else in `~/.cache/untether-demo`:
`sessions/<id>.json` and, for plans, `plans/plan-<start of the id>.md`. The folder is made private to the user; files
that nobody touched for 30 days are deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEEP_PROMPTS = 100
KEEP_CHARS = 4_000
KEEP_UUIDS = 1_000
KEEP_SECONDS = 30 * 24 * 3600.0
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def home() -> str:
    """The folder that holds everything the demo agent stores."""
    own = os.environ.get("UNTETHER_DEMO_HOME")
    if own:
        return os.path.abspath(own)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "untether-demo")


class Memory:
    """One conversation: its prompts, the uuids of the messages it took, and what it has cost so far."""

    def __init__(self, folder: str, session_id: str, cwd: str) -> None:
        self.folder = folder
        self.session_id = session_id
        self.cwd = cwd
        self.prompts: list[str] = []
        self.uuids: list[str] = []
        self.usage: dict[str, list[int]] = {}  # by model: input, output and cached tokens

    @property
    def plan_path(self) -> str:
        return os.path.join(self.folder, "plans", f"plan-{self.session_id[:8]}.md")

    def take(self, prompt: str, uuids: list[str]) -> None:
        """Remember a prompt that is about to be worked on, and store it."""
        self.prompts = [*self.prompts, prompt[:KEEP_CHARS]][-KEEP_PROMPTS:]
        self.uuids = [*self.uuids, *uuids][-KEEP_UUIDS:]
        self.save()

    def save(self) -> None:
        """Store the conversation. A folder that cannot be written costs the memory and nothing else."""
        path = _path(self.folder, self.session_id)
        content = {"cwd": self.cwd, "prompts": self.prompts, "uuids": self.uuids, "usage": self.usage}
        temporary = f"{path}.{os.getpid()}"
        with contextlib.suppress(OSError):
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(content, file)
            os.replace(temporary, path)


def exists(folder: str, session_id: str) -> bool:
    return os.path.exists(_path(folder, session_id))


def load(folder: str, session_id: str) -> Memory | None:
    """The stored conversation with this id; None when there is none, or none that can be read."""
    if not UUID.fullmatch(session_id):
        return None
    try:
        with open(_path(folder, session_id)) as file:
            content: dict[str, Any] = json.load(file)
        memory = Memory(folder, session_id, content["cwd"])
        memory.prompts, memory.uuids, memory.usage = content["prompts"], content["uuids"], content["usage"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return memory


def latest(folder: str, cwd: str) -> Memory | None:
    """The conversation last used in `cwd`."""
    for path in sorted(_stored(folder), key=_age):
        memory = load(folder, os.path.basename(path)[: -len(".json")])
        if memory is not None and memory.cwd == cwd:
            return memory
    return None


def forget_old(folder: str) -> None:
    """Delete the conversations and plans that nobody touched for 30 days."""
    for path in _stored(folder) + _stored(folder, "plans"):
        if _age(path) > KEEP_SECONDS:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _path(folder: str, session_id: str) -> str:
    return os.path.join(folder, "sessions", f"{session_id}.json")


def _stored(folder: str, kind: str = "sessions") -> list[str]:
    try:
        names = os.listdir(os.path.join(folder, kind))
    except OSError:
        return []
    return [os.path.join(folder, kind, name) for name in names if name.endswith((".json", ".md"))]


def _age(path: str) -> float:
    try:
        return time.time() - os.path.getmtime(path)
    except OSError:
        return 0.0
