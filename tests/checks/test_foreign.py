"""What is said of a run beside a log: comparable, the user's rules, agreement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpubalance.analysis.foreign import compare_foreign
from gpubalance.checks.compare_rules import parse_rule
from gpubalance.checks.finding import State
from gpubalance.checks.foreign import ForeignJudgement, judge_foreign
from gpubalance.checks.verdict import Verdict
from gpubalance.errors import UsageError
from gpubalance.record.foreign import Foreign, TheirDevice
from gpubalance.record.run import Run
from tests.analysis.test_foreign import MIB, log_of, our_row, run_of, their_row, their_test


def judged(run: Run, log: Foreign, *rules: str, log_is_base: bool = True, force: bool = False) -> ForeignJudgement:
    parsed = [parse_rule(text) for text in rules]
    return judge_foreign(compare_foreign(run, log), run, parsed, log_is_base=log_is_base, force=force)


def at(ratio: float, *rules: str, **values: Any) -> ForeignJudgement:
    """A run with this share of the bandwidth of the log."""
    return judged(run_of(our_row(time_us=140.0 / ratio)), log_of(their_test(their_row())), *rules, **values)


RULES = [
    # ours / theirs, rule, run held against log, log held against run
    (0.96, "busbw:5%", "pass", "pass"), (0.94, "busbw:5%", "fail", "pass"), (1.06, "busbw:5%", "pass", "fail"),
    (0.94, "busbw:10", "fail", "pass"), (0.94, "busbw:15", "pass", "pass"), (1.06, "busbw:10", "pass", "fail"),
    (0.92, None, "warn", "pass"), (0.94, None, "pass", "pass"), (1.10, None, "pass", "warn"),
    (0.80, "busbw:50%", "pass", "pass"),
]  # fmt: skip


@pytest.mark.parametrize(("ratio", "rule", "run_new", "log_new"), RULES)
def test_new_is_held_against_base_whichever_of_them_is_the_log(
    ratio: float, rule: str | None, run_new: str, log_new: str
) -> None:
    rules = [rule] if rule else []
    assert at(ratio, *rules).verdict.value == run_new
    assert at(ratio, *rules, log_is_base=False).verdict.value == log_new


def test_a_rule_that_is_broken_names_the_worst_row_both_values_and_the_others() -> None:
    run = run_of(our_row(time_us=175.0), our_row(64 * MIB, time_us=560.0), our_row(8, 900.0))
    log = log_of(their_test(their_row(), their_row(64 * MIB, 280.0), their_row(8, 20.0)))
    judgement = judged(run, log, "busbw:5%")
    finding = judgement.findings[0]
    assert judgement.sentence == "all_reduce 64 MiB in place: bus bandwidth 50 % worse (allowed: 5 %)"
    assert (finding.state, finding.observed) == (State.FAIL, "log 239.67, run 119.84 GB/s")
    assert "worse as well: all_reduce 32 MiB in place by 20 %" in finding.evidence


def test_small_rows_and_graphs_are_shown_and_never_judged() -> None:
    small = judged(run_of(our_row(8, 900.0)), log_of(their_test(their_row(8, 20.0))), "busbw:5%")
    graph = judged(run_of(our_row(mode="graph", time_us=900.0)), log_of(their_test(their_row(), mode="graph")))
    for judgement in (small, graph):
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert len(judgement.comparison.pairs) == 1
    assert graph.sentence == "1 value of both, none of them large enough to judge"


def test_nothing_in_common_is_no_verdict_with_the_reasons() -> None:
    judgement = judged(run_of(our_row()), log_of(their_test(their_row(), ranks=8)), "busbw:5%")
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.sentence == "nothing in the log of nccl-tests was measured by the run as well"
    assert "all_reduce: 8 ranks in the log, 2 ranks in the run" in judgement.findings[0].evidence


def test_other_gpus_are_not_comparable_unless_forced() -> None:
    other = log_of(replace(their_test(their_row()), devices=(TheirDevice("NVIDIA A100"),)))
    refused, forced = judged(run_of(our_row()), other), judged(run_of(our_row()), other, force=True)
    assert (refused.verdict, refused.sentence) == (Verdict.INCONCLUSIVE, "not comparable: different GPU")
    assert (forced.verdict, forced.sentence) == (Verdict.WARN, "compared by force in spite of different GPU")


@pytest.mark.parametrize("ours", [True, False])
def test_wrong_data_fails_whoever_saw_it_and_however_fast_it_was(ours: bool) -> None:
    run = run_of(our_row(wrong_elements=5 if ours else 0))
    judgement = judged(run, log_of(their_test(their_row(wrong_elements=0 if ours else 5))))
    assert judgement.verdict is Verdict.FAIL
    assert judgement.sentence.startswith(f"wrong data: the {'run' if ours else 'log'}: all_reduce of 33554432 bytes")


def test_a_log_that_breaks_off_warns() -> None:
    judgement = judged(run_of(our_row()), log_of(replace(their_test(their_row()), complete=False)), "busbw:5%")
    assert judgement.verdict is Verdict.WARN
    assert judgement.sentence == "the log of nccl-tests breaks off: compared as far as it goes"


def test_agreement_is_a_sentence_with_both_ends() -> None:
    run = run_of(our_row(time_us=140.0), our_row(64 * MIB, 290.0))
    judgement = judged(run, log_of(their_test(their_row(), their_row(64 * MIB, 280.0))))
    assert judgement.verdict is Verdict.PASS
    assert judgement.sentence == "the run has 96.6 % to 100 % of the bandwidth of nccl-tests (2 values)"


def test_a_rule_about_what_the_tool_does_not_measure_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="nccl-tests does not measure score") as caught:
        at(1.0, "score:2")
    assert caught.value.next_step == "choose from: busbw"
