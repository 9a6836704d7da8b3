"""Why is a rank slow? Probes and evidence against its peers, each with the share of the excess that it explains.

A cause is named when parts of one kind cover at least 80 % of the excess; otherwise the parts are told and nothing is
named. Device time is told from host time by the step replayed as a CUDA graph, which has no host in it.
"""

from __future__ import annotations

from dataclasses import replace

from gpubalance.analysis.attribution import EXPLAINS, Attribution, Part, attributed
from gpubalance.analysis.causes_clock import slower_at_anything
from gpubalance.analysis.causes_device import DeviceTime, device_time
from gpubalance.analysis.causes_host import copying, cpu_parts, fetching, rest_of_host, slow_numa_node
from gpubalance.analysis.causes_transient import transient_attribution
from gpubalance.analysis.gather_evidence import rank_evidence
from gpubalance.analysis.rank_evidence import RankEvidence
from gpubalance.analysis.steps import Steps
from gpubalance.analysis.stragglers import RankSpeed
from gpubalance.analysis.transient import Transient
from gpubalance.record.run import Run
from gpubalance.record.timings import DdpAttempt

MOST_EXPLAINED = 128
"""Slow ranks whose causes are looked for, the worst: more than one node has devices; of thousands nobody reads all
(ours)."""

STRANGER = "a process of somebody else was on its device meanwhile, and may have been gone at the replay"

MORE_DATA = 0.05
"""A rank with more samples than this above its peers is given more work."""


def attribute_causes(
    run: Run,
    attempt: DdpAttempt,
    steps: Steps,
    slow: tuple[RankSpeed, ...],
    transient: Transient,
    apart: tuple[int, ...] = (),
) -> tuple[Attribution, ...]:
    """One attribution for each slow rank (of more than `MOST_EXPLAINED`, for the first of them), for a rank that is
    given more work, and for the leader of a transient loss. `steps` are those of the attempt; ranks
    `apart` are a slow majority, whose peers are the others.

    Ranks that wait get none.
    """
    fewest = min(rank.samples_per_step for rank in attempt.ranks)
    more = [rank.rank for rank in attempt.ranks if rank.samples_per_step > fewest * (1 + MORE_DATA)]
    if not slow and not more and transient.rank is None:
        return ()
    seen = rank_evidence(run, attempt, steps, apart)
    named = {speed.rank for speed in slow}
    node = slow_numa_node(seen, named)
    found = [_of_slow_rank(seen, speed, node) for speed in slow[:MOST_EXPLAINED]]
    found += [one for rank in more if rank not in named and (one := _of_more_data(seen, rank)) is not None]
    if transient.rank is not None and transient.rank not in named:
        found.append(transient_attribution(seen, steps, transient.rank))
    return tuple(found)


def _of_slow_rank(seen: RankEvidence, speed: RankSpeed, slow_node: int | None) -> Attribution:
    rank, excess = speed.rank, speed.ratio - 1
    if excess <= 0:
        return attributed(rank, excess, ())
    copies = copying(seen, rank)
    room = 1.0 - sum(part.coverage for part in copies)
    if seen.on_cpu:
        fetched = fetching(seen, rank)
        rest = max(0.0, room - sum(part.coverage for part in fetched))
        return attributed(rank, excess, (*copies, *fetched, *cpu_parts(seen, rank, excess, rest)))
    device = device_time(seen, rank, excess, room)
    left = max(0.0, room - (device.covered or 0.0))
    fetched = tuple(replace(part, coverage=min(part.coverage, left)) for part in fetching(seen, rank))
    left -= sum(part.coverage for part in fetched)
    host: tuple[Part, ...] = ()
    if device.covered is not None and (seen.device_is_fresh or not seen.strangers.get(seen.device_of(rank))):
        doubt = STRANGER if seen.strangers.get(seen.device_of(rank)) and _hides(seen, rank, excess, device) else ""
        host = (replace(rest_of_host(seen, rank, left, slow_node), doubt=doubt),)
    return attributed(rank, excess, (*device.parts, *copies, *fetched, *host))


def _hides(seen: RankEvidence, rank: int, excess: float, device: DeviceTime) -> bool:
    """Whether the device was slower at anything in the blocks, and is not any more when the step is replayed."""
    then = slower_at_anything(seen, rank, excess)
    return then is not None and then - (device.covered or 0.0) > 1 - EXPLAINS


def _of_more_data(seen: RankEvidence, rank: int) -> Attribution | None:
    """Raw compute against compute per unit: what is gone once the work is taken into account is due to the data."""
    raw, pair = seen.raw.pair(rank), seen.compute.pair(rank)
    if raw is None or pair is None or raw[0] <= raw[1]:
        return None
    excess, slower = raw[0] / raw[1] - 1, pair[0] / pair[1] - 1
    samples = seen.attempt.ranks[rank].samples_per_step / seen.run.plan.per_rank_batch
    coverage = min(1.0, max(0.0, (excess - max(0.0, slower)) / excess))
    return attributed(rank, excess, [Part("data_imbalance", coverage, f"{samples:.2f} x the data of a rank")])
