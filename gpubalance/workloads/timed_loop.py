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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gpubalance.record.rank_log import RankLog
from gpubalance.workloads.clock import Clock, Mark

AHEAD = 4

DROPPED_STEPS = 2
"""The first steps of a block still carry the pause between blocks."""


class FencedStep(Protocol):
    """The four parts of a fenced step."""

    def work(self) -> None:
        """Everything that needs no other rank."""
        ...

    def fence(self) -> None:
        """All-reduce one element."""
        ...

    def transfer(self) -> None:
        """All-reduce all gradients."""
        ...

    def update(self) -> None:
        """Step the optimizer; its time falls into the next step's work."""
        ...


@dataclass(frozen=True)
class BlockTimes:
    """Milliseconds of each kept step of one block."""

    compute: list[float]
    fence: list[float]
    transfer: list[float]


class FenceCounter:
    """Numbers every collective of this rank in its log before it is entered."""

    def __init__(self, log: RankLog) -> None:
        self._log = log
        self.count = 0

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Log the entry, and remember that an error in here is a collective's."""
        self.count += 1
        self._log.entering(self.count)
        yield
        self._log.left()


def fenced_block(step: FencedStep, clock: Clock, fences: FenceCounter, steps: int) -> BlockTimes:
    """Run `steps` fenced steps back to back and return the times of all but the first two.

    On a GPU the host only enqueues; it waits once, at the end.
    """
    left = clock.mark()
    marks = []
    for _ in range(steps):
        step.work()
        reached = clock.mark()
        with fences.entering():
            step.fence()
        met = clock.mark()
        with fences.entering():
            step.transfer()
        before, left = left, clock.mark()
        step.update()
        marks.append((before, reached, met, left))
    with fences.entering():
        clock.wait()
    kept = marks[DROPPED_STEPS:]
    return BlockTimes(
        compute=[round(clock.milliseconds(before, reached), 4) for before, reached, _, _ in kept],
        fence=[round(clock.milliseconds(reached, met), 4) for _, reached, met, _ in kept],
        transfer=[round(clock.milliseconds(met, after), 4) for _, _, met, after in kept],
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
def window(log: RankLog, name: str) -> Iterator[None]:
    """Mark a steady stretch inside a phase: what the sensor saw in it is what counts."""
    log.write("window", name=name, edge="begin")
    yield
    log.write("window", name=name, edge="end")
