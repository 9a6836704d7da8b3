"""`gpubalance bench`: flags in, report and exit code out."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubalance.cli.shared_options import ExitStyleOption, NoVerdictOption, ReportOption, ThresholdOption


def bench_command(
    context: typer.Context,
    nproc: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ranks, one a device. Default: all visible GPUs, or 2 on the CPU."),
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="LIST", help="Visible devices by ordinal or UUID: 0,2 or GPU-1a2b.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="KIND", help="auto, cuda or cpu.")] = "auto",
    expect_gpus: Annotated[int | None, typer.Option(metavar="N", help="Fail when the node has fewer GPUs.")] = None,
    workload: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of solo,ddp,data_parallel,collectives,links. Default: all that apply."),
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="mlp or transformer.")] = "mlp",
    batch: Annotated[
        int | None, typer.Option(metavar="SAMPLES", help="Global batch, split evenly over the ranks.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time for the DDP phase: 60s, 5m. Default: as short as the statistics allow."
        ),
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(
            metavar="W:F",
            help="Warn and fail above these percents of slowness. Default 5:10, on the CPU 25:50.",
        ),
    ] = None,
    threshold: ThresholdOption = None,
    inject: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT", help="Play a fault, for example compute:rank=1,percent=20."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Messages of collectives in bytes: 8:8G:x2, or 64M,1G."),
    ] = None,
    collectives: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Of all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send_recv: with commas.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="Of collectives: float32, bfloat16 or float16.")
    ] = "float32",
    nccl_tests_compat: Annotated[
        bool, typer.Option("--nccl-tests-compat", help="Time collectives as nccl-tests does, to compare with it.")
    ] = False,
    jitter: Annotated[bool, typer.Option("--jitter", help="Time every single collective as well.")] = False,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Save the record there instead of in the state folder.")
    ] = None,
    launcher: Annotated[str, typer.Option(metavar="HOW", help="auto, env (adopt RANK and its kin) or none.")] = "auto",
    stall_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="End the run when no rank makes progress for so long.")
    ] = "60s",
    bisect: Annotated[
        str,
        typer.Option(metavar="WHEN", help="auto or never: after a hang, search for the cause in fresh processes."),
    ] = "auto",
    what_if: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Measure what a variable costs here: p2p (NCCL_P2P_DISABLE=1)."),
    ] = None,
    sample_interval: Annotated[float, typer.Option(metavar="SECONDS", help="Pace of the sensor.")] = 0.1,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of weights and data.")] = 2026,
    fail_on: Annotated[str, typer.Option(metavar="VERDICT", help="fail, warn or never: what exits with 1.")] = "fail",
    min_score: Annotated[
        float | None, typer.Option(metavar="B", help="Fail when the balance score is below this.")
    ] = None,
    report: ReportOption = None,
    exit_style: ExitStyleOption = "plain",
    on_no_verdict: NoVerdictOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Judge against an earlier run as well, or auto: the baseline of these devices (auto:NAME).",
        ),
    ] = None,
    require_baseline: Annotated[
        bool, typer.Option("--require-baseline", help="No verdict (3) when --baseline finds none.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Measure although a device or the machine is in use.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record and the verdict as one JSON document.")
    ] = False,
) -> int:
    """Can this node train evenly? Runs synthetic training on all visible GPUs, or over gloo on the CPU.

    Example: gpubalance bench --nproc 8 --json > run.json
    """
    from gpubalance import settings as words
    from gpubalance.cli.bench_run import run_bench
    from gpubalance.cli.output import Exits, failing
    from gpubalance.cli.reports_option import parse_reports
    from gpubalance.cli.thresholds_option import origins_with_thresholds, thresholds_of
    from gpubalance.faults import parse_fault
    from gpubalance.message_sizes import parse_sizes

    exits = Exits(exit_style, on_no_verdict)
    with failing(exits):
        wanted = words.BenchSettings(
            nproc=nproc,
            devices=words.parse_list(devices) if devices is not None else None,
            device=device,
            expect_gpus=expect_gpus,
            workloads=words.parse_list(workload) if workload is not None else None,
            model=model,
            batch=batch,
            budget_s=words.parse_duration(budget) if budget is not None else None,
            margin=words.parse_margin(margin) if margin is not None else None,
            thresholds=thresholds_of(context, threshold),
            inject=tuple(parse_fault(text) for text in inject or ()),
            sizes=parse_sizes(sizes) if sizes is not None else None,
            collectives=words.parse_collectives(collectives) if collectives is not None else None,
            dtype=dtype,
            nccl_tests_compat=nccl_tests_compat,
            jitter=jitter,
            out=out,
            launcher=launcher,
            force=force,
            stall_s=words.parse_duration(stall_timeout),
            bisect=bisect,
            what_if=words.parse_list(what_if) if what_if is not None else (),
            sample_interval_s=sample_interval,
            seed=seed,
            fail_on=fail_on,
            min_score=min_score,
            origins=origins_with_thresholds(context),
        )
        return run_bench(
            wanted,
            as_json=json,
            reports=parse_reports(report),
            exits=exits,
            baseline=baseline,
            require_baseline=require_baseline,
        )
