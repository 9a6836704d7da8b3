"""A selftest with real ranks over gloo, its passes cut short."""

from __future__ import annotations

import os
import statistics

import pytest

from gpubalance.checks.selftest.verdict import judge_selftest
from gpubalance.record.selftest_consistency import selftest_contradiction
from gpubalance.record.timings import STAGES
from gpubalance.session.selftest import selftest
from gpubalance.settings import SelftestSettings
from tests.end_to_end.short_passes import BLOCKS, DROPPED, STEPS

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores"),
]


def test_real_ranks_play_what_was_planned_and_the_slow_one_shows() -> None:
    """Whether it is named in so few blocks depends on what else runs here; that its compute grows does not."""
    wanted = SelftestSettings(quick=True, device="cpu", nproc=2, rows=("compute", "loader"), seed=1, force=True)
    done = selftest(wanted, module="tests.end_to_end.short_passes")
    record = done.record
    assert not record.errors
    assert len(record.passes) == len(record.played) >= 6
    assert selftest_contradiction(record) is None
    assert done.judgement == judge_selftest(record)
    assert all(row.right_at_once <= row.passes for row in done.judgement.rows)
    for each in record.passes:
        lengths = [[len(block.compute_ms) for block in rank.fenced] for rank in each.ddp.ranks]
        assert lengths == [[STEPS - DROPPED] * BLOCKS] * 2
        assert all(set(rank.stages_ms) == set(STAGES) for rank in each.ddp.ranks)
        assert all(each.begin_s <= block.begin_s <= each.end_s for rank in each.ddp.ranks for block in rank.fenced)
    (compute,) = [played for played in record.played if played.row == "compute_100" and not played.again]
    (loader,) = [played for played in record.played if played.row == "loader" and not played.again]
    forward = stage_ms(record, "forward", compute.ranks[0])
    assert forward[compute.number] > 1.5 * statistics.median(forward.values())
    fetched = stage_ms(record, "input", loader.ranks[0])
    (delay_ms,) = [float(fault.rpartition("ms=")[2]) for fault in loader.faults]
    assert fetched[loader.number] >= delay_ms
    assert all(ms < delay_ms for number, ms in fetched.items() if record.played[number].row != "loader")


def stage_ms(record, stage: str, rank: int) -> dict[int, float]:  # type: ignore[no-untyped-def]
    """By pass: median of one stage of a rank."""
    return {each.number: statistics.median(each.ddp.ranks[rank].stages_ms[stage]) for each in record.passes}
