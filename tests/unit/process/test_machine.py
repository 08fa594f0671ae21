"""How much memory is left: the smallest of what the kernel and the control groups around us allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from untether.process.machine import machine_facts

MIB = 1024 * 1024
MEMINFO = (
    "MemTotal:        8000000 kB\nMemFree:          100000 kB\nMemAvailable:    4096000 kB\nHugePages_Total:   0\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", MEMINFO)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_the_kernel_is_believed(root: Path) -> None:
    facts = machine_facts(root)
    assert (facts.available, facts.total) == (4_096_000 * 1024, 8_000_000 * 1024)
    assert facts.available_mb == 4000


def test_the_tightest_group_of_version_2_counts_and_its_cache_is_free(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/user.slice/untether.service\n")
    groups = root / "sys/fs/cgroup"
    write(groups / "user.slice/memory.max", f"{1000 * MIB}\n")
    write(groups / "user.slice/memory.current", f"{900 * MIB}\n")
    write(groups / "user.slice/memory.stat", f"anon 1\ninactive_file {200 * MIB}\n")
    write(groups / "user.slice/untether.service/memory.max", "max\n")
    write(groups / "user.slice/untether.service/memory.current", f"{10 * MIB}\n")
    facts = machine_facts(root)
    assert facts.available_mb == 300
    assert facts.total == 1000 * MIB


def test_a_container_of_version_2_sees_its_own_group_at_the_top(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/\n")
    write(root / "sys/fs/cgroup/memory.max", f"{512 * MIB}\n")
    write(root / "sys/fs/cgroup/memory.current", f"{600 * MIB}\n")
    assert machine_facts(root).available == 0


@pytest.mark.parametrize("path", ["docker/abc", "not/mounted/here"])
def test_version_1_in_the_group_or_at_the_mount_of_a_container(root: Path, path: str) -> None:
    write(root / "proc/self/cgroup", f"7:cpu,cpuacct:/x\n5:memory:/{path}\n0::/x\n")
    group = root / "sys/fs/cgroup/memory" / (path if path.startswith("docker") else "")
    write(group / "memory.limit_in_bytes", f"{700 * MIB}\n")
    write(group / "memory.usage_in_bytes", f"{600 * MIB}\n")
    write(group / "memory.stat", f"total_inactive_file {50 * MIB}\n")
    assert machine_facts(root).available_mb == 150


def test_no_limit_of_version_1_is_a_huge_number(root: Path) -> None:
    write(root / "proc/self/cgroup", "5:memory:/\n")
    write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n")
    assert machine_facts(root).available_mb == 4000


def test_another_system_is_asked_through_psutil(tmp_path: Path) -> None:
    facts = machine_facts(tmp_path)
    assert 0 < facts.available <= facts.total
