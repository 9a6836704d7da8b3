"""P1 to P3: the PCIe link, at rest and under load."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import Finding
from gpubalance.checks.probing.pcie import replays_allowed
from gpubalance.record.probe import DeviceLoad
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_load, make_probe, only, states, worst

KEYS = {"P1": "pcie_width", "P2": "pcie_generation", "P3": "pcie_replays"}
LINK = {"P1": "pcie_width", "P2": "pcie_generation"}


def link(check: str, *seen: int, samples: int = 5, vm: bool = False, **gpu: Any) -> list[Finding]:
    """GPUs whose link never showed more than this under load."""
    columns = [{LINK[check]: [1] * (samples - 1) + [value]} for value in seen]
    return only(check, make_probe([gpu] * len(seen), load=make_load(columns), host={"virtual_machine": vm}))


@pytest.mark.parametrize(("generation", "lanes"), [(5, 16), (1, 16), (1, 1), (2, 4)])
def test_at_rest_a_link_is_never_a_fault(generation: int, lanes: int) -> None:
    probe = make_probe([{"pcie_generation": generation, "pcie_width": lanes}] * 2)
    assert states(only("P1", probe)) == states(only("P2", probe)) == ["info"]
    assert only("P1", probe)[0].observed == f"GPU 0: x{lanes} of x16; GPU 1: x{lanes} of x16"
    assert only("P2", probe)[0].observed == f"GPU 0: gen {generation} of gen 5; GPU 1: gen {generation} of gen 5"


@pytest.mark.parametrize(("check", "key"), KEYS.items())
@pytest.mark.parametrize(("reason", "state"), [(NOT_SUPPORTED, "skip"), (NO_PERMISSION, "unknown")])
def test_what_cannot_be_read_is_skipped_or_unknown(check: str, key: str, reason: tuple[str], state: str) -> None:
    assert states(only(check, make_probe([{key: reason}] * 2))) == [state]
    assert states(only(check, make_probe([{key: reason}] * 2, load=make_load(devices=[0, 1])))) == [state]
    assert sorted(states(only(check, make_probe([{}, {key: reason}])))) == sorted(["info", state])


@pytest.mark.parametrize("check", KEYS)
def test_hung_or_absent_gpus_do_not_pass(check: str) -> None:
    hung = make_probe([{"failed": "nvmlDeviceGetCurrPcieLinkWidth of GPU 0 never returned"}])
    assert states(only(check, hung)) == ["unknown"]
    assert states(only(check, make_probe(count=0))) == ["skip"]


@pytest.mark.parametrize(("lanes", "state"), [(16, "pass"), (8, "fail"), (4, "fail")])
def test_lanes_that_are_missing_under_load_fail(lanes: int, state: str) -> None:
    assert worst(link("P1", lanes, 16)).state.value == state


@pytest.mark.parametrize(
    ("seen", "state"), [(5, "pass"), (4, "warn"), (3, "fail"), (2, "fail"), (1, "fail"), (6, "pass")]
)
def test_one_generation_too_low_warns_and_two_fail(seen: int, state: str) -> None:
    assert worst(link("P2", 5, seen)).state.value == state


def test_the_smaller_of_gpu_and_slot_is_the_yardstick() -> None:
    """A generation-5 GPU in a generation-4 slot runs at 4."""
    assert states(link("P2", 4, pcie_generation_gpu_max=5)) == ["warn"]
    readings = [{"pcie_generation_max": 4}]
    probe = make_probe([{}], readings, load=make_load([{"pcie_generation": [4, 4, 4]}]))
    assert states(only("P2", probe)) == ["pass"]


def test_the_gpus_own_maximum_may_be_unknown() -> None:
    assert states(link("P2", 3, pcie_generation_gpu_max=("FUNCTION_NOT_FOUND",))) == ["fail"]


@pytest.mark.parametrize(("reason", "state"), [(NOT_SUPPORTED, "skip"), (NO_PERMISSION, "unknown")])
def test_without_any_maximum_nothing_is_judged(reason: tuple[str], state: str) -> None:
    load = make_load([{"pcie_width": [16] * 5}])
    assert states(only("P1", make_probe(readings=[{"pcie_width_max": reason}], load=load))) == [state]


def test_a_stuck_link_is_named_with_its_peers() -> None:
    found = worst(link("P2", 5, 5, 2))
    assert found.message == "GPU 2 ran at PCIe generation 2 of 5 under load"
    assert found.subject is not None
    assert found.subject.startswith("cuda:2 nvml:2 GPU-00000003-")
    assert (found.observed, found.expected) == ("gen 2", "gen 5, as its best peer: gen 5")
    assert found.next_step is not None


@pytest.mark.parametrize(
    ("check", "seen", "states_seen"),
    [
        ("P1", (16, 16), ["pass"]),
        ("P1", (8, 8), ["info", "info", "pass"]),  # the slots may have no more
        ("P1", (8, 16), ["fail"]),
        ("P2", (4, 4), ["info", "info", "pass"]),
        ("P2", (3, 3), ["warn", "warn"]),
        ("P2", (2,), ["warn"]),
        ("P2", (4, 5), ["warn"]),
        ("P2", (3, 4), ["warn", "info"]),  # one below what its peer reaches, which is one below its own maximum
        ("P2", (2, 4), ["fail", "info"]),
    ],
)
def test_a_virtual_machine_hides_the_slot(check: str, seen: tuple[int, ...], states_seen: list[str]) -> None:
    assert states(link(check, *seen, vm=True)) == states_seen


def test_what_a_virtual_machine_hides_is_said() -> None:
    found = worst(link("P1", 8, 8, vm=True))
    assert found.evidence == ("the virtual machine hides what the slot can do, and no peer has more",)


@pytest.mark.parametrize(("samples", "state"), [(2, "unknown"), (3, "fail")])
def test_two_samples_may_be_the_edge_of_a_load(samples: int, state: str) -> None:
    assert worst(link("P1", 8, samples=samples)).state.value == state


def test_one_sample_at_the_maximum_is_enough() -> None:
    assert states(link("P1", 16, samples=1)) == ["pass"]


@pytest.mark.parametrize("check", KEYS)
def test_a_gpu_that_was_not_sampled_under_load_is_unknown(check: str) -> None:
    columns = [{"pcie_width": [16] * 5, "pcie_generation": [5] * 5}]
    load = make_load(columns, [{"pcie_replays": (1, 1)}], devices=[0, 1])
    assert sorted(states(only(check, make_probe(load=load)))) == ["pass", "unknown"]


@pytest.mark.parametrize("check", KEYS)
def test_a_gpu_that_was_left_alone_is_told_as_at_rest(check: str) -> None:
    result = DeviceLoad(device=1, stage="start", seconds=0, skipped="in use by pid 7")
    columns = [{"pcie_width": [16] * 5, "pcie_generation": [5] * 5}]
    load = make_load(columns, [{"pcie_replays": (1, 1)}], devices=[0, 1], results=[result])
    assert sorted(states(only(check, make_probe(load=load)))) == ["info", "pass"]


@pytest.mark.parametrize("total", [0, 1, 80, 81, 10**9])
def test_replays_since_start_up_are_only_told(total: int) -> None:
    (found,) = only("P3", make_probe([{"pcie_replays": total}, {"pcie_replays": 0}]))
    assert found.state.value == "info"
    assert found.observed == f"GPU 0: {total}; GPU 1: 0"


@pytest.mark.parametrize(
    ("before", "after", "seconds", "state"),
    [
        (1, 1, 60, "pass"),
        (1, 31, 60, "pass"),  # 16 lanes x 1.92 a minute = 30.72
        (1, 32, 60, "warn"),
        (0, 7, 15, "pass"),  # 7.68 in a quarter of a minute
        (0, 8, 15, "warn"),
        (5, 85, 60, "warn"),
        (5, 86, 60, "fail"),
        (0, 80, 600, "pass"),  # 307 are allowed, but
        (0, 81, 600, "fail"),  # more than 80 are never
        (9, 3, 60, "unknown"),  # reset meanwhile
        (None, 3, 60, "unknown"),
    ],
)
def test_replays_under_load(before: int | None, after: int, seconds: float, state: str) -> None:
    load = make_load(counters=[{"pcie_replays": (before, after)}], seconds=seconds)
    assert states(only("P3", make_probe(count=1, load=load))) == [state]


def test_replays_are_counted_and_limited_in_words() -> None:
    load = make_load(counters=[{"pcie_replays": (0, 0)}, {"pcie_replays": (2, 33)}])
    found = worst(only("P3", make_probe(load=load)))
    assert found.message == "GPU 1 sent 31 PCIe packets again under load"
    assert (found.observed, found.expected) == ("31 replays in 60 s", "at most 30.7 (fails above 80)")


@pytest.mark.parametrize(
    ("lanes", "generation", "minutes", "allowed"),
    [
        (16, 3, 1, 7.68),
        (16, 4, 1, 15.36),
        (16, 5, 1, 30.72),
        (16, 6, 1, 61.44),
        (8, 4, 0.5, 3.84),
        (16, 1, 1, 2.4),
        (None, 5, 1, float("inf")),
        (16, None, 1, float("inf")),
        (16, 9, 1, float("inf")),
    ],
)
def test_replays_that_the_permitted_bit_errors_amount_to(
    lanes: float | None, generation: float | None, minutes: float, allowed: float
) -> None:
    assert replays_allowed(lanes, generation, minutes) == pytest.approx(allowed)
