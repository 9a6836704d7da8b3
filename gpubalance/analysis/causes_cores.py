"""Who had no core when it had work: waits in line, and time in which the process used no core, against its peers."""

from __future__ import annotations

from gpubalance.analysis.rank_evidence import RankEvidence

PUT_OFF_PER_S = 20.0
"""Involuntary switches a second from which on somebody else wants the core; a busy rival makes a hundred and more
(the scheduler's slices are milliseconds). Ours."""

PUT_OFF_RATIO = 3.0
"""And so many times the peers' rate. Ours."""

QUEUED_SHARE = 0.5
"""Where the kernel tells how long threads stood in line for a core: so much of the rank's excess, beyond what its peers
would have stood in line with as much work (H200 beside 8 busy processes: its main thread alone 67 %). Ours."""


def away(seen: RankEvidence, rank: int) -> float | None:
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
    queued = in_line(seen, rank)
    if queued is not None:
        return queued >= QUEUED_SHARE
    pair = seen.involuntary.pair(rank)
    return pair is not None and pair[0] >= PUT_OFF_PER_S and pair[0] >= PUT_OFF_RATIO * pair[1]


def in_line(seen: RankEvidence, rank: int) -> float | None:
    """The share of the excess that was spent in line for a core, beyond the peers' with as much work. Who waits for a
    thread that stands in line is not counted by the kernel.
    """
    queued, excess_ms = seen.queued.pair(rank), seen.compute.above(rank)
    if queued is None or not excess_ms or excess_ms <= 0:
        return None
    return (queued[0] - _alike(seen, rank, queued[1])) / excess_ms


def put_off_text(seen: RankEvidence, rank: int) -> str:
    """What says so, as the subject of a sentence."""
    queued = seen.queued.pair(rank)
    if queued is not None:
        return f"sharing its cores with others (in line for {queued[0]:.1f} ms a step, peers {queued[1]:.1f} ms)"
    own, peers = seen.involuntary.pair(rank) or (0.0, 0.0)
    return f"sharing its cores with others (put off {own:.0f} times a second, peers {peers:.0f} times)"
