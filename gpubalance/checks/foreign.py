"""A run beside a log of nccl-tests or nvbandwidth: comparable at all, the user's rules, and how well the two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubalance.analysis.foreign import ForeignComparison
from gpubalance.analysis.foreign_pairs import PLACEMENT_WORDS, Pair
from gpubalance.analysis.history import EXTRA_MARGIN
from gpubalance.checks.compare_rules import TITLES, UNITS, WIDER, Rule, collective_name
from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.verdict import Verdict, margins_of, verdict_of
from gpubalance.errors import UsageError
from gpubalance.record.baselines import Collective
from gpubalance.record.run import Run

METRICS_OF = {"nccl-tests": ("busbw",), "nvbandwidth": ("h2d", "d2h", "memory_copy", "p2p")}
"""What `--fail-on` can ask of each tool."""

ONE_LOOK = "one value on each side: noise between runs is not known"
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN, State.INFO, State.PASS, State.SKIP)


@dataclass(frozen=True)
class ForeignJudgement:
    """A verdict on a run beside a log, and what it rests on."""

    verdict: Verdict
    sentence: str
    findings: tuple[Finding, ...]
    """Worst first."""
    comparison: ForeignComparison
    log_is_base: bool
    """True when the run is held against the log: worse is what the run has less of."""


def judge_foreign(
    comparison: ForeignComparison, run: Run, rules: Sequence[Rule] = (), *, log_is_base: bool, force: bool = False
) -> ForeignJudgement:
    """Judge NEW by BASE; `force` compares what is not comparable, and warns. Raises UsageError for a rule about
    something that the tool does not measure.
    """
    _check_rules_fit(comparison, rules)
    comparable = check_comparable(comparison, force=force)
    found = [comparable]
    if comparable.state is not State.UNKNOWN:
        found += [*check_wrong(comparison), *check_complete(comparison)]
        found += [check_rule(comparison, rule, log_is_base=log_is_base) for rule in rules]
        margin = margins_of(run)[0] + EXTRA_MARGIN
        found += check_agreement(comparison, margin, {rule.metric for rule in rules}, log_is_base=log_is_base)
    findings = tuple(sorted(found, key=lambda finding: (_ORDER.index(finding.state), not finding.required)))
    verdict = verdict_of(findings)
    state = {Verdict.FAIL: State.FAIL, Verdict.INCONCLUSIVE: State.UNKNOWN, Verdict.WARN: State.WARN}.get(verdict)
    sentences = [f.message for f in findings if f.state is state] or [
        f.message for f in findings if f.id == "agreement"
    ]
    calm = f"{counted(len(comparison.pairs), 'value')} beside {comparison.tool}, none of them worse"
    return ForeignJudgement(verdict, sentences[0] if sentences else calm, findings, comparison, log_is_base)


def _check_rules_fit(comparison: ForeignComparison, rules: Sequence[Rule]) -> None:
    known = METRICS_OF[comparison.tool]
    for rule in rules:
        if rule.metric not in known:
            raise UsageError(
                f"--fail-on {rule.spelled()}: {comparison.tool} does not measure {rule.metric}",
                f"choose from: {', '.join(known)}",
            )


def check_comparable(comparison: ForeignComparison, *, force: bool) -> Finding:
    """comparable: the same kind of GPU on one node, and at least one number of both. Other differences, such as
    another NCCL, are told and block nothing.
    """
    told = tuple(f"{each.what}: {each.theirs} in the log, {each.ours} in the run" for each in comparison.unlike)
    names = ", ".join(each.what for each in comparison.blocking)
    if comparison.blocking and not force:
        step = "compare runs on the same kind of node, or give --force"
        text = f"not comparable: different {names}"
        return Finding("comparable", State.UNKNOWN, text, evidence=told, next_step=step, required=True)
    if not comparison.pairs:
        reasons = tuple(f"{each.what}: {each.reason}" for each in comparison.unpaired)
        text = f"nothing in the log of {comparison.tool} was measured by the run as well"
        step = "measure the same collectives, sizes, type and number of GPUs with both"
        return Finding("comparable", State.UNKNOWN, text, evidence=reasons + told, next_step=step, required=True)
    if comparison.blocking:
        text, step = f"compared by force in spite of different {names}", "trust none of these numbers by themselves"
        return Finding("comparable", State.WARN, text, evidence=told, next_step=step, required=True)
    text = f"comparable: {counted(len(comparison.pairs), 'value')} of both"
    return Finding("comparable", State.PASS, text, evidence=told, required=True)


def check_wrong(comparison: ForeignComparison) -> list[Finding]:
    """wrong_data: a collective that gives wrong results makes its bandwidth worthless, whoever saw it."""
    if not comparison.wrong:
        return []
    text = f"wrong data: {comparison.wrong[0]}"
    step = "do not train on this node; run again with NCCL_P2P_DISABLE=1 to see whether peer copies are the cause"
    return [Finding("wrong_data", State.FAIL, text, evidence=comparison.wrong[1:], next_step=step, required=True)]


def check_complete(comparison: ForeignComparison) -> list[Finding]:
    """complete: a log that breaks off is compared as far as it goes, and somebody should know why it did."""
    if comparison.complete:
        return []
    text, step = f"the log of {comparison.tool} breaks off: compared as far as it goes", "let the test run to its end"
    return [Finding("complete", State.WARN, text, next_step=step)]


def check_rule(comparison: ForeignComparison, rule: Rule, *, log_is_base: bool) -> Finding:
    """fail_on: no value of NEW is worse than BASE's by more than the user allows."""
    pairs = [pair for pair in comparison.pairs if pair.metric == rule.metric and pair.gated]
    amounts = [(by, p) for p in pairs if (by := _amount(p, rule, log_is_base=log_is_base)) is not None]
    if not amounts:
        text = f"{TITLES[rule.metric]} of 1 MiB or more was not measured by both"
        step = f"measure the sizes of the log: gpubalance bench --workload {_workload(rule.metric)}"
        return Finding("fail_on", State.UNKNOWN, text, expected=rule.spelled(), next_step=step, required=True)
    amount, worst = max(amounts, key=lambda each: each[0])
    if amount <= rule.limit:
        text = f"{TITLES[rule.metric]} is not worse by more than {rule.told(rule.limit)}"
        return Finding("fail_on", State.PASS, text, observed=both(worst), expected=rule.spelled(), required=True)
    others = [f"{name_of_pair(p)} by {rule.told(by)}" for by, p in amounts if by > rule.limit and p is not worst]
    return Finding(
        "fail_on",
        State.FAIL,
        f"{name_of_pair(worst)}: {TITLES[rule.metric]} {rule.told(amount)} worse (allowed: {rule.told(rule.limit)})",
        observed=both(worst),
        expected=rule.spelled(),
        evidence=(ONE_LOOK, *((f"worse as well: {', '.join(others)}",) if others else ())),
        next_step="run both again, one after the other; compare NCCL versions and variables",
        required=True,
    )


def check_agreement(
    comparison: ForeignComparison, margin: float, ruled: set[str], *, log_is_base: bool
) -> list[Finding]:
    """agreement: warns where NEW is worse than BASE by more than `margin` (ours: the margin that warns of stragglers,
    and 2 %); copies to and from the host may differ by 5 % more. Metrics with a rule of the user's are left to it.
    """
    pairs = [pair for pair in comparison.pairs if pair.gated and pair.ratio is not None]
    if not pairs:
        text = f"{counted(len(comparison.pairs), 'value')} of both, none of them large enough to judge"
        step = "measure sizes of 1 MiB or more with both, without a CUDA graph"
        return [Finding("agreement", State.UNKNOWN, text, next_step=step, required=True)]
    over = []
    for pair in pairs:
        allowed = Rule(pair.metric, margin + WIDER.get(pair.metric, 0.0), relative=True)
        amount = _amount(pair, allowed, log_is_base=log_is_base)
        if amount is not None and amount > allowed.limit and pair.metric not in ruled:
            over.append((amount, pair))
    if over:
        worst = max(over, key=lambda each: each[0])
        name = name_of_pair(worst[1])
        step = "run both again, one after the other; compare NCCL versions and variables"
        text = f"{name}: {TITLES[worst[1].metric]} {percent(worst[0])} worse"
        return [Finding("agreement", State.WARN, text, observed=both(worst[1]), evidence=(ONE_LOOK,), next_step=step)]
    ratios = sorted(pair.ratio for pair in pairs if pair.ratio is not None)
    share = f"{percent(ratios[0])} to {percent(ratios[-1])}"
    text = f"the run has {share} of the bandwidth of {comparison.tool} ({counted(len(pairs), 'value')})"
    return [Finding("agreement", State.PASS, text)]


def _amount(pair: Pair, rule: Rule, *, log_is_base: bool) -> float | None:
    """By how much NEW is worse, in the rule's terms; all of these are better when larger."""
    if pair.ratio is None:
        return None
    if rule.relative:
        return 1 - pair.ratio if log_is_base else (1 - 1 / pair.ratio if pair.ratio > 0 else None)
    return pair.theirs - pair.ours if log_is_base else pair.ours - pair.theirs


def _workload(metric: str) -> str:
    return {"busbw": "collectives", "p2p": "links"}.get(metric, "solo")


def name_of_pair(pair: Pair) -> str:
    """all_reduce 1 GiB in place, or GPU 3 by its NVML index."""
    if pair.what is None:
        return pair.place
    what = pair.what
    which = Collective(name=what.collective, mode=what.mode, dtype=what.dtype, size_bytes=what.size_bytes)
    return f"{collective_name(which)} {PLACEMENT_WORDS.get(what.placement, what.placement)}"


def both(pair: Pair) -> str:
    """Both values with their unit."""
    return f"log {pair.theirs:.5g}, run {pair.ours:.5g} {UNITS[pair.metric]}"
