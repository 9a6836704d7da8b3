"""Hangs in the formats that have room for them."""

from __future__ import annotations

from gpubalance.checks.verdict import judge
from gpubalance.record.hang import Bisection, BisectTrial, HangReport, RankHang
from gpubalance.record.run import Run, RunError
from gpubalance.reports.hang_tables import experiment_table, hang_table, own_words, search_table
from gpubalance.reports.html import html_text
from gpubalance.reports.markdown import markdown_text
from gpubalance.reports.terminal import report_lines
from gpubalance.testing.runs import make_run
from tests.analysis.test_experiments import experiment


def hung() -> Run:
    """Rank 1 is stopped, rank 0 waits; over fresh processes it works."""
    ranks = [
        RankHang(rank=0, pid=7, phase="ddp", fence=42, collective="all_reduce", state="S",
                 python_at="all_reduce (c10d.py:7)", stack="Thread 0x1\n  File <deep>"),
        RankHang(rank=1, pid=8, phase="ddp", fence=41, collective="all_reduce", state="T", named=True,
                 stack_missing="its process is stopped and answers nothing"),
    ]  # fmt: skip
    hang = HangReport(
        attempt=0, crew="ranks", t_s=9.0, deadline_s=8.0, gathered_in_s=0.1, ranks=ranks, ras="INCOMPLETE\n1 rank"
    )
    trial = BisectTrial(ranks=[0, 1], switch=None, outcome="works", seconds=11.6)
    error = RunError(kind="stalled", where="work", message="did not enter it", rank=1, phase="ddp", first_cause=True)
    return make_run(hang=hang, errors=[error], bisection=Bisection(trials=[trial], repeated=False))


def test_each_rank_and_each_trial_is_a_row() -> None:
    assert hang_table(hung()).rows == (
        ("0", "all_reduce 42 of ddp", "its process sleeps (state S)", "all_reduce (c10d.py:7)", "no"),
        (
            "1",
            "all_reduce 41 of ddp",
            "its process is stopped (state T)",
            "its process is stopped and answers nothing",
            "yes",
        ),
    )
    assert search_table(hung()).rows == (("0, 1", "as is", "works", "-", "12"),)


def test_both_sides_of_an_experiment_are_rows() -> None:
    table = experiment_table(make_run(experiments=[experiment({2**30: 329.0}, {2**30: 41.0})]))
    assert table.rows == (
        ("NCCL_P2P_DISABLE=0", "1 GiB", "329.0", "0"),
        ("NCCL_P2P_DISABLE=1", "1 GiB", "41.0", "0"),
    )
    assert "costs a factor of 8.0" in table.notes[0]


def test_stacks_and_the_answer_of_ras_are_kept_line_by_line() -> None:
    assert own_words(hung()) == [
        ("Python stacks", 0, ["Thread 0x1", "  File <deep>"]),
        ("NCCL RAS", None, ["INCOMPLETE", "1 rank"]),
    ]
    assert own_words(make_run()) == []


def test_every_format_shows_them_and_the_page_escapes_them() -> None:
    run = hung()
    page, text = html_text(run, judge(run)), markdown_text(run, judge(run))
    assert "File &lt;deep&gt;" in page
    assert "Python stacks on rank 0, in its own words" in page
    for shown in (page, text):
        assert "Search for the cause" in shown
    lines = [line.text for line in report_lines(run, judge(run), None)]
    assert any("rank 1: came to all_reduce 41 of ddp; its process is stopped" in line for line in lines)
    assert max(map(len, lines)) <= 80
