"""From a probe to one verdict. Any fail is FAIL; else a required unknown is INCONCLUSIVE; else WARN or PASS, and only
when something was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing import (
    container,
    environment,
    kernel_log,
    limits,
    load,
    memory,
    nvlink,
    pcie,
    software,
    thermal,
    topology,
    usage,
)
from gpubalance.checks.probing.check import Check
from gpubalance.checks.verdict import Verdict
from gpubalance.errors import UsageError
from gpubalance.record.probe import Probe

PROBE_RULES_VERSION = 1

CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (
            check
            for family in (
                software, memory, kernel_log, pcie, nvlink, thermal, usage, topology, container, environment,
                load, limits,
            )
            for check in family.CHECKS
        ),
        key=lambda check: ("SMXPNTUACQ".index(check.id[0]), int(check.id[1:])),
    )
)  # fmt: skip

_ORDER = (State.FAIL, State.UNKNOWN, State.WARN, State.INFO, State.PASS, State.SKIP)


@dataclass(frozen=True)
class ProbeJudgement:
    """A verdict and everything it rests on."""

    verdict: Verdict
    sentence: str
    findings: tuple[Finding, ...]
    """Worst first; of equals the required ones first, then in the order of the checks."""
    titles: dict[str, str]
    """Check id -> title, of all that ran."""
    rules_version: int = PROBE_RULES_VERSION


def judge_probe(probe: Probe) -> ProbeJudgement:
    """Judge a probe by the rules of this version, under its own settings (require, only, skip)."""
    wanted = choose(_names(probe, "only"), _names(probe, "skip"))
    strict = {check.id for check in named(_names(probe, "require"))}
    found = [_strict(finding, strict) for check in wanted for finding in check.findings(probe)]
    findings = tuple(sorted(found, key=lambda f: (_ORDER.index(f.state), not f.required)))
    verdict = _verdict(findings)
    titles = {check.id: check.title for check in wanted}
    return ProbeJudgement(verdict, _sentence(probe, verdict, findings), findings, titles)


def choose(only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks to run. Raises UsageError for a name that is no check."""
    kept = named(only) if only else CHECKS
    left_out = {check.id for check in named(skip)}
    chosen = tuple(check for check in kept if check.id not in left_out)
    if not chosen:
        raise UsageError("--only and --skip together leave no check")
    return chosen


def named(names: Sequence[str]) -> tuple[Check, ...]:
    """Checks by id (M2), by family (M) or by the first word of their title (xid). Raises UsageError."""
    found: list[Check] = []
    for name in names:
        matches = [check for check in CHECKS if _matches(check, name.lower())]
        if not matches:
            raise UsageError(f"there is no check {name!r}", f"choose from: {', '.join(c.id for c in CHECKS)}")
        found += [check for check in matches if check not in found]
    return tuple(found)


def _matches(check: Check, name: str) -> bool:
    words = (check.id.lower(), check.id[0].lower(), check.title.lower().split()[0].rstrip("s"))
    return name in words or name.rstrip("s") in words


def _names(probe: Probe, key: str) -> list[str]:
    given = probe.settings.get(key)
    return [str(name) for name in given.value] if given is not None and isinstance(given.value, list) else []


def _strict(finding: Finding, strict: set[str]) -> Finding:
    """`--require` makes a failure of what could not be measured."""
    if finding.id in strict and finding.state is State.UNKNOWN:
        return replace(finding, state=State.FAIL, required=True)
    return finding


def _verdict(findings: Sequence[Finding]) -> Verdict:
    states = {finding.state for finding in findings}
    if State.FAIL in states:
        return Verdict.FAIL
    if any(finding.required and finding.state is State.UNKNOWN for finding in findings):
        return Verdict.INCONCLUSIVE
    if not states & {State.PASS, State.INFO, State.WARN}:
        return Verdict.INCONCLUSIVE
    return Verdict.WARN if State.WARN in states else Verdict.PASS


def _sentence(probe: Probe, verdict: Verdict, findings: Sequence[Finding]) -> str:
    state = {Verdict.FAIL: State.FAIL, Verdict.WARN: State.WARN, Verdict.INCONCLUSIVE: State.UNKNOWN}.get(verdict)
    worst = [finding for finding in findings if finding.state is state]
    if worst:
        return worst[0].message
    if verdict is Verdict.INCONCLUSIVE:
        return "nothing that could be judged was measured"
    count = len(probe.node.devices) if probe.node else 0
    checks = len({finding.id for finding in findings if finding.state is not State.SKIP})
    return f"{counted(count, 'GPU')} healthy: none of the {checks} checks that apply found a fault"
