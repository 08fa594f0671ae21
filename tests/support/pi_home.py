"""A home of its own for a real Pi, whose model is a fake on this machine: no key, no login, no updates."""

from __future__ import annotations

import json
from pathlib import Path


def pi_home(home: Path, model_url: str, pi: Path) -> dict[str, str]:
    """Write ``home/.pi/agent`` and return the environment for it. Pi finds the Node.js beside it first."""
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    cost = {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 0}
    models = [
        {
            "id": id,
            "name": id,
            "reasoning": True,
            "input": ["text", "image"],
            "contextWindow": 128000,
            "maxTokens": 8192,
            "cost": cost,
        }
        for id in ("fake-model", "other-model")
    ]
    provider = {"baseUrl": model_url, "apiKey": "none", "api": "openai-completions", "models": models}
    (folder / "models.json").write_text(json.dumps({"providers": {"fake": provider}}))
    settings = {
        "defaultProvider": "fake",
        "defaultModel": "fake-model",
        "enableInstallTelemetry": False,
        "quietStartup": True,
        "retry": {"maxRetries": 1, "baseDelayMs": 50},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "HOME": str(home),
        "PI_CODING_AGENT_DIR": str(folder),
        "PI_OFFLINE": "1",
        "PATH": f"{pi.parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "NO_PROXY": "*",
    }
