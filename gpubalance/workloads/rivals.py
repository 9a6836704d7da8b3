"""Processes that get in a rank's way on purpose. Each dies with the rank (it asks the kernel to), belongs to the rank's
process group, which is killed as a whole, and is gone when its fault ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

MODULE = "gpubalance.workloads.rival_main"


@contextmanager
def busy_core(processes: int, rank: int) -> Iterator[None]:
    """Put every thread of this process on one core, and so many busy processes beside them.

    Ranks that may use the same cores take different ones.
    """
    allowed = sorted(os.sched_getaffinity(0))
    core = allowed[rank % len(allowed)]
    with _pinned(core), _children([["hog", str(core)]] * processes):
        yield


@contextmanager
def rival_on(ordinal: int, dtype: str) -> Iterator[None]:
    """A process that multiplies matrices on this CUDA device as fast as it can."""
    with _children([["rival", str(ordinal), dtype]]):
        yield


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    """All threads on one core, because autograd launches its kernels from a thread of its own; then as before."""
    process = os.sched_getaffinity(0)
    before = {thread: _affinity(thread, process) for thread in _threads()}
    _move({thread: {core} for thread in before})
    try:
        yield
    finally:
        _move({thread: before.get(thread, process) for thread in _threads()})


def _threads() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/task").iterdir()]


def _affinity(thread: int, otherwise: set[int]) -> set[int]:
    with suppress(ProcessLookupError):  # threads come and go
        return os.sched_getaffinity(thread)
    return otherwise


def _move(cores: Mapping[int, set[int]]) -> None:
    for thread, wanted in cores.items():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, wanted)


@contextmanager
def _children(orders: Sequence[Sequence[str]]) -> Iterator[None]:
    """One child for each order, all at work when this yields. Raises RuntimeError when one ends before that."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for order in orders:
            command = [sys.executable, "-m", MODULE, str(os.getpid()), *order]
            children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))
        for child, order in zip(children, orders, strict=True):
            assert child.stdout is not None
            if not child.stdout.readline():
                raise RuntimeError(f"the process that plays {order[0]} ended at once (exit code {child.wait()})")
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
