"""The loops inside the clock: fenced blocks that tell work from waiting, overlapped blocks that give the real rate,
and a warm-up that ends by a rule.

Why a fence: every rank leaves a collective together, so that the time of any step that contains one is the same on
all ranks and names nobody. A tiny all-reduce *before* the gradients splits the step: what comes before it is this
rank's own work, what it takes is waiting for the slowest, what comes after is transfer.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gpubalance.record.rank_log import RankLog
from gpubalance.workloads.clock import Clock, Mark

AHEAD = 4

ALL_REDUCE, WAIT = "all_reduce", "wait for the device"
"""What a fence is called in the log."""

DROPPED_STEPS = 2
"""The first steps of a block still carry the pause between blocks."""


class FencedStep(Protocol):
    """The parts of a fenced step. Everything but `fence` and `transfer` needs no other rank."""

    def fetch(self) -> None:
        """Wait for the next batch, on the host."""
        ...

    def copy(self) -> None:
        """Bring it to the device."""
        ...

    def forward(self) -> None:
        """Forward pass and loss."""
        ...

    def backward(self) -> None:
        """Backward pass, gradients kept here."""
        ...

    def fence(self) -> None:
        """All-reduce one element."""
        ...

    def transfer(self) -> None:
        """All-reduce all gradients."""
        ...

    def update(self) -> None:
        """Step the optimizer; its time falls into the next step's compute."""
        ...


@dataclass(frozen=True)
class BlockTimes:
    """Milliseconds of each kept step of one block; the stages of a step make up its compute."""

    compute: list[float]
    fence: list[float]
    transfer: list[float]
    stages: dict[str, list[float]]
    busy: list[float]
    """CPU time of this thread within compute."""


@dataclass(frozen=True)
class StepMarks:
    """One fenced step. `left` is where the step before left its transfer; `input_ns` is the host's own time, `busy_ns`
    the CPU time of this thread until the fence.
    """

    left: Mark
    updated: Mark
    input_ns: int
    busy_ns: int
    fetched: Mark
    copied: Mark
    forwarded: Mark
    reached: Mark
    met: Mark
    done: Mark


class FenceCounter:
    """Numbers every collective of this rank in its log before it is entered."""

    def __init__(self, log: RankLog) -> None:
        self._log = log
        self.count = 0
        self.what = "collective"
        """What is entered where nobody says it."""

    @contextmanager
    def entering(self, what: str | None = None) -> Iterator[None]:
        """Log the entry, and remember that an error in here is a collective's."""
        self.count += 1
        self._log.entering(self.count, what or self.what)
        yield
        self._log.left()


def fenced_block(step: FencedStep, clock: Clock, fences: FenceCounter, steps: int) -> BlockTimes:
    """Run `steps` fenced steps back to back and return the times of all but the first two.

    On a GPU the host only enqueues; it waits once, at the end. There a mark is an event of about 2 us.
    """
    left = updated = clock.mark()
    begun_ns = time.thread_time_ns()
    marks = []
    for _ in range(steps):
        asked_ns = clock.host_ns(updated)
        step.fetch()
        fetched = clock.mark()
        input_ns = clock.host_ns(fetched) - asked_ns
        step.copy()
        copied = clock.mark()
        step.forward()
        forwarded = clock.mark()
        step.backward()
        reached = clock.mark()
        busy_ns = time.thread_time_ns() - begun_ns
        with fences.entering(ALL_REDUCE):
            step.fence()
        met = clock.mark()
        with fences.entering(ALL_REDUCE):
            step.transfer()
        done = clock.mark()
        begun_ns = time.thread_time_ns()
        marks.append(StepMarks(left, updated, input_ns, busy_ns, fetched, copied, forwarded, reached, met, done))
        step.update()
        left, updated = done, clock.mark()
    with fences.entering(WAIT):
        clock.wait()
    return _block_times(marks[DROPPED_STEPS:], clock)


def _block_times(marks: Sequence[StepMarks], clock: Clock) -> BlockTimes:
    def between(begin: str, end: str) -> list[float]:
        return [round(clock.milliseconds(getattr(each, begin), getattr(each, end)), 4) for each in marks]

    return BlockTimes(
        compute=between("left", "reached"),
        fence=between("reached", "met"),
        transfer=between("met", "done"),
        busy=[round(each.busy_ns / 1e6, 4) for each in marks],
        stages={
            "update": between("left", "updated"),
            "input": [round(each.input_ns / 1e6, 4) for each in marks],
            "copy": between("fetched", "copied"),
            "forward": between("copied", "forwarded"),
            "backward": between("forwarded", "reached"),
        },
    )


def mean_step(step: Callable[[], object], clock: Clock, steps: int) -> float:
    """Mean milliseconds of a step over `steps` steps run back to back, after one that is not timed."""
    step()
    begin = clock.mark()
    for _ in range(steps):
        step()
    end = clock.mark()
    clock.wait()
    return clock.milliseconds(begin, end) / steps


def steady_marks(step: Callable[[], object], clock: Clock, steps: int) -> Iterator[Mark]:
    """A mark before each step and one after the last. The device never runs dry, and the host is never more than
    `AHEAD` + 2 steps ahead, so that what the sensor sees meanwhile belongs to these steps.

    A pause of milliseconds is enough for a power limiter to let the clock jump and then to hold it too low for 0.3 s.
    """
    marks: deque[Mark] = deque()
    for _ in range(steps):
        mark = clock.mark()
        yield mark
        step()
        marks.append(mark)
        if len(marks) > AHEAD:
            clock.reach(marks.popleft())
    yield clock.mark()


def median_step(step: Callable[[], object], clock: Clock, groups: int, steps: int) -> float:
    """Median over groups of the mean step of each: what a step takes when nobody disturbs it for most of the time."""
    return statistics.median(mean_step(step, clock, steps) for _ in range(groups))


def quiet_step(step: Callable[[], object], clock: Clock, groups: int, steps: int, *, shared: bool) -> float:
    """Milliseconds of a step by which something else is sized: the typical group, or the fastest on a device that is
    `shared` with whatever runs on the machine (a CPU), where one core taken for 4 ms makes a short group ten times
    as long.
    """
    times = [mean_step(step, clock, steps) for _ in range(groups)]
    return min(times) if shared else statistics.median(times)


def steps_in(seconds: float, step_ms: float) -> int:
    """How many steps fill the time, at least ten."""
    return max(10, round(1000 * seconds / step_ms))


def steps_per_block(step_ms: float, budget_s: float | None, blocks: int) -> int:
    """S = max(20, ceil(0.25 s / step)), stretched so that `blocks` blocks fill two thirds of a budget."""
    shortest = max(20, math.ceil(250 / step_ms))
    if budget_s is None:
        return shortest
    return max(shortest, int(budget_s * 1000 * 2 / 3 / blocks / step_ms))


def is_settled(medians: Sequence[float], spreads: Sequence[float]) -> bool:
    """True when the last four block medians lie within max(1 %, 3 sigma of a block median).

    `spreads` are the standard errors of the medians, as shares of them.
    """
    if len(medians) < 4:
        return False
    last, middle = medians[-4:], statistics.median(medians[-4:])
    allowed = max(0.01, 3 * statistics.median(spreads[-4:])) * middle
    return max(last) - min(last) <= allowed


def median_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Median, and its standard error as a share: 1.2533 sigma / sqrt(n), sigma robust (1.4826 MAD)."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return middle, 1.2533 * deviation / math.sqrt(len(values)) / middle


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep Python's garbage collector out of timed blocks: a collection stalls one rank at random."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def collector_on() -> Iterator[None]:
    """Let the collector run again inside `collector_off`, for a stretch that shows what it costs."""
    gc.enable()
    try:
        yield
    finally:
        gc.disable()


@contextmanager
def window(log: RankLog, name: str) -> Iterator[None]:
    """Mark a steady stretch inside a phase: what the sensor saw in it is what counts."""
    log.write("window", name=name, edge="begin")
    yield
    log.write("window", name=name, edge="end")
