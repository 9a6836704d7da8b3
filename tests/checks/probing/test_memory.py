"""M1 to M4: ECC and its errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_probe, only, states, worst

KEYS = {"M2": "ecc_uncorrected", "M3": "sram_uncorrected_aggregate", "M4": "ecc_corrected"}
HUNG = "nvmlDeviceGetTotalEccErrors of GPU 1 never returned"


@pytest.mark.parametrize("check", ["M1", *KEYS])
def test_a_healthy_node_passes(check: str) -> None:
    assert states(only(check, make_probe())) == ["pass"]


@pytest.mark.parametrize("check", ["M1", *KEYS])
def test_without_a_gpu_nothing_passes(check: str) -> None:
    assert states(only(check, make_probe(count=0))) == ["skip"]


@pytest.mark.parametrize(("check", "key"), KEYS.items())
def test_what_a_gpu_does_not_have_is_skipped(check: str, key: str) -> None:
    (skipped,) = only(check, make_probe([{key: NOT_SUPPORTED}] * 2))
    assert (skipped.state.value, skipped.message.endswith(": not supported")) == ("skip", True)


@pytest.mark.parametrize(("check", "key"), KEYS.items())
def test_what_may_not_be_read_is_unknown_and_the_other_gpu_passes_alone(check: str, key: str) -> None:
    found = only(check, make_probe([{}, {key: NO_PERMISSION}]))
    assert sorted(states(found)) == ["pass", "unknown"]
    assert "on GPU 1 not measured: NO_PERMISSION" in worst(found).message
    assert [f.message.endswith("on 1 GPU") for f in found if f.state.value == "pass"] == [True]


@pytest.mark.parametrize("check", KEYS)
def test_a_gpu_that_hung_is_unknown_with_the_call_that_never_returned(check: str) -> None:
    found = only(check, make_probe([{}, {"failed": HUNG}]))
    assert sorted(states(found)) == ["pass", "unknown"]
    assert worst(found).message.endswith(HUNG)


def test_only_uncorrected_errors_are_required() -> None:
    required = {check for check in ("M1", *KEYS) if only(check, make_probe())[0].required}
    assert required == {"M2"}


@pytest.mark.parametrize(
    ("mode", "brand", "state"),
    [
        (1, 14, "pass"),
        (0, 14, "warn"),  # H200
        (0, 2, "warn"),  # Tesla
        (0, NOT_SUPPORTED, "warn"),  # of unknown brand
        (0, 13, "info"),  # RTX
        (0, 5, "info"),  # GeForce
        (NOT_SUPPORTED, 5, "skip"),
        (NO_PERMISSION, 14, "unknown"),
    ],
)
def test_ecc_off_warns_where_on_is_the_default(mode: Any, brand: Any, state: str) -> None:
    assert worst(only("M1", make_probe([{"brand": brand}], [{"ecc_mode": mode}]))).state.value == state


def test_the_gpu_without_ecc_is_named_with_what_to_do() -> None:
    found = worst(only("M1", make_probe(readings=[{}, {"ecc_mode": 0}])))
    assert found.message == "GPU 1 runs without ECC"
    assert found.subject == "cuda:1 nvml:1 GPU-00000002-aaaa-bbbb-cccc-000000000001 0000:07:00.0"
    assert found.next_step == "turn ECC on with `nvidia-smi -i 1 -e 1` and reset the GPU"


@pytest.mark.parametrize(("errors", "state"), [(0, "pass"), (1, "fail"), (7, "fail")])
def test_any_uncorrected_error_fails(errors: int, state: str) -> None:
    assert states(only("M2", make_probe([{"ecc_uncorrected": errors}]))) == [state]


def test_one_error_is_one_error() -> None:
    (found,) = only("M2", make_probe([{}, {"ecc_uncorrected": 1}]))
    assert found.message == "GPU 1 had 1 uncorrected ECC error since the driver was loaded"


@pytest.mark.parametrize(
    ("errors", "exceeded", "state"),
    [(0, 0, "pass"), (1, 0, "warn"), (4, 0, "warn"), (5, 0, "fail"), (1, 1, "fail"), (0, 1, "fail")],
)
def test_sram_errors_warn_and_fail_by_number_and_by_the_gpus_own_limit(errors: int, exceeded: int, state: str) -> None:
    gpu = {"sram_uncorrected_aggregate": errors, "sram_threshold_exceeded": exceeded}
    (found,) = only("M3", make_probe([gpu]))
    assert found.state.value == state
    assert bool(found.evidence) is bool(exceeded)


def test_an_unread_flag_does_not_pass() -> None:
    assert states(only("M3", make_probe([{"sram_threshold_exceeded": ("SENTINEL",)}]))) == ["unknown"]


@pytest.mark.parametrize(
    ("since_load", "life", "in_sram", "state"),
    [
        (0, 0, 0, "pass"),
        (5, 5, 0, "info"),
        (0, 3, 0, "info"),
        (0, 20_000_000, 0, "info"),
        (0, 20_000_001, 0, "warn"),
        (0, 10_000, 10_000, "info"),
        (0, 10_001, 10_001, "warn"),
    ],
)
def test_corrected_errors_are_told_and_warn_only_in_great_number(
    since_load: int, life: int, in_sram: int, state: str
) -> None:
    gpu = {"ecc_corrected": since_load, "ecc_corrected_aggregate": life, "sram_corrected_aggregate": in_sram}
    found = only("M4", make_probe([gpu]))
    assert worst(found).state.value == state
    assert ("pass" in states(found)) is (state != "warn")


@pytest.mark.parametrize(
    ("life", "in_sram", "message"),
    [
        (20_000_001, 0, "GPU 0 had 20000001 corrected ECC errors in its life"),
        (10_001, 10_001, "GPU 0 had 10001 corrected SRAM errors in its life"),
    ],
)
def test_the_number_that_is_too_high_is_told_first(life: int, in_sram: int, message: str) -> None:
    gpu = {"ecc_corrected": 2, "ecc_corrected_aggregate": life, "sram_corrected_aggregate": in_sram}
    found = worst(only("M4", make_probe([gpu])))
    assert found.message == message
    assert found.observed == f"2 since the driver was loaded; in its life {life}, {in_sram} in SRAM"


def test_a_driver_without_sram_counters_is_said_to_have_none() -> None:
    found = only("M4", make_probe([{"sram_corrected_aggregate": ("FUNCTION_NOT_FOUND",)}] * 2))
    assert states(found) == ["pass", "skip"]
    assert found[1].message == "corrected SRAM errors of the whole life: not supported"
