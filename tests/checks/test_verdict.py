"""From findings to one verdict and one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import RULES_VERSION, Verdict, judge, margins_of, sentence_of, verdict_of
from gpubalance.record.run import Run
from gpubalance.record.timings import DeviceProbe
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.checks.helpers import healthy, look, with_setting

PASS, INFO, WARN, FAIL, SKIP, UNKNOWN = State


def required(state: State, finding_id: str = "gate") -> Finding:
    return Finding(finding_id, state, f"a required {state.value}", required=True)


def optional(state: State) -> Finding:
    return Finding("extra", state, f"an optional {state.value}")


COMPLETE = required(PASS, "complete")

TABLE = [
    ([COMPLETE, required(PASS)], "pass"),
    ([COMPLETE, required(WARN)], "warn"),
    ([COMPLETE, required(FAIL)], "fail"),
    ([COMPLETE, required(UNKNOWN)], "inconclusive"),
    # any fail wins, required or not, whatever else is unknown
    ([COMPLETE, required(PASS), optional(FAIL)], "fail"),
    ([required(UNKNOWN, "complete"), required(UNKNOWN), optional(FAIL)], "fail"),
    # a required unknown wins over warnings and passes
    ([COMPLETE, required(PASS), required(WARN), required(UNKNOWN)], "inconclusive"),
    ([required(UNKNOWN, "complete"), required(PASS)], "inconclusive"),
    # an optional one does not
    ([COMPLETE, required(PASS), optional(UNKNOWN)], "pass"),
    ([COMPLETE, required(PASS), optional(WARN)], "warn"),
    ([COMPLETE, required(PASS), optional(INFO), optional(SKIP)], "pass"),
    # without a required check that measured something there is no verdict
    ([], "inconclusive"),
    ([COMPLETE], "inconclusive"),
    ([COMPLETE, optional(PASS), optional(WARN)], "inconclusive"),
    ([COMPLETE, required(SKIP), required(INFO)], "inconclusive"),
]


@pytest.mark.parametrize(("findings", "expected"), TABLE)
def test_the_verdict_follows_from_the_states(findings: Sequence[Finding], expected: str) -> None:
    for order in itertools.permutations(findings):
        assert verdict_of(order) == expected


def test_a_healthy_node_passes_and_the_sentence_says_how_even_it_is() -> None:
    judgement = look(healthy())
    assert judgement.verdict is Verdict.PASS
    assert judgement.sentence.startswith("node can train evenly: balance 99.")
    assert judgement.sentence.endswith("nothing slower than its peers by 10 %")
    assert judgement.rules_version == RULES_VERSION


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
def test_equal_ranks_pass_whatever_their_number(ranks: int) -> None:
    assert look(healthy(ranks)).verdict is Verdict.PASS


@pytest.mark.parametrize("ranks", [2, 4])
def test_equal_ranks_pass_on_a_noisy_cpu(ranks: int) -> None:
    run = make_run([make_attempt(steady([20.0] * ranks, noise=0.15))], on_cpu=True)
    assert look(run).verdict is Verdict.PASS


def test_the_worst_news_comes_first() -> None:
    run = healthy(interrupted_by=15, solo=[make_solo(0, 90.0, digest="a"), make_solo(1, 90.0, digest="b")])
    states = [finding.state for finding in look(run).findings]
    assert states == sorted(states, key=[FAIL, UNKNOWN, WARN, INFO, PASS, SKIP].index)
    assert {FAIL, UNKNOWN, PASS} <= set(states)


def test_the_sentence_of_bad_news_is_its_first_finding() -> None:
    run = make_run([make_attempt(steady([100.0, 108.0], noise=0.01))])
    judgement = look(run)
    assert judgement.verdict is Verdict.WARN
    assert judgement.sentence == judgement.findings[0].message
    assert "rank 1" in judgement.sentence


def test_without_a_verdict_the_sentence_is_about_a_required_check() -> None:
    findings = [optional(UNKNOWN), required(UNKNOWN)]
    facts = judge(healthy()).facts
    assert sentence_of(Verdict.INCONCLUSIVE, findings, facts) == "a required unknown"


def test_a_run_in_which_nothing_was_measured_has_no_verdict() -> None:
    """The solo phase alone was asked for, and did not come to anything."""
    run = make_run()
    run = run.model_copy(update={"plan": run.plan.model_copy(update={"workloads": ["solo"]})})
    judgement = look(run)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.sentence == "nothing that could be judged was measured"


def one_device(*probes: DeviceProbe) -> Run:
    return make_run([make_attempt(steady([100.0], noise=0.01))], solo=[make_solo(0, 90.0)], probes=list(probes))


def test_one_device_that_reaches_its_limits_passes_without_a_word_about_balance() -> None:
    links = {"host_to_device_gb_per_s": 55.0, "device_to_host_gb_per_s": 55.0}
    probe = DeviceProbe(rank=0, device=0, gemm_tflops=700.0, memory_copy_gb_per_s=4000.0, **links)
    judgement = look(one_device(probe))
    assert judgement.verdict is Verdict.PASS
    assert judgement.sentence.endswith("with one device there is nothing to balance")


def test_one_device_without_any_yardstick_has_no_verdict() -> None:
    assert look(one_device()).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("on_cpu", "expected"), [(False, (0.05, 0.10)), (True, (0.25, 0.50))])
def test_margins_are_those_of_the_kind_of_device(on_cpu: bool, expected: tuple[float, float]) -> None:
    assert margins_of(make_run(on_cpu=on_cpu)) == expected


def test_margins_that_were_asked_for_win() -> None:
    assert margins_of(with_setting(make_run(), "margin", [0.03, 0.05])) == (0.03, 0.05)


def test_margins_that_were_not_asked_for_are_saved_as_null() -> None:
    assert margins_of(with_setting(make_run(), "margin", None)) == (0.05, 0.10)


def test_asked_margins_decide() -> None:
    run = make_run([make_attempt(steady([100.0, 104.0], noise=0.005))])
    assert look(run).verdict is Verdict.PASS
    assert look(with_setting(run, "margin", [0.02, 0.06])).verdict is Verdict.WARN


def test_a_run_judged_twice_is_judged_the_same() -> None:
    run = make_run([make_attempt(steady([100.0, 108.0], noise=0.01))])
    assert judge(run) == judge(Run.model_validate_json(run.model_dump_json()))
