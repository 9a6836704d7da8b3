"""Ready-made evidence: runs in which one rank is slow for known reasons, each adding its part to the excess.

Peers take 100 ms a step: update 5, input 1, copy 1, forward 33, backward 60. A reason adds milliseconds where its real
counterpart would, and leaves the traces that the sensor and the probes would see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpubalance.record.run import Run
from gpubalance.record.samples import CounterReading, DeviceSamples, ProcessMemory, Samples
from gpubalance.record.timings import BUSY, DdpAttempt, DeviceProbe, HostUse
from gpubalance.testing.runs import make_attempt, make_run, steady

STAGES_MS = {"update": 5.0, "input": 1.0, "copy": 1.0, "forward": 33.0, "backward": 60.0}
COMPUTE_MS = 100.0
STEPS = 6
"""Of a block."""
CLOCK_MHZ = 1755.0
BUSY_WATTS, CAP_BIT = 690.0, 0x4
FENCED_BEGIN_S, FENCED_END_S, DDP_BEGIN_S, DDP_END_S = 6.0, 12.0, 5.0, 15.0
"""As `make_run` has its phases."""


@dataclass(frozen=True)
class Traces:
    """What one rank and its device show. The defaults are those of a healthy one."""

    stages_ms: Mapping[str, float] = field(default_factory=lambda: dict(STAGES_MS))
    now_and_then_ms: Mapping[str, float] = field(default_factory=dict)
    """Further ms of a stage, and of CPU time (`busy`), in the first step of each block."""
    device_ms: float | None = 95.0
    clock_mhz: float = CLOCK_MHZ
    reasons: tuple[int, ...] = (CAP_BIT,)
    """Event reasons, one sample after the other, again and again."""
    readings: Mapping[str, float] = field(default_factory=dict)
    gemm_tflops: float = 660.0
    memory_gb_per_s: float = 4250.0
    host_copy_gb_per_s: float = 55.0
    launch_us: float = 3.0
    blocked_ms: float = 0.0
    """Of a step: time in which the process had no core, waits for other ranks apart."""
    involuntary_per_s: float = 1.0
    queued_ms: float | None = None
    samples: int = 4096
    units: float = 1.0
    stranger_pids: tuple[int, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """Growth of counters over the phase."""
    columns: Mapping[str, float] = field(default_factory=dict)
    """Further columns of the sensor."""

    @property
    def compute_ms(self) -> float:
        """Sum of the stages, which is what a step takes."""
        return sum(self.stages_ms.values())

    def longer(self, **ms: float) -> Traces:
        """With stages that take so much longer."""
        stages = {stage: value + ms.get(stage, 0.0) for stage, value in self.stages_ms.items()}
        return replace(self, stages_ms=stages)

    def slower_device(self, ms: float) -> Traces:
        """A device that takes `ms` longer for a step, in every stage alike."""
        parts = {stage: ms * STAGES_MS[stage] / COMPUTE_MS for stage in STAGES_MS}
        return replace(self.longer(**parts), device_ms=None if self.device_ms is None else self.device_ms + ms)

    def lower_clock(self, ms: float, reasons: int) -> Traces:
        """A clock that makes a step `ms` longer, held down by these reasons."""
        longer = COMPUTE_MS * (CLOCK_MHZ / self.clock_mhz - 1) + ms
        mixed = (reasons,) if self.clock_mhz == CLOCK_MHZ else (*self.reasons, reasons)
        return replace(self.slower_device(ms), clock_mhz=CLOCK_MHZ / (1 + longer / COMPUTE_MS), reasons=mixed)


def run_with(traces: Sequence[Traces], *, on_cpu: bool = False, attempts: int = 1) -> Run:
    """A run of as many ranks, rank r with the r-th traces; further attempts look the same."""
    made = [_attempt(traces, number, on_cpu=on_cpu) for number in range(attempts)]
    run = make_run(made, on_cpu=on_cpu)
    if on_cpu:
        return run
    devices = [
        device.model_copy(update={"readings": {**device.readings, **seen.readings}})
        for device, seen in zip(run.plan.devices, traces, strict=True)
    ]
    return run.model_copy(
        update={
            "plan": run.plan.model_copy(update={"devices": devices}),
            "probes": [_probe(rank, seen) for rank, seen in enumerate(traces)],
            "samples": _samples(traces),
        }
    )


def _attempt(traces: Sequence[Traces], number: int, *, on_cpu: bool) -> DdpAttempt:
    compute = steady([seen.compute_ms for seen in traces], steps=STEPS, noise=0.002, seed=number)
    for own, seen in zip(compute, traces, strict=True):
        own[:, 0] += sum(seen.now_and_then_ms.get(stage, 0.0) for stage in STAGES_MS)
    attempt = make_attempt(
        compute,
        attempt=number,
        units=[seen.units for seen in traces],
    )
    ranks = [
        rank.model_copy(
            update={
                "samples_per_step": seen.samples,
                "stages_ms": {stage: [ms] * len(rank.fenced) for stage, ms in seen.stages_ms.items()},
                "device_step_ms": None if on_cpu else seen.device_ms,
                "busy_ms": [seen.compute_ms - seen.blocked_ms] * len(rank.fenced),
                "means_ms": {name: [ms] * len(rank.fenced) for name, ms in _means(seen).items()},
                "host": [_host_use(seen, np.mean(b.fence_ms) + np.mean(b.transfer_ms), attempt) for b in rank.fenced],
            }
        )
        for rank, seen in zip(attempt.ranks, traces, strict=True)
    ]
    return attempt.model_copy(update={"ranks": ranks})


def _means(seen: Traces) -> dict[str, float]:
    usual = {**seen.stages_ms, BUSY: seen.compute_ms - seen.blocked_ms}
    return {name: ms + seen.now_and_then_ms.get(name, 0.0) / STEPS for name, ms in usual.items()}


def _host_use(seen: Traces, waits_ms: float, attempt: DdpAttempt) -> HostUse:
    wall_s = attempt.steps_per_block * (seen.compute_ms + waits_ms) / 1000
    away_s = attempt.steps_per_block * (seen.blocked_ms + waits_ms) / 1000
    switches = round(seen.involuntary_per_s * wall_s)
    return HostUse(
        wall_s=wall_s,
        cpu_s=wall_s - away_s,
        voluntary_switches=100,
        involuntary_switches=switches,
        queued_s=None if seen.queued_ms is None else attempt.steps_per_block * seen.queued_ms / 1000,
    )


def _probe(rank: int, seen: Traces) -> DeviceProbe:
    return DeviceProbe(
        rank=rank,
        device=rank,
        gemm_tflops=seen.gemm_tflops,
        memory_copy_gb_per_s=seen.memory_gb_per_s,
        host_to_device_gb_per_s=seen.host_copy_gb_per_s,
        device_to_host_gb_per_s=seen.host_copy_gb_per_s,
        launch_us=seen.launch_us,
    )


def _samples(traces: Sequence[Traces]) -> Samples:
    times = [FENCED_BEGIN_S + 0.06 * tick for tick in range(100)]
    constant = {"power_w": BUSY_WATTS, "temperature_c": 60.0, "pcie_generation": 5, "pcie_width": 16}
    return Samples(
        t_s=times,
        devices=[
            DeviceSamples(
                device=device,
                columns={
                    "sm_clock_mhz": [seen.clock_mhz] * len(times),
                    "event_reasons": [seen.reasons[tick % len(seen.reasons)] for tick in range(len(times))],
                    **{key: [value] * len(times) for key, value in {**constant, **seen.columns}.items()},
                },
            )
            for device, seen in enumerate(traces)
        ],
        counters=_counters(traces),
        processes=[
            ProcessMemory(device=device, pid=1000 + device, rank=device, memory_used_bytes=2**30)
            for device in range(len(traces))
        ]
        + [
            ProcessMemory(
                device=device,
                pid=pid,
                rank=None,
                memory_used_bytes=2**29,
                first_seen_s=FENCED_BEGIN_S,
                last_seen_s=FENCED_END_S,
            )
            for device, seen in enumerate(traces)
            for pid in seen.stranger_pids
        ],
    )


def _counters(traces: Sequence[Traces]) -> list[CounterReading]:
    return [
        CounterReading(
            t_s=at_s + 0.2,
            edge=edge,
            device=device,
            values={key: grown * value for key, value in seen.counters.items()},
        )
        for device, seen in enumerate(traces)
        for edge, at_s, grown in (("ddp begin", DDP_BEGIN_S, 0), ("ddp end", DDP_END_S, 1))
    ]
