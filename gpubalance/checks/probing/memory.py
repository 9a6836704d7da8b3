"""M: memory and its errors."""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, each_gpu, finding
from gpubalance.record.probe import Probe


def uncorrected(probe: Probe) -> list[Finding]:
    """M2: any uncorrected error since the driver was loaded spoiled somebody's numbers or job."""

    def judge(gpu: Gpu, errors: float) -> Iterator[Finding]:
        if errors > 0:
            yield finding(
                State.FAIL,
                f"{gpu.name} had {counted(int(errors), 'uncorrected ECC error')} since the driver was loaded",
                subject=gpu.label,
                observed=f"{errors:.0f}",
                expected="0",
                next_step="drain the node, reset the GPU, and replace it if it happens again",
            )

    return each_gpu(probe, "ecc_uncorrected", "uncorrected ECC errors", judge, "no uncorrected ECC errors")


CHECKS = (
    Check("M2", "uncorrected ECC errors", uncorrected, "gcm, imbue and Cluster Health Scanner: any", required=True),
)
