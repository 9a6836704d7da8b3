"""`gpubalance probe`: flags in, report and exit code out."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubalance.cli.shared_options import ExitStyleOption, NoVerdictOption, ReportOption, ThresholdOption


def probe_command(
    context: typer.Context,
    load: Annotated[bool, typer.Option("--load", help="Put each idle GPU to work for some seconds.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Load GPUs that are in use as well.")] = False,
    expect_gpus: Annotated[int | None, typer.Option(metavar="N", help="Fail when the node has fewer GPUs.")] = None,
    expect_nvlinks: Annotated[
        int | None, typer.Option(metavar="N", help="Fail when a GPU has fewer NVLinks up.")
    ] = None,
    require: Annotated[
        str | None, typer.Option(metavar="LIST", help="Checks that must be measurable: ids, families, xid.")
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="LIST", help="Run these checks only: M2,N or S.")] = None,
    skip: Annotated[str | None, typer.Option(metavar="LIST", help="Leave these checks out.")] = None,
    simulate: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Look at a simulated driver instead, by name or file.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Save the record there.")] = None,
    fail_on: Annotated[str, typer.Option(metavar="VERDICT", help="fail, warn or never: what exits with 1.")] = "fail",
    threshold: ThresholdOption = None,
    report: ReportOption = None,
    exit_style: ExitStyleOption = "plain",
    on_no_verdict: NoVerdictOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every check with its state.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record and the verdict as one JSON document.")
    ] = False,
) -> int:
    """What is here, is it healthy, what would hurt a training job? Looks only, unless --load is given.

    Example: gpubalance probe --expect-gpus 8 --require xid
    """
    from gpubalance import settings as words
    from gpubalance.cli.output import Exits, failing
    from gpubalance.cli.probe_run import run_probe
    from gpubalance.cli.reports_option import parse_reports
    from gpubalance.cli.thresholds_option import origins_with_thresholds, thresholds_of

    def names(text: str | None) -> tuple[str, ...]:
        return words.parse_list(text) if text is not None else ()

    exits = Exits(exit_style, on_no_verdict)
    with failing(exits):
        wanted = words.ProbeSettings(
            load=load,
            force=force,
            expect_gpus=expect_gpus,
            expect_nvlinks=expect_nvlinks,
            require=names(require),
            only=names(only),
            skip=names(skip),
            simulate=simulate,
            out=out,
            fail_on=fail_on,
            thresholds=thresholds_of(context, threshold),
            origins=origins_with_thresholds(context),
        )
        return run_probe(wanted, as_json=json, verbose=verbose, reports=parse_reports(report), exits=exits)
