"""Findings about earlier runs that a record keeps: read back as they were, marked, and counted in the verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.against import check_against, saved_findings
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import Verdict, judge
from gpubalance.record.against import Against, SavedFinding
from gpubalance.record.consistency import contradiction
from gpubalance.record.run import Run
from tests.reports.helpers import pair

MARK = "as judged on 2026-05-04 against baseline default"
TEXT = st.text(max_size=20)


def held(*findings: Finding) -> Run:
    against = Against(
        base="auto", label="baseline default", judged_at="2026-05-04T03:02:01.000+00:00",
        runs=["a", "b"], findings=saved_findings(findings),
    )  # fmt: skip
    return pair(100.0, 100.0, against=against)


@given(
    st.builds(
        Finding, id=st.just("history"), state=st.sampled_from(State), message=TEXT, subject=st.none() | TEXT,
        observed=st.none() | TEXT, expected=st.none() | TEXT, evidence=st.lists(TEXT, max_size=3).map(tuple),
        next_step=st.none() | TEXT, required=st.booleans(),
    )
)  # fmt: skip
def test_a_finding_comes_back_as_it_was_and_marked(finding: Finding) -> None:
    run = Run.model_validate_json(held(finding).model_dump_json())
    (found,) = check_against(run, judge(pair(100.0, 100.0)).facts)
    assert found.evidence == (*finding.evidence, MARK)
    assert {**vars(found), "evidence": ()} == {**vars(finding), "evidence": ()}


@pytest.mark.parametrize(
    ("state", "required", "verdict"),
    [
        (State.FAIL, True, Verdict.FAIL),
        (State.UNKNOWN, True, Verdict.INCONCLUSIVE),
        (State.UNKNOWN, False, Verdict.PASS),
        (State.WARN, True, Verdict.WARN),
        (State.PASS, True, Verdict.PASS),
    ],
)
def test_it_counts_in_the_verdict_as_it_did(state: State, required: bool, verdict: Verdict) -> None:
    assert judge(held(Finding("history", state, "it was slower", required=required))).verdict is verdict


def test_a_run_that_was_held_against_nothing_has_no_such_finding() -> None:
    run = pair(100.0, 100.0)
    assert run.against is None
    assert check_against(run, judge(run).facts) == []


@pytest.mark.parametrize("name", ["complete", "straggler", "", "history "])
def test_a_file_cannot_bring_findings_of_other_checks(name: str) -> None:
    good = held(Finding("history", State.PASS, "as before"))
    assert contradiction(good) is None
    assert good.against is not None
    bad = good.against.model_copy(update={"findings": [SavedFinding(id=name, state="pass", message="x")]})
    problem = contradiction(good.model_copy(update={"against": bad}))
    assert problem == f"against: {name!r} is no check that looks at earlier runs"
