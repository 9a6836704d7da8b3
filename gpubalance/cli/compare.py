"""`gpubalance compare`: what changed between two runs, and is it real?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpubalance.checks.compare import ComparisonJudgement
    from gpubalance.checks.foreign import ForeignJudgement


def compare_command(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="A saved run, a log of nccl-tests or nvbandwidth, or auto: the baseline of NEW's devices (auto:NAME).",
        ),
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A saved run, or a log beside the run BASE.")],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC:LIMIT",
            help="Fail when it is worse by more: busbw:5%, score:2. Of score, step, compute, busbw, gemm, memory_copy, "
            "h2d, d2h, memory; beside nvbandwidth p2p.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Compare what is not comparable, and warn.")] = False,
    require_baseline: Annotated[
        bool, typer.Option("--require-baseline", help="No verdict (3) when there is no baseline.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print GitHub's markdown.")] = False,
) -> int:
    """Hold a run against an earlier one, the baseline of its devices, or what nccl-tests or nvbandwidth printed.

    Example: gpubalance compare auto run.json --fail-on busbw:5% --fail-on score:2
    """
    from gpubalance.checks.compare_rules import parse_rule
    from gpubalance.cli.output import exit_code_of_verdict
    from gpubalance.errors import ExitCode, UsageError
    from gpubalance.session.compare import compare

    if json and markdown:
        raise UsageError("--json and --markdown contradict each other", "give one of them")
    rules = [parse_rule(text) for text in fail_on or ()]
    judgement, label = compare(
        base, new, rules, os.environ, force=force, require_baseline=require_baseline
    )  # fmt: skip
    _write(judgement, label, str(new), "json" if json else "markdown" if markdown else "terminal")
    if judgement.comparison is None and not require_baseline:
        return ExitCode.PASS
    return exit_code_of_verdict(judgement.verdict, "fail")


def _write(judgement: ComparisonJudgement | ForeignJudgement, base: str, new: str, form: str) -> None:
    from gpubalance.checks.foreign import ForeignJudgement
    from gpubalance.cli.output import report_width, write_lines
    from gpubalance.cli.stdout import write_stdout
    from gpubalance.reports import compare_markdown, compare_report, foreign_report

    if form == "terminal":
        if isinstance(judgement, ForeignJudgement):
            write_lines(foreign_report.foreign_lines(judgement, base, new, report_width()))
        else:
            write_lines(compare_report.compare_lines(judgement, base, new, report_width()))
    elif isinstance(judgement, ForeignJudgement):
        write = foreign_report.foreign_text if form == "json" else compare_markdown.foreign_markdown
        write_stdout(write(judgement, base, new).encode("utf-8", "backslashreplace"))
    else:
        draw = compare_report.compare_text if form == "json" else compare_markdown.compare_markdown
        write_stdout(draw(judgement, base, new).encode("utf-8", "backslashreplace"))
