"""The words and buttons around quotas, budgets and logins."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..store.ledger import PlaceSpent, Spent
from ..text import words
from ..text.blocks import Block, Code, Line
from ..transport import Button, Card, Rows
from . import cards

# Data of buttons; see `cards`. The first two are about a schedule, ANYWAY about a run, the others about an engine.
LATER, NOT_LATER, ANYWAY, LOGIN, TRY_NOW = "later", "notlater", "anyway", "login", "trynow"

_CONTINUES = "⏳ continues at "
_CONTINUED = "✓ continued at "


def with_lines(card: Card, lines: Sequence[str], buttons: Rows = ()) -> Card:
    """A card with further lines under its content, and further rows of buttons."""
    blocks = (*card.blocks, *(Line(line) for line in lines))
    return msgspec.structs.replace(card, blocks=blocks, buttons=(*card.buttons, *buttons))


def _plain(card: Card) -> Card:
    """A card without what says or offers that its run is continued later."""
    blocks = tuple(
        block
        for block in card.blocks
        if not (isinstance(block, Line) and block.text.startswith((_CONTINUES, _CONTINUED)))
    )
    rows = (
        tuple(button for button in row if button.data.partition(":")[0] not in (LATER, NOT_LATER))
        for row in card.buttons
    )
    return msgspec.structs.replace(card, blocks=blocks, buttons=tuple(row for row in rows if row))


def continue_offered(card: Card, schedule_id: int, at: str) -> Card:
    """A failure that may be gone on with at a time, such as `14:30`."""
    return with_lines(_plain(card), (), ((Button(f"Continue at {at}", f"{LATER}:{schedule_id}"),),))


def continue_planned(card: Card, schedule_id: int, at: str) -> Card:
    return with_lines(_plain(card), (f"{_CONTINUES}{at}",), ((Button("Cancel", f"{NOT_LATER}:{schedule_id}"),),))


def continued(card: Card, at: str) -> Card:
    """It was gone on with, at its time: there is nothing left to tap but its details."""
    rows = (
        tuple(button for button in row if not button.data.startswith(f"{cards.AGAIN}:")) for row in _plain(card).buttons
    )
    return with_lines(
        msgspec.structs.replace(_plain(card), buttons=tuple(row for row in rows if row)), (f"{_CONTINUED}{at}",)
    )


def not_continued(card: Card) -> Card:
    return _plain(card)


def over_budget(run_id: int, reason: str, reply_to: str) -> Card:
    """A message was not started: the limit is reached."""
    anyway = Button("Run anyway", f"{ANYWAY}:{run_id}")
    return Card((Line(f"■ {reason}"),), buttons=((anyway,),), reply_to=reply_to)


def usage(today: Spent, week: Spent, places: Sequence[PlaceSpent], per_day: float | None) -> Card:
    """What was spent today and since Monday, and by what."""
    limit = f" of {words.money(per_day)}" if per_day is not None else ""
    blocks: list[Block] = [
        Line(f"Today: {_spent(today, limit)}", "bold"),
        Line(f"This week: {_spent(week)}", "bold"),
    ]
    for place in places:
        name = place.place.rstrip("/").rsplit("/", 1)[-1] or place.place
        blocks.append(Line(f"{name} · {place.engine}: {_spent(place.spent)}"))
    if week.unknown:
        blocks.append(Line(f"{_runs(week.unknown)} without a known cost: the engine does not tell it.", "quiet"))
    return Card(tuple(blocks), silent=True)


def _spent(spent: Spent, limit: str = "") -> str:
    parts = [f"{words.money(spent.cost_usd)}{limit}", _runs(spent.runs)]
    if spent.input_tokens or spent.output_tokens:
        parts.append(f"{words.tokens(spent.input_tokens)} in / {words.tokens(spent.output_tokens)} out")
    return " · ".join(parts)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


# ------------------------------------------------------------------------------------------------------ logins


def held(engine: str, message_id: int, reply_to: str) -> Card:
    """Under a message that waits until its engine is logged in."""
    withdraw = Button("Withdraw", f"{cards.WITHDRAW}:{message_id}")
    return Card((Line(f"⏳ waits for the login of {engine}"),), buttons=((withdraw,),), silent=True, reply_to=reply_to)


def login_buttons(engine: str, *, can_log_in: bool) -> Rows:
    try_now = Button("Try now", f"{TRY_NOW}:{engine}")
    return (((Button("Log in", f"{LOGIN}:{engine}"), try_now) if can_log_in else (try_now,)),)


def login_lost_line(engine: str) -> str:
    return f"Messages for {engine} wait until it is logged in again."


def login_lost(engine: str, title: str, *, can_log_in: bool) -> Card:
    """For the owner, when it happened in another chat."""
    lines = (Line(f"✗ {title} is not logged in any more."), Line(login_lost_line(engine)))
    return Card(lines, buttons=login_buttons(engine, can_log_in=can_log_in))


def login_link(title: str, link: str, said: str, *, takes_code: bool) -> Card:
    """The link of a login, for its owner only. `said` is what the program printed, shown when there is no code to
    bring back: it may name one to type on the page."""
    blocks: list[Block] = [Line(f"⏸ Log in to {title}", "bold"), Line(link)]
    if takes_code:
        blocks.append(Line("Open the link, and reply to this message with the code that you get."))
    else:
        blocks += [Code(said), Line("It goes on by itself when you are done there.")]
    blocks.append(Line("/cancel gives it up.", "quiet"))
    return Card(tuple(blocks), buttons=((Button("Open", url=link),),))
