"""What a run was held against when it ended. These findings are kept and not made again: what they rest on is in other
files, which may be gone or have changed since.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpubalance.analysis.facts import Facts
from gpubalance.checks.finding import Finding, State
from gpubalance.record.against import Against, SavedFinding
from gpubalance.record.run import Run


def check_against(run: Run, facts: Facts) -> list[Finding]:
    """The findings that were saved, each marked with when and against what it was judged."""
    if run.against is None:
        return []
    mark = f"as judged on {day_of(run.against)} against {run.against.label}"
    return [_marked(each, mark) for each in run.against.findings]


def day_of(against: Against) -> str:
    """The day on which it was judged, UTC."""
    return against.judged_at[:10]


def saved_findings(findings: Iterable[Finding]) -> list[SavedFinding]:
    """As a record keeps them."""
    return [
        SavedFinding.model_validate({**vars(each), "state": each.state.value, "evidence": list(each.evidence)})
        for each in findings
    ]


def _marked(saved: SavedFinding, mark: str) -> Finding:
    values = {**vars(saved), "state": State(saved.state), "evidence": (*saved.evidence, mark)}
    return Finding(**values)
