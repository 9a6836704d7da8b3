"""Numbers that are worked out, and peers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import State
from gpubalance.checks.probing.check import finding, gpus_of
from gpubalance.checks.probing.measured import each_measured, peers_of, values_of, whole
from tests.checks.probing.helpers import NO_PERMISSION, NOT_SUPPORTED, make_probe, states


def test_a_reason_in_place_of_a_number_is_skipped_or_unknown() -> None:
    gpus = gpus_of(make_probe(count=3))
    answers: list[float | str] = ["NOT_SUPPORTED", "no answer", 7.0]
    found = each_measured(gpus, lambda gpu: answers[gpu.index], "the number", lambda gpu, value: [], "all well")
    assert [f.message for f in found] == [
        "the number on GPU 0: not supported",
        "the number on GPU 1 not measured: no answer",
        "all well on 1 GPU",
    ]


def test_a_number_of_a_gpu_that_hung_is_judged_all_the_same() -> None:
    gpus = gpus_of(make_probe([{"failed": "never returned"}]))
    judged = each_measured(gpus, lambda gpu: 1.0, "x", lambda gpu, v: [finding(State.FAIL, f"{v}")], "well")
    assert states(judged) == ["fail"]


def test_a_number_is_whole_when_no_part_is_missing() -> None:
    (gpu,) = gpus_of(make_probe([{"a": 1, "b": NOT_SUPPORTED, "c": NO_PERMISSION}]))
    assert whole("a")(gpu) == 1
    assert whole("a", "b", "c")(gpu) == "NOT_SUPPORTED"
    assert whole("c", "b")(gpu) == "NO_PERMISSION"


def test_missing_values_are_left_out() -> None:
    assert values_of(gpus_of(make_probe([{"a": 1}, {"a": NOT_SUPPORTED}, {"a": 0}])), "a") == {0: 1, 2: 0}


@given(st.dictionaries(st.integers(0, 5), st.floats(0, 100), max_size=6))
def test_peers_are_all_others_that_have_a_value(values: dict[int, float]) -> None:
    peers = peers_of(gpus_of(make_probe(count=6)), values)
    assert peers.keys() == values.keys()
    assert all(sorted([*peers[own], values[own]]) == sorted(values.values()) for own in values)


def test_only_gpus_of_the_same_model_and_limit_are_peers() -> None:
    probe = make_probe(readings=[{}, {"power_limit_w": 500.0}, {}], devices=[{}, {}, {"name": "NVIDIA L4"}])
    assert peers_of(gpus_of(probe), {0: 1.0, 1: 2.0, 2: 3.0}) == {0: [], 1: [], 2: []}
