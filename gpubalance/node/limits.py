"""What the kernel grants this process: files, locked memory, stack, shared memory, its control group."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubalance.node.host import cgroup_folders, cgroup_quota, read_text
from gpubalance.node.part import Part, error_name, merged, names_in, part
from gpubalance.node.users import user_name

STALE_AFTER_S = 3600.0
"""A job unlinks its segments within seconds of its start or at its end."""

MOST_STALE = 100

_SEGMENTS = ("nccl-", "torch_")
"""How NCCL and torch name their files in /dev/shm."""

_CPU_STAT = {"nr_periods": "cgroup_periods", "nr_throttled": "cgroup_periods_throttled"}

_NO_LIMIT_BYTES = 1 << 60
"""The first version of control groups says almost 2^63 where there is no limit."""

_SYS_NICE_BIT = 23
"""linux/capability.h, CAP_SYS_NICE."""


def read_limits(root: Path) -> Part:
    """Limits of this process, its rights, shared memory and its control group."""
    return merged([_process_limits(), _rights(root), _shared_memory(root), _stale(root), _control_group(root)])


def _process_limits() -> Part:
    return {
        "open_files_limit": _soft(resource.RLIMIT_NOFILE),
        "memlock_limit_bytes": _soft(resource.RLIMIT_MEMLOCK),
        "stack_limit_bytes": _soft(resource.RLIMIT_STACK),
    }, {}


def _soft(kind: int) -> int | None:
    limit = resource.getrlimit(kind)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _rights(root: Path) -> Part:
    for line in (read_text(root / "proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            return part("sys_nice", bool(int(line.split()[1], 16) >> _SYS_NICE_BIT & 1))
    return part("sys_nice", None)


def _shared_memory(root: Path) -> Part:
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError as error:
        reason = error_name(error)
        return merged(part(field, None, reason) for field in ("shm_total_bytes", "shm_free_bytes"))
    return {"shm_total_bytes": found.f_blocks * found.f_frsize, "shm_free_bytes": found.f_bavail * found.f_frsize}, {}


def _stale(root: Path) -> Part:
    found = sorted(_old_segments(root), key=lambda each: each["size_bytes"], reverse=True)
    more = {"shm_stale": f"the largest {MOST_STALE} of {len(found)}"} if len(found) > MOST_STALE else {}
    return {"shm_stale": found[:MOST_STALE]}, more


def _old_segments(root: Path) -> Iterator[dict[str, Any]]:
    """By age alone: whether a process of another container still maps one cannot be seen from here."""
    now_s = time.time()
    for name in names_in(root / "dev/shm") or []:
        if not name.startswith(_SEGMENTS):
            continue
        try:
            found = (root / "dev/shm" / name).lstat()
        except OSError:  # gone since it was listed
            continue
        if now_s - found.st_mtime > STALE_AFTER_S:
            age_s = round(now_s - found.st_mtime, 1)
            owner = user_name(root, found.st_uid)
            yield {"name": name, "size_bytes": found.st_size, "age_s": age_s, "owner": owner}


def _control_group(root: Path) -> Part:
    """Null is no limit, or no such counter: the root group has neither."""
    text = read_text(root / "proc/self/cgroup") or ""
    limits = [limit for folder in cgroup_folders(root, text, "memory") if (limit := _memory_limit(folder)) is not None]
    stat = next((found for folder in cgroup_folders(root, text, "cpu") if (found := _cpu_stat(folder))), {})
    return {
        "cgroup_memory_limit_bytes": min(limits, default=None),
        "cgroup_cpu_quota": cgroup_quota(root, text),
        **stat,
    }, {}


def cpu_throttling(root: Path = Path("/")) -> tuple[int, int] | None:
    """(periods, periods in which the CPU quota stopped somebody) of this process's control group; None without them."""
    text = read_text(root / "proc/self/cgroup") or ""
    for folder in cgroup_folders(root, text, "cpu"):
        stat = _cpu_stat(folder)
        if len(stat) == len(_CPU_STAT):
            return stat["cgroup_periods"], stat["cgroup_periods_throttled"]
    return None


def _memory_limit(folder: Path) -> int | None:
    text = read_text(folder / "memory.max") or read_text(folder / "memory.limit_in_bytes") or "max"
    return int(text) if text.isdecimal() and int(text) < _NO_LIMIT_BYTES else None


def _cpu_stat(folder: Path) -> dict[str, int]:
    pairs = [line.partition(" ") for line in (read_text(folder / "cpu.stat") or "").splitlines()]
    return {_CPU_STAT[name]: int(count) for name, _, count in pairs if name in _CPU_STAT and count.isdecimal()}
