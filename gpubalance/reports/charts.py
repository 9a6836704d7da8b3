"""The pictures of a record, always in the same order; one that has no data says why."""

from __future__ import annotations

from gpubalance.analysis.facts import Facts
from gpubalance.record.probe import Load, Probe
from gpubalance.record.run import Run
from gpubalance.reports.chart import Chart, column_name, why_not
from gpubalance.reports.chart_bandwidth import bandwidth_chart
from gpubalance.reports.chart_bars import memory_chart, step_chart, time_chart
from gpubalance.reports.chart_matrix import matrix_chart
from gpubalance.reports.chart_utilization import utilization_chart
from gpubalance.reports.collective_lines import own_rows
from gpubalance.reports.probe_tables import link_matrix


def run_charts(run: Run, facts: Facts) -> list[Chart]:
    """Utilization, time of ranks, memory, bandwidth, and what the step is made of."""
    names = [column_name(device, index) for index, device in enumerate(run.plan.devices)]
    on_cpu, first = run.plan.backend == "gloo", facts.first
    missing = why_not(run, "ddp")
    return [
        utilization_chart(run.samples, run.phases, names, _useful_by_device(run, facts), on_cpu=on_cpu),
        time_chart(first) if first else Chart("Compute and wait", "", missing=missing),
        memory_chart(facts.memory, names),
        bandwidth_chart(own_rows(run), facts.bandwidth, why_not(run, "collectives")),
        step_chart(first.balance) if first else Chart("What the step is made of", "", missing=missing),
        matrix_chart(run, names),
    ]


def _useful_by_device(run: Run, facts: Facts) -> list[float | None]:
    useful: list[float | None] = [None] * len(run.plan.devices)
    for solo, value in zip(sorted(run.solo, key=lambda solo: solo.rank), facts.utilization.useful, strict=False):
        useful[solo.device] = value
    return useful


def probe_charts(probe: Probe) -> list[Chart]:
    """Utilization under load, and why there is no link matrix; where there is one it is a table."""
    return [_under_load(probe.load), *([] if link_matrix(probe).rows else [_NO_MATRIX])]


_NO_MATRIX = Chart("Link matrix", "", missing="no two GPUs told how they are joined")


def _under_load(load: Load | None) -> Chart:
    if load is None:
        return Chart("Utilization over time", "", missing="nothing was put to work; gpubalance probe --load does")
    names = [f"GPU {index}" for index in load.devices]
    return utilization_chart(load.samples, load.phases, names, [None] * len(names))
