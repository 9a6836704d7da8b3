"""The loops inside the clock, against a clock and a step that do as they are told."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.record.job import Slot
from gpubalance.record.rank_log import LogTail, RankLog
from gpubalance.record.timings import STAGES
from gpubalance.workloads.clock import HostClock
from gpubalance.workloads.context import Context
from gpubalance.workloads.extra_work import ExtraWork
from gpubalance.workloads.inject import Faults
from gpubalance.workloads.timed_loop import (
    AHEAD,
    FenceCounter,
    collector_off,
    collector_on,
    fenced_block,
    is_settled,
    mean_step,
    median_and_error,
    quiet_step,
    steady_marks,
    steps_per_block,
    window,
)
from gpubalance.workloads.training_step import TrainingStep
from tests.support import make_job


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

    def host_ns(self, mark: float) -> int:
        return round(mark * 1e6)


class ScriptedStep:
    """Work takes 7 + step number (input 1, copy 2, backward 3, forward the rest), the update 3, the fence 2, the
    transfer 5 ms.
    """

    def __init__(self, clock: ScriptedClock) -> None:
        self._clock = clock
        self._steps = 0

    def fetch(self) -> None:
        self._clock.now += 1

    def copy(self) -> None:
        self._clock.now += 2

    def forward(self) -> None:
        self._clock.now += 1 + self._steps
        self._steps += 1

    def backward(self) -> None:
        self._clock.now += 3

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
    assert times.stages == {
        "update": [3, 3, 3],
        "input": [1, 1, 1],
        "copy": [2, 2, 2],
        "forward": [3, 4, 5],
        "backward": [3, 3, 3],
    }
    assert set(times.stages) == set(STAGES)
    assert clock.waits == 1


class AnyStep(ScriptedStep):
    """Each part takes what is drawn, in microseconds."""

    def __init__(self, clock: ScriptedClock, draw: Callable[[], int]) -> None:
        super().__init__(clock)
        self.draw = draw

    def __getattribute__(self, name: str) -> Any:
        if name in ("fetch", "copy", "forward", "backward", "fence", "transfer", "update"):
            return self.spend
        return super().__getattribute__(name)

    def spend(self) -> None:
        self._clock.now += self.draw() / 1000


@given(data=st.data(), steps=st.integers(3, 6))
def test_the_stages_of_every_step_add_up_to_its_compute(data: st.DataObject, steps: int) -> None:
    clock = ScriptedClock()
    step = AnyStep(clock, lambda: data.draw(st.integers(0, 10**6)))
    times = fenced_block(step, clock, FenceCounter(RankLog(Path(os.devnull))), steps)
    assert len(times.compute) == steps - 2
    for compute, *stages in zip(times.compute, *times.stages.values(), strict=True):
        assert sum(stages) == pytest.approx(compute, abs=5 * 0.00005 + 0.00005)


def test_the_stages_of_every_real_step_on_the_cpu_add_up_to_its_compute(log: RankLog, tmp_path: Path) -> None:
    class Alone:
        """A real training step without anybody to wait for."""

        def __init__(self, step: TrainingStep) -> None:
            self.fetch, self.copy, self.backward, self.update = step.fetch, step.copy, step.backward, step.update
            self.forward = lambda: step.forward(step.model)
            self.fence = self.transfer = lambda: None

    slot = Slot(0, None, None, ())
    context = Context(make_job(tmp_path, 1), 0, 1, slot, torch.device("cpu"), None, HostClock(), log)
    faults = [{"kind": "loader", "ms": 0.2}, {"kind": "copies", "mib": 0.1}, {"kind": "sleep", "ms": 0.1}]
    step = TrainingStep(context, Faults(ExtraWork(context.device, context.clock), faults), 1)
    with step.faults.playing(context.job, 0):
        times = fenced_block(Alone(step), context.clock, FenceCounter(log), 30)
    for compute, *stages in zip(times.compute, *times.stages.values(), strict=True):
        assert sum(stages) == pytest.approx(compute, abs=6 * 0.00005)
    for compute, busy in zip(times.compute, times.busy, strict=True):
        assert 0 < busy <= compute - 0.2 - 0.1 + 0.001  # a thread that sleeps uses no core
    assert min(times.stages["input"]) >= 0.2
    assert min(times.stages["forward"]) >= 0.1
    assert min(times.stages["copy"]) > 0


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


@pytest.mark.parametrize(("shared", "expected"), [(True, 4.0), (False, 6.0)])
def test_a_step_that_others_are_sized_by_is_the_fastest_where_others_work_too(shared: bool, expected: float) -> None:
    clock = ScriptedClock()
    durations = iter([1.0, 90.0, 1.0, 4.0, 1.0, 6.0])  # every other one is not timed

    def step() -> None:
        clock.now += next(durations)

    assert quiet_step(step, clock, 3, 1, shared=shared) == expected


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


def test_the_collector_is_on_for_a_stretch_and_off_again_after_an_error() -> None:
    seen = []

    def fail() -> None:
        with collector_on():
            seen.append(gc.isenabled())
            raise RuntimeError

    with collector_off():
        with pytest.raises(RuntimeError):
            fail()
        seen.append(gc.isenabled())
    assert seen == [True, False]


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
