"""Judging in one line."""

from __future__ import annotations

from typing import Any

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import Judgement, judge
from gpubalance.record.run import Run, Setting
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady

BAD = (State.FAIL, State.UNKNOWN, State.WARN)


def dead_ends(judgement: Judgement) -> list[Finding]:
    """Bad news that does not say what to do next; there must never be any."""
    return [finding for finding in judgement.findings if finding.state in BAD and not finding.next_step]


def look(run: Run) -> Judgement:
    """The judgement of a run, every bad news of which says what to do next."""
    judgement = judge(run)
    assert dead_ends(judgement) == []
    return judgement


def all_of(run: Run, finding_id: str) -> list[Finding]:
    """All findings of one id."""
    return [finding for finding in look(run).findings if finding.id == finding_id]


def one(run: Run, finding_id: str) -> Finding:
    """The only finding of this id."""
    (finding,) = all_of(run, finding_id)
    return finding


def evidence(finding: Finding) -> str:
    """All evidence in one text."""
    return "; ".join(finding.evidence)


def healthy(ranks: int = 2, **values: Any) -> Run:
    """A run of equal GPUs with a little noise; `values` replace fields of the record."""
    solo = [make_solo(rank, 90.0) for rank in range(ranks)]
    return make_run([make_attempt(steady([100.0] * ranks, noise=0.01))], **{"solo": solo, **values})


def with_setting(run: Run, name: str, value: Any) -> Run:
    """The same run, asked for in another way."""
    return run.model_copy(update={"settings": {**run.settings, name: Setting(value=value, origin="flag")}})
