"""Each device's quick measures against its peers and against its derived limit."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.identity import device_label
from gpubalance.checks.verdict import Verdict
from gpubalance.record.node import Device
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.record.timings import DeviceProbe
from gpubalance.testing.runs import make_gpu
from tests.checks.helpers import all_of, evidence, healthy, look, one

NORMAL = {
    "gemm_tflops": 700.0,
    "memory_copy_gb_per_s": 4000.0,
    "host_to_device_gb_per_s": 50.0,
    "device_to_host_gb_per_s": 50.0,
}
"""Of an H200: 86 % of 811 TFLOP/s at 1500 MHz, 83 % of 4814 GB/s, 79 % of 63 GB/s."""


def probe(rank: int, **values: float) -> DeviceProbe:
    return DeviceProbe(rank=rank, device=rank, **{**NORMAL, **values})


def probed(*probes: DeviceProbe, devices: list[Device] | None = None, clock_mhz: float | None = 1500.0) -> Run:
    """The clock is that of all devices during the matrix product."""
    run = healthy(len(probes), probes=list(probes))
    columns = {} if clock_mhz is None else {"sm_clock_mhz": [clock_mhz]}
    sampled = [DeviceSamples(device=each.device, columns=columns) for each in probes]
    plan = run.plan if devices is None else run.plan.model_copy(update={"devices": devices})
    return run.model_copy(
        update={
            "plan": plan,
            "samples": Samples(t_s=[2.0], devices=sampled),
            "phases": [Phase(name="probe gemm", attempt=0, begin_s=1.0, end_s=3.0)],
        }
    )


def with_one_slow(ranks: int, key: str, share: float) -> Run:
    """The last device measures this share of what its peers measure."""
    return probed(*[probe(rank) for rank in range(ranks - 1)], probe(ranks - 1, **{key: NORMAL[key] * share}))


def unknown_gpu(index: int, **values: Any) -> Device:
    """A GPU of which the driver says nothing that a limit could be derived from."""
    return make_gpu(index).model_copy(update={"readings": {}, **values})


def test_equal_devices_pass_and_what_they_were_held_against_is_said() -> None:
    finding = one(probed(probe(0), probe(1)), "device_speed")
    assert (finding.state, finding.required) == (State.PASS, True)
    assert "limits of matrix product, memory copy, host to device copy, device to host copy" in finding.message


def test_devices_that_were_not_probed_are_no_finding() -> None:
    assert all_of(healthy(), "device_speed") == []


@pytest.mark.parametrize(
    ("key", "share", "state"),
    [
        ("gemm_tflops", 0.955, State.PASS),
        ("gemm_tflops", 0.945, State.WARN),
        ("gemm_tflops", 0.905, State.WARN),
        ("gemm_tflops", 0.895, State.FAIL),
        ("memory_copy_gb_per_s", 0.955, State.PASS),
        ("memory_copy_gb_per_s", 0.945, State.WARN),
        ("memory_copy_gb_per_s", 0.905, State.WARN),
        ("memory_copy_gb_per_s", 0.895, State.FAIL),
        ("host_to_device_gb_per_s", 0.905, State.PASS),
        ("host_to_device_gb_per_s", 0.895, State.WARN),
        ("device_to_host_gb_per_s", 0.905, State.PASS),
        ("device_to_host_gb_per_s", 0.895, State.WARN),
    ],
)
def test_a_device_behind_its_peers_warns_or_fails(key: str, share: float, state: State) -> None:
    assert one(with_one_slow(4, key, share), "device_speed").state is state


@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("key", ["host_to_device_gb_per_s", "device_to_host_gb_per_s"])
@pytest.mark.parametrize(("share", "state"), [(0.805, State.WARN), (0.795, State.FAIL)])
def test_a_host_link_fails_20_percent_behind_its_peers(key: str, share: float, state: State, ranks: int) -> None:
    fast = 60.0
    run = probed(*[probe(rank, **{key: fast}) for rank in range(ranks - 1)], probe(ranks - 1, **{key: share * fast}))
    assert one(run, "device_speed").state is state


def test_a_device_behind_its_peers_is_named_with_both_numbers() -> None:
    run = with_one_slow(4, "gemm_tflops", 0.88)
    finding = one(run, "device_speed")
    assert finding.message == "matrix product of GPU 3 is 12 % below its peers"
    assert finding.subject == device_label(run.plan.devices[3])
    expected = "700.0 TFLOP/s as its peers, at most 5 % below (fails above 10 %)"
    assert (finding.observed, finding.expected) == ("616.0 TFLOP/s", expected)
    assert look(run).verdict is Verdict.FAIL


def test_of_two_devices_the_slower_only_warns() -> None:
    """Which of them is abnormal is not known."""
    finding = one(with_one_slow(2, "gemm_tflops", 0.88), "device_speed")
    assert finding.state is State.WARN
    assert "which of them is the abnormal one needs a baseline" in evidence(finding)


@pytest.mark.parametrize("ranks", [3, 8])
def test_one_fast_device_makes_no_slow_ones(ranks: int) -> None:
    run = probed(probe(0, gemm_tflops=900.0), *[probe(rank) for rank in range(1, ranks)])
    assert one(run, "device_speed").state is State.PASS


@pytest.mark.parametrize(
    "other",
    [
        make_gpu(1).model_copy(update={"name": "NVIDIA H100"}),
        make_gpu(1, power_limit_w=500.0),
        make_gpu(1).model_copy(update={"mig_enabled": True}),
    ],
    ids=["model", "power limit", "MIG"],
)
def test_devices_that_differ_are_not_compared(other: Device) -> None:
    run = probed(probe(0), probe(1, gemm_tflops=600.0), devices=[make_gpu(0), other])
    assert one(run, "device_speed").state is State.PASS


@pytest.mark.parametrize(
    ("gemm", "state"),
    [
        (530.0, State.PASS),  # 65.4 % of 132 x 1500 MHz x 4096 = 811.0
        (520.0, State.WARN),  # 64.1 %
        (410.0, State.WARN),  # 50.6 %
        (400.0, State.FAIL),  # 49.3 %
    ],
)
def test_a_device_alone_is_held_against_its_derived_limit(gemm: float, state: State) -> None:
    assert one(probed(probe(0, gemm_tflops=gemm)), "device_speed").state is state


def test_without_the_clock_the_product_has_no_limit() -> None:
    finding = one(probed(probe(0, gemm_tflops=100.0), clock_mhz=None), "device_speed")
    assert finding.state is State.PASS
    assert "limits of memory copy, host to device copy, device to host copy" in finding.message


def test_a_node_that_is_slow_everywhere_is_seen_by_the_limit() -> None:
    run = probed(*[probe(rank, memory_copy_gb_per_s=2000.0) for rank in range(4)])
    findings = all_of(run, "device_speed")
    assert [finding.state for finding in findings] == [State.FAIL] * 4
    assert findings[0].message.endswith("reaches 41.5 % of its derived limit")
    assert findings[0].expected == "at least 65 % of 4814 GB/s (fails below 50 %)"


def test_one_device_without_a_limit_and_without_peers_is_unknown() -> None:
    run = probed(probe(0), devices=[unknown_gpu(0)])
    assert one(run, "device_speed").state is State.UNKNOWN
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_devices_without_a_limit_are_held_against_their_peers() -> None:
    finding = one(probed(probe(0), probe(1), devices=[unknown_gpu(0), unknown_gpu(1)]), "device_speed")
    assert finding.state is State.PASS
    assert "as its peers" in finding.message


def test_two_models_without_limits_were_compared_with_nothing() -> None:
    run = probed(probe(0), probe(1), devices=[unknown_gpu(0), unknown_gpu(1, name="Another GPU")])
    assert [finding.state for finding in all_of(run, "device_speed")] == [State.UNKNOWN] * 2


def test_a_device_without_a_yardstick_does_not_pass_by_its_neighbours_limit() -> None:
    run = probed(probe(0), probe(1), devices=[make_gpu(0), unknown_gpu(1, name="Another GPU")])
    finding = one(run, "device_speed")
    assert finding.state is State.UNKNOWN
    assert finding.message == "no limit can be derived for GPU 1, and it has no peers"
