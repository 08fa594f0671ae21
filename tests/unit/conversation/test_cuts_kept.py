"""The bridge dies after each of its commits in turn while its agents go on: nothing is lost, and nothing done twice."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.chat import FakeChat, office_with
from tests.unit.conversation.test_cuts import PowerCut, Writes, settled
from untether.conversation.office import Office
from untether.process.hosts import Keepers
from untether.process.kept import KeeperLimits

pytestmark = pytest.mark.anyio

LIMITS = KeeperLimits(orphan=20.0, retention=5.0)
COMMITS = 26  # more than the conversation needs without a cut


def facts(office: Office) -> dict[str, Any]:
    """What is left of the conversation in the store, without times and ids."""

    def read(conn: sqlite3.Connection) -> dict[str, Any]:
        def rows(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in conn.execute(sql)]

        return {
            "runs": rows("SELECT title, state, answer <> '', steps FROM runs ORDER BY id"),
            "messages": rows("SELECT text, state FROM messages ORDER BY id"),
            "requests": rows("SELECT state, decision FROM interactions ORDER BY opened"),
            "answers": rows("SELECT COUNT(*) FROM deliveries WHERE role = 'answer' AND act = 'send'"),
            "inputs": rows("SELECT json_extract(item, '$.type') FROM inputs ORDER BY process_id, ordinal"),
            "open": rows("SELECT COUNT(*) FROM deliveries WHERE state IN ('pending', 'sending')"),
        }

    return office.services.db.read(read)


async def talk(chat: FakeChat, office: Office, said: list[str]) -> None:
    """Ann says what she has not said yet, approves what she is asked, and waits until all is done."""
    for text in ("permission please", "hello there"):
        if text not in said:
            said.append(text)
            await chat.say(text)

    def button() -> Any:
        return next((shown for shown in chat.messages if "Approve" in shown.labels and not shown.deleted), None)

    while not settled(office):
        await chat.until(lambda: settled(office) or (button() is not None and button().message_id not in said))
        if (asked := button()) is not None and asked.message_id not in said:
            said.append(asked.message_id)
            await chat.tap(asked, "Approve")


async def conversation(folder: Path, monkeypatch: pytest.MonkeyPatch, last: int | None) -> dict[str, Any]:
    """Its facts, after a cut at commit `last`."""
    chat, said = FakeChat(), list[str]()
    home = folder / "processes"
    if last is not None:
        with monkeypatch.context() as patch:
            try:
                async with office_with(folder, chat, host=Keepers(home, epoch=1, limits=LIMITS)) as office:
                    Writes(office.services.db, patch, last)
                    await talk(chat, office, said)
            except BaseExceptionGroup as group:
                _, others = group.split(PowerCut)
                if others is not None:
                    raise others from None
    chat.inbox = None
    async with office_with(folder, chat, host=Keepers(home, epoch=2, limits=LIMITS)) as office:
        stored = office.services.db.read(
            lambda conn: [bytes(row[0]) for row in conn.execute("SELECT raw FROM updates")]
        )
        said = [word for word in said if any(f'"{word}"'.encode() in raw for raw in stored)]  # the rest was not stored
        with anyio.fail_after(15):
            await talk(chat, office, said)
        for process in office.scheduler.processes():
            await process.close()
        return facts(office)


@pytest.mark.parametrize("last", range(COMMITS))
async def test_a_cut_at_any_commit_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    assert await conversation(tmp_path, monkeypatch, last) == {
        "runs": [("permission please", "done", 1, 1), ("hello there", "done", 1, 0)],
        "messages": [("permission please", "answered"), ("hello there", "answered")],
        "requests": [("decided", '{"type":"allow"}')],
        "answers": [(2,)],
        "inputs": [("begin",), ("decide",), ("say",), ("end",)],
        "open": [(0,)],
    }
