"""From findings to one verdict: any fail is FAIL; else a required unknown is INCONCLUSIVE; else WARN or PASS.

A check that could not measure never passes, and a verdict needs at least one required check that did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from gpubalance.analysis.facts import Facts, compute_facts
from gpubalance.checks import (
    against,
    bandwidth,
    devices,
    experiments,
    hang,
    host_links,
    links,
    probes,
    quality,
    steps,
    straggler,
    trust,
)
from gpubalance.checks.finding import Finding, State, percent
from gpubalance.record.run import Run
from gpubalance.settings import CPU_MARGIN, GPU_MARGIN

RULES_VERSION = 3
"""Raised whenever the same facts may get another verdict."""

Check = Callable[[Run, Facts], list[Finding]]

CHECKS: tuple[Check, ...] = (
    quality.check_complete,
    hang.check_bisection,
    quality.check_count,
    quality.check_identity,
    trust.check_trust,
    devices.check_results,
    bandwidth.check_bandwidth,
    straggler.check_straggler,
    steps.check_transient,
    devices.check_memory,
    probes.check_probes,
    links.check_links,
    host_links.check_host_links,
    devices.check_hardware,
    steps.check_score,
    quality.check_foreign,
    quality.check_sensor,
    quality.check_counters,
    quality.check_host,
    steps.check_units,
    steps.check_level,
    steps.check_communication,
    experiments.check_experiments,
    against.check_against,
)

_ORDER = (State.FAIL, State.UNKNOWN, State.WARN, State.INFO, State.PASS, State.SKIP)


class Verdict(str, Enum):
    """The four outcomes."""

    PASS = "pass"  # noqa: S105  (a verdict, not a password)
    WARN = "warn"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Judgement:
    """A verdict and everything it rests on."""

    verdict: Verdict
    sentence: str
    findings: tuple[Finding, ...]
    """Worst first."""
    facts: Facts
    rules_version: int = RULES_VERSION


def judge(run: Run) -> Judgement:
    """Judge a run by the rules of this version."""
    warn, fail = margins_of(run)
    facts = compute_facts(run, warn, fail)
    found = trust.settled([finding for check in CHECKS for finding in check(run, facts)])
    findings = tuple(sorted(found, key=lambda finding: _ORDER.index(finding.state)))
    verdict = verdict_of(findings)
    return Judgement(verdict, sentence_of(verdict, findings, facts), findings, facts)


def margins_of(run: Run) -> tuple[float, float]:
    """Margins (shares) of a run: what was asked for, else those of its kind of device."""
    setting = run.settings.get("margin")
    if setting is not None and isinstance(setting.value, list):
        warn, fail = (float(value) for value in setting.value if isinstance(value, int | float))
        return warn, fail
    margin = CPU_MARGIN if run.plan.backend == "gloo" else GPU_MARGIN
    return margin.warn, margin.fail


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """The rule in the module's first line."""
    states = {finding.state for finding in findings}
    if State.FAIL in states:
        return Verdict.FAIL
    required = [finding for finding in findings if finding.required]
    if any(finding.state is State.UNKNOWN for finding in required):
        return Verdict.INCONCLUSIVE
    measured = [f for f in required if f.id != "complete" and f.state in (State.PASS, State.WARN)]
    if not measured:
        return Verdict.INCONCLUSIVE
    return Verdict.WARN if State.WARN in states else Verdict.PASS


def sentence_of(verdict: Verdict, findings: Sequence[Finding], facts: Facts) -> str:
    """One sentence that says all."""
    state = {Verdict.FAIL: State.FAIL, Verdict.WARN: State.WARN, Verdict.INCONCLUSIVE: State.UNKNOWN}.get(verdict)
    worst = [finding for finding in findings if finding.state is state]
    if verdict is Verdict.INCONCLUSIVE:  # what is required is what leaves no verdict
        worst.sort(key=lambda finding: not finding.required)
    if worst:
        return worst[0].message
    if verdict is Verdict.INCONCLUSIVE:
        one = facts.first is not None and len(facts.first.device_of_rank) == 1
        alone = ": one device has no peers, and no limit of it is known" if one else ""
        return f"nothing that could be judged was measured{alone}"
    first = facts.first
    if first is None:
        return "nothing wrong was found in what was measured; evenness was not asked for"
    if len(first.device_of_rank) < 2:
        return "nothing wrong was found on this device; with one device there is nothing to balance"
    if len(first.kinds) > 1:
        own = "every device keeps up with its own kind, and the slower kind sets the pace"
        return f"{own}: balance {first.balance.score:.1f}"
    return (
        f"node can train evenly: balance {first.balance.score:.1f}, "
        f"nothing slower than its peers by {percent(facts.margin_fail)}"
    )
