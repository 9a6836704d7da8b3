"""T2: reasons for a low clock, at rest and by their share of the time under load."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import Finding
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_load, make_probe, only, states, worst


def at_rest(bits: Any, **gpu: Any) -> list[Finding]:
    return only("T2", make_probe([{"event_reasons": bits, **gpu}]))


def under_load(*reasons: list[int], power_w: float = 690) -> list[Finding]:
    columns = [{"event_reasons": each, "power_w": [power_w] * len(each)} for each in reasons]
    return only("T2", make_probe(count=len(reasons), load=make_load(columns)))


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x0, ["pass"]),
        (0x1, ["pass"]),
        (0x2, ["pass"]),
        (0x10 | 0x100, ["pass"]),
        (0x8, ["warn"]),
        (0x40, ["warn"]),
        (0x80, ["warn"]),
        (0x1 | 0x80, ["warn"]),
        (0x20, ["info", "pass"]),
        (0x200, ["info", "pass"]),
        (0x8 | 0x20 | 0x200, ["info", "info", "warn"]),
        (NOT_SUPPORTED, ["skip"]),
        (NO_PERMISSION, ["unknown"]),
    ],
)
def test_at_rest_hardware_slowdowns_warn(bits: Any, expected: list[str]) -> None:
    assert sorted(states(at_rest(bits))) == expected


@pytest.mark.parametrize(("power_w", "expected"), [(419, ["info", "pass"]), (420, ["pass"])])
def test_at_rest_a_power_cap_is_told_where_little_is_drawn(power_w: float, expected: list[str]) -> None:
    """60 % of 700 W are 420 W."""
    assert sorted(states(at_rest(0x4, power_w=power_w))) == expected


def test_one_look_is_said_to_be_one() -> None:
    found = worst(at_rest(0x8 | 0x80))
    assert found.message == "GPU 0: hardware power brake at rest"
    assert found.observed == "hardware slowdown, hardware power brake"
    assert found.evidence == ("one look, which may have caught the edge of a load",)
    assert found.next_step is not None


def test_unknown_bits_are_given_in_hexadecimal() -> None:
    (unknown,) = [f for f in at_rest(0x1 | 0x400 | 0x800) if f.state.value == "info"]
    assert unknown.message == "GPU 0: unknown clock event reason 0xc00"


@pytest.mark.parametrize(
    ("bit", "slow", "samples", "state"),
    [
        (0x80, 0, 100, "pass"),
        (0x80, 1, 100, "warn"),
        (0x80, 2, 4, "warn"),  # two samples may be the edge of a load
        (0x80, 3, 4, "fail"),
        (0x40, 3, 300, "warn"),  # 1 % is not above 1 %
        (0x40, 3, 299, "fail"),
        (0x8, 10, 10, "fail"),
        (0x20, 1, 100, "pass"),
        (0x20, 2, 100, "warn"),
        (0x20, 3, 30, "warn"),  # 10 % is not above 10 %
        (0x20, 4, 30, "fail"),
        (0x20, 2, 2, "warn"),
        (0x4, 100, 100, "pass"),
        (0x1, 100, 100, "pass"),
    ],
)
def test_slowdowns_are_judged_by_their_share_of_the_time(bit: int, slow: int, samples: int, state: str) -> None:
    reasons = [0x4 | bit] * slow + [0x4] * (samples - slow)
    assert states(under_load(reasons)) == [state]


def test_a_power_brake_is_named_with_its_share() -> None:
    found = worst(under_load([0x4] * 10, [0x8 | 0x80] * 9 + [0x4]))
    assert found.message == "GPU 1: hardware power brake 90 % of the time under load"
    assert (found.observed, found.expected) == (
        "9 of 10 samples: hardware slowdown, hardware power brake",
        "at most 0 % (fails above 1 %)",
    )


@pytest.mark.parametrize(
    ("capped", "power_w", "state"),
    [
        (10, 690, "pass"),  # a power cap at full load is normal
        (10, 420, "pass"),
        (10, 419, "warn"),
        (10, 210, "warn"),
        (2, 210, "pass"),  # two samples may be the edge of a load
        (3, 210, "warn"),
        (0, 210, "pass"),
    ],
)
def test_a_power_cap_warns_only_where_little_is_drawn(capped: int, power_w: float, state: str) -> None:
    assert states(under_load([0x4] * capped + [0] * (10 - capped), power_w=power_w)) == [state]


def test_the_power_drawn_while_capped_is_what_counts() -> None:
    columns = [{"event_reasons": [0x4] * 3 + [0] * 7, "power_w": [690] * 3 + [100] * 7}]
    assert states(only("T2", make_probe(count=1, load=make_load(columns)))) == ["pass"]


def capped(*shares: int) -> list[str]:
    """GPUs that are power-capped in so many of 10 samples: who is told of."""
    found = under_load(*[[0x4] * share + [0x2] * (10 - share) for share in shares])
    return [f.message[:5] for f in found if f.state.value == "info"]


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((10, 10, 10), []),
        ((10, 10, 8), []),
        ((10, 10, 7), ["GPU 2"]),
        ((2, 2, 2, 5), ["GPU 3"]),
        ((10, 7), ["GPU 0"]),  # of two the one that is capped more
        ((10, 8), []),
        ((10,), []),
    ],
)
def test_a_share_of_power_cap_unlike_the_peers_is_told(shares: tuple[int, ...], told: list[str]) -> None:
    assert capped(*shares) == told


@given(st.lists(st.sampled_from([0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x6]), min_size=1, max_size=30))
def test_no_mix_of_normal_reasons_is_a_fault(reasons: list[int]) -> None:
    assert states(under_load(reasons)) == ["pass"]


@given(st.lists(st.integers(0, 0x1FF), min_size=1, max_size=30))
def test_a_gpu_never_passes_with_a_hardware_slowdown(reasons: list[int]) -> None:
    bad = any(bits & 0xC8 for bits in reasons)
    assert not (bad and worst(under_load(reasons)).state.value == "pass")


def test_no_samples_under_load_are_no_pass() -> None:
    assert states(only("T2", make_probe(count=1, load=make_load(devices=[0])))) == ["unknown"]
    unsupported = make_probe([{"event_reasons": NOT_SUPPORTED}], load=make_load(devices=[0]))
    assert states(only("T2", unsupported)) == ["skip"]
