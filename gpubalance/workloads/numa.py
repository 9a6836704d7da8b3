"""Memory near a GPU: this thread runs on the cores of the GPU's NUMA node while it allocates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYS = Path("/sys")


@contextmanager
def near(bus_id: str | None, sys: Path = SYS) -> Iterator[tuple[int | None, str | None]]:
    """Bind this thread to the node's cores and give them back after: the node, or None and why nothing was bound."""
    node, why = node_of(bus_id, sys)
    before = os.sched_getaffinity(0)
    cores = set() if node is None else cores_of(node, sys) & before
    if node is not None and not cores:
        node, why = None, f"this process may use no core of NUMA node {node}"
    if node is None:
        yield None, why
        return
    os.sched_setaffinity(0, cores)
    try:
        yield node, None
    finally:
        os.sched_setaffinity(0, before)


def node_of(bus_id: str | None, sys: Path = SYS) -> tuple[int | None, str | None]:
    """NUMA node of a PCI device by the kernel, or None and why it is not known; the kernel's -1 is not known."""
    if bus_id is None:
        return None, "its place on the PCI bus is not known"
    try:
        node = int((sys / "bus/pci/devices" / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return None, "the kernel does not say on which NUMA node it is"
    return (node, None) if node >= 0 else (None, "the kernel knows no NUMA node of it")


def cores_of(node: int, sys: Path = SYS) -> set[int]:
    """Cores of a node, from a list such as 0-15,32-47; none where the kernel does not say."""
    try:
        text = (sys / f"devices/system/node/node{node}/cpulist").read_text().strip()
        ends = [[int(end) for end in part.split("-")] for part in text.split(",") if part]
    except (OSError, ValueError):
        return set()
    return {core for part in ends for core in range(part[0], part[-1] + 1)}
