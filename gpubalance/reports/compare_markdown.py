"""A comparison as GitHub's markdown: verdict, both sides, findings, and what was measured side by side. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gpubalance.analysis.compare import MORE_IS_BETTER, Change
from gpubalance.checks.compare import ComparisonJudgement
from gpubalance.checks.compare_rules import TITLES, UNITS
from gpubalance.checks.foreign import ForeignJudgement
from gpubalance.reports.compare_report import change_cells, side_lines
from gpubalance.reports.foreign_report import foreign_sides, foreign_tables, left_out
from gpubalance.reports.markdown import comment, escaped
from gpubalance.reports.table import Column, Table, words


def compare_markdown(judgement: ComparisonJudgement, base: str, new: str) -> str:
    """A run against earlier ones."""
    comparison = judgement.comparison
    about = _about(side_lines(comparison, base, new))
    tables = _tables(judgement) if comparison is not None else []
    return comment(judgement.verdict, judgement.sentence, about, judgement.findings, tables)


def foreign_markdown(judgement: ForeignJudgement, base: str, new: str) -> str:
    """A run beside a log of another tool."""
    about = _about([*foreign_sides(judgement, base, new), *left_out(judgement.comparison)])
    tables = foreign_tables(judgement.comparison)
    return comment(judgement.verdict, judgement.sentence, about, judgement.findings, tables)


def _about(lines: Iterable[str]) -> list[str]:
    return ["<br>".join(escaped(line.strip()) for line in lines)]


def _tables(judgement: ComparisonJudgement) -> list[Table]:
    assert judgement.comparison is not None
    by_metric: dict[str, list[Change]] = defaultdict(list)
    for change in judgement.comparison.changes:
        by_metric[change.metric].append(change)
    columns = (*words("of"), *map(Column, ("base", "new", "change", "interval")), *words("real"))
    return [
        Table(
            f"{metric}: {TITLES[metric]}, {UNITS[metric]}",
            columns,
            tuple(change_cells(change, judgement.setup) for change in by_metric[metric]),
        )
        for metric in filter(by_metric.__contains__, MORE_IS_BETTER)
    ]
