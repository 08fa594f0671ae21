"""The two forms in which Claude Code is run.

Control mode keeps stdin open for messages, answers and requests. The one-shot form takes one prompt and cannot ask.
"""

from __future__ import annotations

from ...session import Capabilities

CONTROL = Capabilities(
    interactive_permissions=True,
    questions=True,
    plan=True,
    steer=True,
    followup=True,
    interrupt=True,
    set_model=True,
    images=True,
    documents=True,
    set_effort=True,
    stop_task=True,
    fork=True,
    rewind=True,
    partial_text=True,
    cost=True,
    continue_latest=True,
)
ONE_SHOT = Capabilities(cost=True, continue_latest=True)
CANNOT_ASK = "This form cannot ask: what needs your permission is refused."
