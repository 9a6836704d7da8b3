"""Parts of a rank's excess that lie off its device: input, copies to it, its cores, and the rest of the host."""

from __future__ import annotations

from collections.abc import Set

from gpubalance.analysis.attribution import Part
from gpubalance.analysis.causes_clock import uniform_slowness
from gpubalance.analysis.causes_device import slowest_stage
from gpubalance.analysis.rank_evidence import ByRank, RankEvidence
from gpubalance.record.run import Run

PUT_OFF_PER_S = 20.0
"""Involuntary switches a second from which on somebody else wants the core; a busy rival makes a hundred and more
(the scheduler's slices are milliseconds). Ours."""

PUT_OFF_RATIO = 3.0
"""And so many times the peers' rate. Ours."""

QUEUED_SHARE = 0.5
"""Where the kernel tells how long threads stood in line for a core: so much of the rank's excess, beyond what its peers
would have stood in line with as much work (H200 beside 8 busy processes: its main thread alone 67 %). Ours."""

SLOWER_LINK = 0.10
"""A host copy that is slower by more than this is worth a word, as for the probe's own gate."""


def fetching(seen: RankEvidence, rank: int) -> tuple[Part, ...]:
    """Waiting for the next batch, by the host's clock."""
    share, pair = seen.share(seen.stages["input"], rank), seen.stages["input"].pair(rank)
    if share is None or pair is None:
        return ()
    return (Part("input_pipeline", share, f"waiting {pair[0]:.1f} ms for its next batch, peers {pair[1]:.1f} ms"),)


def copying(seen: RankEvidence, rank: int) -> tuple[Part, ...]:
    """Copies from the host to the device, by marks on the device."""
    share, pair = seen.share(seen.stages["copy"], rank), seen.stages["copy"].pair(rank)
    if share is None or pair is None:
        return ()
    text = f"copying to its device for {pair[0]:.1f} ms, peers {pair[1]:.1f} ms"
    return (Part("pcie", share, text, _link(seen, rank)),)


def _link(seen: RankEvidence, rank: int) -> tuple[str, ...]:
    """The host link of its device: speed against peers, width and generation under load, replays."""
    pair, slower = seen.host_copy.pair(rank), seen.host_copy.slower(rank)
    speed = f"host copies {pair[0]:.1f} GB/s, peers {pair[1]:.1f} GB/s" if pair and (slower or 0) > SLOWER_LINK else ""
    columns = seen.columns.get(seen.device_of(rank), {})
    texts = [speed]
    for key, name in (("pcie_generation", "generation"), ("pcie_width", "width")):
        values = [value for value in columns.get(key, []) if value is not None]
        highest = seen.reading(rank, f"{key}_max")
        if values and highest is not None and max(values) < highest:
            texts.append(f"PCIe {name} {max(values):.0f} of {highest:.0f} under load")
    replays = seen.growth(rank, "pcie_replays")
    texts += [f"{replays:.0f} PCIe replays"] if replays else []
    return tuple(text for text in texts if text)


def rest_of_host(seen: RankEvidence, rank: int, covered: float, slow_node: int | None) -> Part:
    """What the device does not explain: others on its cores, its NUMA node, or the host without a better name."""
    if is_put_off(seen, rank):
        return Part("cpu_contention", covered, _put_off(seen, rank), throttled(seen.run))
    if slow_node is not None:
        return Part("numa", covered, f"time on the host of NUMA node {slow_node}, all of whose GPUs are slow")
    return Part("host", covered, "time on its host", (*_launch(seen.launch, rank), *throttled(seen.run)))


def cpu_parts(seen: RankEvidence, rank: int, excess: float, room: float) -> list[Part]:
    """A rank on CPU cores: the time in which it had no core, and the time in which it worked."""
    blocked = _away(seen, rank)
    if blocked is None:
        return []
    fetched = next((part.coverage for part in fetching(seen, rank)), 0.0)
    away = min(room, max(0.0, blocked - fetched))
    found = [rest_of_host(seen, rank, away, None)]
    uniform = uniform_slowness(seen, rank)
    if uniform is not None and not is_put_off(seen, rank):
        stage = slowest_stage(seen, rank)
        text = f"more work (stage {stage})" if stage else "more work"
        found.append(Part("device_work", max(0.0, room - away - min(1.0, uniform / excess)), text))
    return found


def _away(seen: RankEvidence, rank: int) -> float | None:
    """Share of the excess in which the process had no core, beyond what its peers would have lost with as much work: on
    a machine where every rank gets a third of a core, more work waits three times as long for it.
    """
    blocked, busy, excess_ms = seen.blocked.pair(rank), seen.busy.pair(rank), seen.compute.above(rank)
    if blocked is None or busy is None or busy[1] <= 0 or not excess_ms or excess_ms <= 0:
        return None
    return min(1.0, max(0.0, (blocked[0] - _alike(seen, rank, blocked[1])) / excess_ms))


def _alike(seen: RankEvidence, rank: int, peers_ms: float) -> float:
    """What the rank would lose as its peers do, with as much work as it has."""
    busy = seen.busy.pair(rank)
    more = 1.0 if busy is None or busy[1] <= 0 else max(1.0, busy[0] / busy[1])
    return max(0.0, peers_ms) * more


def is_put_off(seen: RankEvidence, rank: int) -> bool:
    """Whether the rank's process stands in line for its cores far longer than its peers'; where nobody counts that, is
    driven off them far more often.
    """
    queued, excess_ms = seen.queued.pair(rank), seen.compute.above(rank)
    if queued is not None and excess_ms is not None:
        return queued[0] - _alike(seen, rank, queued[1]) >= QUEUED_SHARE * excess_ms
    pair = seen.involuntary.pair(rank)
    return pair is not None and pair[0] >= PUT_OFF_PER_S and pair[0] >= PUT_OFF_RATIO * pair[1]


def _put_off(seen: RankEvidence, rank: int) -> str:
    queued = seen.queued.pair(rank)
    if queued is not None:
        return f"sharing its cores with others (in line for {queued[0]:.1f} ms a step, peers {queued[1]:.1f} ms)"
    own, peers = seen.involuntary.pair(rank) or (0.0, 0.0)
    return f"sharing its cores with others (put off {own:.0f} times a second, peers {peers:.0f} times)"


def _launch(launch: ByRank, rank: int) -> tuple[str, ...]:
    pair = launch.pair(rank)
    slower = pair is not None and pair[0] > 1.2 * pair[1]
    return (f"launching a kernel takes {pair[0]:.1f} us, peers {pair[1]:.1f} us",) if pair and slower else ()


def throttled(run: Run) -> tuple[str, ...]:
    """The CPU quota of the control group, over the run; of all ranks together."""
    looks = run.samples.quota
    periods = looks[-1].periods - looks[0].periods if len(looks) > 1 else 0
    stopped = looks[-1].throttled - looks[0].throttled if len(looks) > 1 else 0
    if periods <= 0 or stopped <= 0:
        return ()
    return (f"the control group's CPU quota stopped its processes in {100 * stopped / periods:.0f} % of periods",)


def slow_numa_node(seen: RankEvidence, slow: Set[int]) -> int | None:
    """The NUMA node whose GPUs, two or more, are exactly the slow ones while others are not; else None."""
    nodes = [seen.reading(rank, "numa_node") for rank in range(len(seen.kinds))]
    if len(slow) < 2 or len(slow) == len(nodes) or None in nodes:
        return None
    node = nodes[min(slow)]
    same = {rank for rank, other in enumerate(nodes) if other == node}
    return int(node) if node is not None and same == slow else None
