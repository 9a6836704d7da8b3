"""GPM metrics: a number, or null with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpubalance.node.nvml import Nvml
from gpubalance.sampling.gpm import METRICS, Gpm
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]

IDS = {
    "gpm_sm_percent": "2",
    "gpm_tensor_percent": "5",
    "gpm_dram_percent": "10",
    "gpm_nvlink_rx_mib_per_s": "60",
    "gpm_nvlink_tx_mib_per_s": "61",
}
"""Numbers of the metrics in nvml.h."""

VALUES = {
    "gpm_sm_percent": 95.68,
    "gpm_tensor_percent": 92.91,
    "gpm_dram_percent": 16.0,
    "gpm_nvlink_rx_mib_per_s": 277000.13,
    "gpm_nvlink_tx_mib_per_s": 0.0,
}


def node(**metrics: float | None) -> dict[str, Any]:
    """One GPU that answers these metrics; null is refused."""
    wanted = {**VALUES, **metrics}
    profile = h200_node(1)
    profile["devices"][0]["Gpm"] = {IDS[key]: value for key, value in wanted.items() if value is not None}
    return profile


def test_all_metrics_are_read_under_their_keys_with_two_digits(opened: Opened) -> None:
    nvml, _ = opened(node(gpm_sm_percent=95.6789))
    gpm = Gpm(nvml, 0)
    assert gpm.missing is None
    assert gpm.read() == (VALUES, {})
    assert set(VALUES) == set(METRICS)


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("key", METRICS)
def test_what_is_not_a_finite_number_is_null_and_the_others_are_intact(
    opened: Opened, key: str, nonsense: float
) -> None:
    nvml, _ = opened(node(**{key: nonsense}))
    assert Gpm(nvml, 0).read() == ({**VALUES, key: None}, {key: "SENTINEL"})


@pytest.mark.parametrize("key", METRICS)
def test_a_refused_metric_is_null_with_its_reason_and_the_others_are_intact(opened: Opened, key: str) -> None:
    nvml, _ = opened(node(**{key: None}))
    assert Gpm(nvml, 0).read() == ({**VALUES, key: None}, {key: "NOT_SUPPORTED"})


def test_a_part_without_gpm_says_so_and_is_never_sampled(opened: Opened) -> None:
    profile = h200_node(1)
    del profile["devices"][0]["Gpm"]
    nvml, stand_in = opened(profile)
    gpm = Gpm(nvml, 0)
    assert gpm.missing == "NOT_SUPPORTED"
    assert gpm.read() == (dict.fromkeys(METRICS), dict.fromkeys(METRICS, "NOT_SUPPORTED"))
    assert stand_in.calls["nvmlGpmSampleGet", 0] == 0


@pytest.mark.parametrize("call", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"])
@pytest.mark.parametrize(("code", "reason"), [(3, "NOT_SUPPORTED"), (4, "NO_PERMISSION"), (15, "GPU_IS_LOST")])
def test_gpm_that_cannot_be_prepared_is_missing_for_the_drivers_reason(
    opened: Opened, call: str, code: int, reason: str
) -> None:
    nvml, _ = opened({**h200_node(1), "faults": [{"call": call, "error": code}]})
    assert Gpm(nvml, 0).missing == reason


def test_a_second_sample_that_cannot_be_had_is_missing_too(opened: Opened) -> None:
    nvml, _ = opened({**h200_node(1), "faults": [{"call": "nvmlGpmSampleAlloc", "error": 20, "after": 1}]})
    assert Gpm(nvml, 0).missing == "MEMORY"


def test_a_driver_without_gpm_is_missing_its_function(opened: Opened) -> None:
    nvml, _ = opened({**h200_node(1), "absent": ["nvmlGpmQueryDeviceSupport"]})
    assert Gpm(nvml, 0).missing == "FUNCTION_NOT_FOUND"


@pytest.mark.parametrize("call", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_gpm_that_ends_in_mid_run_is_null_from_then_on_with_the_reason(opened: Opened, call: str) -> None:
    first_calls = 2 if call == "nvmlGpmSampleGet" else 1  # one sample is taken when GPM is prepared
    nvml, _ = opened({**node(), "faults": [{"call": call, "error": 15, "after": first_calls}]})
    gpm = Gpm(nvml, 0)
    assert gpm.read() == (VALUES, {})
    for _ in range(2):
        assert gpm.read() == (dict.fromkeys(METRICS), dict.fromkeys(METRICS, "GPU_IS_LOST"))
