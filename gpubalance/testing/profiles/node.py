"""How GPUs become a node: their own names, their places on the bus, and how each stands to the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Gpu = dict[str, Any]
Profile = dict[str, Any]

SYSTEM = {"DriverVersion": "580.159.04", "NVMLVersion": "13.580.159.04", "CudaDriverVersion": 13000}

SINGLE, MULTIPLE, HOSTBRIDGE, NUMA_NODE, ACROSS = 10, 20, 30, 40, 50
"""nvml.h, nvmlGpuTopologyLevel_t: one PCIe switch, several, one host bridge, one NUMA node, across sockets."""

MIB = 2**20


@dataclass(frozen=True)
class Board:
    """Where GPUs sit: bus numbers, the level between two of them, the CPUs near each."""

    buses: tuple[int, ...]
    level: Callable[[int, int], int]
    cpus: Callable[[int], list[int]]


def node(gpu: Gpu, board: Board) -> Profile:
    """A node with this GPU in every place of the board, each with its own UUID, bus id and minor number."""
    return of([gpu] * len(board.buses), board)


def of(gpus: Sequence[Gpu], board: Board) -> Profile:
    """The same with a GPU of its own in each place."""
    devices = [_placed(gpu, index, board) for index, gpu in enumerate(gpus)]
    return {"system": dict(SYSTEM), "devices": devices, "absent": [], "faults": []}


def _placed(gpu: Gpu, index: int, board: Board) -> Gpu:
    device = copy.deepcopy(gpu)
    bus = board.buses[index]
    device["UUID"] = f"GPU-{index + 1:08x}-aaaa-bbbb-cccc-{index:012d}"
    device["MinorNumber"] = index
    device["PciInfo_v3"] = {"busId": f"00000000:{bus:02x}:00.0", "domain": 0, "bus": bus, "device": 0}
    others = [other for other in range(len(board.buses)) if other != index]
    device["TopologyCommonAncestor"] = {str(other): board.level(index, other) for other in others}
    device["CpuAffinity"] = board.cpus(index)
    return device


def words(*ranges: tuple[int, int]) -> list[int]:
    """A CPU mask in words of 64 bits, from first and last CPU of each range."""
    cpus = {cpu for first, last in ranges for cpu in range(first, last + 1)}
    return [sum(1 << cpu % 64 for cpu in cpus if cpu // 64 == word) for word in range(max(cpus) // 64 + 1)]


def guest(count: int) -> Board:
    """The bus that a virtual machine shows: all GPUs below one host bridge, all 32 CPUs near all."""
    return Board(tuple(range(6, 6 + count)), lambda _one, _other: HOSTBRIDGE, lambda _index: words((0, 31)))


def two_sockets(*buses: int) -> Board:
    """Half of the GPUs at each of two sockets with 56 cores and 112 threads."""
    half = len(buses) // 2

    def level(one: int, other: int) -> int:
        return NUMA_NODE if one // half == other // half else ACROSS

    def cpus(index: int) -> list[int]:
        first = 56 * (index // half)
        return words((first, first + 55), (first + 112, first + 167))

    return Board(buses, level, cpus)


def workstation(count: int) -> Board:
    """GPUs in slots of one socket with 32 threads."""
    return Board(tuple(range(1, 1 + count)), lambda _one, _other: HOSTBRIDGE, lambda _index: words((0, 31)))


def nvlinks(count: int, version: int) -> dict[str, Any]:
    """All NVLinks up. Versions by nvml.h: 4 is NVLink 3, 6 is NVLink 4, 7 is NVLink 5."""
    return {
        "NvLinkState": {str(link): 1 for link in range(count)},
        "NvLinkVersion": {str(link): version for link in range(count)},
        "P2PStatus": {"*": 0},
    }
