"""A2, A3: cores near the GPUs, and limits of the host."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.probing.cores import cpus_of
from gpubalance.node.details import cpu_list
from gpubalance.record.probe import Probe
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_probe, only, states, worst
from tests.checks.probing.nodes import silent, without_gpus

HUNG = {"failed": "nvmlDeviceGetCpuAffinity did not return within 5 s"}


@pytest.mark.parametrize(
    ("text", "cpus"), [("", set()), ("3", {3}), ("0-2", {0, 1, 2}), ("0-1,32-33,64", {0, 1, 32, 33, 64})]
)
def test_lists_of_cpus_are_read_as_the_kernel_writes_them(text: str, cpus: set[int]) -> None:
    assert cpus_of(text) == cpus


@given(cpus=st.sets(st.integers(0, 4095), max_size=200))
def test_what_was_written_as_a_list_is_read_back(cpus: set[int]) -> None:
    assert cpus_of(cpu_list(list(cpus))) == cpus


# A2: affinity


@pytest.mark.parametrize(
    ("near", "own", "expected", "words"),
    [
        (("0-7", "0-7"), range(8), ["pass"], "cores near 2 GPUs may be used"),
        (("0-3", "4-7"), range(8), ["pass"], "cores near 2 GPUs may be used"),
        (("0-3", "4-7"), range(4), ["warn"], "this process may use none of the cores near GPU 1"),
        (("0-3", "4-7"), range(5), ["pass"], "cores near 2 GPUs may be used"),
        (("0-3", "4-7"), [8, 9], ["warn"], "this process may use none of the cores near GPU 0, 1"),
        (("0-7", "0-7"), [0, 1], ["pass"], "cores near 2 GPUs may be used"),
        (("0-7", "0-7"), [0], ["warn"], "1 core for 2 GPUs: ranks would wait for each other's host side"),
        (("0-7", NO_PERMISSION), range(8), ["pass", "unknown"],
         "cores near the GPUs on GPU 1 not measured: NO_PERMISSION"),
        ((NOT_SUPPORTED, NOT_SUPPORTED), range(8), ["skip"], "cores near the GPUs: not supported"),
        (("", "0-7"), range(8), ["pass", "unknown"], "NVML names no cores near GPU 0"),
    ],
)  # fmt: skip
def test_cores_near_the_gpus(near: tuple[Any, ...], own: Any, expected: list[str], words: str) -> None:
    look = make_probe([{"cpu_affinity": cpus} for cpus in near], node={"cpu_cores": list(own)})
    found = only("A2", look)
    assert states(found) == expected
    assert worst(found).message == words


@pytest.mark.parametrize(("look", "state"), [(make_probe([HUNG]), "unknown"), (make_probe(**without_gpus()), "skip")])
def test_affinity_that_nobody_told_passes_nothing(look: Probe, state: str) -> None:
    assert states(only("A2", look)) == [state]


# A3: limits of the host


@pytest.mark.parametrize(
    ("node", "host", "expected", "words"),
    [
        ({}, {}, ["pass"], "8 CPUs for 2 GPUs"),
        ({"cpu_effective": 2.0}, {}, ["pass"], "2 CPUs for 2 GPUs"),
        ({"cpu_effective": 1.9}, {}, ["warn"], "1.9 CPUs for 2 GPUs: ranks would be limited by the host"),
        ({}, {"cgroup_periods": 1000, "cgroup_periods_throttled": 50}, ["pass"], "8 CPUs for 2 GPUs"),
        ({}, {"cgroup_periods": 1000, "cgroup_periods_throttled": 51}, ["warn"],
         "the CPU quota throttled this group in 5.1 % of its periods"),
        ({}, {"cgroup_periods": 0, "cgroup_periods_throttled": 0}, ["pass"], "8 CPUs for 2 GPUs"),
        ({}, {"cgroup_memory_limit_bytes": 4 * 2**30}, ["pass"], "8 CPUs for 2 GPUs"),
        ({}, {"cgroup_memory_limit_bytes": 4 * 2**30 - 1}, ["info", "pass"],
         "host memory is limited to 4 GiB for 2 GPUs"),
        ({"environment": {"OMP_NUM_THREADS": "4"}}, {}, ["pass"], "8 CPUs for 2 GPUs"),
        ({"environment": {"OMP_NUM_THREADS": "5"}}, {}, ["warn"],
         "OMP_NUM_THREADS=5 on 2 ranks is more than 8 CPUs"),
        ({"environment": {"OMP_NUM_THREADS": "5,2"}}, {}, ["warn"],
         "OMP_NUM_THREADS=5 on 2 ranks is more than 8 CPUs"),
        ({"environment": {"OMP_NUM_THREADS": "many"}}, {}, ["pass"], "8 CPUs for 2 GPUs"),
    ],
)  # fmt: skip
def test_limits_of_the_host(node: dict[str, Any], host: dict[str, Any], expected: list[str], words: str) -> None:
    found = only("A3", make_probe(node=node, host=host))
    assert states(found) == expected
    assert worst(found).message == words


def test_too_many_threads_come_with_the_number_that_fits() -> None:
    (found,) = only("A3", make_probe(count=3, node={"environment": {"OMP_NUM_THREADS": "8"}}))
    assert (found.observed, found.next_step) == ("24 threads", "set OMP_NUM_THREADS=2")


def test_without_gpus_nothing_is_too_little() -> None:
    node = {"cpu_effective": 0.5, "environment": {"OMP_NUM_THREADS": "64"}}
    assert [f.message for f in only("A3", make_probe(count=0, node=node))] == ["0.5 CPUs"]


def test_limits_are_told_and_cores_left_open_when_the_driver_never_answered() -> None:
    assert states(only("A3", silent(host={"cgroup_periods": 100, "cgroup_periods_throttled": 50}))) == [
        "warn",
        "unknown",
    ]


def test_simulated_gpus_ask_nothing_of_this_host() -> None:
    look = make_probe(count=16, simulated="h200x16")
    assert states(only("A2", look)) == ["skip"]
    assert [f.message for f in only("A3", look)] == ["8 CPUs"]
