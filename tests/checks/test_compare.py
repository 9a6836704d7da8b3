"""A run against an earlier one: comparable, history, verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpubalance.analysis.snapshot import saved_run_of
from gpubalance.checks.compare import (
    ComparisonJudgement,
    judge_against,
    judge_comparison,
    no_baseline,
    unreadable_baseline,
    with_findings,
    without_baseline,
)
from gpubalance.checks.compare_rules import parse_rule
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import Verdict, judge
from gpubalance.record.baselines import SavedRun
from gpubalance.record.run import Run
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.analysis.compare_helpers import setup
from tests.checks.helpers import BAD, healthy
from tests.reports.helpers import kept, pair


def snapshot(run: Run) -> SavedRun:
    judgement = judge(run)
    return saved_run_of(run, judgement.facts, judgement.verdict.value)


BEFORE = snapshot(pair(100.0, 100.0))


def held(run: Run, *rules: str, base: SavedRun = BEFORE, **values: Any) -> ComparisonJudgement:
    found = judge_comparison([base], run, judge(run), [parse_rule(rule) for rule in rules], **values)
    assert [finding for finding in found.findings if finding.state in BAD and not finding.next_step] == []
    return found


def the(judgement: ComparisonJudgement, finding_id: str) -> Finding:
    (found,) = [finding for finding in judgement.findings if finding.id == finding_id]
    return found


def both_slow(*times: float) -> Run:
    """Two passes over ranks that are equally slow: no peer shows it, so no rotation is needed."""
    return make_run([make_attempt(steady(list(times)), attempt=number) for number in range(2)])


def test_the_same_again_passes() -> None:
    found = held(pair(100.0, 100.0), "step:5%", "score:2")
    assert found.verdict is Verdict.PASS
    assert found.sentence == "nothing that was judged got worse: 5 values compared"
    assert the(found, "comparable").message == "comparable: the same devices, the same work"
    assert the(found, "history").message == "no device is slower than it used to be by 12 %"


HISTORY = {
    "as before": (pair(100.0, 100.0), State.PASS),
    "within 5 % and the 2 %": (pair(106.9, 106.9), State.PASS),
    "above": (pair(107.1, 107.1), State.WARN),
    "within 10 % and the 2 %, twice": (both_slow(111.9, 111.9), State.WARN),
    "above, seen twice": (both_slow(112.1, 112.1), State.FAIL),
    "above, in one pass": (pair(112.1, 112.1), State.WARN),
    "too few blocks": (make_run([make_attempt(steady([100.0, 100.0], blocks=4))]), State.UNKNOWN),
    "nothing measured": (make_run([]), None),
}


@pytest.mark.parametrize(("run", "state"), HISTORY.values(), ids=HISTORY.keys())
def test_history_from_both_sides(run: Run, state: State | None) -> None:
    states = {finding.state for finding in held(run).findings if finding.id == "history"}
    assert states == ({state} if state is not None else set())


def test_noise_is_no_verdict() -> None:
    times = np.full((2, 24, 5), 100.0)
    times[0, :10] = 130.0
    found = held(make_run([make_attempt(times)]))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert the(found, "history").message == "too noisy to tell whether a device is slower than it used to be"


def test_a_slow_device_is_named_with_what_speaks_for_it() -> None:
    found = held(pair(100.0, 120.0))
    assert found.verdict is Verdict.FAIL
    assert found.sentence == "GPU 1 is 20 % slower than it used to be"
    slow = the(found, "history")
    assert slow.subject == "GPU 1 NVIDIA H200 GPU-00000002-aaaa-bbbb-cccc-000000000001"
    assert slow.observed == "1.200 x the compute time of 1 earlier run"
    assert slow.expected == "at most 1.07 x (fails above 1.12 x)"
    assert slow.evidence == (
        "over 12 % in 24 of 24 blocks (19 needed)",
        "seen again in a second pass, on the same device",
    )


def test_what_follows_the_rank_is_said_of_the_rank() -> None:
    passes = [make_attempt(steady([100.0, 120.0])), make_attempt(steady([100.0, 120.0]), attempt=1, devices=[1, 0])]
    slow = the(held(make_run(passes)), "history")
    assert slow.state is State.FAIL
    assert slow.message == "rank 1 is 20 % slower than it used to be"
    assert "it follows the rank" in slow.evidence[1]


def test_what_a_second_pass_does_not_show_has_no_verdict() -> None:
    passes = [make_attempt(steady([120.0, 120.0])), make_attempt(steady([100.0, 100.0]), attempt=1, devices=[1, 0])]
    found = held(make_run(passes))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert {f.evidence[1] for f in found.findings if f.id == "history"} == {
        "the second pass did not show it: not confirmed"
    }


def test_a_new_driver_stands_beside_the_slow_device() -> None:
    base = BEFORE.model_copy(
        update={"setup": BEFORE.setup.model_copy(update={"versions": {**BEFORE.setup.versions, "driver": "570"}})}
    )
    found = held(pair(100.0, 120.0), base=base)
    assert "driver since then: 570 -> 580.1" in the(found, "history").evidence
    assert the(found, "comparable").state is State.PASS
    assert the(found, "comparable").evidence == ("driver: 570 -> 580.1",)


def other_batch() -> SavedRun:
    return BEFORE.model_copy(update={"setup": BEFORE.setup.model_copy(update={"global_batch": 1})})


def test_what_is_not_comparable_has_no_verdict_and_nothing_else_is_judged() -> None:
    found = held(pair(100.0, 150.0), "step:5%", base=other_batch())
    assert found.verdict is Verdict.INCONCLUSIVE
    (only,) = found.findings
    assert only.message == "not comparable: different batch"
    assert (only.expected, only.observed) == ("1 (4096 a rank)", "8192 (4096 a rank)")


def test_by_force_it_is_compared_with_a_warning_and_is_nobodys_history() -> None:
    found = held(pair(100.0, 150.0), "step:5%", base=other_batch(), force=True)
    assert found.verdict is Verdict.FAIL
    assert the(found, "comparable").state is State.WARN
    assert the(found, "history").state is State.SKIP
    assert the(found, "fail_on").state is State.FAIL


def test_other_devices_of_the_kind_are_compared_and_are_no_history() -> None:
    others = [d.model_copy(update={"uuid": f"GPU-{n}"}) for n, d in enumerate(BEFORE.setup.devices)]
    base = BEFORE.model_copy(update={"setup": BEFORE.setup.model_copy(update={"devices": others})})
    found = held(pair(100.0, 120.0), base=base)
    assert the(found, "comparable").message == "comparable: other devices of the same kind, the same work"
    assert the(found, "history").state is State.SKIP
    assert any(f.id == "change" and f.message == "GPU 1: compute time 20 % worse" for f in found.findings)


def test_nothing_in_common_has_no_verdict() -> None:
    found = held(make_run([]))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.sentence == "the two sides have no measured value in common"


def test_the_users_rules_decide() -> None:
    run = pair(106.0, 106.0)
    assert held(run).verdict is Verdict.PASS
    assert held(run, "compute:7%").verdict is Verdict.PASS
    assert held(run, "compute:5%").verdict is Verdict.FAIL
    assert held(run, "busbw:5%").verdict is Verdict.INCONCLUSIVE


def test_a_bench_with_a_baseline_warns_fails_and_passes_as_its_history() -> None:
    def verdict(run: Run) -> Verdict:
        return judge_against(run, judge(run), [BEFORE]).verdict

    assert verdict(healthy()) is Verdict.PASS
    assert verdict(healthy(ddp=pair(108.0, 108.0).ddp)) is Verdict.WARN
    assert verdict(healthy(ddp=both_slow(120.0, 120.0).ddp)) is Verdict.FAIL


def test_a_whole_node_that_became_slow_in_one_pass_is_not_passed() -> None:
    run = pair(120.0, 120.0)
    assert judge(run).verdict is Verdict.PASS
    against = judge_against(run, judge(run), [BEFORE])
    assert against.verdict is Verdict.INCONCLUSIVE
    assert against.sentence == "GPU 0 is 20 % slower than it used to be"


def test_one_device_alone_gets_its_verdict_by_its_history() -> None:
    run = make_run([make_attempt(steady([100.0]))])
    assert judge(run).verdict is Verdict.INCONCLUSIVE
    assert judge_against(run, judge(run), [snapshot(run)]).verdict is Verdict.PASS


def test_what_the_run_itself_shows_is_kept() -> None:
    run = pair(100.0, 120.0)
    alone, against = judge(run), judge_against(run, judge(run), [snapshot(run)])
    assert against.verdict is alone.verdict is Verdict.FAIL
    assert set(alone.findings) <= set(against.findings)
    assert against.facts == alone.facts


def test_a_bench_against_a_run_of_other_work_has_no_verdict() -> None:
    run = pair(100.0, 100.0)
    assert judge_against(run, judge(run), [other_batch()]).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("required", "verdict"), [(False, Verdict.PASS), (True, Verdict.INCONCLUSIVE)])
def test_no_baseline_is_no_error_unless_one_is_required(required: bool, verdict: Verdict) -> None:
    run = pair(100.0, 100.0)
    assert with_findings(judge(run), [no_baseline(required=required)]).verdict is verdict
    nothing = without_baseline(setup(), required=required)
    assert (nothing.verdict, nothing.comparison) == (Verdict.INCONCLUSIVE, None)


def test_a_baseline_that_cannot_be_read_is_no_pass() -> None:
    found = with_findings(judge(pair(100.0, 100.0)), [unreadable_baseline("x.json is damaged")])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.sentence == "the baseline cannot be read"


def test_real_runs_with_a_fault_played_are_told_from_the_healthy_one() -> None:
    base = snapshot(kept("h200x2-healthy"))
    slow = held(kept("h200x2-slow"), base=base)
    assert slow.verdict is Verdict.FAIL
    assert slow.sentence == "rank 1 is 20.5 % slower than it used to be"
    assert the(slow, "history").next_step == "none: this fault was injected on purpose"
    assert held(kept("h200x2-healthy"), "busbw:1%", "step:1%", "compute:1%", base=base).verdict is Verdict.PASS
