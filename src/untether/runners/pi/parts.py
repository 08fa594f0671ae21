"""The parts of one session, made together and shared by what works on them."""

from __future__ import annotations

from ...model import EngineId, ResumeToken
from ...session import StartFacts
from ..output import Output
from ..turns import Turns
from .commands import Commands
from .notices import Notices
from .pictures import Pictures
from .prompts import Ledger
from .requests import Requests
from .steps import Steps
from .usage import Meter


class Parts:
    """`token` is the session's once it is known."""

    def __init__(self, engine: str) -> None:
        self.output = output = Output(EngineId(engine))
        self.commands = Commands(output)
        self.ledger = Ledger(output)
        self.turns = Turns(output)
        self.steps = Steps(output)
        self.requests = Requests(output, self.commands)
        self.pictures = Pictures(output)
        self.notices = Notices(output)
        self.meter = Meter(output)
        self.expected: ResumeToken | None = None
        self.token: ResumeToken | None = None

    def begin(self, start: StartFacts) -> None:
        self.steps.root = start.cwd.rstrip("/")
        self.expected = start.resume
        self.requests.begin(start)
