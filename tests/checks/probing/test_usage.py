"""U: GPUs that somebody uses, and GPUs set up for another use."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.probing.check import gpus_of
from gpubalance.checks.probing.usage import own_memory
from gpubalance.record.node import Process
from gpubalance.record.probe import Holder, Probe
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_probe, only, states, worst
from tests.checks.probing.nodes import without_gpus

MIB = 2**20
RESERVE = 644939776
TOTAL = 150754820096


def process(pid: int, index: int = 0, used: int | None = 1024 * MIB, name: str | None = "python") -> Process:
    owner = None if name is None else "alice"
    return Process(nvml_index=index, pid=pid, memory_used_bytes=used, name=name, owner=owner)


def used_by(*processes: Process, used: Any = 0, container: str | None = None, **node: Any) -> Probe:
    free = TOTAL - RESERVE - used if isinstance(used, int) else TOTAL - RESERVE
    readings = [{"memory_used_before_bytes": used, "memory_free_before_bytes": free}, {}]
    return make_probe(readings=readings, node={"processes": list(processes), "container": container, **node})


# U1: processes


@pytest.mark.parametrize(
    ("look", "expected", "words"),
    [
        (used_by(), ["pass"], "nobody uses 2 GPUs"),
        (used_by(process(7)), ["warn", "pass"], "GPU 0 is in use by python of alice"),
        (used_by(process(7), process(8)), ["warn", "pass"], "GPU 0 is in use by 2 processes"),
        (used_by(process(7), container="docker"), ["warn", "pass"], "GPU 0 is in use by 1 process"),
        (used_by(process(7, name=None)), ["warn", "pass"], "GPU 0 is in use by 1 process not visible here"),
        (used_by(process(7, name=None), process(8)), ["warn", "pass"], "GPU 0 is in use by 2 processes"),
        (used_by(process(7, index=1)), ["warn", "pass"], "GPU 1 is in use by python of alice"),
        (used_by(used=256 * MIB), ["pass"], "nobody uses 2 GPUs"),
        (used_by(used=256 * MIB + 1), ["warn", "pass"], "GPU 0 is in use by processes not visible here"),
        (used_by(used=40_000 * MIB, container="docker"), ["warn", "pass"],
         "GPU 0 is in use by processes not visible here"),
        (used_by(used=NO_PERMISSION), ["pass", "unknown"], "memory in use on GPU 0 not measured: NO_PERMISSION"),
        (used_by(used=NOT_SUPPORTED), ["pass", "skip"], "nobody uses 1 GPU"),
        (used_by(missing={"processes on NVML index 0": "NO_PERMISSION"}), ["unknown", "pass"],
         "processes of GPU 0 not read: NO_PERMISSION"),
        (used_by(missing={"processes on NVML index 0": "NOT_SUPPORTED"}), ["pass"], "nobody uses 2 GPUs"),
        (make_probe(**without_gpus()), ["skip"], "processes on GPUs: not applicable"),
    ],
)  # fmt: skip
def test_who_uses_the_gpus(look: Probe, expected: list[str], words: str) -> None:
    found = only("U1", look)
    assert states(found) == expected
    assert worst(found).message == words


def test_a_process_is_told_with_its_number_and_memory() -> None:
    found = worst(only("U1", used_by(process(7), process(8, used=None))))
    assert found.evidence == ("pid 7, python of alice, 1024 MiB", "pid 8, python of alice, memory not said")


@pytest.mark.parametrize("container", ["docker", None])
def test_a_number_that_means_nothing_here_is_never_given(container: str | None) -> None:
    look = used_by(process(4711, name="python" if container else None), container=container)
    found = worst(only("U1", look))
    said = " ".join([found.message, *found.evidence, found.next_step or "", found.subject or ""])
    assert "4711" not in said
    assert "alice" not in said


@pytest.mark.parametrize(
    ("used", "free", "reserved", "own"),
    [
        (0, TOTAL - RESERVE, RESERVE, 0),  # as an H200 says it
        (MIB, TOTAL - RESERVE - MIB, RESERVE, MIB),
        (RESERVE, TOTAL - RESERVE, RESERVE, 0),  # a driver that counts its reserve as used
        (RESERVE + MIB, TOTAL - RESERVE - MIB, RESERVE, MIB),
        (MIB, NOT_SUPPORTED, NOT_SUPPORTED, MIB),
        (NOT_SUPPORTED, 0, 0, None),
    ],
)
def test_the_drivers_reserve_is_nobodys_memory(used: Any, free: Any, reserved: Any, own: int | None) -> None:
    keys = ("memory_used_before_bytes", "memory_free_before_bytes", "memory_reserved_bytes")
    (gpu,) = gpus_of(make_probe(readings=[dict(zip(keys, (used, free, reserved), strict=True))]))
    assert own_memory(gpu) == own


# U2: idleness


@pytest.mark.parametrize(
    ("values", "before", "state", "words"),
    [
        ({}, 0, "pass", "nothing runs on 1 GPU"),
        ({"utilization_percent": 5}, 5, "pass", "nothing runs on 1 GPU"),
        ({"utilization_percent": 6}, 0, "warn", "GPU 0 is not idle: busy 6 % of the time"),
        ({}, 100, "warn", "GPU 0 is not idle: busy 100 % of the time"),
        ({"memory_utilization_percent": 6}, 0, "warn", "GPU 0 is not idle: busy 6 % of the time"),
        ({"failed": "hung"}, 0, "pass", "nothing runs on 1 GPU"),  # it was seen before it hung
        ({"utilization_percent": NOT_SUPPORTED, "memory_utilization_percent": NOT_SUPPORTED}, NOT_SUPPORTED, "skip",
         "utilization: not supported"),
        ({"utilization_percent": NO_PERMISSION, "memory_utilization_percent": NO_PERMISSION}, NO_PERMISSION,
         "unknown", "utilization not measured: NO_PERMISSION"),
    ],
)  # fmt: skip
def test_gpus_are_idle_before_anything_of_ours_runs(
    values: dict[str, Any], before: Any, state: str, words: str
) -> None:
    (found,) = only("U2", make_probe([values], [{"utilization_before_percent": before}]))
    assert found.state.value == state
    assert found.message == words


def test_a_mig_gpu_without_utilization_is_named_and_its_peers_are_judged() -> None:
    none = {"utilization_percent": NOT_SUPPORTED, "memory_utilization_percent": NOT_SUPPORTED}
    found = only("U2", make_probe([none, {}], [{"utilization_before_percent": NOT_SUPPORTED}, {}]))
    assert [(f.state, f.message) for f in found] == [
        (State.SKIP, "utilization on GPU 0: not supported"),
        (State.PASS, "nothing runs on 1 GPU"),
    ]


# U3: modes


@pytest.mark.parametrize(
    ("gpu", "reading", "device", "expected", "words"),
    [
        ({}, {}, {}, ["pass"], "2 GPUs open to all processes, no MIG"),
        ({}, {}, {"mig_enabled": True}, ["warn"], "MIG is enabled on GPU 1: no NCCL across slices"),
        ({}, {}, {"mig_enabled": None}, ["pass"], "2 GPUs open to all processes, no MIG"),
        ({}, {"compute_mode": 1}, {}, ["warn"],
         "compute mode exclusive (one thread) on GPU 1: a second process is refused"),
        ({}, {"compute_mode": 2}, {}, ["fail"], "compute mode prohibited on GPU 1: no process may compute"),
        ({}, {"compute_mode": 3}, {}, ["warn"],
         "compute mode exclusive (one process) on GPU 1: a second process is refused"),
        ({"virtualization_mode": 2}, {}, {}, ["info", "pass"],
         "GPU 1 is a vGPU: others may share the card behind it"),
        ({"virtualization_mode": 0}, {}, {}, ["pass"], "2 GPUs open to all processes, no MIG"),
        ({}, {"compute_mode": NO_PERMISSION}, {}, ["pass", "unknown"],
         "compute mode on GPU 1 not measured: NO_PERMISSION"),
        ({}, {"compute_mode": NOT_SUPPORTED}, {}, ["pass", "skip"], "1 GPU open to all processes, no MIG"),
        ({"failed": "hung"}, {}, {}, ["pass"], "2 GPUs open to all processes, no MIG"),
    ],
)  # fmt: skip
def test_modes_of_the_second_gpu(
    gpu: dict[str, Any], reading: dict[str, Any], device: dict[str, Any], expected: list[str], words: str
) -> None:
    found = only("U3", make_probe([{}, gpu], [{}, reading], [{}, device]))
    assert states(found) == expected
    assert worst(found).message == words


def test_no_gpu_has_no_mode() -> None:
    assert states(only("U3", make_probe(**without_gpus()))) == ["skip"]


# U4: holders


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (Holder(pid=7, state="Z", name="python"), "process 7 (python) is dead and holds a GPU"),
        (Holder(pid=7, state="D", name="python"), "process 7 (python) is stuck in the kernel and holds a GPU"),
        (Holder(pid=7, state="D"), "process 7 is stuck in the kernel and holds a GPU"),
    ],
)
def test_dead_and_stuck_processes_warn(holder: Holder, words: str) -> None:
    (found,) = only("U4", make_probe(host={"holders": [holder]}))
    assert found.state is State.WARN
    assert found.message == words
    assert found.next_step is not None


@pytest.mark.parametrize(
    ("host", "state"), [({"holders": []}, "pass"), ({"missing": {"holders": "NO_PERMISSION"}}, "unknown")]
)
def test_no_holder_is_a_pass_only_where_they_could_be_seen(host: dict[str, Any], state: str) -> None:
    assert states(only("U4", make_probe(host=host))) == [state]
