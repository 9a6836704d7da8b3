"""Parts of a rank's excess that lie off its device: input, copies to it, its cores, and the rest of the host."""

from __future__ import annotations

from collections.abc import Set

from gpubalance.analysis.attribution import EXPLAINS, Part
from gpubalance.analysis.causes_clock import uniform_slowness
from gpubalance.analysis.causes_cores import away, in_line, is_put_off, put_off_text
from gpubalance.analysis.causes_device import slowest_stage
from gpubalance.analysis.rank_evidence import ByRank, RankEvidence
from gpubalance.record.run import Run

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
        return Part(
            "cpu_contention", covered, put_off_text(seen, rank), throttled(seen.run), measured=in_line(seen, rank)
        )
    if slow_node is not None:
        return Part("numa", covered, f"time on the host of NUMA node {slow_node}, all of whose GPUs are slow")
    return Part("host", covered, "time on its host", (*_launch(seen.launch, rank), *throttled(seen.run)))


def cpu_parts(seen: RankEvidence, rank: int, excess: float, room: float) -> list[Part]:
    """A rank on CPU cores: the time in which it had no core, and the time in which it worked."""
    blocked = away(seen, rank)
    if blocked is None:
        return []
    fetched = next((part.coverage for part in fetching(seen, rank)), 0.0)
    without = min(room, max(0.0, blocked - fetched))
    found = [rest_of_host(seen, rank, without, None)]
    uniform = uniform_slowness(seen, rank)
    if uniform is not None and not is_put_off(seen, rank):
        stage = slowest_stage(seen, rank)
        text = f"more work (stage {stage})" if stage else "more work"
        found.append(Part("device_work", max(0.0, room - without - min(1.0, uniform / excess)), text))
    return found


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
    """The NUMA node whose GPUs, two or more, are exactly the slow ones, and slow by their hosts, while others are not;
    else None.
    """
    nodes = [seen.reading(rank, "numa_node") for rank in range(len(seen.kinds))]
    if len(slow) < 2 or len(slow) == len(nodes) or None in nodes:
        return None
    on_device = [seen.share(seen.device, rank) for rank in slow]
    if any(share is None or share > 1 - EXPLAINS for share in on_device):
        return None
    node = nodes[min(slow)]
    same = {rank for rank, other in enumerate(nodes) if other == node}
    return int(node) if node is not None and same == slow else None
