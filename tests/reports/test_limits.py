"""What a run could have seen is said in every report, and what the garbage collector costs."""

from __future__ import annotations

import json
import re

import pytest

from gpubalance.checks.finding import percent
from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.reports.formats import write
from gpubalance.reports.limits import limit_lines
from gpubalance.testing.runs import make_attempt, make_run, steady
from tests.reports.helpers import flowing, lines_of


def lines(run: Run) -> list[str]:
    first = judge(run).facts.first
    assert first is not None
    return limit_lines(first)


def with_collector(*collector_ms: float | None, noise: float = 0.0) -> Run:
    attempt = make_attempt(steady([100.0] * len(collector_ms), noise=noise))
    ranks = [rank.model_copy(update={"collector_ms": ms}) for rank, ms in zip(attempt.ranks, collector_ms, strict=True)]
    return make_run([attempt.model_copy(update={"ranks": ranks})])


def test_the_smallest_slowdown_stands_in_every_report_for_people_and_in_the_document() -> None:
    run = make_run([make_attempt(steady([100.0, 100.0], noise=0.02))])
    judgement = judge(run)
    first = judgement.facts.first
    assert first is not None
    smallest = first.stragglers.detectable
    sentence = f"Could have seen a slowdown of {percent(smallest)} or more on one rank"
    assert sentence in flowing(lines_of(run))
    assert sentence in write("html", run, judgement)
    assert sentence in re.sub(r"&#8203;", "", write("markdown", run, judgement))
    attempt = json.loads(document_text(run, judgement))["judgement"]["facts"]["attempts"][0]
    assert attempt["stragglers"]["detectable"] == pytest.approx(smallest, abs=1e-6)


def test_too_few_blocks_could_have_seen_nothing() -> None:
    (line,) = lines(make_run([make_attempt(steady([100.0, 100.0], blocks=5))]))
    assert line.startswith("Could have seen no slowdown at all: too few blocks (5 blocks of 22 steps, ")


def test_one_rank_has_no_peers_to_be_slower_than() -> None:
    assert lines(make_run([make_attempt(steady([100.0]))])) == []


def test_the_rank_that_the_collector_costs_most_is_named() -> None:
    line = lines(with_collector(101.0, 104.0))[1]
    assert line == "With Python's garbage collector on, off in timed blocks, rank 1 computes 4 % longer."


def test_a_difference_within_two_spreads_of_blocks_is_none() -> None:
    """Medians of 20 steps with 5 % of noise differ by 1.4 %."""
    line = lines(with_collector(102.0, None, noise=0.05))[1]
    assert line.startswith("Python's garbage collector, off in timed blocks, made no difference that shows (blocks")
    assert re.search(r"differ by 1\.\d %\)\.$", line)


def test_runs_without_a_block_with_the_collector_say_nothing_of_it() -> None:
    assert len(lines(with_collector(None, None))) == 1
