"""A home of its own for a real Codex, whose model is a fake on this machine: no key, no login, no updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_openai

MODEL = "gpt-5.5"  # the newest that calls tools one by one; later ones write JavaScript


def codex_home(home: Path, model_url: str, project: Path, extra: str = "") -> dict[str, str]:
    """Write ``home/.codex/config.toml`` and return the environment for it. ``extra`` is TOML with tables of its own."""
    folder = home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f'''model = "{MODEL}"
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "{model_url}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 1
stream_max_retries = 1

[features]
plugins = false # else every start asks api.github.com for a list

[analytics]
enabled = false

[otel]
exporter = "none"

[projects."{project}"]
trust_level = "trusted"

{extra}''')
    return {
        "HOME": str(home),
        "CODEX_HOME": str(folder),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "NO_PROXY": "*",
    }


@contextmanager
def fake_model(*replies: dict[str, Any]) -> Iterator[Any]:
    """A scripted model server; ``base_url`` is its address, ``seen`` what it was asked, ``bodies`` that in full."""
    server = fake_openai.serve({"name": "test", "replies": list(replies)})
    server.bodies = []
    note = server.note

    def keep(row: dict[str, Any], body: dict[str, Any] | None = None) -> None:
        if body:
            server.bodies.append(body)
        note(row, body)

    server.note = keep
    server.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"steps": [{"text": text, **more}]}


def uses(tool: str, *, text: str = "", **args: Any) -> dict[str, Any]:
    """One reply that calls a tool, after some text: ``$shell``, ``$write``, ``$edit``, ``$ask``."""
    before: Sequence[dict[str, Any]] = [{"text": text}] if text else []
    return {"steps": [*before, {"tool": tool, "args": args}]}


def shell(command: str, why: str = "") -> dict[str, Any]:
    """A command; ``why`` makes it one that asks to run outside the sandbox."""
    return uses("$shell", command=command, **({"escalate": why} if why else {}))
