"""Threads near a GPU, on a planted /sys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpubalance.workloads.numa import cores_of, near

BUS = "0000:5e:00.0"


def plant(sys: Path, node: str, cpulist: str) -> None:
    device = sys / "bus/pci/devices" / BUS
    device.mkdir(parents=True)
    (device / "numa_node").write_text(f"{node}\n")
    cpus = sys / f"devices/system/node/node{node}"
    cpus.mkdir(parents=True)
    (cpus / "cpulist").write_text(f"{cpulist}\n")


def test_the_thread_runs_on_the_nodes_cores_and_gets_its_own_back(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    plant(tmp_path, "3", f"{core},4000-4003")
    with near(BUS, tmp_path) as (node, why):
        assert (node, why) == (3, None)
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before


def test_an_error_inside_gives_the_cores_back_too(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    plant(tmp_path, "0", str(min(before)))
    with pytest.raises(RuntimeError), near(BUS, tmp_path):
        raise RuntimeError
    assert os.sched_getaffinity(0) == before


REASONS = {
    "the kernel knows no NUMA node of it": ("-1", "0-3", BUS),
    "this process may use no core of NUMA node 0": ("0", "4000-4003", BUS),
    "the kernel does not say on which NUMA node it is": ("0", "0", "0000:ff:00.0"),
    "its place on the PCI bus is not known": ("0", "0", None),
}


@pytest.mark.parametrize("reason", REASONS)
def test_where_nothing_can_be_bound_nothing_is_and_the_reason_is_given(tmp_path: Path, reason: str) -> None:
    node, cpulist, bus = REASONS[reason]
    plant(tmp_path, node, cpulist)
    before = os.sched_getaffinity(0)
    with near(bus, tmp_path) as found:
        assert found == (None, reason)
        assert os.sched_getaffinity(0) == before


def test_lists_of_cores(tmp_path: Path) -> None:
    plant(tmp_path, "1", "0-3,8,10-11")
    assert cores_of(1, tmp_path) == {0, 1, 2, 3, 8, 10, 11}
    assert cores_of(2, tmp_path) == set()
