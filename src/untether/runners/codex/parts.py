"""The parts of one session, made together and shared by what works on them."""

from __future__ import annotations

from ...model import EngineId
from ...session import StartFacts
from ..output import Output
from ..turns import Turns
from .notices import Notices
from .plan import PlanGate
from .prompts import Ledger
from .requests import Requests
from .rpc import Rpc
from .steps import Steps
from .thread import Thread
from .usage import Meter


class Parts:
    """`root` is the agent's folder without a slash at its end."""

    def __init__(self, engine: str) -> None:
        self.root = ""
        self.output = output = Output(EngineId(engine))
        self.rpc = Rpc(output)
        self.thread = Thread(output, self.rpc)
        self.ledger = Ledger(output)
        self.turns = Turns(output)
        self.steps = Steps(output)
        self.requests = Requests(output, self.rpc)
        self.plan = PlanGate(output)
        self.notices = Notices(output)
        self.meter = Meter(output)

    def begin(self, start: StartFacts) -> None:
        self.root = start.cwd.rstrip("/")
        self.requests.attended = start.settings.get("attended") is not False
        self.requests.questions = start.settings.get("ask_questions") is not False
        self.thread.begin(start)
