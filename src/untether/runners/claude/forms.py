"""The two forms in which Claude Code is run, and what it can be told by the names that people use.

Control mode keeps stdin open for messages, answers and requests. The one-shot form takes one prompt and cannot ask.
"""

from __future__ import annotations

from ...schemas.claude import KNOWN_MODES
from ...session import Capabilities

CONTROL = Capabilities(
    interactive_permissions=True,
    questions=True,
    plan=True,
    steer=True,
    followup=True,
    interrupt=True,
    set_model=True,
    cost=True,
    continue_latest=True,
)
ONE_SHOT = Capabilities(cost=True, continue_latest=True)
CANNOT_ASK = "This form cannot ask: what needs your permission is refused."

# Permission modes as people name them, and as Claude Code gets them. `plan-auto` is ours; `manual` is the newer name of
# `default`, which 2.1.197 does not know and 2.1.332 still takes.
MODES = {mode: mode for mode in sorted(KNOWN_MODES)} | {"plan-auto": "plan", "manual": "default"}
