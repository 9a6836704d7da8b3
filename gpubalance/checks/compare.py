"""A run against an earlier one or a baseline: comparable at all, each device against its own history, what changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpubalance.analysis.compare import Comparison, compare_runs
from gpubalance.analysis.history import EXTRA_MARGIN, AttemptHistory, OwnSpeed, history_of
from gpubalance.analysis.snapshot import saved_run_of
from gpubalance.checks.compare_rules import Rule, check_changes, check_rules, label_of, place_of
from gpubalance.checks.finding import INJECTED, Finding, State, counted, percent
from gpubalance.checks.trust import settled
from gpubalance.checks.verdict import Judgement, Verdict, margins_of, sentence_of, verdict_of
from gpubalance.record.baselines import SavedRun, Setup
from gpubalance.record.run import Run

COMPARE_RULES_VERSION = 1
ID = "history"
SAME_RANK = "seen again in a second pass with ranks rotated: it follows the rank (software, affinity or data)"

_ORDER = (State.FAIL, State.UNKNOWN, State.WARN, State.INFO, State.PASS, State.SKIP)


@dataclass(frozen=True)
class ComparisonJudgement:
    """A verdict on a change, and everything it rests on."""

    verdict: Verdict
    sentence: str
    findings: tuple[Finding, ...]
    """Worst first."""
    comparison: Comparison | None
    """None when there was nothing to compare with."""
    setup: Setup
    """Of NEW; places in `comparison` are indices into its devices."""
    rules_version: int = COMPARE_RULES_VERSION


def judge_comparison(
    base: Sequence[SavedRun], run: Run, judgement: Judgement, rules: Sequence[Rule] = (), *, force: bool = False
) -> ComparisonJudgement:
    """Hold a run against earlier ones, at least one. `force` compares what is not comparable, and warns."""
    new = saved_run_of(run, judgement.facts, judgement.verdict.value)
    comparison = compare_runs(base, new)
    comparable = check_comparable(comparison, force=force)
    found = [comparable]
    if comparable.state is not State.UNKNOWN:
        found += _judged(comparison, run, new.setup, rules, one_look=State.WARN)
    return _concluded(found, comparison, new.setup)


def judge_against(run: Run, judgement: Judgement, base: Sequence[SavedRun]) -> Judgement:
    """The judgement of a run with what its baseline adds to what the run itself shows. Base holds at least one run."""
    return with_findings(judgement, findings_against(run, judgement, base))


def findings_against(run: Run, judgement: Judgement, base: Sequence[SavedRun]) -> list[Finding]:
    """What a baseline adds to a run that has just ended: a device that is slower than it used to be, whatever else got
    worse, or why the two are not comparable. Base holds at least one run.
    """
    new = saved_run_of(run, judgement.facts, judgement.verdict.value)
    comparison = compare_runs(base, new)
    found = [check_comparable(comparison, force=False)]
    if found[0].state is not State.UNKNOWN:
        found = [replace(found[0], required=False)]
        found += _judged(comparison, run, new.setup, (), one_look=State.UNKNOWN)
    return found


def with_findings(judgement: Judgement, found: Sequence[Finding]) -> Judgement:
    """The judgement with more findings, and the verdict that follows from all of them."""
    findings = _sorted(settled([*judgement.findings, *found]))
    verdict = verdict_of(findings)
    return replace(
        judgement, verdict=verdict, sentence=sentence_of(verdict, findings, judgement.facts), findings=findings
    )


def without_baseline(setup: Setup, *, required: bool) -> ComparisonJudgement:
    """What is said where nothing was saved yet: no verdict, which is an error only where a baseline is required."""
    found = no_baseline(required=required)
    return ComparisonJudgement(Verdict.INCONCLUSIVE, found.message, (found,), None, setup)


def no_baseline(*, required: bool) -> Finding:
    """history: a node that has none yet is told so; where one is required there is no verdict."""
    return Finding(
        ID,
        State.UNKNOWN if required else State.INFO,
        "no baseline is saved for these devices and this work",
        next_step="gpubalance baseline save RUN",
        required=required,
    )


def unreadable_baseline(reason: str) -> Finding:
    """history: a baseline that is there and cannot be read leaves no verdict; what was measured is kept."""
    text, step = "the baseline cannot be read", "gpubalance baseline forget, and save it anew"
    return Finding(ID, State.UNKNOWN, text, evidence=(reason,), next_step=step, required=True)


def _judged(comparison: Comparison, run: Run, setup: Setup, rules: Sequence[Rule], *, one_look: State) -> list[Finding]:
    warn, fail = margins_of(run)
    history = check_history(comparison, run, setup, warn, fail, one_look=one_look)
    by_others = {rule.metric for rule in rules}
    if any(finding.state is not State.SKIP for finding in history):
        by_others.add("compute")
    changes = check_changes(comparison, setup, warn + EXTRA_MARGIN, by_others)
    return [*check_rules(comparison, setup, rules), *history, *changes]


def _concluded(found: Iterable[Finding], comparison: Comparison, setup: Setup) -> ComparisonJudgement:
    findings = _sorted(found)
    verdict = verdict_of(findings)
    state = {Verdict.FAIL: State.FAIL, Verdict.INCONCLUSIVE: State.UNKNOWN, Verdict.WARN: State.WARN}.get(verdict)
    worst = [finding.message for finding in findings if finding.state is state]
    calm = f"nothing that was judged got worse: {counted(len(comparison.changes), 'value')} compared"
    return ComparisonJudgement(verdict, worst[0] if worst else calm, findings, comparison, setup)


def _sorted(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda finding: (_ORDER.index(finding.state), not finding.required)))


def check_comparable(comparison: Comparison, *, force: bool) -> Finding:
    """comparable: same kind and number of devices, model, batch and backend, and at least one number on both sides.
    Other differences are told and block nothing: a new driver is what people compare.
    """
    told = tuple(f"{d.what}: {d.base} -> {d.new}" for d in comparison.differences)
    names = ", ".join(difference.what for difference in comparison.blocking)
    if comparison.blocking and not force:
        return Finding(
            "comparable",
            State.UNKNOWN,
            f"not comparable: different {names}",
            observed=comparison.blocking[0].new,
            expected=comparison.blocking[0].base,
            evidence=told,
            next_step="compare runs of the same work on the same kind of devices, or give --force",
            required=True,
        )
    if not comparison.changes:
        step = "run both with the same --workload"
        text = "the two sides have no measured value in common"
        return Finding("comparable", State.UNKNOWN, text, evidence=told, next_step=step, required=True)
    if comparison.blocking:
        text, step = f"compared by force in spite of different {names}", "trust none of these numbers by themselves"
        return Finding("comparable", State.WARN, text, evidence=told, next_step=step, required=True)
    whose = "the same devices" if comparison.same_devices else "other devices of the same kind"
    return Finding("comparable", State.PASS, f"comparable: {whose}, the same work", evidence=told, required=True)


def check_history(
    comparison: Comparison, run: Run, setup: Setup, warn: float, fail: float, *, one_look: State
) -> list[Finding]:
    """history: no device is slower than it used to be. Warns and fails above the margins of the straggler test and 2 %,
    by the same sign test over blocks. It fails only when a second pass in fresh processes shows it too; seen in the
    only pass there is, its state is `one_look`.
    """
    if not comparison.same_devices or comparison.blocking:
        return [Finding(ID, State.SKIP, "other devices or other work: BASE is not their history")]
    earlier = {c.device: c.base for c in comparison.changes if c.metric == "compute" and c.device is not None}
    attempts = history_of(run, earlier, warn, fail)
    if not attempts or not attempts[0].ranks:
        return [Finding(ID, State.SKIP, "no compute times on both sides: history was not looked at")]
    first, again = attempts[0], attempts[1] if len(attempts) > 1 else None
    slow = [own for own in first.ranks if own.state in ("fail", "warn")]
    if slow:
        return [_slow(comparison, run, setup, first, again, own, one_look) for own in slow]
    if any(own.state == "unclear" for own in first.ranks) or len(first.ranks) < len(run.plan.devices):
        return [_unclear(first)]
    text = f"no device is slower than it used to be by {percent(first.fail)}"
    return [Finding(ID, State.PASS, text, required=True)]


def _slow(
    comparison: Comparison,
    run: Run,
    setup: Setup,
    first: AttemptHistory,
    again: AttemptHistory | None,
    own: OwnSpeed,
    one_look: State,
) -> Finding:
    state, seen, whose = State.WARN, "", place_of(setup, own.device, None)
    if own.state == "fail":
        state, seen = _confirmed(again, own, one_look)
        whose = f"rank {own.rank}" if seen == SAME_RANK else whose
    over, margin = (own.blocks_over_fail, first.fail) if own.state == "fail" else (own.blocks_over_warn, first.warn)
    runs = counted(comparison.runs, "earlier run")
    evidence = [
        f"over {percent(margin)} in {over} of {first.blocks} blocks ({first.needed} needed)",
        seen,
        *(f"{d.what} since then: {d.base} -> {d.new}" for d in comparison.differences),
    ]
    return Finding(
        ID,
        state,
        f"{whose} is {percent(own.ratio - 1)} slower than it used to be",
        subject=label_of(setup, own.device),
        observed=f"{own.ratio:.3f} x the compute time of {runs}",
        expected=f"at most {1 + first.warn:.2f} x (fails above {1 + first.fail:.2f} x)",
        evidence=tuple(filter(None, evidence)),
        next_step=_next_step(run, state),
        required=True,
    )


def _next_step(run: Run, state: State) -> str:
    if run.injected:
        return INJECTED
    if state is State.UNKNOWN:
        return "run again, then gpubalance compare with --fail-on compute:10% on both runs"
    return "look at the clocks, temperature and power limit of that device, and at what changed since then"


def _confirmed(again: AttemptHistory | None, own: OwnSpeed, one_look: State) -> tuple[State, str]:
    """Ranks are rotated in the second pass: what follows the device or the rank is seen again."""
    if again is None:
        return one_look, "seen in the only pass there is: not confirmed"
    failed = [other for other in again.ranks if other.state == "fail"]
    if any(other.device == own.device for other in failed):
        return State.FAIL, "seen again in a second pass, on the same device"
    if any(other.rank == own.rank for other in failed):
        return State.FAIL, SAME_RANK
    return State.UNKNOWN, "the second pass did not show it: not confirmed"


def _unclear(first: AttemptHistory) -> Finding:
    text = "too noisy to tell whether a device is slower than it used to be"
    if first.needed is None:
        text = f"only {first.blocks} blocks: too few to hold against history"
    step = "run again with more time, for example --budget 2m"
    return Finding(ID, State.UNKNOWN, text, next_step=step, required=True)
