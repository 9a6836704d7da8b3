"""A cause is shown by every format: in sentences, in tables, as facts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from gpubalance.reports.document import document_text
from gpubalance.reports.html import html_text
from gpubalance.reports.jsonl import jsonl_text
from gpubalance.reports.junit import junit_text
from gpubalance.reports.markdown import markdown_text
from gpubalance.reports.run_tables import cause_table, rank_table
from gpubalance.reports.terminal import report_lines
from gpubalance.testing.evidence import Traces, run_with
from tests.analysis.cause_cases import ON_GPU, device_work, thermal


def hot() -> Run:
    """Rank 3 of four is 20 % slower by heat, seen twice."""
    return run_with([*[Traces()] * 3, thermal(Traces(), 20.0)], attempts=2)


SAID = "thermal slowdown 100 % of the time, clock 1462 of 1755 MHz explains all of it"


@pytest.mark.parametrize("write", [html_text, markdown_text, junit_text, document_text])
def test_the_sentence_with_the_cause_is_in_every_format(write: object) -> None:
    assert callable(write)
    assert SAID in " ".join(str(write(hot(), judge(hot()))).split())


def test_programs_find_the_cause_and_its_coverage() -> None:
    run = hot()
    attempt = json.loads(document_text(run, judge(run)))["judgement"]["facts"]["attempts"][0]
    (found,) = attempt["attributions"]
    assert (attempt["pattern"], found["rank"], found["cause"]) == ("persistent", 3, "thermal")
    assert found["coverage"] == pytest.approx(1.0, abs=0.02)
    ranks = [json.loads(line) for line in jsonl_text(run, judge(run)).splitlines()]
    assert [each["cause"] for each in ranks if each["kind"] == "rank"] == [None, None, None, "thermal"]


def test_the_table_of_causes_has_a_row_for_each_rank_that_was_asked_about() -> None:
    run = run_with([*[Traces()] * 3, device_work(thermal(Traces(), 6.0), 14.0)])
    (row,) = cause_table(judge(run).facts).rows
    assert row[:4] == ("3", "20.0", "not attributed", "-")
    assert row[4].startswith("more work on its device (stage forward): 70 %; thermal slowdown")


def test_without_slow_ranks_there_is_no_such_table() -> None:
    assert "Causes" not in markdown_text(run_with([Traces()] * 2), judge(run_with([Traces()] * 2)))


@pytest.mark.parametrize("name", ON_GPU)
def test_every_cause_fits_the_terminal(name: str) -> None:
    run = run_with([*[Traces()] * 3, ON_GPU[name](Traces(), 20.0)], attempts=2)
    lines = [line.text for line in report_lines(run, judge(run), None)]
    assert max(len(line) for line in lines) <= 80
    assert "".join(lines).isascii()


def test_a_short_run_says_that_heat_was_not_seen() -> None:
    """Ten seconds of load at a steady temperature."""
    line = "Too short for thermal limits: 10 s of load; --budget 3m would show them."
    run = run_with([Traces()] * 2)
    assert line in [each.text for each in report_lines(run, judge(run), None)]
    assert line in rank_table(run, judge(run).facts).notes


def test_a_long_run_says_nothing_about_heat() -> None:
    run = run_with([Traces()] * 2)
    phases = [phase.model_copy(update={"end_s": 200.0}) if phase.name == "ddp" else phase for phase in run.phases]
    run = run.model_copy(update={"phases": phases})
    assert not [each for each in report_lines(run, judge(run), None) if "thermal limits" in each.text]


def test_devices_that_still_grow_warmer_are_said() -> None:
    run = run_with([replace(Traces(), columns={"temperature_c": 60.0})] * 2)
    warming = [
        samples.model_copy(
            update={"columns": {**samples.columns, "temperature_c": [60 + 0.3 * t for t in run.samples.t_s]}}
        )
        for samples in run.samples.devices
    ]
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"devices": warming})})
    text = " ".join(each.text for each in report_lines(run, judge(run), None))
    assert "Too short for thermal limits: 10 s of load, 3 C warmer in the last 10 s" in text
