"""The parts of one session, made together and shared by what works on them."""

from __future__ import annotations

from ...model import EngineId
from .actions import Actions
from .background import Background
from .compaction import Compaction
from .control import Control
from .identity import Identity
from .interactions import Interactions
from .interrupts import Interrupts
from .limits import Limits
from .messages import Messages
from .notices import Notices
from .output import Output
from .permissions import Permissions
from .prompts import Ledger
from .reports import Reports
from .schedules import Schedules
from .turns import Turns
from .usage import Meter


class Parts:
    """`name` is what people call the agent; `first_prompt` the id of the message that the process was begun with."""

    def __init__(self, engine: str, name: str) -> None:
        self.name = name
        self.interactive = True
        self.first_prompt = ""
        self.output = output = Output(EngineId(engine))
        self.identity = Identity(output, name)
        self.ledger = Ledger(output)
        self.turns = Turns(output)
        self.actions = Actions(output)
        self.interactions = Interactions(output)
        self.control = Control(output, name)
        self.messages = Messages(output)
        self.interrupts = Interrupts(self.control, self.ledger, self.messages)
        self.background = Background()
        self.schedules = Schedules(output)
        self.permissions = Permissions(output, self.interactions, self.background, self.turns, name)
        self.notices = Notices(output)
        self.compaction = Compaction(output)
        self.limits = Limits(output)
        self.reports = Reports(self.control, output)
        self.meter = Meter()
