"""`gpubalance compare`: what changed between two runs, and is it real?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def compare_command(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="A saved run, or auto: the baseline of NEW's devices (auto:NAME).")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A saved run.")],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC:LIMIT",
            help="Fail when it is worse by more: busbw:5%, score:2. Of score, step, compute, busbw, gemm, memory_copy, "
            "h2d, d2h, memory.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Compare what is not comparable, and warn.")] = False,
    require_baseline: Annotated[
        bool, typer.Option("--require-baseline", help="No verdict (3) when there is no baseline.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Hold a run against an earlier one, or against the baseline of its devices.

    Example: gpubalance compare auto run.json --fail-on busbw:5% --fail-on score:2
    """
    from gpubalance.checks.compare_rules import parse_rule
    from gpubalance.cli.output import exit_code_of_verdict, write_lines
    from gpubalance.cli.stdout import write_stdout
    from gpubalance.errors import ExitCode
    from gpubalance.reports.compare_report import compare_lines, compare_text
    from gpubalance.session.compare import compare

    rules = [parse_rule(text) for text in fail_on or ()]
    judgement, label = compare(
        base, new, rules, os.environ, force=force, require_baseline=require_baseline
    )  # fmt: skip
    if json:
        write_stdout(compare_text(judgement, label, str(new)).encode())
    else:
        write_lines(compare_lines(judgement, label, str(new)))
    if judgement.comparison is None and not require_baseline:
        return ExitCode.PASS
    return exit_code_of_verdict(judgement.verdict, "fail")
