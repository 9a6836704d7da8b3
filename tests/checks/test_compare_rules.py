"""`--fail-on METRIC:LIMIT`, and what warns without one."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.analysis.compare import Comparison, compare_runs
from gpubalance.checks.compare_rules import (
    METRICS,
    Rule,
    check_changes,
    check_rules,
    collective_name,
    parse_rule,
    place_of,
)
from gpubalance.checks.finding import Finding, State
from gpubalance.errors import UsageError
from gpubalance.record.baselines import Fact, SavedRun
from tests.analysis.compare_helpers import collective, devices, fact, saved, setup

RULES = {
    "busbw:5%": Rule("busbw", 0.05, relative=True),
    "score:2": Rule("score", 2.0, relative=False),
    "step: 2.5 %": Rule("step", 0.025, relative=True),
    "h2d:0%": Rule("h2d", 0.0, relative=True),
}


@pytest.mark.parametrize(("text", "rule"), RULES.items())
def test_rules_are_read(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(rule.spelled()) == rule


@pytest.mark.parametrize(
    "text",
    ["", "busbw", "busbw:", "busbw:x", "busbw:-5%", "busbw:5%%", "algbw:5%", "exposed:5%", "busbw:nan", "busbw:1e9",
     "busbw:" + 400 * "9"],
)  # fmt: skip
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert caught.value.next_step


def compared(base: Fact | list[Fact], new: Fact | list[Fact], runs: int = 1, **values: Any) -> Comparison:
    def run(facts: Fact | list[Fact]) -> SavedRun:
        return saved(*(facts if isinstance(facts, list) else [facts]), **values)

    return compare_runs([run(base)] * runs, run(new))


def rule(comparison: Comparison, text: str) -> Finding:
    (found,) = check_rules(comparison, setup(), [parse_rule(text)])
    assert found.id == "fail_on"
    assert found.required
    return found


def steps(base: float, new: float, noise: float = 0.0) -> Comparison:
    return compared(fact("step", base, base - noise, base + noise), fact("step", new, new - noise, new + noise))


LIMITS = {
    "better": (steps(100, 50), "step:5%", State.PASS),
    "within": (steps(100, 104.9), "step:5%", State.PASS),
    "above": (steps(100, 105.1), "step:5%", State.FAIL),
    "within, absolute": (steps(100, 104.9), "step:5", State.PASS),
    "above, absolute": (steps(100, 105.1), "step:5", State.FAIL),
    "above, but it may be noise": (steps(100, 106, noise=5), "step:5%", State.UNKNOWN),
    "above, and it is no noise": (steps(100, 106, noise=4), "step:5%", State.FAIL),
    "less is worse": (compared(fact("busbw", 100.0), fact("busbw", 94.9)), "busbw:5%", State.FAIL),
    "more is better": (compared(fact("busbw", 100.0), fact("busbw", 120.0)), "busbw:5%", State.PASS),
    "within, one value each": (compared(fact("gemm", 100.0), fact("gemm", 95.1)), "gemm:5%", State.PASS),
    "points of the score": (compared(fact("score", 99.0), fact("score", 96.9)), "score:2", State.FAIL),
    "points within": (compared(fact("score", 99.0), fact("score", 97.1)), "score:2", State.PASS),
    "memory in GB": (compared(fact("memory", 4e9), fact("memory", 5.1e9)), "memory:1", State.FAIL),
    "memory within": (compared(fact("memory", 4e9), fact("memory", 4.9e9)), "memory:1", State.PASS),
    "in the band of several runs": (compared(fact("gemm", 100.0), fact("gemm", 100.0), runs=3), "gemm:0%", State.PASS),
    "not measured at all": (steps(100, 100), "busbw:5%", State.UNKNOWN),
    "in base alone": (compared([fact("step", 1.0), fact("gemm", 1.0, device=0)], fact("step", 1.0)), "gemm:5%",
                      State.UNKNOWN),
    "in new alone": (compared(fact("step", 1.0), [fact("step", 1.0), fact("gemm", 1.0, device=0)]), "gemm:5%",
                     State.UNKNOWN),
    "of one device alone": (
        compared([fact("gemm", 1.0, device=0), fact("gemm", 1.0, device=1)], fact("gemm", 1.0, device=0)), "gemm:5%",
        State.UNKNOWN,
    ),
    "worse where it is known": (
        compared([fact("gemm", 1.0, device=0), fact("gemm", 1.0, device=1)], fact("gemm", 0.5, device=0)), "gemm:5%",
        State.FAIL,
    ),
    "no share of zero": (compared(fact("busbw", 0.0), fact("busbw", 0.0)), "busbw:5%", State.UNKNOWN),
}  # fmt: skip


@pytest.mark.parametrize(("comparison", "text", "state"), LIMITS.values(), ids=LIMITS.keys())
def test_limits_from_both_sides(comparison: Comparison, text: str, state: State) -> None:
    found = rule(comparison, text)
    assert found.state is state
    assert bool(found.next_step) is (state is not State.PASS)


def test_the_worst_device_counts_and_is_named_with_all_it_has() -> None:
    base = [fact("compute", 100.0, 100.0, 100.0, device=device) for device in (0, 1)]
    new = [fact("compute", value, value, value, device=device) for device, value in ((0, 107.0), (1, 120.0))]
    found = rule(compared(base, new), "compute:5%")
    assert found.message == "GPU 1: compute time 20 % worse (allowed: 5 %)"
    assert found.subject == "GPU 1 NVIDIA H200 GPU-b"
    assert found.observed == "100 -> 120 ms"
    assert found.expected == "compute:5%"
    assert found.evidence == ("95 % interval: +20 to +20 ms", "worse as well: GPU 0: compute time by 7 %")


def test_a_value_without_noise_says_so() -> None:
    found = rule(compared(fact("gemm", 100.0, device=0), fact("gemm", 90.0, device=0)), "gemm:5%")
    assert found.evidence[0].startswith("one value on each side")


def test_small_and_replayed_collectives_are_not_judged() -> None:
    places = [collective(999_999), collective(mode="graph")]
    base, new = ([fact("busbw", value, collective=place) for place in places] for value in (100.0, 10.0))
    assert rule(compared(base, new), "busbw:5%").state is State.UNKNOWN
    assert check_changes(compared(base, new), setup(), 0.07) == []


def test_small_and_replayed_collectives_that_one_side_lacks_do_not_matter() -> None:
    whole = fact("busbw", 100.0, collective=collective())
    base = [whole, *(fact("busbw", 1.0, collective=place) for place in (collective(8192), collective(mode="graph")))]
    assert rule(compared(base, whole), "busbw:5%").state is State.PASS
    gone = rule(compared([*base, fact("busbw", 1.0, collective=collective(2**26))], whole), "busbw:5%")
    assert (gone.state, gone.evidence) == (State.UNKNOWN, ("only one side has: all_reduce 64 MiB",))


PLACES = {
    "GPU by its NVML index": (1, None, "GPU 1"),
    "the whole run": (None, None, ""),
    "a collective": (None, collective(), "all_reduce 1 GiB"),
}


@pytest.mark.parametrize(("device", "which", "text"), PLACES.values(), ids=PLACES.keys())
def test_places(device: int | None, which: Any, text: str) -> None:
    assert place_of(setup(), device, which) == text


def test_a_cpu_slot_is_a_rank() -> None:
    cpu = setup(devices=[device.model_copy(update={"nvml_index": None}) for device in devices("a", "b")])
    assert place_of(cpu, 1, None) == "rank 1"


@pytest.mark.parametrize(
    ("size", "values", "text"),
    [
        (512, {}, "all_reduce 512 B"),
        (8192, {}, "all_reduce 8 KiB"),
        (64 * 2**20, {"mode": "graph"}, "all_reduce 64 MiB graph"),
        (2**40, {"dtype": "bfloat16"}, "all_reduce 1024 GiB bfloat16"),
        (1536, {"name": "all_gather"}, "all_gather 1536 B"),
    ],
)
def test_names_of_collectives(size: int, values: dict[str, Any], text: str) -> None:
    assert collective_name(collective(size, **values)) == text


CHANGES: dict[str, tuple[Comparison, list[State]]] = {
    "nothing": (steps(100, 100), [State.PASS]),
    "within the margin and real": (steps(100, 106.9), [State.INFO, State.PASS]),
    "above it": (steps(100, 107.1), [State.WARN]),
    "above it, maybe noise": (steps(100, 107.1, noise=6), [State.PASS]),
    "better": (steps(100, 50), [State.PASS]),
    "one value, within": (compared(fact("gemm", 100.0), fact("gemm", 93.1)), [State.PASS]),
    "one value, below": (compared(fact("gemm", 100.0), fact("gemm", 92.9)), [State.WARN]),
    "host copies may differ more": (compared(fact("h2d", 100.0), fact("h2d", 88.1)), [State.PASS]),
    "host copies, below": (compared(fact("d2h", 100.0), fact("d2h", 87.9)), [State.WARN]),
    "points of the score": (compared(fact("score", 99.0), fact("score", 92.1)), [State.PASS]),
    "points, below": (compared(fact("score", 99.0), fact("score", 91.9)), [State.WARN]),
    "exposed communication is part of the step": (compared(fact("exposed", 1.0), fact("exposed", 9.0)), []),
}


@pytest.mark.parametrize(("comparison", "states"), CHANGES.values(), ids=CHANGES.keys())
def test_what_warns_without_a_rule(comparison: Comparison, states: list[State]) -> None:
    found = check_changes(comparison, setup(), 0.07)
    assert [finding.state for finding in found] == states
    assert all(finding.id == "change" and not finding.required for finding in found)
    assert all(finding.next_step for finding in found if finding.state is State.WARN)


def test_what_other_rules_judge_is_left_out() -> None:
    assert check_changes(steps(100, 200), setup(), 0.07, ["step"]) == []


@pytest.mark.parametrize("metric", METRICS)
def test_sentences_are_short_and_show_no_uuid(metric: str) -> None:
    longest = collective(64 * 2**20, name="reduce_scatter") if metric == "busbw" else None
    base = fact(metric, 1000.0, device=None if longest else 1, collective=longest)
    for new in (700.0, 1300.0):
        comparison = compared(base, base.model_copy(update={"value": new}))
        findings = [rule(comparison, f"{metric}:5%"), *check_changes(comparison, setup(), 0.07)]
        assert all(len(finding.message) <= 72 and "GPU-b" not in finding.message for finding in findings)
