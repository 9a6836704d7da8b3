"""A hang and experiments as tables, and what processes said of themselves, for the formats that have room for it."""

from __future__ import annotations

from gpubalance.message_sizes import size_text
from gpubalance.record.hang import entered_words, process_words
from gpubalance.record.run import Run
from gpubalance.reports.experiment_lines import experiment_lines
from gpubalance.reports.table import NONE, Column, Table, number, words


def hang_table(run: Run) -> Table:
    """Where each rank was when its crew was given up."""
    ranks = run.hang.ranks if run.hang is not None else []
    rows = tuple(
        (
            str(rank.rank),
            entered_words(rank),
            process_words(rank),
            rank.python_at or rank.stack_missing or NONE,
            "yes" if rank.named else "no",
        )
        for rank in ranks
    )
    return Table("Hang", (Column("rank"), *words("came to", "process", "in", "waited for")), rows)


def search_table(run: Run) -> Table:
    """The trials in fresh processes after it."""
    trials = run.bisection.trials if run.bisection is not None else []
    rows = tuple(
        (
            ", ".join(map(str, trial.ranks)),
            trial.switch or "as is",
            trial.outcome,
            trial.message or NONE,
            number(trial.seconds),
        )
        for trial in trials
    )
    return Table("Search for the cause", (*words("ranks", "how", "outcome", "why"), Column("time", "s")), rows)


def experiment_table(run: Run) -> Table:
    """Both sides of each experiment."""
    columns = (Column("variable", words=True), Column("size"), Column("busbw", "GB/s"), Column("wrong", "elements"))
    rows = tuple(
        (
            f"{experiment.variable}={arm.value}",
            size_text(row.size_bytes),
            number(row.bus_bandwidth_gb_per_s, 1),
            str(row.wrong_elements),
        )
        for experiment in run.experiments
        for arm in experiment.arms
        for row in arm.rows
    )
    return Table("What if", columns, rows, tuple(experiment_lines(run)))


def own_words(run: Run) -> list[tuple[str, int | None, list[str]]]:
    """What the ranks' processes and NCCL said when they hung: title, rank, lines."""
    if run.hang is None:
        return []
    stacks = [("Python stacks", rank.rank, rank.stack.splitlines()) for rank in run.hang.ranks if rank.stack]
    return [*stacks, *([("NCCL RAS", None, run.hang.ras.splitlines())] if run.hang.ras else [])]
