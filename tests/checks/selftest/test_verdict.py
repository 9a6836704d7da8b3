"""From passes to a verdict, rates and bounds."""

from __future__ import annotations

import pytest

from gpubalance.checks.selftest.verdict import judge_selftest, wrong_passes
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import RunError
from gpubalance.record.selftest import Selftest
from gpubalance.testing.runs import make_attempt, steady
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
    assert judgement.first_cause_s == pytest.approx(15.0)
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


def looked_again(times: list[list[float]]) -> Selftest:
    """Three passes of compute +8 % on rank 0, of which two are missed, and these second looks between healthy ones."""
    first = [make_pass(0, [100.0, 100.0]), make_pass(1, [108.0, 100.0])]
    first += [make_pass(number, [100.0, 100.0]) for number in (2, 3, 4)]
    second = [make_pass(5 + place, each) for place, each in enumerate(times)]
    played = [healthy(0), *(compute(number, 0, 8) for number in (1, 2, 3)), healthy(4)]
    return make_selftest([*first, *second], [*played, *(compute(each.number, 0, 8, again=True) for each in second)])


def test_each_pass_that_was_wrong_needs_a_right_second_look_of_its_own() -> None:
    found, missed = [108.0, 100.0], [100.0, 100.0]
    assert [each.number for each in wrong_passes(looked_again([]))] == [2, 3]
    assert judge_selftest(looked_again([found])).verdict is Verdict.FAIL
    assert judge_selftest(looked_again([found, missed])).verdict is Verdict.FAIL
    assert judge_selftest(looked_again([found, found])).verdict is Verdict.PASS


def false_alarms(count: int, seconds: int) -> Selftest:
    """Four healthy passes, in so many of which rank 1 is slow, a right row, and so many quiet second looks."""
    slow, quiet = [100.0, 120.0], [100.0, 100.0]
    times = [slow if number < count else quiet for number in range(4)]
    passes = [make_pass(number, each) for number, each in enumerate([*times, slow, *[quiet] * seconds])]
    again = [healthy(number).model_copy(update={"again": True}) for number in range(5, 5 + seconds)]
    return make_selftest(passes, [*(healthy(number) for number in range(4)), compute(4, 1, 20), *again])


def test_a_false_alarm_is_never_told_as_nobody() -> None:
    assert judge_selftest(false_alarms(3, 1)).verdict is Verdict.FAIL
    mended = judge_selftest(false_alarms(1, 1))
    assert mended.verdict is Verdict.PASS
    assert mended.sentence.endswith("somebody in 1 of 4 healthy passes, not at the second look")


def test_a_healthy_pass_that_is_too_noisy_to_tell_is_not_counted_as_quiet() -> None:
    """Ranks that are slow in turns, block by block."""
    record, times = all_right(), steady([100.0, 100.0], noise=0.002)
    times[0, ::2] *= 1.15
    times[1, 1::2] *= 1.15
    noisy = record.passes[0].model_copy(update={"ddp": make_attempt(times)})
    judgement = judge_selftest(record.model_copy(update={"passes": [noisy, *record.passes[1:]]}))
    assert judgement.unclear == 1
    assert judgement.sentence.endswith("nobody in 1 healthy pass (1 more too noisy to tell)")
