"""Whether an agent that prints nothing is at work: what CPU time it and its programs use."""

from __future__ import annotations

import anyio
import anyio.to_thread
import psutil

from .host import Vitals

_PATIENCE_S = 2.0  # a busy machine with many processes answers late; then nothing is known, for once


async def vitals_of(pid: int) -> Vitals | None:
    """The vitals of the agent `pid` on this machine; None when they cannot be told. Bounded, and in a thread."""
    with anyio.move_on_after(_PATIENCE_S):
        return await anyio.to_thread.run_sync(_look, pid, abandon_on_cancel=True)
    return None


def _look(pid: int) -> Vitals | None:
    try:
        agent = psutil.Process(pid)
        if agent.status() == psutil.STATUS_ZOMBIE:
            return Vitals(alive=False)
        family = [agent, *agent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return Vitals(alive=False)
    except psutil.Error:
        return None
    seconds, living = 0.0, 0
    for process in family:
        try:
            times = process.cpu_times()
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
        except psutil.Error:
            continue  # ended meanwhile: its parent has its time from now on
        # Its own time and that of its ended children, so that the sum does not fall when a short command ends.
        seconds += times.user + times.system + times.children_user + times.children_system
        living += 1
    return Vitals(cpu_seconds=seconds, children=max(0, living - 1))
