"""`gpubalance report`: a saved run, printed again without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A saved run.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="terminal, json or csv (the samples).")] = "terminal",
) -> int:
    """Print a saved run again, judged by the rules of this version.

    Example: gpubalance report run.json
    """
    from gpubalance.checks.verdict import judge
    from gpubalance.cli.output import exit_code_of, write_json, write_report, write_stdout
    from gpubalance.errors import UsageError
    from gpubalance.record.file import load_run

    if to not in ("terminal", "json", "csv"):
        raise UsageError(f"format {to!r} is not known", "choose from: terminal, json, csv")
    loaded = load_run(run)
    if to == "csv":
        from gpubalance.record.tables import samples_table

        write_stdout(samples_table(loaded).to_csv(index=False).encode())
        return 0
    judgement = judge(loaded)
    if to == "json":
        write_json(loaded, judgement)
    else:
        write_report(loaded, judgement, str(run))
    return exit_code_of(loaded, judgement, "fail")
