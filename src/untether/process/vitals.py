"""Whether an agent that prints nothing is at work: what CPU time it and its programs use."""

from __future__ import annotations

import os
from contextlib import suppress

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


def _descendants(agent: psutil.Process) -> list[psutil.Process]:
    """All that the agent started. The kernel of Linux knows the children of each; elsewhere every process is looked at,
    which with many agents is much work."""
    found: list[psutil.Process] = []
    waiting = [agent.pid]
    while waiting:
        parent = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
            children = [pid for thread in threads for pid in _children(parent, thread)]
        except FileNotFoundError:
            if parent == agent.pid:
                return agent.children(recursive=True)
            continue  # it has ended
        for pid in children:
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
                waiting.append(pid)
    return found


def _children(parent: int, thread: str) -> list[int]:
    with open(f"/proc/{parent}/task/{thread}/children") as file:
        return [int(pid) for pid in file.read().split()]


def _look(pid: int) -> Vitals | None:
    try:
        agent = psutil.Process(pid)
        if agent.status() == psutil.STATUS_ZOMBIE:
            return Vitals(alive=False)
        family = [agent, *_descendants(agent)]
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
