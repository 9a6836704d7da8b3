"""S3, S6: likeness of GPUs and debugging variables; and the sentences of the whole family."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import Finding, State
from gpubalance.record.probe import Probe
from tests.checks.probing.helpers import make_probe, only, states
from tests.checks.probing.nodes import silent, without_gpus

LOST = {"missing": {"uuid": "GPU_IS_LOST", "name": "GPU_IS_LOST"}, "name": "unknown (GPU_IS_LOST)"}


def test_one_gpu_is_compared_with_nothing() -> None:
    assert states(only("S3", make_probe(count=1))) == ["skip"]


def test_no_gpu_is_not_applicable() -> None:
    assert states(only("S3", make_probe(**without_gpus()))) == ["skip"]


@pytest.mark.parametrize(
    ("gpu", "reading", "device", "name"),
    [
        ({"vbios_version": "96.00.99"}, {}, {}, "VBIOS"),
        ({}, {}, {"memory_total_bytes": 2**36}, "memory size"),
        ({}, {"power_limit_w": 600.0}, {}, "power limit"),
        ({}, {"ecc_mode": 0}, {}, "ECC mode"),
        ({}, {"mig_mode": 1}, {}, "MIG mode"),
        ({}, {"compute_mode": 3}, {}, "compute mode"),
    ],
)
def test_the_one_that_differs_is_named(
    gpu: dict[str, Any], reading: dict[str, Any], device: dict[str, Any], name: str
) -> None:
    (found,) = only("S3", make_probe(gpus=[{}, {}, gpu], readings=[{}, {}, reading], devices=[{}, {}, device]))
    assert found.state is State.WARN
    assert found.message == f"{name} of GPU 2 is not that of its peers"
    assert found.subject is not None
    assert "nvml:2" in found.subject


def test_without_a_majority_nobody_is_named() -> None:
    (found,) = only("S3", make_probe(readings=[{}, {"ecc_mode": 0}]))
    assert found.message == "ECC mode differs over GPUs of one model"
    assert found.subject is None
    assert found.evidence == ("GPU 0: 1", "GPU 1: 0")


def test_models_are_compared_within_themselves_only() -> None:
    other = {"name": "NVIDIA A100", "memory_total_bytes": 2**36}
    (found,) = only("S3", make_probe(devices=[{}, {}, other, other]))
    assert found.message == "2 models of GPU in one node"
    assert found.observed == "2 x NVIDIA H200, 2 x NVIDIA A100"


def test_a_lost_gpu_is_no_second_model() -> None:
    assert states(only("S3", make_probe(devices=[{}, {}, LOST]))) == ["pass"]


@pytest.mark.parametrize(("reason", "expected"), [("NOT_SUPPORTED", ["pass"]), ("NO_PERMISSION", ["pass", "unknown"])])
def test_what_was_not_read_is_not_compared(reason: str, expected: list[str]) -> None:
    found = only("S3", make_probe(readings=[{"ecc_mode": (reason,)}, {"ecc_mode": (reason,)}]))
    assert states(found) == expected
    assert "ECC mode" not in found[0].evidence[0]


def test_a_gpu_that_hung_was_not_compared() -> None:
    found = only("S3", make_probe(gpus=[{}, {"failed": "nvmlDeviceGetVbiosVersion did not return within 5 s"}]))
    assert states(found) == ["pass", "unknown"]
    assert found[1].evidence == ("VBIOS of GPU 1: nvmlDeviceGetVbiosVersion did not return within 5 s",)


@pytest.mark.parametrize(
    ("environment", "warned"),
    [
        ({}, []),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, ["CUDA_LAUNCH_BLOCKING"]),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, []),
        ({"CUDA_LAUNCH_BLOCKING": " "}, []),
        ({"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO"}, []),
        ({"COMPUTE_PROFILE": "1", "CUDA_INJECTION64_PATH": "/x.so"}, ["CUDA_INJECTION64_PATH", "COMPUTE_PROFILE"]),
        ({"CUDA_DEVICE_WAITS_ON_EXCEPTION": "1"}, ["CUDA_DEVICE_WAITS_ON_EXCEPTION"]),
    ],
)
def test_each_debugging_variable_warns_with_what_it_costs(environment: dict[str, str], warned: list[str]) -> None:
    found = only("S6", make_probe(node={"environment": environment}))
    assert states(found) == (["warn"] * len(warned) if warned else ["pass"])
    assert [f.next_step for f in found] == ([f"unset {name}" for name in warned] or [None])


def test_variables_that_were_not_read_are_not_free_of_debugging() -> None:
    assert states(only("S6", silent())) == ["unknown"]


def whole_family(look: Probe) -> list[Finding]:
    return [found for number in range(1, 7) for found in only(f"S{number}", look)]


@pytest.mark.parametrize("look", [make_probe(), silent(), make_probe(**without_gpus("UNKNOWN", gpu_evidence=["x"]))])
def test_sentences_stand_alone_and_hide_no_identity(look: Probe) -> None:
    for found in whole_family(look):
        assert "GPU-" not in found.message
        assert not found.message.endswith(".")
        assert found.next_step is None or (found.next_step[0].islower() and not found.next_step.endswith("."))
