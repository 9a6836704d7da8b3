"""`gpubalance compare` and `gpubalance baseline`: find the earlier runs, hold the new one against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubalance.analysis.compare import compare_runs
from gpubalance.analysis.foreign import compare_foreign
from gpubalance.analysis.snapshot import saved_run_of, setup_of
from gpubalance.checks.against import saved_findings
from gpubalance.checks.compare import (
    ComparisonJudgement,
    check_history,
    findings_against,
    judge_comparison,
    no_baseline,
    unreadable_baseline,
    without_baseline,
)
from gpubalance.checks.compare_rules import Rule
from gpubalance.checks.finding import State
from gpubalance.checks.foreign import ForeignJudgement, judge_foreign
from gpubalance.checks.verdict import Judgement, Verdict, judge, margins_of
from gpubalance.errors import UsageError
from gpubalance.record.against import Against
from gpubalance.record.baselines import DEFAULT_NAME, SavedRun, checked_name, key_of, load_baseline, save_baseline
from gpubalance.record.file import load_run
from gpubalance.record.foreign import Foreign
from gpubalance.record.history import end_of, state_home
from gpubalance.record.run import Run
from gpubalance.session.foreign import load_side

AUTO = "auto"
NO_HOME = "there is no folder to keep baselines in: neither XDG_STATE_HOME nor HOME is set"


@dataclass(frozen=True)
class Earlier:
    """What a run is held against: the runs, and where they come from in words."""

    runs: tuple[SavedRun, ...]
    label: str


@dataclass(frozen=True)
class Saved:
    """One run that became part of a baseline."""

    run_id: str
    key: str
    name: str
    runs: int
    """How many runs the baseline has now."""
    verdict: Verdict


def compare(
    base: str,
    new: Path,
    rules: Sequence[Rule],
    environment: Mapping[str, str],
    *,
    force: bool = False,
    require_baseline: bool = False,
) -> tuple[ComparisonJudgement | ForeignJudgement, str]:
    """Hold a saved run against another one, against the baseline of its devices (`auto`, `auto:NAME`), or against a
    log of another tool; the log may be either side. Second: what BASE is, in words. Raises UsageError for a file that
    is neither.
    """
    run = load_side(new)
    if isinstance(run, Foreign):
        return _beside(_run_for(base, run, new), run, rules, log_is_base=False, force=force), base
    other = load_side(Path(base)) if _name_of(base) is None else None
    if isinstance(other, Foreign):
        return _beside(run, other, rules, log_is_base=True, force=force), base
    if any(rule.metric == "p2p" for rule in rules):
        raise UsageError("--fail-on p2p: peer copies are compared with nvbandwidth only", "leave it out")
    earlier = Earlier((_snapshot(other),), base) if other is not None else earlier_runs(base, run, environment)
    if not earlier.runs:
        return without_baseline(setup_of(run), required=require_baseline), earlier.label
    return judge_comparison(earlier.runs, run, judge(run), rules, force=force), earlier.label


def _beside(run: Run, log: Foreign, rules: Sequence[Rule], *, log_is_base: bool, force: bool) -> ForeignJudgement:
    return judge_foreign(compare_foreign(run, log), run, rules, log_is_base=log_is_base, force=force)


def _run_for(base: str, log: Foreign, new: Path) -> Run:
    """The run that a log is held against: it must be a file."""
    if _name_of(base) is not None:
        raise UsageError(f"{new} is a log of {log.tool}: a baseline is for runs", "name a saved run as BASE")
    run = load_side(Path(base))
    if isinstance(run, Foreign):
        raise UsageError(f"both sides are logs ({run.tool} and {log.tool})", "one side must be a saved run")
    return run


def against_baseline(
    base: str, run: Run, judgement: Judgement, environment: Mapping[str, str], *, required: bool = False
) -> Run:
    """A run that has just ended, and in its record what its baseline adds, which `judge` takes up. Raises nothing: what
    was measured is worth more than a baseline that cannot be read.
    """
    try:
        earlier = earlier_runs(base, run, environment)
    except UsageError as error:
        earlier, found = Earlier((), base), [unreadable_baseline(error.message)]
    else:
        found = findings_against(run, judgement, earlier.runs) if earlier.runs else [no_baseline(required=required)]
    against = Against(
        base=base,
        label=earlier.label,
        judged_at=end_of(run.started_at, run.duration_s),
        runs=[each.run_id for each in earlier.runs],
        findings=saved_findings(found),
    )
    return run.model_copy(update={"against": against})


def slower_than_before(base: str, run: Run, environment: Mapping[str, str]) -> bool:
    """Whether the first pass of a run shows a device so much slower than its baseline that a second one has to confirm
    it. Without a baseline that can be read there is nothing to confirm; `against_baseline` tells why.
    """
    try:
        earlier = earlier_runs(base, run, environment)
    except UsageError:
        return False
    return bool(earlier.runs) and _fails_if_confirmed(earlier.runs, run)


def _fails_if_confirmed(base: Sequence[SavedRun], run: Run) -> bool:
    """By the rule that judges the whole run, which takes one pass for enough when it is told so."""
    new = _snapshot(run)
    warn, fail = margins_of(run)
    found = check_history(compare_runs(base, new), run, new.setup, warn, fail, one_look=State.FAIL)
    return any(finding.state is State.FAIL for finding in found)


def check_base(base: str) -> None:
    """Raise UsageError for a base that cannot be used, before anything is measured in vain."""
    if _name_of(base) is None:
        load_run(Path(base))


def earlier_runs(base: str, run: Run, environment: Mapping[str, str]) -> Earlier:
    """The run in a file, or all that were saved for the devices and the work of this run."""
    name = _name_of(base)
    if name is None:
        return Earlier((_snapshot(load_run(Path(base))),), base)
    home = state_home(environment)
    runs = load_baseline(home, key_of(setup_of(run)), name).runs if home is not None else ()
    return Earlier(runs, f"baseline {name}")


def save_runs(paths: Sequence[Path], name: str, environment: Mapping[str, str]) -> list[Saved]:
    """Make these runs part of the baselines of their devices: all of them, or none when one cannot be used. Raises
    UsageError that says why, CannotMeasureError when nothing can be written.
    """
    home = state_home(environment)
    if home is None:
        raise UsageError(NO_HOME, "set XDG_STATE_HOME to a folder that stays")
    checked_name(name)
    snapshots = [_usable(path) for path in paths]
    saved = []
    for snapshot in snapshots:
        save_baseline(home, name, snapshot)
        key = key_of(snapshot.setup)
        count = len(load_baseline(home, key, name).runs)
        saved.append(Saved(snapshot.run_id, key, name, count, Verdict(snapshot.verdict)))
    return saved


def _name_of(base: str) -> str | None:
    """The name of a baseline; None when `base` is a file."""
    word, colon, name = base.partition(":")
    if word != AUTO:
        return None
    return checked_name(name) if colon else DEFAULT_NAME


def _snapshot(run: Run) -> SavedRun:
    """By itself: whatever it was held against is no part of how it is."""
    judgement = judge(run.model_copy(update={"against": None}))
    return saved_run_of(run, judgement.facts, judgement.verdict.value)


def _usable(path: Path) -> SavedRun:
    """What a run must be to stand for how this node is when nothing is wrong."""
    run = load_run(path)
    if run.injected:
        raise UsageError(f"{path} is no baseline: a fault was injected ({', '.join(run.injected)})")
    if run.interrupted_by is not None:
        raise UsageError(f"{path} is no baseline: signal {run.interrupted_by} ended it before its time")
    if run.plan.backend == "nccl" and any(device.uuid is None for device in run.plan.devices):
        raise UsageError(f"{path} is no baseline: a device has no UUID to know it by")
    snapshot = _snapshot(run)
    if snapshot.verdict == Verdict.INCONCLUSIVE.value:
        raise UsageError(f"{path} is no baseline: it has no verdict", "gpubalance report tells why")
    if not snapshot.facts:
        raise UsageError(f"{path} is no baseline: it measured nothing")
    return snapshot
