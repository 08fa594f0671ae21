"""The command `/grants`: the rules that were allowed for good, each with a button to revoke it."""

from __future__ import annotations

from ..store import grants
from ..store.grants import Grant
from ..text import words
from ..text.blocks import Line
from ..transport import Button, Card
from . import cards
from .scheduler import Scheduler
from .services import Services

_SHOWN = 30


class Granted:
    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler

    def card(self) -> Card:
        """All rules by place, with who allowed each and when."""
        found = self._services.db.read(grants.all_)
        if not found:
            return cards.notice("Nothing is allowed for good.", "“Always here” under a request does that.")
        now = self._services.clock.now()
        lines, row = [Line("Allowed for good:", "bold")], list[Button]()
        place = ""
        for number, grant in enumerate(found[:_SHOWN], 1):
            if place != (place := f"{grant.place} · {grant.engine}"):
                lines.append(Line(place))
            when = words.clock_time(grant.granted, self._services.options.zone, now)
            lines.append(Line(f"{number} {grant.rule} · {grant.granted_by} {when}"))
            row.append(Button(f"Revoke {number}", f"{cards.GRANT}:{grant.id}"))
        if len(found) > _SHOWN:
            lines.append(Line(f"and {len(found) - _SHOWN} more", "quiet"))
        rows = tuple(tuple(row[start : start + 3]) for start in range(0, len(row), 3))
        return Card(tuple(lines), buttons=rows)

    async def revoke(self, grant_id: int) -> tuple[str, Card | None]:
        """Revoke a rule. What to answer the tap, and what to tell beside it.

        An agent that is open holds its rules until it ends: it is let go as soon as it is idle.
        """
        services = self._services
        grant = services.db.read(lambda conn: grants.get(conn, grant_id))
        if grant is None or not await services.db.write(lambda conn: grants.revoke(conn, grant_id)):
            return "It was revoked before", None
        held = self._scheduler.renew(lambda live: grant.holds_in(live.thread))
        return "Revoked", _held(grant) if held else None


def _held(grant: Grant) -> Card:
    return cards.notice(
        f"✓ Revoked in {grant.place}: {grant.rule}",
        "An agent that is open there still holds it. It ends as soon as it is idle, and goes on without it with your "
        "next message.",
    )
