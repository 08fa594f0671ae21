"""What an agent started: finding it in the process table, though tools open their own sessions and get orphaned."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Set

import psutil

from .environment import PROCESS_VARIABLE


def descendants(pid: int) -> set[psutil.Process]:
    """Children of `pid` and theirs, as of now. Each is known by pid and start time: a pid alone may be used again."""
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return set()


def sessions(processes: Iterable[psutil.Process]) -> set[int]:
    """The sessions that `processes` are in."""
    found = set()
    for process in processes:
        try:
            found.add(os.getsid(process.pid))
        except OSError:
            continue
    return found


def living(pid: int, process_id: str, known: Set[psutil.Process], known_sessions: Set[int]) -> list[psutil.Process]:
    """All that lives of the agent `pid`, itself included.

    It is in the agent's session or a known one, or a known descendant, or carries `process_id` in its environment,
    or descends from such a process. Zombies do not live. Takes some milliseconds: for a worker thread.
    """
    ours = ({pid} | known_sessions) - {os.getsid(0)}
    found: dict[int, psutil.Process] = {}
    children: defaultdict[int, list[psutil.Process]] = defaultdict(list)
    for candidate in psutil.pids():
        if candidate == os.getpid():
            continue
        try:
            process = psutil.Process(candidate)
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                children[process.ppid()].append(process)
            if process in known or os.getsid(candidate) in ours or _carries(process, process_id):
                found[candidate] = process
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or another user's
    pending = list(found)
    while pending:
        for child in children[pending.pop()]:
            if child.pid not in found:
                found[child.pid] = child
                pending.append(child.pid)
    return list(found.values())


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Signal each process that is still the same."""
    for process in processes:
        try:
            process.send_signal(number)
        except (psutil.Error, OSError):
            continue


def _carries(process: psutil.Process, process_id: str) -> bool:
    if not process_id:
        return False
    try:
        return process.environ().get(PROCESS_VARIABLE) == process_id
    except (psutil.Error, OSError):
        return False
