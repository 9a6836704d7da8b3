"""`gpubalance report`: a saved run, printed again without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubalance.cli.shared_options import ExitStyleOption, NoVerdictOption

if TYPE_CHECKING:
    from gpubalance.cli.output import Exits
    from gpubalance.record.run import Run

FORMATS = ("terminal", "json", "svg", "csv")
"""Forms that this command writes itself; the others are in `gpubalance.reports.formats`."""


def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A saved run, probe or selftest.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="terminal, json, svg (a picture of the report), csv (the samples), html, markdown, junit, prometheus, "
            "jsonl, github (annotations) or nagios.",
        ),
    ] = "terminal",
    exit_style: ExitStyleOption = "plain",
    on_no_verdict: NoVerdictOption = None,
) -> int:
    """Print a saved run again, judged by the rules of this version.

    Example: gpubalance report run.json
    """
    from gpubalance.cli.output import Exits, failing

    exits = Exits(exit_style, on_no_verdict)
    with failing(exits):
        return _report(run, to, exits)


def _report(path: Path, to: str, exits: Exits) -> int:
    from gpubalance.cli.output import exit_code_after, exit_code_of
    from gpubalance.cli.reports_option import Report, write_reports, write_stdout_report
    from gpubalance.errors import UsageError
    from gpubalance.record.file import load_any
    from gpubalance.record.probe import Probe
    from gpubalance.record.selftest import Selftest
    from gpubalance.reports import formats

    if to not in (*FORMATS, *formats.FORMATS):
        raise UsageError(f"format {to!r} is not known", f"choose from: {', '.join((*FORMATS, *formats.FORMATS))}")
    loaded = load_any(path)
    if isinstance(loaded, Selftest):
        from gpubalance.cli.selftest_run import report_selftest

        return report_selftest(loaded, to, str(path), exits)
    if to in formats.FORMATS:
        judgement, reports = formats.judged(loaded), (Report(to, None),)
        lost = write_reports(reports, loaded, judgement)
        write_stdout_report(reports, loaded, judgement)
        return exit_code_after(exit_code_of(loaded, judgement, "fail", exits), lost=lost)
    if isinstance(loaded, Probe):
        from gpubalance.cli.probe_run import report_probe

        return report_probe(loaded, to, str(path), exits)
    return _report_run(loaded, to, path, exits)


def _report_run(run: Run, to: str, path: Path, exits: Exits) -> int:
    from gpubalance.checks.verdict import judge
    from gpubalance.cli.output import exit_code_of, write_json, write_report
    from gpubalance.cli.stdout import write_stdout

    if to == "csv":
        from gpubalance.record.tables import samples_table

        write_stdout(samples_table(run).to_csv(index=False).encode("utf-8", "backslashreplace"))
        return 0
    judgement = judge(run)
    if to == "json":
        write_json(run, judgement)
    elif to == "svg":
        from gpubalance.reports.picture import svg_text
        from gpubalance.reports.terminal import report_lines

        write_stdout(svg_text(report_lines(run, judgement, path.name), "gpubalance bench").encode())
    else:
        write_report(run, judgement, str(path))
    return exit_code_of(run, judgement, "fail", exits)
