"""Reports in one line, and runs that several formats are tried on."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpubalance.checks.verdict import judge
from gpubalance.record.file import load_run
from gpubalance.record.run import Run, RunError, Skipped
from gpubalance.record.samples import DeviceSamples, ProcessMemory, Samples, SensorHealth
from gpubalance.record.timings import CollectiveRow, DataParallelResult, RankMemory
from gpubalance.reports.fold import Line
from gpubalance.reports.terminal import report_lines
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.support import ROOT

KEPT = {path.stem: path for path in sorted((ROOT / "examples/runs").glob("*.json"))}
"""Runs of real hardware."""

ESCAPE = "\x1b[31m"
HOSTILE = f"NVIDIA {ESCAPE}H200\r\n\tFAIL \u202egnp\x9b2J\x07</text><script>&amp;"
"""A device name that tries to colour, to return, to forge a line, to turn the writing, and to leave an SVG."""


@cache
def kept(name: str) -> Run:
    """A run that is kept with the sources."""
    return load_run(KEPT[name])


def styled(run: Run, saved: str | None = "run.json") -> list[Line]:
    """The report of a run."""
    return report_lines(run, judge(run), saved)


def lines_of(run: Run, saved: str | None = "run.json") -> list[str]:
    """The report of a run as plain lines."""
    return [line.text for line in styled(run, saved)]


def sections(run: Run, saved: str | None = "run.json") -> list[list[str]]:
    """The report of a run, cut at its empty lines."""
    parts: list[list[str]] = [[]]
    for line in lines_of(run, saved):
        if line:
            parts[-1].append(line)
        else:
            parts.append([])
    return parts


def flowing(lines: list[str]) -> str:
    """Lines as one text with single spaces, as if nothing had been broken."""
    return " ".join(" ".join(lines).split())


def pair(*compute_ms: float, **values: Any) -> Run:
    """A run in which every rank takes these times in every step, the same again with ranks rotated when one of them is
    slow by more than a tenth; `values` replace fields of the record.
    """
    times = list(compute_ms)
    attempts = [make_attempt(steady(times))]
    if max(times) > 1.1 * min(times):
        count = len(times)
        devices = [(rank + 1) % count for rank in range(count)]
        rotated = [times[device] for device in devices]
        attempts.append(make_attempt(steady(rotated), attempt=1, devices=devices))
    solo = [make_solo(rank, 90.0) for rank in range(len(times))]
    return make_run(attempts, **{"solo": solo, **values})


def without_ddp(**values: Any) -> Run:
    """A run that was asked for each device alone and nothing else."""
    run = make_run([], solo=[make_solo(rank, 90.0) for rank in range(2)], **values)
    return run.model_copy(update={"plan": run.plan.model_copy(update={"workloads": ["solo"]})})


def sampled(columns: dict[int, dict[str, list[float | int | None]]], **values: Any) -> Samples:
    """Samples of these devices, three ticks within the overlapped steps of a ready-made run."""
    devices = [DeviceSamples(device=device, columns=shown) for device, shown in columns.items()]
    return Samples(t_s=[12.5, 13.5, 14.5], devices=devices, **values)


def with_own_memory(run: Run, *own_bytes: int) -> Run:
    """The same run with so many bytes in each rank's own process."""
    capacity = 150_000_000_000
    return run.model_copy(
        update={
            "memory": [
                RankMemory(
                    rank=rank, device=rank, peak_allocated_bytes=used, peak_reserved_bytes=used, capacity_bytes=capacity
                )
                for rank, used in enumerate(own_bytes)
            ],
            "samples": run.samples.model_copy(
                update={
                    "processes": [
                        ProcessMemory(device=rank, pid=1000 + rank, rank=rank, memory_used_bytes=used)
                        for rank, used in enumerate(own_bytes)
                    ]
                }
            ),
        }
    )


def row(mode: str = "eager", **values: Any) -> CollectiveRow:
    """An all-reduce of 1 GiB over two ranks; `values` replace its fields."""
    base: dict[str, Any] = {
        "collective": "all_reduce",
        "backend": "nccl",
        "mode": mode,
        "ranks": 2,
        "size_bytes": 2**30,
        "dtype": "float32",
        "iterations": 20,
        "time_us": 3300.0,
        "time_max_us": 3400.0,
        "algorithm_bandwidth_gb_per_s": 325.37,
        "bus_bandwidth_gb_per_s": 325.37,
        "wrong_elements": 0,
    }
    return CollectiveRow(**{**base, **values})


def parallel(**values: Any) -> DataParallelResult:
    """DataParallel over two devices; `values` replace its fields."""
    base: dict[str, Any] = {
        "global_batch": 8192,
        "shards": [4096, 4096],
        "step_ms": 20.0,
        "one_device_step_ms": 22.0,
        "peak_memory_bytes": [8_000_000_000, 4_000_000_000],
    }
    return DataParallelResult(**{**base, **values})


def named(run: Run, name: str) -> Run:
    """The same run on devices of this name, which is everywhere else too where text from outside may stand."""
    devices = [device.model_copy(update={"name": name}) for device in run.plan.devices]
    rank = RunError(kind="exception", where="work", message=f"E: {name}", rank=1, phase=name, first_cause=True)
    return run.model_copy(
        update={
            "plan": run.plan.model_copy(update={"devices": devices, "notes": [f"note {name}"], "launcher": name}),
            "node": run.node.model_copy(update={"devices": devices, "environment": {"NCCL_X": name}}),
            "errors": [*run.errors, rank],
            "skipped": [Skipped(what=name, reason=name)],
            "injected": [*run.injected, name],
            "samples": run.samples.model_copy(update={"health": health(died_with=name, xid_missing=name)}),
            "solo": [solo.model_copy(update={"graph_step_ms": None, "graph_missing": name}) for solo in run.solo],
        }
    )


def health(**values: Any) -> SensorHealth:
    """A sensor that did well; `values` replace its fields."""
    return SensorHealth(**{"interval_s": 0.1, "ticks": 3, "missed_ticks": 0, **values})
