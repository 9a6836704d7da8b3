"""The script of error rates itself: its schedule, its time limit and its table, with real ranks once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from gpubalance.analysis.facts import attempt_facts
from gpubalance.testing.runs import make_attempt, steady
from tests.benchmarks import error_rates
from tests.benchmarks.error_rates import (
    CREW,
    HEALTHY,
    How,
    Item,
    Pass,
    detection_schedule,
    in_crews,
    loss_schedule,
    print_detection,
)


def played(item: Item, slow: int | None, ratio: float = 1.2) -> Pass:
    """A pass of two ranks in which one is slow, whatever was played."""
    compute = [100.0 * (ratio if rank == slow else 1.0) for rank in range(2)]
    return Pass(*item, attempt_facts(make_attempt(steady(compute)), 0.05, 0.10, on_cpu=False))


def test_a_schedule_has_what_was_asked_for_in_mixed_order_on_ranks_drawn_by_chance() -> None:
    items = detection_schedule(300, 30, (8.0, 10.0), 8, seed=1)
    assert Counter(percent for _, percent in items) == {0.0: 300, 8.0: 30, 10.0: 30}
    assert {rank for rank, percent in items if percent} == set(range(8))
    assert any(percent for _, percent in items[:60])
    assert detection_schedule(300, 30, (8.0, 10.0), 8, seed=1) == items
    assert detection_schedule(300, 30, (8.0, 10.0), 8, seed=2) != items


def test_each_changed_pass_of_losses_lies_between_two_healthy_ones() -> None:
    items = loss_schedule(2, 2)
    assert items[:3] == [HEALTHY] * 3
    assert items[3::2] == [(0, 5.0), (0, 10.0), (0, 20.0), (1, 5.0), (1, 10.0), (1, 20.0)]
    assert set(items[2::2]) == {HEALTHY}
    assert loss_schedule(0, 2) == []


@pytest.mark.parametrize(("within_s", "sets"), [(1000.0, 3), (25.0, 2), (20.0, 2), (19.0, 1), (0.0, 1)])
def test_a_set_that_would_not_end_in_time_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, within_s: float, sets: int
) -> None:
    """A set takes 10 s here; how long the first one takes nobody knows before."""
    begun: list[int] = []

    def run_passes(items: Sequence[Item], _how: How) -> list[Pass]:
        begun.append(len(items))
        return [played(item, None) for item in items]

    monkeypatch.setattr(error_rates, "run_passes", run_passes)
    monkeypatch.setattr(error_rates.time, "monotonic", lambda: 10.0 * len(begun))
    found = in_crews([HEALTHY] * (2 * CREW + 7), How(), within_s)
    assert begun == [CREW, CREW, 7][: len(begun)]
    assert (len(found.passes), found.left_out) == (sum(begun), 2 * CREW + 7 - sum(begun))
    assert len(begun) == sets


def test_the_table_counts_right_wrong_and_both(capsys: pytest.CaptureFixture[str]) -> None:
    print_detection(
        [
            *[played(HEALTHY, None)] * 58,
            *[played(HEALTHY, 1)] * 2,
            *[played((1, 20.0), 1)] * 3,
            played((0, 20.0), 1),
            played((0, 20.0), None),
        ]
    )
    head, healthy, alarms, changed = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["played", "passes", "named", "right"]
    assert healthy.split()[:9] == ["0", "%", "60", "58", "10.1", "%", "2", "2", "0"]
    assert alarms.strip() == "false alarms: at most 10.1 % with 95 % confidence"
    assert changed.split()[:9] == ["20", "%", "5", "3", "81.1", "%", "4", "1", "0"]
