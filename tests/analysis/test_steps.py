"""The steps of an attempt as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from gpubalance.analysis.steps import arrays_of
from gpubalance.record.timings import DdpAttempt, FencedBlock, RankSteps


def block(*compute: float, fence: float = 1.0, transfer: float = 2.0) -> FencedBlock:
    count = len(compute)
    return FencedBlock(begin_s=0.0, compute_ms=list(compute), fence_ms=[fence] * count, transfer_ms=[transfer] * count)


def rank(number: int, *blocks: FencedBlock, overlapped: tuple[float, ...] = (), units: float = 1.0) -> RankSteps:
    return RankSteps(
        rank=number,
        device=number,
        samples_per_step=64,
        units_per_step=units,
        fenced=list(blocks),
        overlapped_step_ms=list(overlapped),
    )


def attempt(*ranks: RankSteps) -> DdpAttempt:
    return DdpAttempt(attempt=0, steps_per_block=5, ranks=list(ranks), complete=True)


TWO = attempt(
    rank(0, block(1, 2, 9), block(3, 4, 5), overlapped=(10.0, 20.0), units=1.5),
    rank(1, block(6, 7, 8), block(1, 1, 1), overlapped=(30.0, 40.0)),
)


def test_arrays_have_ranks_then_blocks_then_steps() -> None:
    steps = arrays_of(TWO)
    assert steps.compute.tolist() == [[[1, 2, 9], [3, 4, 5]], [[6, 7, 8], [1, 1, 1]]]
    assert steps.fence.shape == steps.transfer.shape == (2, 2, 3)
    assert (steps.ranks, steps.blocks) == (2, 2)
    assert (steps.fence[0, 0, 0], steps.transfer[0, 0, 0]) == (1.0, 2.0)


def test_work_units_stand_by_rank() -> None:
    assert arrays_of(TWO).units.tolist() == [1.5, 1.0]


def test_block_medians_are_taken_within_a_block() -> None:
    assert arrays_of(TWO).block_medians().tolist() == [[2, 4], [7, 1]]


def test_medians_are_taken_over_all_steps() -> None:
    assert arrays_of(TWO).medians().tolist() == [3.5, 3.5]


def test_the_overlapped_step_is_the_mean_over_ranks_and_blocks() -> None:
    assert arrays_of(TWO).overlapped_ms == pytest.approx(25.0)


def test_overlapped_blocks_that_not_every_rank_finished_do_not_count() -> None:
    cut = attempt(rank(0, block(1), overlapped=(10.0, 20.0, 99.0)), rank(1, block(1), overlapped=(30.0,)))
    assert arrays_of(cut).overlapped_ms == pytest.approx(20.0)


def test_without_a_common_overlapped_block_there_is_no_overlapped_step() -> None:
    assert arrays_of(attempt(rank(0, block(1), overlapped=(10.0,)), rank(1, block(1)))).overlapped_ms is None


def test_waiting_is_the_fence_less_the_smallest_fence_of_all() -> None:
    waits = arrays_of(
        attempt(rank(0, block(1, 1, fence=0.5), block(1, 1, fence=4.5)), rank(1, block(1, 1), block(1, 1)))
    ).wait_ms()
    assert np.allclose(waits, [2.0, 0.5])
