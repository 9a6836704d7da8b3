"""The verdict of a selftest: right in every row that could be played, or not, or no verdict.

Rates count first looks only; whether a row is right in the end counts its second look as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpubalance.analysis.exact import CONFIDENCE, upper_bound
from gpubalance.checks.selftest.look import Seen, look
from gpubalance.checks.selftest.rows import HEALTHY, UNATTRIBUTED
from gpubalance.checks.selftest.score import Outcome, outcomes_of
from gpubalance.checks.verdict import RULES_VERSION, Verdict, margins_of
from gpubalance.record.run import RunError
from gpubalance.record.selftest import Played, Selftest


@dataclass(frozen=True)
class Rate:
    """So many of so many, and the exact bound of the share behind it."""

    count: int
    trials: int
    at_most: float
    """Upper bound, one-sided."""
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class RowResult:
    """All passes of one row together."""

    row: str
    title: str
    passes: int
    right_at_once: int
    right: bool
    """In the end: each pass right at once, or at a second look of its own."""
    looked_again: bool


@dataclass(frozen=True)
class SelftestJudgement:
    """A verdict and everything it rests on."""

    verdict: Verdict
    sentence: str
    rows: tuple[RowResult, ...]
    outcomes: tuple[Outcome, ...]
    false_alarms: Rate
    """Healthy passes in which somebody is named."""
    others_named: Rate
    """Ranks that are named while something was played on others, or on all alike."""
    missed: Rate
    """Passes whose rank, or one of whose ranks, is not named."""
    wrong_class: Rate
    """Passes with the right rank and a class that was not played; no class at all is not a wrong one."""
    no_class: int
    """Passes with the right rank and no cause."""
    largest_difference: float | None
    """Between predicted and measured loss, as a share, over passes that are not communication-bound."""
    first_cause_s: float | None
    """From the begin of the first pass to its end, after which a cause is known."""
    unclear: int
    """Healthy passes without a verdict: too noisy."""
    void: int = 0
    """Passes whose times mean nothing."""
    rules_version: int = RULES_VERSION


def judge_selftest(record: Selftest) -> SelftestJudgement:
    """Look at each pass without what was played, then compare."""
    seen = {each.number: found for each in record.passes if (found := look(record.run_of(each))) is not None}
    warn = margins_of(record.run_of(record.passes[0]))[0] if record.passes else 0.0
    outcomes = outcomes_of(record.played, seen, warn)
    rows = rows_of(outcomes)
    first = [outcome for outcome in outcomes if not outcome.again]
    void = [each.void for each in seen.values() if each.void is not None]
    verdict, sentence = _verdict(record, rows, outcomes, void)
    return SelftestJudgement(
        verdict=verdict,
        sentence=sentence,
        rows=rows,
        outcomes=outcomes,
        false_alarms=_rate(bool(each.named) or each.majority_slow > 0 for each in first if each.row == HEALTHY),
        others_named=_others(record, first),
        missed=_rate(_missing(each) and not each.rank_right for each in first if each.expected),
        wrong_class=_rate(_wrong_class(each) for each in first if each.expected and each.rank_right),
        no_class=sum(each.rank_right and _no_class(each) for each in first if each.expected),
        largest_difference=_largest(first),
        first_cause_s=_first_cause_s(seen),
        void=len(void),
        unclear=sum(each.state == "unclear" for each in first if each.row == HEALTHY),
    )


def rows_of(outcomes: Sequence[Outcome]) -> tuple[RowResult, ...]:
    """Rows in the order in which they were played first."""
    names = dict.fromkeys(each.row for each in outcomes)
    return tuple(_row([each for each in outcomes if each.row == name]) for name in names)


def _row(outcomes: Sequence[Outcome]) -> RowResult:
    first = [each for each in outcomes if not each.again]
    again = [each for each in outcomes if each.again]
    right_at_once = sum(each.right for each in first)
    all_right = right_at_once == len(first)
    return RowResult(
        row=outcomes[0].row,
        title=outcomes[0].title,
        passes=len(first),
        right_at_once=right_at_once,
        right=all_right or (len(again) >= len(first) - right_at_once and all(each.right for each in again)),
        looked_again=bool(again) and not all_right,
    )


def wrong_passes(record: Selftest) -> tuple[Played, ...]:
    """What deserves a second look: every pass that came out wrong; none where times mean nothing."""
    judgement = judge_selftest(record)
    outcomes = () if judgement.void else judgement.outcomes
    wrong = {outcome.number for outcome in outcomes if not outcome.right and not outcome.again}
    return tuple(played for played in record.played if played.number in wrong)


def _verdict(
    record: Selftest, rows: Sequence[RowResult], outcomes: Sequence[Outcome], void: Sequence[str]
) -> tuple[Verdict, str]:
    unfinished = _unfinished(record)
    if unfinished is not None:
        return Verdict.INCONCLUSIVE, unfinished
    if void:
        return Verdict.INCONCLUSIVE, f"times of {len(void)} of {len(record.passes)} passes mean nothing: {void[0]}"
    faults = [row for row in rows if row.row != HEALTHY]
    if not faults:
        return Verdict.INCONCLUSIVE, _nothing(record)
    wrong = [row for row in rows if not row.right]
    calm = _calm([each for each in outcomes if each.row == HEALTHY and not each.again])
    if not wrong:
        what = "the fault" if len(faults) == 1 else f"all {len(faults)} faults"
        again = sum(row.looked_again for row in rows)
        second = f" ({again} only at the second look)" if again else ""
        return Verdict.PASS, f"{what} played here {'was' if len(faults) == 1 else 'were'} named rightly{second}, {calm}"
    first = next(each for each in reversed(outcomes) if each.row == wrong[0].row and not each.right)
    return Verdict.FAIL, f"{len(wrong)} of {len(rows)} rows are wrong; {first.title}: {first.reason}"


def _calm(healthy: Sequence[Outcome]) -> str:
    """What the healthy passes showed at the first look, in words."""
    unclear = sum(each.state == "unclear" for each in healthy)
    clear = len(healthy) - unclear
    named = sum(not each.right for each in healthy)
    noisy = f" ({unclear} more too noisy to tell)" if unclear else ""
    if named:
        return f"somebody in {named} of {clear} healthy passes, not at the second look{noisy}"
    return f"nobody in {clear} healthy {'pass' if clear == 1 else 'passes'}{noisy}"


def _unfinished(record: Selftest) -> str | None:
    """Why there is no verdict although something was measured."""
    if record.interrupted_by is not None:
        return f"interrupted by signal {record.interrupted_by}: what was measured until then is kept"
    leading = next((error for error in record.errors if error.first_cause), None) or next(iter(record.errors), None)
    if leading is not None:
        return _error_text(leading)
    missing = len(record.played) - len(record.passes)
    return f"{missing} of {len(record.played)} passes were not finished" if missing > 0 else None


def _error_text(error: RunError) -> str:
    who = f"rank {error.rank} " if error.rank is not None else ""
    verb = "failed: " if error.kind in ("exception", "out_of_memory") else ""
    where = f" in phase {error.phase}" if error.phase else ""
    return f"{who}{verb}{error.message}{where}"


def _nothing(record: Selftest) -> str:
    if len(record.plan.devices) < 2:
        return "one device: it has no peers that a rank could be slower than, so no fault can be played"
    return "no fault was played: none of the rows that were asked for can be played here"


def _rate(failures: Iterable[bool]) -> Rate:
    found = list(failures)
    return _counted(sum(found), len(found))


def _counted(count: int, trials: int) -> Rate:
    return Rate(count, trials, upper_bound(count, trials))


def _others(record: Selftest, first: Sequence[Outcome]) -> Rate:
    """Each rank that a fault was not played on, or that it was played on as on all others, is a trial."""
    faults = [each for each in first if each.row != HEALTHY]
    ranks = len(record.plan.devices)
    trials = sum(ranks - (len(each.ranks) if each.expected else 0) for each in faults)
    return _counted(sum(len(each.others_named) for each in faults), trials)


def _missing(outcome: Outcome) -> bool:
    return not set(outcome.ranks) <= {each.rank for each in outcome.named}


def _wrong_class(outcome: Outcome) -> bool:
    return not outcome.right and not _no_class(outcome)


def _no_class(outcome: Outcome) -> bool:
    return not outcome.right and {each.named_class for each in outcome.named} <= {outcome.expected, UNATTRIBUTED}


def _largest(first: Sequence[Outcome]) -> float | None:
    differences = [
        abs(each.loss.difference) for each in first if each.loss.difference is not None and not each.communication_bound
    ]
    return max(differences, default=None)


def _first_cause_s(seen: dict[int, Seen]) -> float | None:
    times = [seen[number].cause_s for number in sorted(seen)]
    return times[0] if times else None
