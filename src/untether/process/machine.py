"""What the machine has left: memory, as the kernel and the control groups around us count it, and load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from ..model import Record

_MIB = 1024 * 1024


class Machine(Record, frozen=True):
    """`available` bytes may be used without swapping, of `total`; `load` is the mean of one minute, over `cpus`."""

    available: int
    total: int
    load: float = 0.0
    cpus: int = 1

    @property
    def available_mb(self) -> int:
        return self.available // _MIB


def machine_facts(root: Path = Path("/")) -> Machine:
    """As of now; some small files are read. `root` is where /proc and /sys are."""
    available, total = _memory(root)
    for limit, used in _limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Machine(available, total, psutil.getloadavg()[0], os.cpu_count() or 1)


def _memory(root: Path) -> tuple[int, int]:
    """Available and total bytes: MemAvailable is the estimate of the kernel (proc(5)); elsewhere psutil has one."""
    fields = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            fields[name] = int(number[0]) * 1024
    if "MemAvailable" in fields and "MemTotal" in fields:
        return fields["MemAvailable"], fields["MemTotal"]
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """The limits in bytes of the control groups that we are in, and what is used of each.

    File cache that the kernel drops first (`inactive_file`) counts as free. Version 2 has one tree in /sys/fs/cgroup,
    version 1 one for memory (cgroups(7)).
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            names, mount = ("memory.max", "memory.current", "inactive_file"), root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            mount = root / "sys/fs/cgroup/memory"
        else:
            continue
        here = mount / path.strip("/")
        # In a container the path may be that of the host, and the mount is our own group.
        for group in (here, *here.parents) if here.is_dir() and ".." not in here.parts else (mount,):
            if (found := _limit(group, *names)) is not None:
                yield found
            if group == mount:
                break


def _limit(group: Path, limit_name: str, used_name: str, cache_name: str) -> tuple[int, int] | None:
    limit, used = _text(group / limit_name).strip(), _text(group / used_name).strip()
    if not limit.isdigit() or not used.isdigit():
        return None  # "max", or a group without this controller
    cache = 0
    for line in _text(group / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == cache_name and value.strip().isdigit():
            cache = int(value)
    return int(limit), max(0, int(used) - cache)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
