"""What an ACP agent can do: what is known before it was asked, and what it says of itself."""

from __future__ import annotations

from msgspec.structs import replace

from ...schemas.acp import Initialized
from ...session import Capabilities
from .agents import Agent


def capabilities_of(agent: Agent, told: Initialized | None = None) -> Capabilities:
    """`told` is its answer to the greeting; before that, what most agents can do counts."""
    known = Capabilities(
        interactive_permissions=True,
        plan="plan" in agent.modes,
        steer=agent.steers,
        followup=True,
        interrupt=not agent.cancel_leaves_work,
        set_model=True,
        set_effort=True,
        images=True,
        cost=True,
        resume=True,
    )
    if told is None:
        return known
    able = told.agent_capabilities
    return replace(
        known,
        images=able.prompt_capabilities.image,
        resume=able.load_session or "resume" in able.session_capabilities,
    )
