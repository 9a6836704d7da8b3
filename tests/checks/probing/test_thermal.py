"""T1 and T5: temperature and persistence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_load, make_probe, only, states, worst


@pytest.mark.parametrize(
    ("margin", "state"), [(46, "pass"), (10, "pass"), (9, "warn"), (1, "warn"), (0, "fail"), (-3, "fail")]
)
def test_the_distance_to_slowdown_warns_and_fails(margin: int, state: str) -> None:
    assert states(only("T1", make_probe([{"temperature_margin_c": margin}]))) == [state]


@pytest.mark.parametrize(
    ("slowdown", "now", "state"), [(90, 80, "pass"), (90, 81, "warn"), (90, 90, "fail"), (90, 95, "fail")]
)
def test_without_it_the_threshold_serves(slowdown: int, now: int, state: str) -> None:
    gpu = {"temperature_margin_c": NOT_SUPPORTED, "temperature_slowdown_c": slowdown, "temperature_c": now}
    assert states(only("T1", make_probe([gpu]))) == [state]


@pytest.mark.parametrize(
    ("margin", "slowdown", "now", "state"),
    [
        (NOT_SUPPORTED, NOT_SUPPORTED, 40, "skip"),
        (NOT_SUPPORTED, 90, NOT_SUPPORTED, "skip"),
        (NOT_SUPPORTED, NO_PERMISSION, 40, "unknown"),
        (NO_PERMISSION, NOT_SUPPORTED, 40, "unknown"),
        (("SENTINEL",), NOT_SUPPORTED, 40, "unknown"),
        (NO_PERMISSION, 90, 40, "pass"),
    ],
)
def test_a_distance_that_is_not_known_does_not_pass(margin: Any, slowdown: Any, now: Any, state: str) -> None:
    gpu = {"temperature_margin_c": margin, "temperature_slowdown_c": slowdown, "temperature_c": now}
    assert states(only("T1", make_probe([gpu]))) == [state]


@pytest.mark.parametrize(
    ("margin", "message"),
    [(4, "GPU 1 is 4 C below its slowdown temperature"), (-2, "GPU 1 is at its slowdown temperature")],
)
def test_the_hot_gpu_is_named(margin: int, message: str) -> None:
    found = worst(only("T1", make_probe([{}, {"temperature_margin_c": margin}])))
    assert (found.message, found.observed) == (message, f"{margin} C")
    assert found.next_step is not None


def hot(*degrees: Any, **more: Any) -> list[str]:
    return sorted(states(only("T1", make_probe([{"temperature_c": each} for each in degrees], **more))))


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ((35, 35, 45), ["pass"]),
        ((35, 35, 46), ["pass", "warn"]),
        ((35, 46), ["pass"]),  # two GPUs: nobody knows which is the odd one
        ((35, 35, 35, 20), ["pass"]),  # a cold one is no fault
        ((30, 40, 51), ["pass", "warn"]),
        ((90, 91, 92), ["pass"]),  # no absolute temperature is one
        ((35, 50, 50, 50, 50), ["pass"]),
        ((NOT_SUPPORTED, 35, 46), ["pass"]),
    ],
)
def test_a_gpu_much_hotter_than_its_peers_warns(degrees: tuple[Any, ...], expected: list[str]) -> None:
    assert hot(*degrees) == expected


def test_how_much_hotter_is_said() -> None:
    found = worst(only("T1", make_probe([{}, {"temperature_c": 50}, {}])))
    assert found.message == "GPU 1 is 15 C hotter than its peers"
    assert (found.observed, found.expected) == ("50 C", "at most 45 C, 10 C above the middle of its peers")


def test_gpus_of_another_model_are_no_peers() -> None:
    devices = [{}, {}, {"name": "NVIDIA L4"}]
    assert hot(35, 35, 60, devices=devices) == ["pass"]


def test_under_load_the_hottest_samples_are_compared() -> None:
    load = make_load([{"temperature_c": [50, 60]}, {"temperature_c": [50, 61]}, {"temperature_c": [50, 72]}])
    assert hot(35, 35, 35, load=load) == ["pass", "warn"]


def test_a_loaded_gpu_is_not_compared_with_one_at_rest() -> None:
    assert hot(35, 35, 35, load=make_load([{"temperature_c": [60, 70]}])) == ["pass"]


@given(degrees=st.lists(st.integers(20, 95), min_size=3, max_size=8), shift=st.integers(0, 100))
def test_only_differences_of_temperature_count(degrees: list[int], shift: int) -> None:
    assert hot(*degrees) == hot(*(each + shift for each in degrees))


@pytest.mark.parametrize(
    ("modes", "container", "expected"),
    [
        ((1, 1), None, ["pass"]),
        ((1, 0), None, ["warn"]),
        ((0, 0), None, ["warn"]),
        ((0, 0), "docker", ["info"]),
        ((1, 1), "docker", ["pass"]),
        ((NOT_SUPPORTED, NOT_SUPPORTED), None, ["skip"]),
        ((NO_PERMISSION, 1), None, ["unknown", "pass"]),
        ((NO_PERMISSION, 0), None, ["unknown", "warn"]),
        ((), None, ["skip"]),
    ],
)
def test_persistence_mode(modes: tuple[Any, ...], container: str | None, expected: list[str]) -> None:
    probe = make_probe(readings=[{"persistence_mode": mode} for mode in modes], node={"container": container})
    assert states(only("T5", probe)) == expected


def test_all_gpus_without_persistence_are_one_finding() -> None:
    readings = [{"persistence_mode": mode} for mode in (0, 1, 0)]
    (found,) = only("T5", make_probe(readings=readings))
    assert found.message == "persistence mode is off on GPU 0, 2"
    assert found.subject is not None
    assert "GPU-00000001-" in found.subject
    assert "GPU-00000003-" in found.subject


@pytest.mark.parametrize("check", ["T1", "T2", "T4"])
def test_a_gpu_that_hung_is_unknown(check: str) -> None:
    found = only(check, make_probe([{}, {"failed": "nvmlDeviceGetTemperature of GPU 1 never returned"}]))
    assert sorted(states(found))[-1] == "unknown"
    assert worst(found).message.endswith("nvmlDeviceGetTemperature of GPU 1 never returned")


@pytest.mark.parametrize("check", ["T1", "T2", "T3", "T4", "T5"])
def test_a_healthy_node_passes_and_an_empty_one_does_not(check: str) -> None:
    assert states(only(check, make_probe())) == ["pass"]
    assert states(only(check, make_probe(count=0))) == ["skip"]
