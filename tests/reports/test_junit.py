"""JUnit XML: what each state becomes, and that two readers of other people read the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junit2htmlreport.parser import Case, Junit
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.probing.verdict import ProbeJudgement, judge_probe
from gpubalance.checks.verdict import Verdict
from gpubalance.record.probe import Probe
from gpubalance.record.run import Phase, Run
from gpubalance.record.run import Skipped as NotRun
from gpubalance.reports.formats import judged
from gpubalance.reports.junit import FAMILY_OF, junit_text
from tests.checks.probing.helpers import make_probe
from tests.checks.probing.test_kept_probes import KEPT as KEPT_PROBES
from tests.checks.probing.test_kept_probes import kept as kept_probe
from tests.reports.helpers import HOSTILE, KEPT, kept, named, pair, without_ddp

SLOW = pair(100.0, 120.0)
GPU_1 = "cuda:1 nvml:1 GPU-00000002-aaaa-bbbb-cccc-000000000001 0000:07:00.0"
RECORDS: dict[str, Run | Probe] = {
    **{name: kept(name) for name in KEPT},
    **{f"probe {name}": kept_probe(name) for name in KEPT_PROBES},
    "hostile": named(pair(100.0, 108.0), HOSTILE),
    "hostile probe": make_probe(devices=[{"name": HOSTILE}, {"name": "\ud800\ufffe"}]),
    "alone": pair(100.0),
    "no ddp": without_ddp(),
    "no driver": make_probe(node={"nvml_error": "DRIVER_NOT_LOADED"}),
}


def text_of(record: Run | Probe) -> str:
    return junit_text(record, judged(record))


def judgement_with(*findings: Finding, verdict: Verdict = Verdict.PASS, sentence: str = "so it is") -> ProbeJudgement:
    return ProbeJudgement(verdict, sentence, findings, {"M2": "uncorrected ECC errors"})


def cases_of(text: str) -> dict[str, TestCase]:
    """Every case by its name; no name stands twice in one suite."""
    cases = [(suite.name, case.name, case) for suite in JUnitXml.fromstring(text) for case in suite]
    assert len({(suite, name) for suite, name, _ in cases}) == len(cases)
    return {name: case for _, name, case in cases}


def only_case(*findings: Finding, **values: Any) -> TestCase:
    text = junit_text(make_probe(), judgement_with(*findings, **values))
    (case,) = [case for name, case in cases_of(text).items() if name != "verdict: node"]
    return case


STATES = {
    "pass": (State.PASS, False, None),
    "info": (State.INFO, False, None),
    "a warning passes": (State.WARN, False, None),
    "fail": (State.FAIL, False, Failure),
    "a required fail": (State.FAIL, True, Failure),
    "not applicable": (State.SKIP, False, Skipped),
    "not applicable, required": (State.SKIP, True, Skipped),
    "not measured": (State.UNKNOWN, False, Skipped),
    "not measured, required": (State.UNKNOWN, True, Error),
}


@pytest.mark.parametrize(("state", "required", "kind"), STATES.values(), ids=STATES.keys())
def test_each_state_has_its_outcome_and_its_words_are_kept(state: State, required: bool, kind: type | None) -> None:
    case = only_case(Finding("M2", state, "said so", GPU_1, "7", "0", ("two banks",), "replace it", required=required))
    assert case.name == f"M2 uncorrected ECC errors: {GPU_1}"
    assert case.classname == "gpubalance.probe.memory"
    told = f"{state.value}: said so\n  {GPU_1}\n  observed: 7\n  expected: 0\n  two banks\n  next: replace it"
    if kind is None:
        assert case.result == []
        assert case.system_out == told
    else:
        (result,) = case.result
        assert type(result) is kind
        assert (result.message, result.type, result.text) == ("said so", "M2", told)


def test_of_several_findings_of_one_check_on_one_subject_the_worst_decides_and_all_are_told() -> None:
    case = only_case(
        Finding("M2", State.UNKNOWN, "first"), Finding("M2", State.UNKNOWN, "second", required=True),
        Finding("M2", State.PASS, "third"),
    )  # fmt: skip
    (result,) = case.result
    assert (type(result), result.message) == (Error, "second")
    assert result.text == "unknown: first\nunknown: second\npass: third"


VERDICTS = {
    Verdict.PASS: None,
    Verdict.WARN: None,
    Verdict.FAIL: Failure,
    Verdict.INCONCLUSIVE: Error,
}


@pytest.mark.parametrize("verdict", Verdict)
def test_the_verdict_is_a_case_so_that_none_never_looks_green(verdict: Verdict) -> None:
    text = junit_text(make_probe(), judgement_with(verdict=verdict))
    (case,) = cases_of(text).values()
    assert [type(result) for result in case.result] == ([VERDICTS[verdict]] if VERDICTS[verdict] else [])


def test_counts_times_and_properties_of_a_real_run() -> None:
    root = JUnitXml.fromstring(text_of(kept("h200x2-slow")))
    suites = {suite.name: suite for suite in root}
    assert list(suites) == ["collectives", "data_parallel", "ddp", "links", "node", "solo", "verdict"]
    assert (suites["ddp"].tests, suites["ddp"].failures, suites["ddp"].errors, suites["ddp"].skipped) == (4, 1, 0, 0)
    assert suites["ddp"].time == 33.141  # 28.5212 - 11.6247 and again 50.5054 - 34.2605
    assert suites["solo"].time == 5.064
    assert (root.time, root.tests, root.failures, root.errors) == (51.13, 11, 2, 0)
    properties = {item.name: item.value for item in suites["verdict"].properties()}
    assert properties["balance"] == "85.18"
    assert properties["version.nccl"] == "2.28.9"
    assert properties["says nothing about the node"] == "injected on purpose: compute:rank=1,percent=20"


def test_a_time_that_is_not_known_is_not_there() -> None:
    run = pair(100.0, 100.0, phases=[Phase(name="ddp", attempt=0, begin_s=1.0, end_s=None)])
    assert all("time" not in suite._elem.attrib for suite in JUnitXml.fromstring(text_of(run)))


def test_a_workload_that_did_not_run_is_skipped_with_its_reason() -> None:
    run = pair(100.0, 100.0, skipped=[NotRun(what="collectives", reason="not asked for")])
    (suite,) = [suite for suite in JUnitXml.fromstring(text_of(run)) if suite.name == "collectives"]
    (case,) = suite
    assert case.is_skipped
    assert case.result[0].message == "collectives did not run: not asked for"


def outcome(case: TestCase) -> str:
    return "failed" if case.is_failure or case.is_error else "skipped" if case.is_skipped else "passed"


def outcome_of_other(case: Case) -> str:
    return "failed" if case.failed() else "skipped" if case.skipped else "passed"


def suites_of(text: str) -> list[TestSuite]:
    return list(JUnitXml.fromstring(text))


@pytest.mark.parametrize("name", RECORDS)
def test_two_readers_read_the_same(name: str) -> None:
    text = text_of(RECORDS[name])
    ours = {(s.name, c.name): outcome(c) for s in suites_of(text) for c in s}
    theirs = {(s.name, c.name): outcome_of_other(c) for s in Junit(xmlstring=text).suites for c in s.all()}
    assert theirs == ours


@pytest.mark.parametrize("name", RECORDS)
def test_every_finding_is_told_and_counted_once(name: str) -> None:
    record = RECORDS[name]
    judgement = judged(record)
    root = JUnitXml.fromstring(junit_text(record, judgement))
    told = [line for suite in root for case in suite for text in texts_of(case) for line in text.splitlines()]
    heads = Counter(line.partition(":")[0] for line in told if not line.startswith(" "))
    skipped = len(record.skipped) if isinstance(record, Run) else 0
    wanted = Counter(finding.state.value for finding in judgement.findings) + Counter({"skip": skipped})
    verdict = {Verdict.FAIL: "fail", Verdict.INCONCLUSIVE: "unknown"}.get(judgement.verdict, "pass")
    assert heads == wanted + Counter([verdict])
    assert root.tests == sum(suite.tests for suite in root) == sum(1 for suite in root for _ in suite)
    assert root.failures == sum(case.is_failure for suite in root for case in suite)


def texts_of(case: TestCase) -> list[str]:
    return [case.system_out] if case.system_out else [result.text for result in case.result]


@pytest.mark.parametrize("name", RECORDS)
def test_nothing_that_a_terminal_obeys_is_in_it_and_the_same_record_gives_the_same_bytes(name: str) -> None:
    text = text_of(RECORDS[name])
    assert all(character.isprintable() or character == "\n" for character in text)
    assert text == text_of(RECORDS[name])


@given(st.text())
def test_any_text_gives_a_document_that_reads_back(text: str) -> None:
    judgement = judgement_with(Finding(text, State.FAIL, text, text, text, text, (text,), text), sentence=text)
    root = JUnitXml.fromstring(junit_text(make_probe(), judgement))
    assert root.failures == 1


def test_every_check_of_a_probe_belongs_to_a_family() -> None:
    assert {check[0] for check in judge_probe(make_probe()).titles} == set(FAMILY_OF)


def test_findings_of_a_run_stand_with_the_workload_that_they_judge() -> None:
    suites = {suite.name: {case.name.partition(":")[0] for case in suite} for suite in suites_of(text_of(SLOW))}
    assert suites == {
        "ddp": {"straggler", "transient", "level"},
        "solo": {"same_bits"},
        "node": {"complete", "sensor"},
        "verdict": {"verdict"},
    }
