"""What a decision is on the wire: the result of each request of Codex that a person answers.

The forms are those of the recordings as_exec_*, as_patch_*, as_mcp_* and as_user_input. A plain denial is `decline`,
with which the agent goes on; `cancel` also ends the turn. No request takes a reason: it is said to the agent beside.
"""

from __future__ import annotations

from typing import Any

from ...model import Allow, Answers, Decision, Deny
from ...schemas import codex as schema
from .asked import ALWAYS, SESSION, field_answers


def reply(asked: schema.Asked, decision: Decision) -> dict[str, Any] | None:
    """The result for a request; None when the decision makes no sense for it."""
    match asked:
        case schema.CommandApproval():
            chosen = _command(asked, decision)
            return None if chosen is None else {"decision": chosen}
        case schema.PatchApproval():
            return None if isinstance(decision, Answers) else {"decision": _plain(decision)}
        case schema.PermissionsApproval():
            return None if isinstance(decision, Answers) else _permissions(asked, decision)
        case schema.UserInput():
            return _answers(asked, decision)
        case schema.Elicitation():
            return _elicitation(asked, decision)


def _plain(decision: Allow | Deny) -> str:
    if isinstance(decision, Deny):
        return "cancel" if decision.interrupt else "decline"
    return "acceptForSession" if decision.scope == SESSION else "accept"


def _command(asked: schema.CommandApproval, decision: Decision) -> Any:
    if isinstance(decision, Answers):
        return None
    choice = decision.scope if isinstance(decision, Allow) else decision.choice
    if choice == ALWAYS and asked.proposed_execpolicy_amendment:
        amendment = list(asked.proposed_execpolicy_amendment)
        return {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": amendment}}
    offered = asked.proposed_network_policy_amendments or ()
    kind, _, place = choice.partition(":")
    if kind == "network" and place.isdecimal() and int(place) < len(offered):
        chosen = offered[int(place)]
        amendment_ = {"host": chosen.host, "action": chosen.action}
        return {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendment_}}
    return _plain(decision)


def _permissions(asked: schema.PermissionsApproval, decision: Allow | Deny) -> dict[str, Any]:
    if isinstance(decision, Deny) or not isinstance(asked.permissions, dict):
        return {"permissions": {}, "scope": "turn"}
    granted = {name: value for name, value in asked.permissions.items() if value is not None}
    return {"permissions": granted, "scope": "session" if decision.scope == SESSION else "turn"}


def _answers(asked: schema.UserInput, decision: Decision) -> dict[str, Any] | None:
    """Without an answer the agent hears that there is none."""
    if isinstance(decision, Allow):
        return None
    given = decision.by_question if isinstance(decision, Answers) else {}
    answers = {
        question.id: {"answers": [given[question.question]]}
        for question in asked.questions
        if question.question in given
    }
    return {"answers": answers}


def _elicitation(asked: schema.Elicitation, decision: Decision) -> dict[str, Any]:
    match decision:
        case Allow(scope):
            meta = {"persist": scope} if scope in (SESSION, ALWAYS) else None
            return {"action": "accept", "content": {}, "_meta": meta}
        case Answers(by_question):
            return {"action": "accept", "content": field_answers(asked.schema, by_question), "_meta": None}
        case Deny(interrupt=interrupt):
            return {"action": "cancel" if interrupt else "decline", "content": None, "_meta": None}
