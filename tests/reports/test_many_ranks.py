"""Reports of many ranks stay readable, and say what they leave out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpubalance.analysis.facts import AttemptFacts
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.verdict import Judgement, judge
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.reports.fold import WIDTH
from gpubalance.reports.formats import FORMATS, write
from gpubalance.reports.many_ranks import others_line, worst_ranks
from gpubalance.reports.terminal import report_lines
from gpubalance.testing.runs import make_attempt, make_run, steady


def first_of(judgement: Judgement) -> AttemptFacts:
    assert judgement.facts.first is not None
    return judgement.facts.first


def run_of(ranks: int, slow: dict[int, float]) -> Run:
    """Ranks at 100 ms, some slower; every step of a rank takes the same time."""
    times = np.full(ranks, 100.0)
    times[list(slow)] = list(slow.values())
    return make_run([make_attempt(steady(list(times), steps=5))])


def test_few_ranks_are_all_shown() -> None:
    first = first_of(judge(run_of(8, {3: 120.0})))
    assert worst_ranks(first, 8) == list(range(8))
    assert others_line(first, range(8)) == []


def test_of_many_ranks_the_slow_ones_are_shown_in_the_order_of_their_numbers() -> None:
    first = first_of(judge(run_of(40, {31: 120.0, 7: 130.0, 20: 107.0})))
    assert worst_ranks(first, 3) == [7, 20, 31]
    assert worst_ranks(first, 2) == [7, 31]


def test_what_is_not_shown_is_summed_up() -> None:
    """Rank 7 waits for nobody, rank 31 for 10 ms and the others for 30; blame is 10 + 20 / 2 and 20 / 2 ms."""
    first = first_of(judge(run_of(40, {31: 120.0, 7: 130.0})))
    line = "39 other ranks, 1 of them slow for sure: compute 100.00 to 120.00 ms, wait 10.00 to 30.00 ms, "
    assert others_line(first, [7]) == [f"{line}blame 0.00 to 10.00 ms"]


@pytest.mark.parametrize(("ranks", "rows"), [(16, 16), (64, 16), (2000, 16)])
def test_the_terminal_shows_a_screenful_of_ranks_and_counts_the_others(ranks: int, rows: int) -> None:
    run = run_of(ranks, {3: 120.0})
    lines = [line.text for line in report_lines(run, judge(run), None)]
    assert sum(line.startswith("rank ") and " is cuda:" in line for line in lines) == rows
    assert any(line.startswith("rank 3 is cuda:3") for line in lines)
    assert (f"{ranks - rows} other ranks: compute 100.00 to 100.00 ms" in "\n".join(lines)) == (ranks > rows)
    assert len(lines) < 80
    assert max(map(len, lines)) <= WIDTH


def test_thousands_of_findings_are_counted_on_the_terminal() -> None:
    run = run_of(4, {})
    judgement = judge(run)
    found = [Finding("slowdown", State.FAIL if n < 50 else State.WARN, f"device {n} is hot") for n in range(3000)]
    crowded = Judgement(judgement.verdict, judgement.sentence, tuple(found), judgement.facts)
    lines = [line.text for line in report_lines(run, crowded, None)]
    assert sum("is hot" in line for line in lines) == 40
    assert "      and more findings: 10 fail, 2950 warn (all: report --to html)" in lines


def test_every_format_takes_two_thousand_ranks() -> None:
    run = run_of(2000, {3: 120.0})
    judgement = judge(run)
    for name in FORMATS:
        assert "rank 3" in write(name, run, judgement) or name == "prometheus", name
    facts = json.loads(document_text(run, judgement))["judgement"]["facts"]
    assert len(facts["attempts"][0]["compute_ms"]) == 2000
