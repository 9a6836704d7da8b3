"""The loops inside the clock, against a clock and a step that do as they are told."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from gpubalance.record.rank_log import LogTail, RankLog
from gpubalance.workloads.timed_loop import (
    AHEAD,
    FenceCounter,
    collector_off,
    fenced_block,
    is_settled,
    mean_step,
    median_and_error,
    steady_marks,
    steps_per_block,
    window,
)


class ScriptedClock:
    """Time passes only when somebody says so; milliseconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits = 0

    def mark(self) -> float:
        return self.now

    def milliseconds(self, begin: float, end: float) -> float:
        return end - begin

    def wait(self) -> None:
        self.waits += 1

    def reach(self, mark: float) -> None:
        pass


class ScriptedStep:
    """Work takes 7 + step number, the update 3, the fence 2, the transfer 5 ms."""

    def __init__(self, clock: ScriptedClock) -> None:
        self._clock = clock
        self._steps = 0

    def work(self) -> None:
        self._clock.now += 7 + self._steps
        self._steps += 1

    def fence(self) -> None:
        self._clock.now += 2

    def transfer(self) -> None:
        self._clock.now += 5

    def update(self) -> None:
        self._clock.now += 3


@pytest.fixture
def log(tmp_path: Path) -> RankLog:
    return RankLog(tmp_path / "log.jsonl")


def test_a_fenced_step_is_split_into_work_wait_and_transfer_and_the_update_counts_as_work(log: RankLog) -> None:
    clock = ScriptedClock()
    times = fenced_block(ScriptedStep(clock), clock, FenceCounter(log), 5)
    assert times.compute == [3 + 7 + 2, 3 + 7 + 3, 3 + 7 + 4]
    assert times.fence == [2, 2, 2]
    assert times.transfer == [5, 5, 5]
    assert clock.waits == 1


def test_every_collective_of_a_block_is_numbered_in_the_log(log: RankLog, tmp_path: Path) -> None:
    clock = ScriptedClock()
    fences = FenceCounter(log)
    fenced_block(ScriptedStep(clock), clock, fences, 3)
    numbers = [event["fence"] for event in LogTail(tmp_path / "log.jsonl").read()]
    assert numbers == [1, 2, 3, 4, 5, 6, 7]


def test_the_mean_step_leaves_out_the_first(log: RankLog) -> None:
    clock = ScriptedClock()
    durations = iter([100.0, 4.0, 6.0])

    def step() -> None:
        clock.now += next(durations)

    assert mean_step(step, clock, 2) == 5.0


@pytest.mark.parametrize(
    ("step_ms", "budget_s", "expected"),
    [
        (10.0, None, 25),  # 0.25 s
        (50.0, None, 20),  # never fewer than 20
        (0.3, None, 834),  # ceil(250 / 0.3)
        (10.0, 60.0, 166),  # 60 s x 2/3 / 24 / 10 ms = 166.7
        (10.0, 1.0, 25),  # a small budget never shortens a block
    ],
)
def test_steps_of_a_block(step_ms: float, budget_s: float | None, expected: int) -> None:
    assert steps_per_block(step_ms, budget_s, 24) == expected


def test_a_warm_up_is_over_when_the_last_four_medians_agree_within_one_percent() -> None:
    assert is_settled([20.0, 10.05, 10.0, 10.02, 10.1], [0.001] * 5)
    assert not is_settled([20.0, 10.0, 10.0, 10.0, 10.2], [0.001] * 5)
    assert not is_settled([10.0, 10.0, 10.0], [0.001] * 3)


def test_noisy_blocks_may_differ_by_three_sigma_of_their_median() -> None:
    assert is_settled([10.0, 10.5, 10.0, 9.8], [0.025] * 4)
    assert not is_settled([10.0, 10.9, 10.0, 9.8], [0.025] * 4)


def test_median_and_its_error_by_hand() -> None:
    median, error = median_and_error([9.0, 10.0, 11.0, 10.0])
    assert median == 10.0
    assert error == pytest.approx(1.2533 * 1.4826 * 0.5 / 2 / 10)


def test_the_garbage_collector_is_off_inside_and_on_again_after_an_error() -> None:
    inside = []

    def fail() -> None:
        with collector_off():
            inside.append(gc.isenabled())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert inside == [False]
    assert gc.isenabled()


def test_a_window_is_marked_at_both_ends(log: RankLog, tmp_path: Path) -> None:
    with window(log, "ddp fenced"):
        log.write("inside")
    events = LogTail(tmp_path / "log.jsonl").read()
    assert [(event["event"], event.get("edge")) for event in events] == [
        ("window", "begin"),
        ("inside", None),
        ("window", "end"),
    ]


class Slow:
    """A device whose work ends only when somebody waits for its mark."""

    def __init__(self) -> None:
        self.given = 0
        self.reached = 0
        self.furthest_ahead = 0

    def mark(self) -> int:
        return self.given

    def milliseconds(self, begin: int, end: int) -> float:
        return float(end - begin)

    def wait(self) -> None:
        self.reached = self.given

    def reach(self, mark: int) -> None:
        self.reached = max(self.reached, mark)

    def work(self) -> None:
        self.given += 1
        self.furthest_ahead = max(self.furthest_ahead, self.given - self.reached)


@pytest.mark.parametrize("steps", [1, 4, 5, 50])
def test_steady_marks_stand_around_every_step_and_the_host_stays_near(steps: int) -> None:
    device = Slow()
    marks = list(steady_marks(device.work, device, steps))
    assert marks == list(range(steps + 1))
    assert device.given == steps
    assert device.furthest_ahead == min(steps, AHEAD + 2)
    assert device.reached == max(0, steps - AHEAD - 1)  # it never ran dry
