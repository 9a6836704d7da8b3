"""Why a rank is slow now and then: what its slow steps have more of than its usual ones.

The excess is the mean step over the median one. Each part is what the same difference is in a stage, in CPU time or in
clock, so that a rank is held against itself; only waiting for a core is held against its peers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gpubalance.analysis.attribution import Attribution, Part, attributed
from gpubalance.analysis.causes_clock import low_clock
from gpubalance.analysis.causes_cores import QUEUED_SHARE
from gpubalance.analysis.rank_evidence import DEVICE_STAGES, RankEvidence
from gpubalance.analysis.steps import Steps
from gpubalance.analysis.stragglers import peers_by_kind
from gpubalance.record.timings import BUSY, RankSteps

PAUSED_OR_BUSY = "the device paused, or had more to do"


def transient_attribution(seen: RankEvidence, steps: Steps, rank: int) -> Attribution:
    """Of the rank that leads a transient loss."""
    own = steps.compute[rank].ravel()
    usual_ms = float(np.median(own))
    excess_ms = float(own.mean()) - usual_ms
    if excess_ms <= 0:
        return attributed(rank, 0.0, ())
    parts = [*_heat(seen, rank, excess_ms / usual_ms), *_parts(seen, rank, excess_ms)]
    return attributed(rank, excess_ms / usual_ms, parts)


def _heat(seen: RankEvidence, rank: int, excess: float) -> Iterator[Part]:
    clock = low_clock(seen, rank)
    if clock is not None:
        share = min(1.0, clock.slower * clock.held.get("thermal", 0.0) / excess)
        text = f"thermal slowdown now and then, clock {clock.own_mhz:.0f} of {clock.peers_mhz:.0f} MHz"
        yield Part("thermal", share, text)


def _parts(seen: RankEvidence, rank: int, excess_ms: float) -> Iterator[Part]:
    """What the means of stages and CPU time show; nothing in older records, which lack them."""
    measured = seen.attempt.ranks[rank]
    if not (measured.means_ms and measured.stages_ms and measured.busy_ms):
        return
    found = {stage: min(1.0, max(0.0, _rise_ms(measured, stage)) / excess_ms) for stage in measured.means_ms}
    yield Part("input_pipeline", found["input"], "waiting for its batch now and then")
    yield Part("pcie", found["copy"], "copies to its device that take longer now and then")
    queued_ms = _queued_ms(seen, rank)
    put_off = queued_ms >= QUEUED_SHARE * excess_ms
    room = max(0.0, 1.0 - found["input"] - found["copy"])
    if seen.on_cpu:
        away = max(0.0, room - found[BUSY])
        yield Part("device_work", min(room, found[BUSY]), f"more work in some steps{_mostly(found)}")
        yield _cores(away, queued_ms) if put_off else Part("host", away, "time on its host in some steps")
        return
    if put_off:
        yield _cores(min(room, queued_ms / excess_ms), queued_ms)
    on_device = sum(found[stage] for stage in DEVICE_STAGES)
    yield Part("device_work", min(room, on_device), f"longer steps now and then{_mostly(found)}", doubt=PAUSED_OR_BUSY)


def _cores(share: float, queued_ms: float) -> Part:
    text = f"sharing its cores with others now and then (in line for {queued_ms:.2f} ms a step more than its peers)"
    return Part("cpu_contention", share, text)


def _mostly(found: dict[str, float]) -> str:
    stage = max(DEVICE_STAGES, key=lambda name: found[name])
    return f" (stage {stage})" if found[stage] > 0.5 else ""


def _rise_ms(measured: RankSteps, name: str) -> float:
    """Mean over all steps less the usual step, of a stage or of CPU time, in ms."""
    medians = measured.busy_ms if name == BUSY else measured.stages_ms[name]
    return float(np.mean(measured.means_ms[name])) - float(np.median(medians))


def _queued_ms(seen: RankEvidence, rank: int) -> float:
    """Mean ms a step in line for a core beyond the peers'; 0 where the kernel does not tell."""
    steps = seen.attempt.steps_per_block
    own = np.array([_mean_queued_s(each) for each in seen.attempt.ranks]) * 1000 / steps
    above = float(own[rank] - peers_by_kind(own, seen.kinds)[rank])
    return 0.0 if math.isnan(above) else max(0.0, above)


def _mean_queued_s(measured: RankSteps) -> float:
    queued = [use.queued_s for use in measured.host if use.queued_s is not None]
    return float(np.mean(queued)) if queued and len(queued) == len(measured.host) else math.nan
