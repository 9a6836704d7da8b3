"""From passes to a verdict, rates and bounds."""

from __future__ import annotations

import pytest

from gpubalance.checks.selftest.verdict import judge_selftest, wrong_passes
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import RunError
from tests.reports.selftest_helpers import all_right, compute, healthy, make_pass, make_selftest, right_and_wrong


def test_all_rows_right_pass() -> None:
    judgement = judge_selftest(all_right())
    assert judgement.verdict is Verdict.PASS
    assert judgement.sentence == "the fault played here was named rightly, nobody in 2 healthy passes"
    assert wrong_passes(all_right()) == ()


def test_one_row_that_stays_wrong_fails_and_deserves_a_second_look() -> None:
    record = right_and_wrong()
    judgement = judge_selftest(record)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.sentence == "1 of 3 rows are wrong; compute +8 %: did not name rank 0"
    assert wrong_passes(record) == (record.played[3],)


def test_rates_have_exact_bounds() -> None:
    judgement = judge_selftest(right_and_wrong())
    assert (judgement.false_alarms.count, judgement.false_alarms.trials) == (0, 3)
    assert judgement.false_alarms.at_most == pytest.approx(1 - 0.05 ** (1 / 3))
    assert (judgement.missed.count, judgement.missed.trials) == (1, 2)
    assert judgement.missed.at_most == pytest.approx(0.95**0.5, abs=1e-6)  # P(at most 1 of 2) = 1 - p^2
    assert (judgement.others_named.count, judgement.others_named.trials) == (0, 2)
    assert (judgement.wrong_class.count, judgement.wrong_class.trials) == (0, 1)


def test_a_second_look_mends_the_row_and_not_the_rate() -> None:
    record = right_and_wrong()
    again = [healthy(5).model_copy(update={"again": True}), compute(6, 0, 8, again=True)]
    passes = [*record.passes, make_pass(5, [100.0, 100.0]), make_pass(6, [108.0, 100.0])]
    mended = record.model_copy(update={"passes": passes, "played": [*record.played, *again]})
    judgement = judge_selftest(mended)
    assert judgement.verdict is Verdict.PASS
    assert (
        judgement.sentence
        == "all 2 faults played here were named rightly (1 only at the second look), nobody in 3 healthy passes"
    )
    assert (judgement.missed.count, judgement.missed.trials) == (1, 2)
    assert [row.looked_again for row in judgement.rows] == [False, False, True]


def test_the_first_pass_tells_how_long_a_cause_takes_and_losses_how_far_they_are_apart() -> None:
    judgement = judge_selftest(all_right())
    assert judgement.first_cause_s == pytest.approx(9.5)
    assert judgement.largest_difference == pytest.approx(0.0, abs=0.003)


def test_communication_bound_passes_are_not_held_to_the_loss() -> None:
    record = all_right()
    bound = [
        each.model_copy(
            update={"ddp": each.ddp.model_copy(update={"ranks": [_slow_transfer(r) for r in each.ddp.ranks]})}
        )
        for each in record.passes
    ]
    judgement = judge_selftest(record.model_copy(update={"passes": bound}))
    assert all(outcome.communication_bound for outcome in judgement.outcomes)
    assert judgement.largest_difference is None


def _slow_transfer(rank):  # type: ignore[no-untyped-def]
    blocks = [block.model_copy(update={"transfer_ms": [80.0] * len(block.compute_ms)}) for block in rank.fenced]
    return rank.model_copy(update={"fenced": blocks})


UNFINISHED = {
    "a signal": ({"interrupted_by": 15}, "interrupted by signal 15: what was measured until then is kept"),
    "an error": (
        {"errors": [RunError(kind="killed", where="work", message="killed by SIGKILL", rank=1, first_cause=True)]},
        "rank 1 killed by SIGKILL",
    ),
    "an exception": (
        {"errors": [RunError(kind="exception", where="work", message="X", rank=0, phase="passes", first_cause=True)]},
        "rank 0 failed: X in phase passes",
    ),
}


@pytest.mark.parametrize(("values", "sentence"), UNFINISHED.values(), ids=UNFINISHED.keys())
def test_what_was_not_finished_gets_no_verdict(values: dict[str, object], sentence: str) -> None:
    judgement = judge_selftest(all_right().model_copy(update=values))
    assert (judgement.verdict, judgement.sentence) == (Verdict.INCONCLUSIVE, sentence)


def test_passes_that_are_missing_leave_no_verdict() -> None:
    record = all_right()
    judgement = judge_selftest(record.model_copy(update={"passes": record.passes[:2]}))
    assert (judgement.verdict, judgement.sentence) == (Verdict.INCONCLUSIVE, "1 of 3 passes were not finished")


def test_healthy_passes_alone_prove_nothing() -> None:
    judgement = judge_selftest(make_selftest([make_pass(0, [100.0, 100.0])], [healthy(0)]))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.sentence.startswith("no fault was played")


def test_nothing_at_all_gets_no_verdict() -> None:
    judgement = judge_selftest(make_selftest([], []))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.rows == ()
    assert judgement.false_alarms.at_most == 1.0


def test_a_false_alarm_is_counted() -> None:
    record = all_right()
    alarmed = [make_pass(0, [120.0, 100.0]), *record.passes[1:]]
    judgement = judge_selftest(record.model_copy(update={"passes": alarmed}))
    assert (judgement.false_alarms.count, judgement.false_alarms.trials) == (1, 2)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.sentence.startswith("1 of 2 rows are wrong; healthy: named rank 0")
