"""What is seen in a pass, from records made by hand and judged by the real code."""

from __future__ import annotations

import pytest

from gpubalance.checks.selftest.look import Named, look
from gpubalance.checks.selftest.verdict import judge_selftest, wrong_passes
from gpubalance.checks.verdict import Verdict
from gpubalance.record.samples import ProcessMemory
from gpubalance.record.selftest import Pass
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.selftest_helpers import GIB, all_right, healthy, held, make_pass, make_selftest


def seen_in(measured: Pass) -> tuple[Named, ...]:
    found = look(make_selftest([measured], [healthy(0)]).run_of(measured))
    assert found is not None
    return found.named


def test_a_healthy_pass_names_nobody() -> None:
    measured = make_pass(0, [100.0, 100.0])
    found = look(make_selftest([measured], [healthy(0)]).run_of(measured))
    assert found is not None
    assert (found.named, found.state, found.majority_slow) == ((), "ok", 0)
    assert found.healthy_ms == pytest.approx(100.0, rel=0.01)
    assert found.cause_s == pytest.approx(15.0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_slow_rank_is_named_with_the_cause_that_the_evidence_gives(rank: int) -> None:
    times = [100.0, 100.0]
    times[rank] = 120.0
    assert seen_in(make_pass(0, times)) == (Named(rank, "slow", "device_work"),)


def test_without_evidence_there_is_a_name_and_no_cause() -> None:
    measured = make_pass(0, [100.0, 120.0]).model_copy(update={"ddp": make_attempt(steady([100.0, 120.0]))})
    (named,) = seen_in(measured)
    assert (named.rank, named.named_class) == (1, "unattributed")


def test_a_rank_that_is_slow_in_every_tenth_step_is_named_as_intermittent() -> None:
    times = steady([100.0, 100.0], noise=0.002)
    times[1, :, ::10] *= 2
    measured = make_pass(0, [100.0, 100.0]).model_copy(update={"ddp": make_attempt(times)})
    (named,) = seen_in(measured)
    assert (named.rank, named.how) == (1, "intermittent")


def test_a_rank_with_more_data_is_named_for_its_data_and_not_as_slow() -> None:
    attempt = make_attempt(steady([100.0, 120.0], noise=0.002), units=[1.0, 1.2])
    measured = make_pass(0, [100.0, 100.0]).model_copy(update={"ddp": attempt})
    assert seen_in(measured) == (Named(1, "data", "data_imbalance"),)


def test_memory_skew_names_the_rank_that_holds_most() -> None:
    assert seen_in(held(0, [90 * GIB, 6 * GIB])) == (Named(0, "memory"),)
    assert seen_in(held(0, [6 * GIB, 90 * GIB])) == (Named(1, "memory"),)
    assert seen_in(held(0, [6 * GIB, 6 * GIB])) == ()


def test_a_leaked_context_names_the_rank_that_left_it() -> None:
    leak = ProcessMemory(device=0, pid=101, rank=1, memory_used_bytes=GIB)
    assert seen_in(held(0, [6 * GIB, 6 * GIB], [leak])) == (Named(1, "context"),)
    foreign = ProcessMemory(device=0, pid=7, rank=None, memory_used_bytes=GIB)
    assert seen_in(held(0, [6 * GIB, 6 * GIB], [foreign])) == ()


def test_half_of_the_ranks_slow_are_each_named_and_most_are_counted() -> None:
    half = make_pass(0, [100.0, 120.0, 100.0, 120.0])
    assert {named.rank for named in seen_in(half)} == {1, 3}


def test_one_fast_rank_makes_nobody_slow() -> None:
    assert seen_in(make_pass(0, [120.0, 100.0, 120.0, 120.0])) == ()
    assert seen_in(make_pass(0, [120.0, 100.0, 120.0])) == ()


def test_a_run_without_blocks_shows_nothing() -> None:
    assert look(make_run()) is None


def wrong_clock(number: int) -> Pass:
    """Ranks leave a step together: one whose steps add up to more has a wrong clock."""
    measured = make_pass(number, [100.0, 120.0])
    first, second = measured.ddp.ranks
    blocks = [block.model_copy(update={"fence_ms": [40.0] * len(block.fence_ms)}) for block in second.fenced]
    apart = measured.ddp.model_copy(update={"ranks": [first, second.model_copy(update={"fenced": blocks})]})
    return measured.model_copy(update={"ddp": apart})


def test_what_takes_the_meaning_from_times_leaves_no_verdict_and_no_second_look() -> None:
    record = all_right()
    passes = [wrong_clock(0), *record.passes[1:]]
    found = look(record.run_of(passes[0]))
    assert found is not None
    assert found.void is not None
    record = record.model_copy(update={"passes": passes})
    judgement = judge_selftest(record)
    assert (judgement.verdict, judgement.void) == (Verdict.INCONCLUSIVE, 1)
    assert judgement.sentence == f"times of 1 of 3 passes mean nothing: {found.void}"
    assert judgement.sentence.startswith("times of 1 of 3 passes mean nothing: clocks disagree")
    assert wrong_passes(record) == ()
