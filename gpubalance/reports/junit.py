"""JUnit XML: a suite for each workload of a run or family of a probe, a case for each check and what it looked at.

A fail is a failure; what was required and could not be measured is an error; what does not apply, or was not measured
and is not required, is skipped with its reason. Warnings pass and say so in system-out. The last suite holds the
verdict itself, so that a record without one never looks green.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import Run
from gpubalance.reports.printable import printable
from gpubalance.reports.record_parts import (
    AnyJudgement,
    Record,
    balance_of,
    finding_lines,
    node_of,
    record_id,
    rehearsal,
    versions_of,
)
from gpubalance.settings import WORKLOADS

if TYPE_CHECKING:
    from junitparser import Error, Failure, Skipped, TestCase
    from junitparser.xunit2 import JUnitXml, TestSuite

NODE = "node"
"""Suite of what belongs to no workload, and subject of what belongs to no device."""

WORKLOAD_OF = {
    "straggler": "ddp", "developing": "ddp", "transient": "ddp", "data_imbalance": "ddp", "level": "ddp",
    "too_small": "ddp", "communication_bound": "ddp", "loss": "ddp", "memory_skew": "ddp", "leaked_context": "ddp",
    "min_score": "ddp", "warm_up": "ddp", "slowdown": "ddp", "same_bits": "solo", "device_speed": "solo",
    "low_clock": "solo", "collective_data": "collectives", "link": "links", "link_data": "links",
    "link_limit": "links", "nvlinks_up": "links", "peer_access": "links", "host_link": "links",
    "shared_uplink": "links",
    "busbw": "collectives", "nccl_transport": "collectives", "jitter": "collectives",
}  # fmt: skip
"""Finding of a run -> the workload that it judges."""

FAMILY_OF = {
    "S": "software", "M": "memory", "X": "kernel log", "P": "pcie", "N": "nvlink", "T": "thermal and power",
    "U": "usage", "A": "topology", "C": "container and environment", "Q": "load",
}  # fmt: skip
"""First letter of a probe's check -> its family."""


def junit_text(record: Record, judgement: AnyJudgement) -> str:
    """The whole document, readable by what reads JUnit's reports: Jenkins, GitLab and their kin."""
    from junitparser.xunit2 import JUnitXml

    suites = [_suite(record, judgement, *named) for named in _suites(record, judgement).items()]
    root = JUnitXml(f"gpubalance {record.kind}")
    for suite in (*suites, _verdict_suite(record, judgement)):
        root.add_testsuite(suite)
    _count(root, [case for suite in root for case in suite])
    root.time = record.duration_s
    text: str = root.tostring().decode()
    return text + "\n"


def _count(element: JUnitXml | TestSuite, cases: Sequence[TestCase]) -> None:
    """What the library's own statistics count, without the sum of times, which would be 0 where none is known."""
    element.tests = len(cases)
    element.failures = sum(case.is_failure for case in cases)
    element.errors = sum(case.is_error for case in cases)
    element.skipped = sum(case.is_skipped for case in cases)


def _suites(record: Record, judgement: AnyJudgement) -> dict[str, list[Finding]]:
    suites: dict[str, list[Finding]] = defaultdict(list)
    for finding in judgement.findings:
        suites[_suite_of(record, finding)].append(finding)
    if isinstance(record, Run):
        for skip in record.skipped:
            reason = Finding("skipped", State.SKIP, f"{skip.what} did not run: {skip.reason}", subject=skip.what)
            suites[skip.what if skip.what in WORKLOADS else NODE].append(reason)
    return dict(sorted(suites.items()))


def _suite_of(record: Record, finding: Finding) -> str:
    if isinstance(record, Run):
        return WORKLOAD_OF.get(finding.id, NODE)
    return FAMILY_OF.get(finding.id[:1], NODE)


def _suite(record: Record, judgement: AnyJudgement, name: str, findings: Iterable[Finding]) -> TestSuite:
    cases: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        cases[finding.id, finding.subject or NODE].append(finding)
    titles = getattr(judgement, "titles", {})
    return _filled(record, name, [
        _case(record, name, f"{check} {titles.get(check, '')}".strip(), subject, found)
        for (check, subject), found in sorted(cases.items())
    ])  # fmt: skip


def _filled(record: Record, name: str, cases: Sequence[TestCase]) -> TestSuite:
    from junitparser.xunit2 import TestSuite

    suite = TestSuite(printable(name))
    suite.timestamp = printable(record.started_at)
    node = node_of(record)
    if node is not None:
        suite.hostname = printable(node.hostname)
    seconds = _seconds(record, name)
    if seconds is not None:
        suite.time = seconds
    suite.extend(cases)
    _count(suite, cases)
    return suite


def _seconds(record: Record, name: str) -> float | None:
    """How long the phases of this name took, over all attempts; None where there is none, as in a look at the node."""
    if isinstance(record, Run):
        phases = [phase for phase in record.phases if phase.name == name]
    else:
        phases = record.load.phases if record.load is not None and name == FAMILY_OF["Q"] else []
    spans = [phase.end_s - phase.begin_s for phase in phases if phase.end_s is not None]
    return round(sum(spans), 3) if spans else None


def _case(record: Record, suite: str, check: str, subject: str, found: Sequence[Finding]) -> TestCase:
    """One case: the worst finding decides, all of them are told. Readers take two cases of one name for one."""
    from junitparser import TestCase

    case = TestCase(printable(f"{check}: {subject}"), printable(f"gpubalance.{record.kind}.{suite}"))
    first = found[0]  # a judgement holds the worst states first
    worst = next((finding for finding in found if finding.state is first.state and finding.required), first)
    text = "\n".join(line for finding in found for line in _told(finding))
    result = _result(worst)
    if result is None:
        case.system_out = text
    else:
        result.text = text
        case.result = [result]
    return case


def _told(finding: Finding) -> list[str]:
    head = f"{finding.state.value}: {finding.message}"
    return [printable(head), *(f"  {printable(line)}" for line in finding_lines(finding))]


def _result(finding: Finding) -> Failure | Error | Skipped | None:
    from junitparser import Error, Failure, Skipped

    message, kind = printable(finding.message), printable(finding.id)
    if finding.state is State.FAIL:
        return Failure(message, kind)
    if finding.state is State.UNKNOWN and finding.required:
        return Error(message, kind)
    if finding.state in (State.UNKNOWN, State.SKIP):
        return Skipped(message, kind)
    return None


def _verdict_suite(record: Record, judgement: AnyJudgement) -> TestSuite:
    state = {Verdict.FAIL: State.FAIL, Verdict.INCONCLUSIVE: State.UNKNOWN}.get(judgement.verdict, State.PASS)
    said = Finding("verdict", state, judgement.sentence, required=True)
    suite = _filled(record, "verdict", [_case(record, "verdict", "verdict", NODE, [said])])
    for name, value in _properties(record, judgement).items():
        suite.add_property(name, printable(value))
    return suite


def _properties(record: Record, judgement: AnyJudgement) -> dict[str, str]:
    balance, staged = balance_of(judgement), rehearsal(record)
    properties = {f"version.{name}": version for name, version in versions_of(record).items()}
    properties |= {"record": record_id(record), "verdict": judgement.verdict.value}
    properties |= {"rules_version": str(judgement.rules_version)}
    properties |= {"balance": f"{balance.score:.2f}"} if balance is not None else {}
    properties |= {"says nothing about the node": staged} if staged is not None else {}
    return properties
