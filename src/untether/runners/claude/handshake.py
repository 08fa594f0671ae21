"""A Claude Code that is started only to be asked something: it is greeted, and no model is called."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import anyio

from ...process.direct import DirectProcess
from ...process.host import SpawnFailed
from ...runner_context import RunOptions
from ...session import Place, Prompt, StartFacts
from . import frames

if TYPE_CHECKING:
    from .runner import ClaudeRunner

_PATIENCE_S = 20.0  # a cold start takes under a second; several at once on a small machine take 3
_GREETED = b'"control_response"'
_BEGUN = b'"subtype":"init"'


class Heard(NamedTuple):
    """`greeting` is the answer to `initialize`, `begun` the `init` of a turn; `failure` says what went wrong."""

    greeting: bytes = b""
    begun: bytes = b""
    failure: str = ""


async def greet(runner: ClaudeRunner, environ: Mapping[str, str], *, turn: bool = False) -> Heard:
    """Start it in an empty folder and greet it. `turn`: and have it begin a turn, by a command that calls no model."""
    id = uuid.uuid4().hex
    with TemporaryDirectory(prefix="untether-") as folder:
        settings = {**runner.start_settings(RunOptions()), "interactive": True}
        start = StartFacts(id, runner.engine, folder, settings=settings)
        launch = runner.launch(start, Prompt(id, ""), environ=environ)
        try:
            async with DirectProcess.spawned(launch, clock=runner.clock) as process:
                process.write(Place(0, 0), frames.control_request(id, "initialize"))
                if turn:
                    process.write(Place(0, 0, 1), frames.user_message(str(uuid.uuid4()), "/clear"))
                with anyio.move_on_after(_PATIENCE_S):
                    return await _listen(process, turn=turn)
                return Heard(failure=f"it did not answer within {_PATIENCE_S:.0f} s")
        except SpawnFailed as failure:
            return Heard(failure=failure.reason)


async def _listen(process: DirectProcess, *, turn: bool) -> Heard:
    heard = Heard()
    async for batch in process.batches():
        for line in batch:
            if _GREETED in line.data:
                heard = heard._replace(greeting=line.data)
            elif _BEGUN in line.data:
                heard = heard._replace(begun=line.data)
        if heard.greeting and (heard.begun or not turn):
            return heard
    exit = await process.wait()
    return Heard(failure=exit.stderr_tail.strip() or "it ended without an answer")
