"""Facts and verdict of one large record: `python tests/benchmarks/analysis_scale.py RANKS [SHARE]` prints a JSON line.

SHARE of the ranks (0.4, say) is slow and each has all the evidence that causes are read from. A process a size, so that
the peak of memory is its own.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from gpubalance.record.samples import CounterReading, DeviceSamples, ProcessMemory, Samples, SensorHealth
from gpubalance.record.timings import DdpAttempt, DeviceProbe, HostUse, RankMemory
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady

BLOCKS, STEPS = 24, 18
"""What a real run keeps: blocks of 20 steps, of which the first two are dropped."""
TICKS = 20
SLOW = 1.2


STAGES_MS = {"update": 1.0, "input": 0.1, "copy": 0.9, "forward": 33.0, "backward": 65.0}
"""Parts of a healthy rank's step of 100 ms."""


def large_run(ranks: int, *, slow: Sequence[int] = ()) -> Run:
    """Every part of a record that grows with ranks; ranks `slow` are 20 % slower, in two attempts, by a low clock."""
    medians = np.full(ranks, 100.0)
    medians[list(slow)] *= SLOW
    attempts = [
        with_evidence(make_attempt(steady(list(medians), blocks=BLOCKS, steps=STEPS, noise=0.02, seed=1)), medians)
    ]
    if slow:
        attempts.append(attempts[0].model_copy(update={"attempt": 1}))
    columns = {"utilization_percent": [99] * TICKS, "power_w": [600.5] * TICKS, "event_reasons": [4] * TICKS}
    columns |= {"memory_used_bytes": [2**33] * TICKS, "temperature_c": [60.0] * TICKS}
    columns |= {"pcie_generation": [5] * TICKS, "pcie_width": [16] * TICKS, "cpu_percent": [100.0] * TICKS}
    return make_run(
        attempts,
        solo=[make_solo(rank, 90.0) for rank in range(ranks)],
        probes=[
            DeviceProbe(
                rank=rank, device=rank, gemm_tflops=70_000.0 / medians[rank], memory_copy_gb_per_s=4250.0,
                host_to_device_gb_per_s=55.0, device_to_host_gb_per_s=55.0, launch_us=3.0,
            )
            for rank in range(ranks)
        ],
        memory=[
            RankMemory(rank=r, device=r, peak_allocated_bytes=1, peak_reserved_bytes=2**33, capacity_bytes=2**37)
            for r in range(ranks)
        ],
        samples=Samples(
            t_s=[5.0 + tick / 2 for tick in range(TICKS)],
            devices=[
                DeviceSamples(device=d, columns={**columns, "sm_clock_mhz": [round(190_000 / medians[d])] * TICKS})
                for d in range(ranks)
            ],
            counters=[
                CounterReading(t_s=t_s, edge=edge, device=device, values={"ecc_uncorrected": 0, "nvlink_replays": 3})
                for t_s, edge in ((5.0, "ddp begin"), (15.0, "ddp end"))
                for device in range(ranks)
            ],
            processes=[
                ProcessMemory(device=rank, pid=1000 + rank, rank=rank, memory_used_bytes=2**33)
                for rank in range(ranks)
            ],
            health=SensorHealth(interval_s=0.5, ticks=TICKS, missed_ticks=0),
        ),
    )  # fmt: skip


def with_evidence(attempt: DdpAttempt, medians: NDArray[np.float64]) -> DdpAttempt:
    """The same attempt with stages, host use and the replayed step of each rank."""
    ranks = [
        rank.model_copy(
            update={
                "stages_ms": {stage: [ms * scale] * BLOCKS for stage, ms in STAGES_MS.items()},
                "device_step_ms": 99.0 * scale,
                "host": [HostUse(wall_s=2.4, cpu_s=1.0, voluntary_switches=100, involuntary_switches=0)] * BLOCKS,
            }
        )
        for rank, scale in zip(attempt.ranks, (medians / 100.0).tolist(), strict=True)
    ]
    return attempt.model_copy(update={"ranks": ranks})


def measured(ranks: int, share: float) -> dict[str, object]:
    """Seconds and peak memory of facts and verdict, and of the record before them."""
    run = large_run(ranks, slow=range(round(share * ranks)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, cpu = time.perf_counter(), time.process_time()
    judgement = judge(run)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "ranks": ranks, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": after * 1024,
        "record_peak_bytes": before * 1024, "verdict": judgement.verdict.value,
    }  # fmt: skip


if __name__ == "__main__":
    json.dump(measured(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0), sys.stdout)
