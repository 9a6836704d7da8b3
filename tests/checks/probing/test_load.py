"""Q: what each GPU did under load."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.probing import limits, load
from gpubalance.record.probe import DeviceLoad, Load, Probe
from gpubalance.record.samples import CounterReading, Samples, SensorHealth, XidEvent
from gpubalance.record.timings import DeviceProbe
from tests.checks.probing.helpers import make_probe, states, worst

HEALTHY = (700.0, 4200.0, 55.0, 55.0)
"""TFLOP/s, GB/s in memory, to the GPU, from the GPU: two H200s, measured."""


def result(device: int, speed: tuple[float, ...] | None = HEALTHY, **values: Any) -> DeviceLoad:
    base: dict[str, Any] = {
        "device": device, "stage": "done", "seconds": 8.0, "matmul_max_error": 0.4, "repeats": 50,
        "repeats_differing": 0, "output_digest": "aa",
    }  # fmt: skip
    if speed is not None:
        names = ("gemm_tflops", "memory_copy_gb_per_s", "host_to_device_gb_per_s", "device_to_host_gb_per_s")
        base["speed"] = DeviceProbe(rank=device, device=device, **dict(zip(names, speed, strict=True)))
    return DeviceLoad(**{**base, **values})


def counters(device: int, before: dict[str, int | None], after: dict[str, int | None]) -> list[CounterReading]:
    return [
        CounterReading(t_s=10.0 * place, edge=edge, device=device, values=dict(values))
        for place, (edge, values) in enumerate((("load begin", before), ("load end", after)))
    ]


QUIET = {"ecc_uncorrected": 0, "ecc_corrected": 5}


def loaded(*results: DeviceLoad, samples: Samples | None = None, **values: Any) -> Probe:
    readings = [c for r in results for c in counters(r.device, QUIET, QUIET)]
    saw = samples or Samples(counters=readings)
    return make_probe(
        count=len(results), load=Load(devices=list(range(len(results))), results=list(results), samples=saw), **values
    )


def found(number: int, probe: Probe) -> list[Any]:
    (check,) = [check for check in (*load.CHECKS, *limits.CHECKS) if check.id == f"Q{number}"]
    return check.findings(probe)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_healthy_gpus_pass(number: int) -> None:
    assert states(found(number, loaded(result(0), result(1)))) == ["pass"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_without_a_load_nothing_passes(number: int) -> None:
    assert states(found(number, make_probe())) == ["skip"]


BROKEN = {
    "hung": ({"stage": "bits", "error": "no end after 60 s", "error_kind": "stalled"}, "fail", "in stage bits"),
    "raised": ({"stage": "matmul", "error": "CUDA error", "error_kind": "exception"}, "fail", "in stage matmul"),
    "no CUDA": ({"stage": "start", "error": "torch has no CUDA", "error_kind": "no_cuda"}, "unknown", "not measured"),
    "wrong": ({"matmul_max_error": 1.01}, "fail", "multiplies wrongly"),
    "in use": ({"stage": "start", "skipped": "is in use by pid 123 (alice)"}, "unknown", "pid 123 (alice)"),
}


@pytest.mark.parametrize(("values", "state", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_gpu_that_does_not_work_is_named_and_one_in_use_is_no_pass(
    values: dict[str, Any], state: str, words: str
) -> None:
    outcome = worst(found(1, loaded(result(0), result(1, **values))))
    assert outcome.state.value == state
    assert outcome.required
    assert words in outcome.message
    assert "GPU 1" in outcome.message


def test_the_error_of_a_right_product_may_reach_one() -> None:
    assert states(found(1, loaded(result(0, matmul_max_error=1.0)))) == ["pass"]


def test_the_one_that_differs_from_the_majority_is_silently_wrong() -> None:
    outcome = worst(found(2, loaded(result(0), result(1, output_digest="bb"), result(2))))
    assert (outcome.state, outcome.message) == (State.FAIL, "GPU 1 gives other bits than its peers")


def test_of_two_that_differ_nobody_is_named() -> None:
    outcome = worst(found(2, loaded(result(0), result(1, output_digest="bb"))))
    assert outcome.state is State.FAIL
    assert outcome.subject is None


def test_one_that_differs_from_itself_is_wrong_even_alone() -> None:
    outcome = worst(found(2, loaded(result(0, repeats_differing=1))))
    assert outcome.state is State.FAIL
    assert outcome.observed == "1 of 50 repetitions differ"


def test_models_are_not_compared_with_each_other() -> None:
    probe = loaded(result(0), result(1, output_digest="bb"), devices=[{"name": "A"}, {"name": "B"}])
    assert worst(found(2, probe)).state is not State.FAIL


@pytest.mark.parametrize(
    ("share", "gpus", "state"),
    [(0.96, 3, "pass"), (0.94, 3, "warn"), (0.91, 3, "warn"), (0.89, 3, "fail"), (0.89, 2, "warn")],
)
def test_a_product_below_the_peers(share: float, gpus: int, state: str) -> None:
    slow = (700 * share, *HEALTHY[1:])
    probe = loaded(*(result(i, slow if i == 1 else HEALTHY) for i in range(gpus)))
    assert worst(found(3, probe)).state.value == state


@pytest.mark.parametrize(("share", "state"), [(0.66, "pass"), (0.64, "warn"), (0.49, "fail")])
def test_memory_below_the_derived_limit_on_every_gpu(share: float, state: str) -> None:
    # 3201 MHz x 2 x 6016 bits / 8 = 4814.3 GB/s
    speed = (700.0, 4814.3 * share, 55.0, 55.0)
    assert worst(found(3, loaded(result(0, speed), result(1, speed)))).state.value == state


def with_samples(after: dict[str, int | None], **values: Any) -> Probe:
    return loaded(result(0), samples=Samples(counters=counters(0, dict(QUIET), after), **values))


ERRORS = {
    "none": ({"ecc_uncorrected": 0, "ecc_corrected": 5}, "pass"),
    "uncorrected": ({"ecc_uncorrected": 1, "ecc_corrected": 5}, "fail"),
    "few corrected": ({"ecc_uncorrected": 0, "ecc_corrected": 105}, "info"),
    "many corrected": ({"ecc_uncorrected": 0, "ecc_corrected": 106}, "warn"),
    "not read": ({"ecc_uncorrected": None, "ecc_corrected": 5}, "unknown"),
}


@pytest.mark.parametrize(("after", "state"), ERRORS.values(), ids=ERRORS.keys())
def test_ecc_errors_that_appear_in_ten_seconds_of_load(after: dict[str, int | None], state: str) -> None:
    assert worst(found(4, with_samples(after))).state.value == state


@pytest.mark.parametrize(("xid", "state"), [(79, "fail"), (31, "info"), (63, "warn")])
def test_xids_under_load(xid: int, state: str) -> None:
    probe = with_samples(dict(QUIET), xids=[XidEvent(t_s=1.0, nvml_index=0, xid=xid)])
    assert worst(found(4, probe)).state.value == state


def test_xids_that_could_not_be_heard_are_unknown() -> None:
    health = SensorHealth(interval_s=0.1, ticks=1, missed_ticks=0, xid_missing="NOT_SUPPORTED")
    assert states(found(4, with_samples(dict(QUIET), health=health))) == ["unknown"]


def test_a_gpu_without_ecc_has_no_ecc_errors() -> None:
    readings = [
        CounterReading(t_s=t, edge=edge, device=0, values={}, missing=dict.fromkeys(QUIET, "NOT_SUPPORTED"))
        for t, edge in ((0.0, "load begin"), (9.0, "load end"))
    ]
    assert states(found(4, loaded(result(0), samples=Samples(counters=readings)))) == ["pass"]


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ({}, "pass"),
        ({"memory_clock_max_mhz": 3660}, "pass"),  # 5505 GB/s, 14.7 % above 4800
        ({"memory_clock_max_mhz": 3680}, "warn"),  # 5535 GB/s, 15.3 % above
        ({"sm_clock_max_mhz": 1500}, "warn"),  # 811 of 989 TFLOP/s
    ],
)
def test_derived_limits_against_the_published_ones(readings: dict[str, Any], state: str) -> None:
    assert worst(found(5, make_probe(readings=[readings]))).state.value == state


def test_an_unknown_model_is_said_and_is_no_fault() -> None:
    assert states(found(5, make_probe(devices=[{"name": "NVIDIA Z900"}]))) == ["info"]
