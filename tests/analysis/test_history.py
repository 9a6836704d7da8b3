"""Each rank against what its own device used to be."""

from __future__ import annotations

import numpy as np
import pytest

from gpubalance.analysis.history import history_of
from gpubalance.testing.runs import make_attempt, make_run, steady

BEFORE = {0: 100.0, 1: 200.0}


def states(*compute_ms: float) -> list[str]:
    run = make_run([make_attempt(steady(list(compute_ms)))])
    (attempt,) = history_of(run, BEFORE, 0.05, 0.10)
    return [own.state for own in attempt.ranks]


MARGINS = {
    "as before": ((100.0, 200.0), ["ok", "ok"]),
    "faster": ((50.0, 100.0), ["ok", "ok"]),
    "2 % more than the margin that warns": ((106.9, 213.9), ["ok", "ok"]),
    "above it": ((107.1, 214.1), ["warn", "warn"]),
    "2 % more than the margin that fails": ((111.9, 200.0), ["warn", "ok"]),
    "above that": ((112.1, 200.0), ["fail", "ok"]),
    "all of them, which no peer shows": ((120.0, 240.0), ["fail", "fail"]),
}


@pytest.mark.parametrize(("times", "expected"), MARGINS.values(), ids=MARGINS.keys())
def test_margins_from_both_sides(times: tuple[float, ...], expected: list[str]) -> None:
    assert states(*times) == expected


def blocks(over: int) -> list[str]:
    """Two ranks, 24 blocks; rank 0 is 20 % slower than before in so many of them."""
    times = np.full((2, 24, 5), 100.0)
    times[1] = 200.0
    times[0, :over] = 120.0
    (attempt,) = history_of(make_run([make_attempt(times)]), BEFORE, 0.05, 0.10)
    assert attempt.needed == 19
    return [own.state for own in attempt.ranks]


@pytest.mark.parametrize(("over", "state"), [(5, "ok"), (6, "unclear"), (18, "unclear"), (19, "fail")])
def test_as_many_blocks_as_the_sign_test_needs(over: int, state: str) -> None:
    assert blocks(over) == [state, "ok"]


def test_numbers_by_hand() -> None:
    run = make_run([make_attempt(steady([120.0, 200.0]))])
    (attempt,) = history_of(run, BEFORE, 0.05, 0.10)
    assert (attempt.blocks, attempt.needed) == (24, 19)
    assert (attempt.warn, attempt.fail) == (pytest.approx(0.07), pytest.approx(0.12))
    slow = attempt.ranks[0]
    assert (slow.rank, slow.device, slow.ratio) == (0, 0, pytest.approx(1.2))
    assert (slow.blocks_over_warn, slow.blocks_over_fail) == (24, 24)


def test_too_few_blocks_are_no_verdict() -> None:
    run = make_run([make_attempt(steady([120.0, 200.0], blocks=4))])
    (attempt,) = history_of(run, BEFORE, 0.05, 0.10)
    assert attempt.needed is None
    assert [own.state for own in attempt.ranks] == ["unclear", "unclear"]


def test_a_rank_is_held_against_the_device_that_it_works_on_and_per_unit() -> None:
    attempt = make_attempt(steady([200.0, 150.0]), devices=[1, 0], units=[1.0, 1.5])
    (found,) = history_of(make_run([attempt]), BEFORE, 0.05, 0.10)
    assert [(own.rank, own.device, own.ratio) for own in found.ranks] == [(0, 1, 1.0), (1, 0, 1.0)]


def test_every_pass_is_looked_at_and_devices_without_history_are_left_out() -> None:
    passes = [make_attempt(steady([100.0, 200.0]), attempt=number) for number in range(2)]
    found = history_of(make_run(passes), {1: 200.0}, 0.05, 0.10)
    assert [[own.device for own in attempt.ranks] for attempt in found] == [[1], [1]]


def test_one_rank_alone_has_a_history() -> None:
    (found,) = history_of(make_run([make_attempt(steady([130.0]))]), BEFORE, 0.05, 0.10)
    assert [own.state for own in found.ranks] == ["fail"]
