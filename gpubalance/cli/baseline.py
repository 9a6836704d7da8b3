"""`gpubalance baseline save, show, forget`: how this node used to be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

baseline_app = typer.Typer(
    help="How this node used to be: runs that later ones are held against.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@baseline_app.command("save")
def save_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Saved runs; several make a band.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Keep several baselines apart.")] = "default",
) -> int:
    """Add runs to the baseline of their devices and their work.

    Example: gpubalance baseline save run1.json run2.json run3.json
    """
    from gpubalance.checks.finding import counted
    from gpubalance.checks.verdict import Verdict
    from gpubalance.cli.entry import complain
    from gpubalance.cli.output import write_lines
    from gpubalance.reports.fold import Line
    from gpubalance.reports.printable import printable
    from gpubalance.session.compare import save_runs

    saved = save_runs(runs, name, os.environ)
    for each in saved:
        if each.verdict is Verdict.FAIL:
            complain(f"run {each.run_id} failed: later runs are held against a node that was not well", None)
    texts = [f"{each.key} {each.name}: run {each.run_id} saved, {counted(each.runs, 'run')} now" for each in saved]
    write_lines([Line(printable(text)) for text in texts])
    return 0


@baseline_app.command("show")
def show_command(
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="One of those that are shown. Default: all.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this name.")] = None,
    json: JsonOption = False,
) -> int:
    """Show what is saved: devices, versions, and the smallest, middle and largest value of each number.

    Example: gpubalance baseline show
    """
    from gpubalance.cli.output import report_width, write_lines
    from gpubalance.cli.stdout import write_stdout
    from gpubalance.record.baselines import all_baselines
    from gpubalance.record.history import state_home
    from gpubalance.reports.compare_report import baseline_lines, baseline_text

    home = state_home(os.environ)
    found = all_baselines(home) if home is not None else []
    found = [each for each in found if key in (None, each.key) and name in (None, each.name)]
    if json:
        write_stdout(baseline_text(found).encode())
    else:
        write_lines(baseline_lines(found, report_width()))
    return 0


@baseline_app.command("forget")
def forget_command(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="As `show` prints them.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this name.")] = None,
    all: Annotated[bool, typer.Option("--all", help="All of them.")] = False,  # noqa: A002  (files spell it as the flag)
) -> int:
    """Delete baselines, by key or by name, or --all.

    Example: gpubalance baseline forget --name before-the-update
    """
    from gpubalance.checks.finding import counted
    from gpubalance.cli.output import write_lines
    from gpubalance.errors import UsageError
    from gpubalance.record.baselines import forget_baseline, saved_names
    from gpubalance.record.history import state_home
    from gpubalance.reports.fold import Line

    if not keys and name is None and not all:
        raise UsageError("nothing was said to forget", "give a KEY of gpubalance baseline show, --name, or --all")
    home = state_home(os.environ)
    present = saved_names(home) if home is not None else []
    unknown = [key for key in keys or () if key not in {each for each, _ in present}]
    if unknown:
        raise UsageError(f"there is no baseline {unknown[0]!r}", "gpubalance baseline show tells which there are")
    chosen = [pair for pair in present if (not keys or pair[0] in keys) and name in (None, pair[1])]
    for pair in chosen:
        assert home is not None
        forget_baseline(home, *pair)
    write_lines([Line(f"{counted(len(chosen), 'baseline')} forgotten")])
    return 0
