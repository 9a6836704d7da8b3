"""N5: the NVSwitch fabric."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.probing.fabric import health_problems
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_probe, only, states, worst
from tests.checks.probing.nodes import without_gpus

CLEAN_MASK = 0b0001_10_10_10_10
"""Configuration none (1), and four times "no" (2)."""


def fabric(state: Any, status: Any = 0, mask: Any = CLEAN_MASK) -> dict[str, Any]:
    return {"fabric_state": state, "fabric_status": status, "fabric_health_mask": mask}


GOOD = fabric("COMPLETED")


@pytest.mark.parametrize(
    ("gpu", "state", "words"),
    [
        (GOOD, "pass", "2 GPUs joined the NVSwitch fabric"),
        (fabric("COMPLETED", mask=0), "pass", "2 GPUs joined the NVSwitch fabric"),  # an H200 in a guest says this
        (fabric("COMPLETED", mask=NOT_SUPPORTED), "pass", "2 GPUs joined the NVSwitch fabric"),
        (fabric("NOT_STARTED"), "fail", "NVSwitch fabric not joined (NOT_STARTED) on GPU 1"),
        (fabric("IN_PROGRESS"), "fail", "NVSwitch fabric not joined (IN_PROGRESS) on GPU 1"),
        (fabric("UNKNOWN_7"), "unknown", "NVSwitch fabric not joined (UNKNOWN_7) on GPU 1"),
        (fabric("COMPLETED", status=999), "fail", "NVSwitch fabric joined with error 999 on GPU 1"),
        (fabric("COMPLETED", mask=0x1), "fail", "NVSwitch fabric reports degraded bandwidth on GPU 1"),
        (fabric("COMPLETED", mask=0x2), "pass", "2 GPUs joined the NVSwitch fabric"),
        (fabric("COMPLETED", mask=0x3), "pass", "2 GPUs joined the NVSwitch fabric"),
        (fabric("COMPLETED", mask=0x1 << 2), "warn", "NVSwitch fabric is recovering a route on GPU 1"),
        (fabric("COMPLETED", mask=0x1 << 4), "fail", "NVSwitch fabric reports an unhealthy route on GPU 1"),
        (fabric("COMPLETED", mask=0x1 << 6), "fail", "NVSwitch fabric reports recovery from access timeouts on GPU 1"),
        (fabric("COMPLETED", mask=0x1 << 8), "pass", "2 GPUs joined the NVSwitch fabric"),
        (fabric("COMPLETED", mask=0x5 << 8), "fail", "NVSwitch fabric reports too few NVLinks on GPU 1"),
        (fabric("COMPLETED", mask=0xF << 8), "fail", "NVSwitch fabric reports wrong configuration 15 on GPU 1"),
        (fabric(NO_PERMISSION), "unknown", "NVSwitch fabric on GPU 1 not measured: NO_PERMISSION"),
        ({"failed": "nvmlDeviceGetGpuFabricInfoV did not return within 5 s"}, "unknown",
         "NVSwitch fabric on GPU 1 not measured: nvmlDeviceGetGpuFabricInfoV did not return within 5 s"),
    ],
)  # fmt: skip
def test_one_gpu_beside_a_good_one(gpu: dict[str, Any], state: str, words: str) -> None:
    found = worst(only("N5", make_probe([GOOD, gpu])))
    assert found.state.value == state
    assert found.message == words


@pytest.mark.parametrize("state", ["NOT_SUPPORTED", NOT_SUPPORTED, ("FUNCTION_NOT_FOUND",)])
def test_gpus_that_need_no_fabric_are_skipped(state: Any) -> None:
    assert states(only("N5", make_probe([fabric(state), fabric(state)]))) == ["skip"]


def test_no_gpu_needs_no_fabric() -> None:
    assert states(only("N5", make_probe(**without_gpus()))) == ["skip"]


def test_what_all_gpus_have_in_common_is_said_once() -> None:
    (found,) = only("N5", make_probe([fabric("IN_PROGRESS")] * 8))
    assert found.message == "NVSwitch fabric not joined (IN_PROGRESS) on all 8 GPUs"
    assert found.subject is not None
    assert found.subject.count("nvml:") == 8


def test_several_bits_are_several_problems() -> None:
    assert health_problems(0x1 | 0x1 << 4) == ["degraded bandwidth", "an unhealthy route"]


@given(mask=st.integers(0, 2**32 - 1))
def test_bits_that_nobody_knows_change_nothing(mask: int) -> None:
    assert health_problems(mask) == health_problems(mask & 0xFFF)
