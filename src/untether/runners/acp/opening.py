"""From the greeting to a session that is ready: initialize, log in, begin or load, then mode, model and effort.

The first message leaves only when all of this was answered, so that nothing is done in a mode that was not asked for.
An agent that does not answer in time, speaks another version or does not have what the settings name ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ... import __version__
from ...model import EngineId, ResumeToken, StartedEvent
from ...schemas import acp
from ...schemas.jsonrpc import Failure
from ...session import StartFacts
from ..claude.output import Output
from . import outcomes
from .agents import AGENTS, UNLISTED, Agent
from .outcomes import Outcome
from .wire import Wire

GREETING_S = 60.0  # a cold start takes 4 s; several at once on a small machine take far longer
OPENING_S = 120.0  # loading a session replays all of it
_ASKING = ("default", "ask", "manual", "read-only")  # modes that ask, by what agents call them

CLIENT_CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


def greeting() -> dict[str, Any]:
    """The params of `initialize`: files and terminals of the client's are not offered."""
    return {
        "protocolVersion": acp.VERSION,
        "clientCapabilities": CLIENT_CAPABILITIES,
        "clientInfo": {"name": "untether", "title": "Untether", "version": __version__},
    }


class Opening:
    """`on_ready` is called once, when messages may leave; `on_failure` when they never will."""

    def __init__(
        self, output: Output, wire: Wire, name: str, on_ready: Callable[[], None], on_failure: Callable[[Outcome], None]
    ) -> None:
        self._output = output
        self._wire = wire
        self._on_ready = on_ready
        self._on_failure = on_failure
        self.name = name
        self.agent: Agent = UNLISTED
        self.greeted = False
        self.ready = False
        self.told = acp.Initialized()
        self.session_id = ""
        self.modes: acp.Modes | None = None
        self.models: acp.Models | None = None
        self.options: dict[str, acp.ConfigOption] = {}  # by category
        self._start: StartFacts | None = None
        self._announced = False
        self._facts: dict[str, Any] = {}

    @property
    def token(self) -> ResumeToken | None:
        """The session: the one that was begun, else the one to resume."""
        if self.session_id:
            return ResumeToken(self._output.engine, self.session_id)
        return self._start.resume if self._start is not None else None

    @property
    def resumed(self) -> bool:
        return self._start is not None and self._start.resume is not None

    # ------------------------------------------------------------------------------------------------------ the steps

    def begin(self, start: StartFacts, now: float) -> None:
        self._start = start
        self.agent = AGENTS.get(str(start.settings.get("agent") or ""), UNLISTED)
        self._output.tick_at(now + GREETING_S)
        self._wire.request("initialize", greeting(), self._greeted, self._not_greeted)

    def tick(self) -> None:
        """The agent took too long."""
        if not self.ready:
            doing = "answer the greeting of the Agent Client Protocol" if not self.greeted else "open a session"
            self._fail(outcomes.silent(self.name, OPENING_S if self.greeted else GREETING_S, doing))

    def extend(self, now: float) -> None:
        """The agent has greeted: opening the session may take longer."""
        if self.greeted and not self.ready:
            self._output.tick_at(now + OPENING_S)

    def _greeted(self, result: Any) -> None:
        try:
            self.told = acp.read(acp.Initialized, result)
        except ValueError:
            self._fail(outcomes.malformed(self.name, "initialize"))
            return None
        if self.told.protocol_version != acp.VERSION or isinstance(self.told.protocol_version, bool):
            self._fail(outcomes.other_version(self.name, self.told.protocol_version))
            return None
        self.greeted = True
        method = str(self._settings.get("auth") or "")
        if not method:
            return self._open()
        self._ask("authenticate", {"methodId": method}, lambda _: self._open(), self._not_opened)
        return None

    def _not_greeted(self, failure: Failure) -> None:
        self._fail(outcomes.greeting_refused(failure, self.name))

    def _open(self) -> None:
        start = self._start
        assert start is not None
        where = {"cwd": start.cwd, "mcpServers": []}
        if start.resume is None:
            return self._ask("session/new", where, self._opened, self._not_opened)
        able = self.told.agent_capabilities
        known = {"sessionId": start.resume.value, **where}
        if able.load_session:
            return self._ask("session/load", known, self._opened, self._not_opened)
        if "resume" in able.session_capabilities:
            return self._ask("session/resume", known, self._opened, self._not_opened)
        return self._fail(outcomes.cannot_resume(self.name))

    def _opened(self, result: Any) -> None:
        assert self._start is not None
        try:
            opened = acp.read(acp.Opened, {} if result is None else result)
        except ValueError:
            self._fail(outcomes.malformed(self.name, "session/new"))
            return
        resume = self._start.resume
        self.session_id = resume.value if resume is not None else opened.session_id
        if not self.session_id:
            self._fail(outcomes.malformed(self.name, "session/new"))
            return
        self.modes, self.models = opened.modes, opened.models
        self.configured(opened.config_options)
        self._choose([self._set_mode, self._set_model, self._set_effort])

    def _not_opened(self, failure: Failure) -> None:
        methods = self.told.auth_methods
        self._fail(
            outcomes.not_opened(failure, name=self.name, agent=self.agent, methods=methods, resumed=self.resumed)
        )

    def _choose(self, rest: list[Callable[[Callable[[], None]], None]]) -> None:
        """Set what is to be set, one after the other: the model decides which efforts there are."""
        if rest:
            rest[0](lambda: self._choose(rest[1:]))
            return
        self.ready = True
        self._output.tick_at(None)
        self.know(
            model=self._current("model"),
            permission_mode=self._current("mode"),
            version=self.told.agent_info.version if self.told.agent_info else "",
        )
        self._on_ready()

    # --------------------------------------------------------------------------------------- modes, models, efforts

    def _set_mode(self, then: Callable[[], None]) -> None:
        """The mode of the settings, else one in which the agent asks."""
        wanted = str(self._settings.get("permission_mode") or "")
        named = str(self._settings.get("mode") or "")
        offered = self.offered_modes()
        if wanted not in ("", "default", "manual"):
            if self.mode_named(wanted) in offered:
                named = self.mode_named(wanted)
            else:
                self._output.warning(f"{self.name} has no mode for {wanted}; it starts in the one in which it asks")
        chosen = named or self.asking_mode()
        if not chosen or chosen == self._current("mode"):
            return then()
        if chosen not in offered and not named:
            self._output.warning(f"{self.name} has no mode {chosen!r}, in which it is known to ask")
            return then()
        if chosen not in offered:
            self._fail(outcomes.no_such("mode", chosen, offered, self.name))
            return None
        return self._set("mode", chosen, then)

    def _set_model(self, then: Callable[[], None]) -> None:
        """One that the agent does not list is tried too: some take short names."""
        wanted = str(self._settings.get("model") or "")
        offered = self.offered_models()
        if not wanted or wanted == self._current("model"):
            return then()
        if not offered:
            self._fail(outcomes.no_such("model", wanted, offered, self.name))
            return None
        return self._set("model", wanted, then)

    def _set_effort(self, then: Callable[[], None]) -> None:
        wanted = str(self._settings.get("reasoning") or "")
        option = self.options.get("thought_level")
        if not wanted or (option is not None and option.current_value == wanted):
            return then()
        if option is None or wanted not in option.values():
            offered = ", ".join(option.values()) if option is not None else ""
            known = f"; it offers {offered}" if offered else ""
            self._output.warning(f"{self.name} has no effort {wanted!r}{known}")
            return then()
        return self._set("thought_level", wanted, then)

    def _set(self, category: str, value: str, then: Callable[[], None]) -> None:
        what = {"thought_level": "effort"}.get(category, category)

        def failed(failure: Failure) -> None:
            self._fail(outcomes.not_set(what, value, failure, self.name))

        self._request_change(category, value, then, failed)

    def change(self, category: str, value: str) -> None:
        """Change something of a session that is ready; a refusal is told as a warning."""
        what = {"thought_level": "effort"}.get(category, category)

        def failed(failure: Failure) -> None:
            self._output.warning(f"{self.name} did not take the {what} {value!r}", {"error": failure.message[:500]})

        self._request_change(category, value, lambda: None, failed)

    def _request_change(
        self, category: str, value: str, then: Callable[[], None], failed: Callable[[Failure], None]
    ) -> None:
        id = {"sessionId": self.session_id}

        def done(result: Any) -> None:
            if isinstance(result, dict) and isinstance(result.get("configOptions"), list):
                self.configured(acp.read(acp.Opened, {"configOptions": result["configOptions"]}).config_options)
            self._took(category, value)
            then()

        option = self.options.get(category)
        if category == "mode" and self.modes is not None and self.modes.available_modes:
            self._wire.request("session/set_mode", {**id, "modeId": value}, done, failed)
        elif option is not None:
            params = {**id, "configId": option.id, "value": value}
            self._wire.request("session/set_config_option", params, done, failed)
        elif category == "model" and self.models is not None:
            self._wire.request("session/set_model", {**id, "modelId": value}, done, failed)
        else:
            self._output.warning(f"{self.name} offers no choice of a {category}")
            then()

    def _took(self, category: str, value: str) -> None:
        if (option := self.options.get(category)) is not None:
            self.options[category] = replace(option, current_value=value)
        if category == "mode":
            self.in_mode(value)
        elif category == "model":
            self.know(model=value)

    def in_mode(self, mode: str) -> None:
        if self.modes is not None:
            self.modes = acp.Modes(mode, self.modes.available_modes)
        self.know(permission_mode=mode)

    def configured(self, options: list[acp.ConfigOption]) -> None:
        self.options |= {option.category: option for option in options if option.category}

    def asking_mode(self) -> str:
        """The mode in which the agent asks; "" when none is known by its name."""
        offered = self.offered_modes()
        return self.agent.mode or next((mode for mode in _ASKING if mode in offered), "")

    def mode_named(self, permission_mode: str) -> str:
        """The agent's own mode for one of our names; a name of its own stays."""
        return self.agent.modes.get(permission_mode, permission_mode)

    def offered_modes(self) -> list[str]:
        if self.modes is not None and self.modes.available_modes:
            return [mode.id for mode in self.modes.available_modes]
        option = self.options.get("mode")
        return option.values() if option is not None else []

    def offered_models(self) -> list[str]:
        option = self.options.get("model")
        if option is not None:
            return option.values()
        return [model.model_id for model in self.models.available_models] if self.models is not None else []

    def _current(self, category: str) -> str:
        """The value in force; where an agent tells its modes and models as such, that is what counts."""
        if category == "mode" and self.modes is not None and self.modes.current_mode_id:
            return self.modes.current_mode_id
        option = self.options.get(category)
        if option is not None and isinstance(option.current_value, str):
            return option.current_value
        return self.models.current_model_id if category == "model" and self.models is not None else ""

    # ----------------------------------------------------------------------------------------------------- the facts

    def know(self, **facts: Any) -> None:
        """Facts for `StartedEvent.meta`; a change of one that people look at is told again."""
        changed = {name: value for name, value in facts.items() if value and self._facts.get(name) != value}
        self._facts |= changed
        token = self.token
        if not self.ready or token is None or (self._announced and not changed):
            return
        self._announced = True
        engine: EngineId = self._output.engine
        title = str(self._facts.get("model") or self.name)
        self._output.events.append(StartedEvent(engine, token, title, dict(self._facts)))

    @property
    def _settings(self) -> dict[str, Any]:
        return self._start.settings if self._start is not None else {}

    def _ask(
        self, method: str, params: dict[str, Any], done: Callable[[Any], None], failed: Callable[[Failure], None]
    ) -> None:
        self._wire.request(method, params, done, failed)

    def _fail(self, outcome: Outcome) -> None:
        self._output.tick_at(None)
        self._on_failure(outcome)
