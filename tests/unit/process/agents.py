"""Small programs that stand in for agents, and what tests do with them."""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil

from untether.clock import SystemClock
from untether.process.direct import DirectProcess
from untether.process.host import Launch, Line

PRELUDE = """
import os, signal, subprocess, sys, time
def say(text): os.write(1, (str(text) + "\\n").encode())
def start(*argv, **how): return subprocess.Popen(argv, **how).pid
"""


def launch(source: str, *, stdin: bool = True) -> Launch:
    """An agent that runs this Python source. Every launch carries an id of its own, as in the bridge."""
    return Launch(
        (sys.executable, "-I", "-S", "-c", PRELUDE + dedent(source)),
        cwd=os.getcwd(),
        env={"PATH": os.environ["PATH"], "UNTETHER_PROCESS": uuid.uuid4().hex},
        stdin=stdin,
    )


def spawned(source: str, folder: Path | None = None, **how: Any) -> AbstractAsyncContextManager[DirectProcess]:
    return DirectProcess.spawned(launch(source), clock=SystemClock(), folder=folder, **how)


async def all_lines(process: DirectProcess) -> list[Line]:
    return [line async for batch in process.batches() for line in batch]


async def first_line(process: DirectProcess) -> bytes:
    """Wait until the agent has said something."""
    async for batch in process.batches():
        return batch[0].data
    raise AssertionError("the agent ended without a word")


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
