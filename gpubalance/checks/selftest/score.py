"""What was seen in a pass against what was played in it, after both are known."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubalance.checks.finding import listed
from gpubalance.checks.selftest.look import Named, Seen
from gpubalance.checks.selftest.rows import HEALTHY, RowKind, expected_class, kind_of
from gpubalance.record.selftest import Played


@dataclass(frozen=True)
class Loss:
    """Share of the step rate that a fault cost; the healthy passes beside it are what it is held against."""

    predicted: float | None
    """1 - T_h / (T_h + M_c - M_h): by the growth of the slowest rank's compute."""
    measured: float | None
    """1 - T_h / T_c: by the real, overlapped step."""

    @property
    def difference(self) -> float | None:
        """Predicted less measured, as a share."""
        return None if self.predicted is None or self.measured is None else self.predicted - self.measured


@dataclass(frozen=True)
class Outcome:
    """One pass: what was played, what was named, and whether that is right."""

    number: int
    row: str
    title: str
    ranks: tuple[int, ...]
    expected: str | None
    """Class that must be named; None: nobody may be."""
    again: bool
    named: tuple[Named, ...]
    state: str
    right: bool
    reason: str | None
    """What is wrong."""
    rank_right: bool
    """Every rank that was played on is named, and nobody else, whatever the class."""
    others_named: tuple[int, ...]
    """Ranks that are named although nothing was played on them."""
    majority_slow: int
    loss: Loss
    communication_bound: bool


def outcomes_of(played: Sequence[Played], seen: Mapping[int, Seen], warn: float) -> tuple[Outcome, ...]:
    """Outcomes of all passes that were measured, in order. `warn` is the margin (share) that names somebody."""
    return tuple(
        _outcome(each, seen[each.number], _loss(each, played, seen), warn) for each in played if each.number in seen
    )


def _outcome(played: Played, seen: Seen, loss: Loss, warn: float) -> Outcome:
    kind = kind_of(played.row)
    assert kind is not None
    ranks = set(played.ranks) if kind.names_somebody else set()
    reason = _wrong(kind, ranks, seen, loss, warn)
    strangers = tuple(sorted({each.rank for each in seen.named} - ranks))
    named = {each.rank for each in seen.named}
    return Outcome(
        number=played.number,
        row=played.row,
        title=played.title,
        ranks=tuple(played.ranks),
        expected=expected_class(kind),
        again=played.again,
        named=seen.named,
        state=seen.state,
        right=reason is None,
        reason=reason,
        rank_right=named == ranks or (kind.expected == "each" and _as_majority(ranks, seen)),
        others_named=strangers,
        majority_slow=seen.majority_slow,
        loss=loss,
        communication_bound=seen.communication_bound,
    )


def _as_majority(ranks: set[int], seen: Seen) -> bool:
    """Where most ranks are slow, saying how many are is as right as naming each."""
    return seen.majority_slow == len(ranks) and all(each.rank in ranks for each in seen.named)


def _wrong(kind: RowKind, ranks: set[int], seen: Seen, loss: Loss, warn: float) -> str | None:
    """Why the row is not right, in words; None when it is."""
    strangers = sorted({each.rank for each in seen.named} - ranks)
    if strangers:
        return f"named rank {listed(strangers)}, on which nothing was played"
    if kind.expected == "each" and _as_majority(ranks, seen):
        return None
    if seen.majority_slow:
        return f"said that most ranks are slow ({seen.majority_slow})"
    if not kind.names_somebody:
        return _not_even(kind, seen, loss, warn)
    missed = sorted(ranks - {each.rank for each in seen.named})
    if missed:
        noisy = " (too noisy to tell)" if seen.state == "unclear" else ""
        return f"did not name rank {listed(missed)}{noisy}"
    return _wrong_class(kind, seen)


def _wrong_class(kind: RowKind, seen: Seen) -> str | None:
    """Each rank must be named for what was played, and for nothing else."""
    other = sorted({_class_for(kind, each) for each in seen.named} - {expected_class(kind)})
    if not other:
        return None
    return "named no cause" if other == ["unattributed"] else f"named another class: {', '.join(other)}"


def _class_for(kind: RowKind, named: Named) -> str:
    """Slowness now and then has a cause as well, and for all rows but its own the cause is what counts."""
    if named.how == "intermittent" and kind.expected == "slow" and named.cause is not None:
        return named.cause
    if named.how == kind.expected == "intermittent" and named.cause not in (None, kind.played):
        return named.cause or named.how
    return named.named_class


def _not_even(kind: RowKind, seen: Seen, loss: Loss, warn: float) -> str | None:
    """All slow: the score cannot see it, but the rate must."""
    if kind.expected != "even":
        return None
    if seen.score < 100 * (1 - warn):
        return f"balance {seen.score:.1f} although all ranks are alike"
    if loss.measured is None or loss.measured <= warn:
        return "the step rate did not drop"
    return None


def _loss(played: Played, all_played: Sequence[Played], seen: Mapping[int, Seen]) -> Loss:
    """Against the nearest healthy pass on each side of the same crew."""
    changed = seen[played.number]
    beside = [seen[number] for number in _beside(played, all_played) if number in seen]
    steps = [each.step_ms for each in beside if each.step_ms is not None]
    if played.row == HEALTHY or not steps or len(steps) < len(beside):
        return Loss(None, None)
    healthy_ms = statistics.fmean(steps)
    growth = changed.slowest_ms - statistics.fmean(each.slowest_ms for each in beside)
    grown_ms = healthy_ms + growth
    return Loss(
        predicted=1 - healthy_ms / grown_ms if grown_ms > 0 else None,
        measured=1 - healthy_ms / changed.step_ms if changed.step_ms else None,
    )


def _beside(played: Played, all_played: Sequence[Played]) -> list[int]:
    """Numbers of the nearest healthy pass before and after."""
    healthy = [each.number for each in all_played if each.row == HEALTHY and each.again == played.again]
    before = [number for number in healthy if number < played.number]
    after = [number for number in healthy if number > played.number]
    return [*before[-1:], *after[:1]]
