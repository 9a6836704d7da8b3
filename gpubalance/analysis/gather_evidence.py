"""Gathers what was measured of every rank in one attempt, linear in ranks and samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gpubalance.analysis.kinds import kinds_of
from gpubalance.analysis.rank_evidence import POWER_CAP_BIT, ByRank, RankEvidence, number
from gpubalance.analysis.sampled import window_of
from gpubalance.analysis.steps import Array, Steps
from gpubalance.analysis.stragglers import peers_by_kind
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import Column, CounterReading, ProcessMemory
from gpubalance.record.timings import STAGES, DdpAttempt, DeviceProbe, RankSteps


def rank_evidence(run: Run, attempt: DdpAttempt, steps: Steps, apart: Sequence[int] = ()) -> RankEvidence:
    """All evidence of one attempt, whose steps these are; ranks `apart` are a slow majority (`peers_by_kind`)."""
    every = kinds_of(run.plan.devices)
    kinds = tuple(every[rank.device] for rank in attempt.ranks)
    window = next(
        (w for name in ("ddp fenced", "ddp", "ddp overlapped") if (w := window_of(run, name, attempt=attempt.attempt))),
        None,
    )
    phase = next((p for p in run.phases if p.name == "ddp" and p.attempt == attempt.attempt), None)
    columns = _columns_in(run, window)
    medians, units = steps.medians(), steps.units
    device, fresh = _device_ms(run, attempt)
    away, busy = _off_and_on_cores(attempt, steps)
    probes = {probe.device: probe for probe in run.probes}

    def by(values: Sequence[float | None] | Array, *, slow_is_low: bool = False) -> ByRank:
        own = np.array([math.nan if value is None else value for value in values], dtype=float)
        return ByRank(own, peers_by_kind(own, kinds, slow_is_low=slow_is_low, apart=apart))

    def of_probe(read: Callable[[DeviceProbe], float | None]) -> list[float | None]:
        return [read(probes[rank.device]) if rank.device in probes else None for rank in attempt.ranks]

    return RankEvidence(
        run=run,
        attempt=attempt,
        window=window,
        phase=phase,
        looks=_looks_by_device(run),
        strangers=_strangers(run, window),
        pids_are_known=pids_are_known(run),
        columns=columns,
        kinds=kinds,
        raw=by(medians),
        compute=by(medians / units),
        device=by([None if ms is None else ms / unit for ms, unit in zip(device, units, strict=True)]),
        device_is_fresh=fresh,
        stages={stage: by(_stage_ms(attempt, stage, steps.blocks) / units) for stage in STAGES},
        clock=by([_mean(columns.get(rank.device, {}), "sm_clock_mhz") for rank in attempt.ranks], slow_is_low=True),
        capped=by([_capped(columns.get(rank.device, {})) for rank in attempt.ranks]),
        power_limit=by([number(run, rank.device, "power_limit_w") for rank in attempt.ranks], slow_is_low=True),
        clock_max=by([number(run, rank.device, "sm_clock_max_mhz") for rank in attempt.ranks], slow_is_low=True),
        gemm=by(of_probe(lambda probe: probe.gemm_tflops), slow_is_low=True),
        memory_copy=by(of_probe(lambda probe: probe.memory_copy_gb_per_s), slow_is_low=True),
        host_copy=by(
            of_probe(lambda probe: min(probe.host_to_device_gb_per_s, probe.device_to_host_gb_per_s)),
            slow_is_low=True,
        ),
        launch=by(of_probe(lambda probe: probe.launch_us)),
        blocked=by(np.median(away, axis=1) / units),
        busy=by(np.median(busy, axis=1) / units),
        involuntary=by([_involuntary_per_s(rank) for rank in attempt.ranks]),
        queued=by(np.array([_queued_ms(rank, attempt.steps_per_block) for rank in attempt.ranks]) / units),
    )


def _columns_in(run: Run, window: Phase | None) -> dict[int, dict[str, Column]]:
    if window is None or window.end_s is None:
        return {}
    rows = [i for i, t in enumerate(run.samples.t_s) if window.begin_s <= t <= window.end_s]
    return {
        samples.device: {key: [column[i] for i in rows] for key, column in samples.columns.items()}
        for samples in run.samples.devices
    }


def _looks_by_device(run: Run) -> dict[int, list[CounterReading]]:
    looks: dict[int, list[CounterReading]] = {}
    for look in run.samples.counters:
        looks.setdefault(look.device, []).append(look)
    return looks


def pids_are_known(run: Run) -> bool:
    """Where none of our own ranks is listed, pids are those of another namespace (the host's, inside a container)."""
    return any(process.rank is not None for process in run.samples.processes)


def _strangers(run: Run, window: Phase | None) -> dict[int, list[int]]:
    """Nobody's processes by device, where they can be told from us."""
    found: dict[int, list[int]] = {}
    if not pids_are_known(run):
        return found
    for process in run.samples.processes:
        if process.rank is None and _was_there(process, window):
            found.setdefault(process.device, []).append(process.pid)
    return found


def _was_there(process: ProcessMemory, window: Phase | None) -> bool:
    """Older records do not say when a process was there; then it counts."""
    if window is None or window.end_s is None or process.first_seen_s is None or process.last_seen_s is None:
        return True
    return process.first_seen_s <= window.end_s and process.last_seen_s >= window.begin_s


def _capped(columns: Mapping[str, Column]) -> float | None:
    reasons = [int(reason) for reason in columns.get("event_reasons", []) if reason is not None]
    return sum(1 for reason in reasons if reason & POWER_CAP_BIT) / len(reasons) if reasons else None


def _mean(columns: Mapping[str, Column], key: str) -> float | None:
    values = [value for value in columns.get(key, []) if value is not None]
    return sum(values) / len(values) if values else None


def _device_ms(run: Run, attempt: DdpAttempt) -> tuple[list[float | None], bool]:
    """By rank: device time of the step. An older record has it from the solo phase, where rank r was on device r."""
    fresh = [rank.device_step_ms for rank in attempt.ranks]
    if any(value is not None for value in fresh):
        return fresh, True
    solo = {(solo.rank, solo.device): solo.graph_step_ms for solo in run.solo}
    return [solo.get((rank.rank, rank.device)) for rank in attempt.ranks], False


def _stage_ms(attempt: DdpAttempt, stage: str, blocks: int) -> Array:
    """(ranks,): median over blocks; NaN where the stage was not timed."""
    return np.median(_rows([rank.stages_ms.get(stage, ()) for rank in attempt.ranks], blocks), axis=1)


def _off_and_on_cores(attempt: DdpAttempt, steps: Steps) -> tuple[Array, Array]:
    """(ranks, blocks) each: ms a step of compute without a core and with one; NaN where it was not measured.

    Older runs know the CPU time of the whole process alone, in which gloo moves gradients as well.
    """
    on = _rows([rank.busy_ms for rank in attempt.ranks], steps.blocks)
    if not np.isnan(on).all():
        return steps.block_medians() - on, on
    wall = _rows([[host.wall_s for host in rank.host] for rank in attempt.ranks], steps.blocks)
    on = _rows([[host.cpu_s for host in rank.host] for rank in attempt.ranks], steps.blocks)
    wall, on = (1000 * seconds / attempt.steps_per_block for seconds in (wall, on))
    return wall - on - steps.fence.mean(axis=2) - steps.transfer.mean(axis=2), on


def _rows(values: Sequence[Sequence[float]], blocks: int) -> Array:
    """Rows of as many blocks; one of another length was not measured."""
    nothing = [math.nan] * blocks
    return np.array([row if len(row) == blocks else nothing for row in values], dtype=float)


def _queued_ms(rank: RankSteps, steps: int) -> float:
    """Median over blocks, a step; NaN where a block does not tell."""
    queued = [math.nan if host.queued_s is None else host.queued_s for host in rank.host]
    return 1000 * float(np.median(queued)) / steps if queued else math.nan


def _involuntary_per_s(rank: RankSteps) -> float | None:
    wall_s = sum(host.wall_s for host in rank.host)
    return sum(host.involuntary_switches for host in rank.host) / wall_s if wall_s > 0 else None
