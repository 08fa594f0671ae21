"""What a process starts with: the settings of its engine, the choices of its chat, and what was granted for good."""

from __future__ import annotations

from typing import Any

from ..runner import RunOptions
from ..store import grants, runs, threads
from ..store.threads import Message, Thread
from .engines import Engine
from .services import Services
from .spending import OVER_BUDGET


def start_settings(services: Services, engine: Engine, thread: Thread, message: Message) -> dict[str, Any]:
    """`StartFacts.settings` for a process that begins with a message. What the message says wins over its chat.

    Beside the engine's own: `preamble`, `resume_model` (that of the last run here) and the limits; when set, `grants`
    (rules in its words) and `ask_questions` (False: it may not ask any).
    """
    read = services.db.read
    options = {name: value for name, value in message.options.items() if name != OVER_BUDGET}
    if engine.runner.capabilities.plan and options.get("permission_mode") is None:
        options["permission_mode"] = read(lambda conn: threads.chosen(conn, message.chat, "permission_mode"))
    settings = engine.runner.start_settings(RunOptions(**options))
    settings["preamble"] = services.options.preamble
    settings["own_schedule"] = services.options.own_schedule
    if thread.session is not None and (model := read(lambda conn: runs.last_model(conn, thread.id))):
        settings["resume_model"] = model
    settings["rearm_plan_mode"] = services.options.rearm_plan_mode
    settings["live_session_max_s"] = services.options.watch.run
    settings["post_result_bg_max_hold"] = services.options.background_hold_s
    if rules := read(lambda conn: grants.rules(conn, thread)):
        settings["grants"] = rules
    if read(lambda conn: threads.chosen(conn, message.chat, "ask_questions")) is False:
        settings["ask_questions"] = False
    return settings
