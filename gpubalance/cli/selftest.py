"""`gpubalance selftest`: flags in, table and exit code out."""

from __future__ import annotations

from typing import Annotated

import typer


def selftest_command(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows, a smaller batch, shorter passes.")] = False,
    nproc: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ranks, one a device. Default: all visible GPUs, or 2 on the CPU."),
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="LIST", help="Visible devices by ordinal or UUID: 0,2 or GPU-1a2b.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="KIND", help="auto, cuda or cpu.")] = "auto",
    margin: Annotated[
        str | None,
        typer.Option(
            metavar="W:F", help="Margins in percent, as of bench. With 3:5 a rank slower by 5 % is played too."
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Move a gate of a check, as of bench: transient_warn=2."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="LIST", help="Play these rows only: compute,sleep or compute_20.")
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", help="Play the whole matrix so often, for error rates.")] = 1,
    healthy: Annotated[int, typer.Option(metavar="N", help="So many healthy passes more.")] = 0,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Draw the ranks by it. Default: a new one, which is printed.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Save the record there instead of in the state folder.")
    ] = None,
    stall_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="End it when no rank makes progress for so long.")
    ] = "60s",
    report: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT=PATH", help="Write it as json or markdown too: markdown=selftest.md. - is stdout."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure although a device or the machine is in use.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record and the verdict as one JSON document.")
    ] = False,
) -> int:
    """Does gpubalance name known faults on this very node? Plays them one at a time and prints what was named.

    Example: gpubalance selftest --quick
    """
    from gpubalance import settings as words
    from gpubalance.cli.reports_option import parse_reports
    from gpubalance.cli.selftest_run import REPORTS, run_selftest
    from gpubalance.cli.thresholds_option import origins_with_thresholds, thresholds_of

    wanted = words.SelftestSettings(
        quick=quick,
        nproc=nproc,
        devices=words.parse_list(devices) if devices is not None else None,
        device=device,
        margin=words.parse_margin(margin) if margin is not None else None,
        thresholds=thresholds_of(context, threshold),
        rows=words.parse_list(rows) if rows is not None else None,
        repeat=repeat,
        healthy=healthy,
        seed=seed,
        out=out,
        force=force,
        stall_s=words.parse_duration(stall_timeout),
        origins=origins_with_thresholds(context),
    )
    return run_selftest(wanted, as_json=json, reports=parse_reports(report, REPORTS, "a selftest"))
