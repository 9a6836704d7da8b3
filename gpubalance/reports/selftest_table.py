"""The table of a selftest: a line a row where it was played once, else a line for all its passes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from gpubalance.checks.selftest.look import Named
from gpubalance.checks.selftest.rows import HEALTHY, WORDS, kind_of
from gpubalance.checks.selftest.score import Outcome
from gpubalance.checks.selftest.verdict import SelftestJudgement
from gpubalance.reports.table import NONE, Column, Table, number

HEADINGS = (
    ("injected", "expected", "named", "class", "loss %", "", ""),
    ("", "", "rank", "", "pred.", "meas.", ""),
)
LISTED = 2
"""More ranks than these are counted."""


def table_of(judgement: SelftestJudgement) -> Table:
    """For formats with real tables."""
    names = ("injected", "expected", "named rank", "named class")
    columns = (
        *(Column(name, words=True) for name in names),
        Column("predicted loss", "%"),
        Column("measured loss", "%"),
        Column("result", words=True),
    )
    return Table("What was played and what was named", columns, tuple(cells(judgement)))


def cells(judgement: SelftestJudgement) -> list[tuple[str, ...]]:
    """All lines, second looks below first ones."""
    rows: list[tuple[str, ...]] = []
    for row in judgement.rows:
        outcomes = [outcome for outcome in judgement.outcomes if outcome.row == row.row]
        first = [outcome for outcome in outcomes if not outcome.again]
        if first:
            rows.append(
                _together(row.title, first) if len(first) > 1 or row.row == HEALTHY else _line(first[0], row.title)
            )
        again = [outcome for outcome in outcomes if outcome.again] if row.looked_again else []
        if row.row == HEALTHY and again:
            rows.append(_together("  once more", again))
        else:
            rows += [_line(outcome, "  once more") for outcome in again]
    return rows


def _line(outcome: Outcome, title: str) -> tuple[str, ...]:
    return (
        title,
        _expected(outcome),
        _ranks(outcome),
        _classes(outcome),
        number(outcome.loss.predicted, 1, 100),
        number(outcome.loss.measured, 1, 100),
        "right" if outcome.right else "wrong",
    )


def _together(title: str, first: Sequence[Outcome]) -> tuple[str, ...]:
    """How many passes named the right rank and the right class; losses are medians."""
    count = len(first)
    named = sum(outcome.rank_right for outcome in first) if first[0].expected else sum(bool(o.named) for o in first)
    right = sum(outcome.right for outcome in first)
    return (
        f"{title} x {count}",
        _expected(first[0], many=True),
        f"{named}/{count}" if first[0].expected or named else "nobody",
        f"{right}/{count}" if first[0].expected else NONE,
        _median(outcome.loss.predicted for outcome in first),
        _median(outcome.loss.measured for outcome in first),
        "right" if right == count else f"{count - right} wrong",
    )


def _median(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(statistics.median(known) if known else None, 1, 100)


def _expected(outcome: Outcome, *, many: bool = False) -> str:
    kind = kind_of(outcome.row)
    if outcome.expected is None:
        return "nobody, slower" if kind is not None and kind.expected == "even" else "nobody"
    word = WORDS.get(outcome.expected, outcome.expected)
    if kind is not None and kind.expected == "each":
        return f"each {word}"
    return word if many else f"{outcome.ranks[0]} {word}"


def _ranks(outcome: Outcome) -> str:
    ranks = sorted({named.rank for named in outcome.named})
    if len(ranks) > LISTED:
        return f"{len(ranks)} ranks"
    if ranks:
        return ",".join(map(str, ranks))
    if outcome.majority_slow:
        return f"{outcome.majority_slow} ranks"
    return "unclear" if outcome.state == "unclear" else "nobody"


def _classes(outcome: Outcome) -> str:
    """The class, where there is one."""
    found = list(dict.fromkeys(_word(outcome, named) for named in outcome.named))
    if not found:
        return WORDS["majority"] if outcome.majority_slow else NONE
    return found[0] if len(found) == 1 else "several"


def _word(outcome: Outcome, named: Named) -> str:
    """Where a cause was expected, slowness now and then shows its cause."""
    intermittent = named.how == "intermittent" and outcome.expected != "intermittent"
    name = named.cause if intermittent and named.cause is not None else named.named_class
    return WORDS.get(name, name)
