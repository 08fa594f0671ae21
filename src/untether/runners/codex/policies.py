"""Permission modes by the names that people use, as Codex's approval policy, sandbox and collaboration mode.

Codex asks by two settings: the sandbox says what a command may do by itself, and the approval policy when a person is
asked about more. `default` lets nothing change without being asked: commands run in a sandbox that may only read, each
patch asks, and what needs more than the sandbox asks. (Recordings as_patch_accept, as_untrusted, as_exec_accept.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model import Record
from ...session import Capabilities

APP_SERVER = Capabilities(
    interactive_permissions=True,
    questions=True,
    plan=True,
    steer=True,
    followup=True,
    interrupt=True,
    set_model=True,
    images=True,
    set_effort=True,
    stop_task=True,
    fork=True,
    partial_text=True,
    continue_latest=True,
)
EXEC = Capabilities()

CANNOT_ASK = "This form cannot ask: what needs your permission is refused."


class Policy(Record, frozen=True):
    """`approval` and `sandbox` as in `thread/start`; `planning` is the collaboration mode `plan`.

    `approves_plan`: the plan is approved by itself.
    """

    approval: str
    sandbox: str
    planning: bool = False
    approves_plan: bool = False


DEFAULT = "default"
BYPASS = "bypassPermissions"
AFTER_PLAN = "acceptEdits"

_ASK = Policy("on-request", "read-only")
_WORKSPACE = Policy("on-request", "workspace-write")

POLICIES: Mapping[str, Policy] = {
    DEFAULT: _ASK,
    "manual": _ASK,
    "safe": _ASK,
    AFTER_PLAN: _WORKSPACE,
    "auto": _WORKSPACE,
    "untrusted": Policy("untrusted", "workspace-write"),
    "plan": Policy("on-request", "read-only", planning=True),
    "plan-auto": Policy("on-request", "read-only", planning=True, approves_plan=True),
    "dontAsk": Policy("never", "read-only"),
    BYPASS: Policy("never", "danger-full-access"),
}
"""`manual`, `acceptEdits`, `auto`, `plan-auto`, `dontAsk` and `bypassPermissions` are names that other engines use for
the same; `untrusted`, with which every command asks, is Codex's own."""


def allowed_mode(mode: str, settings: Mapping[str, Any]) -> str:
    """The mode to run in when `mode` was asked for: one that is not known asks, and so does bypassing that the owner
    did not allow (`dangerously_skip_permissions`)."""
    if mode not in POLICIES or (mode == BYPASS and not settings.get("dangerously_skip_permissions")):
        return DEFAULT
    return mode


def asked_mode(settings: Mapping[str, Any]) -> str:
    """The mode that the settings of a process ask for."""
    bypass = BYPASS if settings.get("dangerously_skip_permissions") else DEFAULT
    return str(settings.get("permission_mode") or bypass)


def sandbox_policy(sandbox: str) -> dict[str, Any]:
    """The sandbox as `turn/start` takes it, which is another form than that of `thread/start`."""
    match sandbox:
        case "workspace-write":
            return {
                "type": "workspaceWrite",
                "writableRoots": [],
                "networkAccess": False,
                "excludeTmpdirEnvVar": False,
                "excludeSlashTmp": False,
            }
        case "danger-full-access":
            return {"type": "dangerFullAccess"}
    return {"type": "readOnly", "networkAccess": False}
