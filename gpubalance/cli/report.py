"""`gpubalance report`: a saved run, printed again without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FORMATS = ("terminal", "json", "svg", "csv")


def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A saved run or probe.")],
    to: Annotated[
        str, typer.Option(metavar="FORMAT", help="terminal, json, svg (a picture of the report) or csv (the samples).")
    ] = "terminal",
) -> int:
    """Print a saved run again, judged by the rules of this version.

    Example: gpubalance report run.json
    """
    from gpubalance.checks.verdict import judge
    from gpubalance.cli.output import exit_code_of, write_json, write_report, write_stdout
    from gpubalance.errors import UsageError
    from gpubalance.record.file import load_record
    from gpubalance.record.probe import Probe

    if to not in FORMATS:
        raise UsageError(f"format {to!r} is not known", f"choose from: {', '.join(FORMATS)}")
    loaded = load_record(run)
    if isinstance(loaded, Probe):
        from gpubalance.cli.probe_run import report_probe

        return report_probe(loaded, to, str(run))
    if to == "csv":
        from gpubalance.record.tables import samples_table

        write_stdout(samples_table(loaded).to_csv(index=False).encode("utf-8", "backslashreplace"))
        return 0
    judgement = judge(loaded)
    if to == "json":
        write_json(loaded, judgement)
    elif to == "svg":
        from gpubalance.reports.picture import svg_text
        from gpubalance.reports.terminal import report_lines

        write_stdout(svg_text(report_lines(loaded, judgement, run.name), "gpubalance bench").encode())
    else:
        write_report(loaded, judgement, str(run))
    return exit_code_of(loaded, judgement, "fail")
