"""Every kind of row, named rightly and in each of the ways in which it can be wrong."""

from __future__ import annotations

import pytest

from gpubalance.checks.selftest.look import Named, Seen
from gpubalance.checks.selftest.rows import KINDS, expected_class, kind_of
from gpubalance.checks.selftest.score import Outcome, outcomes_of
from tests.checks.selftest.helpers import healthy, played, seen, slow

WARN = 0.05


def outcome(row: str, what: Seen, *ranks: int) -> Outcome:
    """Of one pass between two healthy ones."""
    passes = [healthy(0), played(1, row, *ranks), healthy(2)]
    return outcomes_of(passes, {0: seen(), 1: what, 2: seen()}, WARN)[1]


def named_for(row: str, rank: int) -> Named:
    """What the tool must say of the rank that a row is played on."""
    kind = kind_of(row)
    assert kind is not None
    if kind.cause == "data_imbalance":
        return Named(rank, "data", "data_imbalance")
    if kind.cause is not None:
        return slow(rank, kind.cause)
    how = kind.expected
    assert how in ("intermittent", "memory", "context")
    return Named(rank, how)


SINGLE = [name for name, kind in KINDS.items() if kind.names_somebody and name not in ("half", "compute")]
SINGLE += ["compute_8", "compute_20"]


@pytest.mark.parametrize("row", SINGLE)
@pytest.mark.parametrize("rank", [0, 1])
def test_the_right_rank_with_the_right_class_is_right(row: str, rank: int) -> None:
    found = outcome(row, seen(named_for(row, rank)), rank)
    assert (found.right, found.reason, found.rank_right) == (True, None, True)


@pytest.mark.parametrize("row", SINGLE)
def test_nobody_named_is_a_miss(row: str) -> None:
    found = outcome(row, seen(), 1)
    assert (found.right, found.reason, found.rank_right) == (False, "did not name rank 1", False)


@pytest.mark.parametrize("row", SINGLE)
def test_a_victim_named_is_wrong_even_beside_the_right_rank(row: str) -> None:
    for what in (seen(named_for(row, 0)), seen(named_for(row, 1), slow(0))):
        found = outcome(row, what, 1)
        assert (found.right, found.others_named, found.rank_right) == (False, (0,), False)
        assert found.reason == "named rank 0, on which nothing was played"


@pytest.mark.parametrize("row", SINGLE)
def test_the_right_rank_with_another_class_is_wrong(row: str) -> None:
    found = outcome(row, seen(slow(1, "thermal")), 1)
    assert (found.right, found.reason, found.rank_right) == (False, "named another class: thermal", True)
    beside = outcome(row, seen(named_for(row, 1), slow(1, "thermal")), 1)
    assert beside.reason == "named another class: thermal"


@pytest.mark.parametrize("row", SINGLE)
def test_no_cause_is_not_right_but_is_no_other_class(row: str) -> None:
    found = outcome(row, seen(slow(1, None)), 1)
    assert (found.right, found.reason, found.rank_right) == (False, "named no cause", True)


def test_a_pass_too_noisy_to_tell_is_a_miss_that_says_so() -> None:
    assert outcome("compute_20", seen(state="unclear"), 1).reason == "did not name rank 1 (too noisy to tell)"


def test_a_cause_that_comes_and_goes_counts_by_its_cause_and_the_transient_row_by_its_kind() -> None:
    spiky = Named(1, "intermittent", "cpu_contention")
    assert outcome("hog", seen(spiky), 1).right
    assert outcome("transient", seen(Named(1, "intermittent", "device_work")), 1).right
    assert outcome("transient", seen(Named(1, "intermittent")), 1).right
    assert outcome("transient", seen(spiky), 1).reason == "named another class: cpu_contention"
    assert outcome("hog", seen(Named(1, "intermittent")), 1).reason == "named another class: intermittent"


@pytest.mark.parametrize("row", ["healthy", "fast"])
def test_where_nobody_may_be_named_any_name_is_wrong(row: str) -> None:
    ranks = () if row == "healthy" else (0, 1, 2)
    assert outcome(row, seen(), *ranks).right
    assert outcome(row, seen(state="unclear"), *ranks).right
    for name in (slow(1), Named(1, "intermittent"), Named(0, "memory")):
        found = outcome(row, seen(name), *ranks)
        assert not found.right
        assert found.others_named == (name.rank,)
    assert outcome(row, seen(majority_slow=3), *ranks).reason == "said that most ranks are slow (3)"


def test_all_slow_is_right_when_nobody_is_named_and_the_rate_drops() -> None:
    slower = {"slowest_ms": 120.0, "step_ms": 140.0}
    assert outcome("all", seen(**slower), 0, 1).right
    assert outcome("all", seen(slow(0), **slower), 0, 1).reason == "named rank 0, on which nothing was played"
    assert outcome("all", seen(**slower, score=94.9), 0, 1).reason == "balance 94.9 although all ranks are alike"
    for step_ms in (120.0, 126.0, None):  # 1 - 120/126 is 4.8 %
        assert outcome("all", seen(slowest_ms=120.0, step_ms=step_ms), 0, 1).reason == "the step rate did not drop"


def test_half_slow_is_right_with_each_of_them_or_their_number() -> None:
    assert outcome("half", seen(slow(1), slow(3)), 1, 3).right
    by_number = outcome("half", seen(majority_slow=2), 1, 3)
    assert by_number.right
    assert by_number.rank_right
    assert outcome("half", seen(slow(1), majority_slow=2), 1, 3).right
    assert outcome("half", seen(slow(1)), 1, 3).reason == "did not name rank 3"
    assert outcome("half", seen(slow(0), majority_slow=2), 1, 3).reason == "named rank 0, on which nothing was played"
    assert outcome("half", seen(majority_slow=3), 1, 3).reason == "said that most ranks are slow (3)"
    assert outcome("half", seen(), 1, 3).reason == "did not name rank 1, 3"


def test_losses_are_held_against_the_mean_of_the_healthy_passes_beside() -> None:
    passes = [healthy(0), played(1, "compute_20", 1), healthy(2)]
    what = {
        0: seen(slowest_ms=99.0, step_ms=118.0),
        1: seen(slow(1), slowest_ms=120.0, step_ms=142.0),
        2: seen(slowest_ms=101.0, step_ms=122.0),
    }
    loss = outcomes_of(passes, what, WARN)[1].loss
    assert loss.predicted == pytest.approx(1 - 120 / 140)
    assert loss.measured == pytest.approx(1 - 120 / 142)
    assert loss.difference == pytest.approx(120 / 142 - 120 / 140)


def test_losses_take_the_nearest_healthy_passes_of_the_same_crew() -> None:
    passes = [
        healthy(0), healthy(1), played(2, "compute_8", 0), played(3, "compute_20", 0), healthy(4),
        healthy(5, again=True), played(6, "compute_20", 0, again=True),
    ]  # fmt: skip
    steps = {0: 50.0, 1: 100.0, 2: 110.0, 3: 125.0, 4: 100.0, 5: 200.0, 6: 250.0}
    found = outcomes_of(passes, {number: seen(step_ms=ms) for number, ms in steps.items()}, WARN)
    measured = {each.number: each.loss.measured for each in found}
    assert measured == {
        0: None, 1: None, 2: pytest.approx(1 - 100 / 110), 3: pytest.approx(0.2), 4: None, 5: None,
        6: pytest.approx(0.2),
    }  # fmt: skip


def test_a_step_that_was_not_measured_leaves_no_loss() -> None:
    passes = [healthy(0), played(1, "compute_20", 1), healthy(2)]
    without = {0: seen(), 1: seen(slow(1), step_ms=None), 2: seen()}
    assert outcomes_of(passes, without, WARN)[1].loss.measured is None
    beside = {0: seen(step_ms=None), 1: seen(slow(1)), 2: seen()}
    loss = outcomes_of(passes, beside, WARN)[1].loss
    assert (loss.predicted, loss.measured, loss.difference) == (None, None, None)


def test_passes_that_were_not_finished_have_no_outcome() -> None:
    passes = [healthy(0), played(1, "compute_20", 1), healthy(2)]
    assert [each.number for each in outcomes_of(passes, {0: seen(), 1: seen(slow(1))}, WARN)] == [0, 1]


@pytest.mark.parametrize("row", ["compute_x", "compute_", "sleep_5", "heat", "", "compute_8_8"])
def test_names_that_no_row_has(row: str) -> None:
    assert kind_of(row) is None


def test_each_kind_that_names_somebody_has_a_class_and_the_others_have_none() -> None:
    assert {name: expected_class(kind) for name, kind in KINDS.items()} == {
        "healthy": None, "compute": "device_work", "backward": "device_work", "sleep": "host",
        "loader": "input_pipeline", "copies": "pcie", "data": "data_imbalance", "hog": "cpu_contention",
        "rival": "foreign_process", "transient": "intermittent", "memory": "memory", "context": "context",
        "half": "device_work", "fast": None, "all": None,
    }  # fmt: skip
