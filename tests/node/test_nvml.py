"""The gate to NVML: a value or a reason, never an error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpubalance.node.nvml import Answer, Nvml, explain, open_nvml, reason_of
from gpubalance.testing.profiles import h200_node
from gpubalance.testing.stand_in_nvml import StandIn, installed

Opened = Callable[[dict[str, Any]], tuple[Nvml, StandIn]]


def with_fault(**fault: Any) -> dict[str, Any]:
    return {**h200_node(), "faults": [fault]}


def test_a_call_that_succeeds_has_a_value_and_no_reason(opened: Opened) -> None:
    nvml, _ = opened(h200_node())
    assert nvml.ask("DeviceGetName", 0) == Answer("NVIDIA H200")
    assert nvml.ask("DeviceGetUUID", 1) == Answer("GPU-00000002-aaaa-bbbb-cccc-000000000001")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "UNINITIALIZED"),
        (2, "INVALID_ARGUMENT"),
        (3, "NOT_SUPPORTED"),
        (4, "NO_PERMISSION"),
        (13, "FUNCTION_NOT_FOUND"),
        (15, "GPU_IS_LOST"),
        (16, "RESET_REQUIRED"),
        (999, "UNKNOWN"),
        (777, "ERROR_777"),
    ],
)
def test_a_refusal_carries_nvmls_own_name_for_the_code(opened: Opened, code: int, reason: str) -> None:
    nvml, _ = opened(with_fault(call="nvmlDeviceGetPowerUsage", error=code))
    assert nvml.ask("DeviceGetPowerUsage", 0) == Answer(None, reason)
    assert nvml.reason(code) == reason


def test_a_symbol_that_an_old_driver_lacks_is_function_not_found(opened: Opened) -> None:
    nvml, _ = opened({**h200_node(), "absent": ["nvmlDeviceGetPowerUsage"]})
    assert nvml.ask("DeviceGetPowerUsage", 0) == Answer(None, "FUNCTION_NOT_FOUND")


def test_a_call_that_the_binding_lacks_is_function_not_found(opened: Opened) -> None:
    nvml, _ = opened(h200_node())
    assert nvml.ask("DeviceGetFluxCapacitor", 0) == Answer(None, "FUNCTION_NOT_FOUND")


def test_a_name_that_is_not_text_is_undecodable(opened: Opened) -> None:
    nvml, _ = opened(with_fault(call="nvmlDeviceGetName", bytes="f892ff"))
    assert nvml.ask("DeviceGetName", 0) == Answer(None, "UNDECODABLE")


@pytest.mark.parametrize("code", [3, 13])
def test_a_call_refused_for_good_is_never_made_again(opened: Opened, code: int) -> None:
    nvml, stand_in = opened(with_fault(call="nvmlDeviceGetPowerUsage", device=0, error=code))
    first = nvml.ask("DeviceGetPowerUsage", 0)
    later = [nvml.ask("DeviceGetPowerUsage", 0) for _ in range(20)]
    assert stand_in.calls["nvmlDeviceGetPowerUsage", 0] == 1
    assert {answer.reason for answer in later} == {f"SKIPPED after {first.reason}"}


def test_a_refusal_of_one_device_leaves_the_other_device_asked(opened: Opened) -> None:
    nvml, _ = opened(with_fault(call="nvmlDeviceGetPowerUsage", device=0, error=3))
    nvml.ask("DeviceGetPowerUsage", 0)
    assert nvml.ask("DeviceGetPowerUsage", 1) == Answer(79408)


def test_a_refusal_of_one_clock_leaves_the_other_clock_asked(opened: Opened) -> None:
    profile = h200_node()
    del profile["devices"][0]["ClockInfo"]["1"]
    nvml, _ = opened(profile)
    assert nvml.ask("DeviceGetClockInfo", 0, 1).reason == "NOT_SUPPORTED"
    assert nvml.ask("DeviceGetClockInfo", 0, 2) == Answer(3201)


@pytest.mark.parametrize("code", [4, 15, 999])
def test_a_refusal_that_may_pass_is_asked_again(opened: Opened, code: int) -> None:
    nvml, stand_in = opened(with_fault(call="nvmlDeviceGetPowerUsage", device=0, error=code))
    assert len({nvml.ask("DeviceGetPowerUsage", 0) for _ in range(3)}) == 1
    assert stand_in.calls["nvmlDeviceGetPowerUsage", 0] == 3


def test_a_handle_is_fetched_once_and_its_refusal_is_the_reason(opened: Opened) -> None:
    nvml, stand_in = opened(h200_node())
    for _ in range(5):
        nvml.ask("DeviceGetPowerUsage", 0)
    assert stand_in.calls["nvmlDeviceGetHandleByIndex_v2", None] == 1
    assert nvml.ask("DeviceGetPowerUsage", 7) == Answer(None, "INVALID_ARGUMENT")


def test_each_call_is_noted_before_it_is_made_and_cleared_after() -> None:
    notes: list[tuple[str, int | None]] = []
    with installed(with_fault(call="nvmlDeviceGetName", error=15)):
        nvml = open_nvml(lambda call, device: notes.append((call, device)))
        assert isinstance(nvml, Nvml)
        nvml.ask("DeviceGetName", 1)
        nvml.ask("DeviceGetUUID", 1)
    assert notes == [
        ("Init", None),
        ("", None),
        ("DeviceGetHandleByIndex", 1),
        ("DeviceGetName", 1),
        ("", None),
        ("DeviceGetUUID", 1),
        ("", None),
    ]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "DRIVER_NOT_LOADED"), (12, "LIBRARY_NOT_FOUND"), (18, "LIB_RM_VERSION_MISMATCH"), (999, "UNKNOWN")],
)
def test_nvml_that_does_not_open_gives_the_reason_and_words_for_it(code: int, reason: str) -> None:
    with installed(with_fault(call="nvmlInitWithFlags", error=code)):
        assert open_nvml() == reason
    assert " " in explain(reason)


def test_a_reason_without_words_is_explained_by_itself() -> None:
    assert explain("IRQ_ISSUE") == "IRQ_ISSUE"


def test_the_old_package_in_front_of_the_right_one_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(__file__="/site-packages/pynvml/__init__.py")
    monkeypatch.setitem(sys.modules, "pynvml", old)
    answer = open_nvml()
    assert isinstance(answer, str)
    assert answer.startswith("SHADOWED")
    assert "/site-packages/pynvml/__init__.py" in answer


def test_a_constant_that_the_binding_lacks_is_none(opened: Opened) -> None:
    nvml, _ = opened(h200_node())
    assert nvml.constant("NVML_CLOCK_SM") == 1
    assert nvml.constant("NVML_CLOCK_FLUX") is None


def test_closing_shuts_nvml_down_and_outlives_a_refusal(opened: Opened) -> None:
    nvml, stand_in = opened(with_fault(call="nvmlShutdown", error=999))
    nvml.close()
    assert stand_in.calls["nvmlShutdown", None] == 1


def test_codes_are_named_from_the_binding_that_is_in_use() -> None:
    binding: Any = SimpleNamespace(NVML_ERROR_BRAND_NEW=41, NVML_SUCCESS=0)
    assert reason_of(binding, 41) == "BRAND_NEW"
    assert reason_of(binding, 42) == "ERROR_42"
