"""The thread of Codex that a process serves: how it is started or resumed, and what its turns are to be told.

One process serves one thread of ours. Other threads in its stream are those of its sub-agents. The order is
`initialize` → `initialized` → `thread/start` or `thread/resume` → `turn/start` (recordings as_text, as_resume_2); every
call before the greeting is answered would fail.
"""

from __future__ import annotations

from typing import Any

from ... import __version__
from ...model import ResumeToken, SessionChangedEvent, StartedEvent
from ...schemas.codex import Initialized, ThreadList, ThreadResult
from ...session import StartFacts
from ..output import Output
from .policies import DEFAULT, POLICIES, Policy, allowed_mode, asked_mode, sandbox_policy
from .rpc import Rpc

_SANDBOXES = {"readOnly": "read-only", "workspaceWrite": "workspace-write", "dangerFullAccess": "danger-full-access"}
_TOLD_ANEW = frozenset({"model", "permission_mode"})


class Thread:
    """`id` is "" until the thread is open; `home` is Codex's own folder, as it told it."""

    def __init__(self, output: Output, rpc: Rpc) -> None:
        self._output = output
        self._rpc = rpc
        self._start = StartFacts("", "codex", "")
        self._facts: dict[str, Any] = {}
        self._told = False
        self._model: str | None = None  # the one to change to with the next turn
        self._first_model = ""
        self._effort: str | None = None
        self._unsent_policy = False
        self._unsent_collaboration = False
        self.id = ""
        self.home = ""
        self.mode = DEFAULT
        self.token: ResumeToken | None = None

    @property
    def policy(self) -> Policy:
        return POLICIES[self.mode]

    @property
    def expected(self) -> ResumeToken | None:
        """The session that was asked for."""
        return self._start.resume

    @property
    def model(self) -> str:
        return str(self._facts.get("model") or "")

    # ------------------------------------------------------------------------------------------------------ opening

    def begin(self, start: StartFacts) -> None:
        self._start = start
        self.set_mode(asked_mode(start.settings))
        self._unsent_policy = False  # `thread/start` carries it
        self._effort = start.settings.get("reasoning") or None
        client = {"name": "untether", "title": "Untether", "version": __version__}
        # experimentalApi: plan mode and the end of background terminals need it.
        capabilities = {"experimentalApi": True, "requestAttestation": False}
        self._rpc.ask("initialize", {"clientInfo": client, "capabilities": capabilities})

    def greeted(self, result: Initialized) -> None:
        """Codex is there: open the thread, or look for the latest one of this folder first."""
        self.home = result.codex_home
        self._rpc.notify("initialized")
        if self._start.continue_latest and self.expected is None:
            newest = {"cwd": self._start.cwd, "limit": 1, "sortKey": "updated_at", "sourceKinds": []}
            self._rpc.ask("thread/list", newest)
        else:
            self.open(self.expected.value if self.expected is not None else "")

    def listed(self, result: ThreadList) -> None:
        """The threads of this folder, newest first. Without one a new one is started."""
        self.open(result.data[0].id if result.data else "")

    def open(self, resume: str) -> None:
        params: dict[str, Any] = {
            "cwd": self._start.cwd,
            "approvalPolicy": self.policy.approval,
            "sandbox": self.policy.sandbox,
            "approvalsReviewer": "user",  # whatever the config says: approvals are for the person, not for a model
        }
        if model := self._start.settings.get("model"):
            params["model"] = model
        self._unsent_collaboration = bool(resume) or self.policy.planning
        if resume:
            method = "thread/fork" if self._start.settings.get("fork") else "thread/resume"
            self._rpc.ask(method, {"threadId": resume, "excludeTurns": True, **params})
        else:
            self._rpc.ask("thread/start", params)

    def opened(self, result: ThreadResult) -> None:
        """The thread is open: announce it."""
        self.id = result.thread.id
        self.token = ResumeToken(self._output.engine, self.id)
        self._first_model = result.model
        self.know(
            model=result.model,
            permission_mode=self.mode,
            version=result.thread.cli_version,
            cwd=result.thread.cwd or self._start.cwd,
            reasoning=self._effort or result.reasoning_effort,
        )
        if self.expected is not None and self.expected != self.token:
            self._output.events.append(SessionChangedEvent(self._output.engine, self.token, "fork"))
        self._compare(result)

    def _compare(self, result: ThreadResult) -> None:
        """Managed settings of a machine may forbid what was asked for; that must not go unseen."""
        sandbox = result.sandbox.get("type") if isinstance(result.sandbox, dict) else None
        found = (result.approval_policy, _SANDBOXES.get(str(sandbox), sandbox))
        wanted = (self.policy.approval, self.policy.sandbox)
        if all(found) and found != wanted:
            self._output.warning(
                f"Codex runs with approvals {found[0]} and sandbox {found[1]}, not {wanted[0]} and {wanted[1]}",
                {"asked": list(wanted), "reported": [str(value) for value in found]},
            )

    def know(self, **facts: Any) -> None:
        """Facts for `StartedEvent.meta`: told once in full, and again when one that people look at has changed."""
        facts = {name: value for name, value in facts.items() if value}
        changed = {name for name, value in facts.items() if self._facts.get(name) != value}
        self._facts |= facts
        if self.token is not None and (not self._told or changed & _TOLD_ANEW):
            self._told = True
            title = self.model or "Codex"
            self._output.events.append(StartedEvent(self._output.engine, self.token, title, dict(self._facts)))

    # -------------------------------------------------------------------------------------------------------- turns

    def set_mode(self, mode: str) -> None:
        """The permission mode from the next turn on. One that there is not, or that is not allowed, asks."""
        allowed = allowed_mode(mode, self._start.settings)
        if allowed != mode:
            self._output.warning(f"Codex has no permission mode {mode!r} here, so it asks (mode {allowed!r})")
        before, self.mode = self.policy, allowed
        self._unsent_policy |= (before.approval, before.sandbox) != (self.policy.approval, self.policy.sandbox)
        self._unsent_collaboration |= before.planning != self.policy.planning
        self.know(permission_mode=self.mode)

    def set_model(self, model: str | None) -> None:
        """The model from the next turn on; None is the one that the thread began with."""
        self._model = model or self._first_model
        self.know(model=self._model)

    def set_effort(self, effort: str | None) -> None:
        """How hard the model thinks, from the next turn on; None leaves it as it is."""
        self._effort = effort or self._effort
        self.know(reasoning=self._effort)

    def overrides(self) -> dict[str, Any]:
        """What the next `turn/start` has to change; Codex keeps it for all later turns."""
        params: dict[str, Any] = {}
        if self._model is not None:
            params["model"], self._model = self._model, None
        if self._unsent_policy:
            params["approvalPolicy"] = self.policy.approval
            params["sandboxPolicy"] = sandbox_policy(self.policy.sandbox)
        if self._effort is not None:
            params["effort"] = self._effort
        if self._unsent_collaboration:
            settings = {"model": self.model, "reasoning_effort": self._effort, "developer_instructions": None}
            params["collaborationMode"] = {
                "mode": "plan" if self.policy.planning else "default",
                "settings": settings,
            }
        self._unsent_policy = self._unsent_collaboration = False
        return params
