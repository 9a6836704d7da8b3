"""Parts of a rank's excess that lie on its device: clock, memory, somebody else's work, more work of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpubalance.analysis.attribution import Part
from gpubalance.analysis.causes_clock import (
    CORROBORATED,
    LowClock,
    clock_parts,
    is_set_lower,
    low_clock,
    uniform_slowness,
)
from gpubalance.analysis.causes_cores import is_put_off
from gpubalance.analysis.rank_evidence import DEVICE_STAGES, RankEvidence

WORK_STAGES = ("update", *DEVICE_STAGES)
"""What is not waiting for input and not copying it."""

SLOWER = 0.02
"""A probe of a healthy device is repeated within this (two H200s: 1.5 %)."""

BUSY_BEFORE_PERCENT = 5.0

ACTIVE = 0.25
"""A foreign process works when the device is slower at any work by at least this share of the excess. Ours."""

NO_REASON = "neither its clock nor its memory nor a process says why"
NO_PIDS = "processes of others cannot be told here"


@dataclass(frozen=True)
class DeviceTime:
    """The device's part of a rank's excess."""

    covered: float | None
    """Share of the excess that lies on the device; None when nothing tells device from host."""
    parts: tuple[Part, ...]


def device_time(seen: RankEvidence, rank: int, excess: float, room: float) -> DeviceTime:
    """Everything on the device, at most `room` of the excess.

    An intruder's work lowers the clock and every probe as well, so that it is asked for first; of the clock then
    counts only what heat or a lower setting took.
    """
    clock = low_clock(seen, rank)
    clocks = clock_parts(seen, rank, excess, clock)
    replayed = seen.share(seen.device, rank)
    covered = None
    if replayed is not None:  # what held the clock down in the blocks may be over when the step is replayed
        covered = min(room, max(replayed, sum(part.coverage for part in clocks if not part.doubt)))
    intruder = _intruder(seen, rank, excess, clock, covered)
    if intruder:
        clocks = [part for part in clocks if part.kind == "thermal" or is_set_lower(seen, rank, part.kind)]
    most = room if covered is None else covered
    clocks = _within(clocks, most)
    known = sum(part.coverage for part in clocks)
    intruder = [replace(part, coverage=min(part.coverage, most) - known) for part in intruder]
    memory = [] if intruder else _memory(seen, rank, excess, most - known)
    found = [*clocks, *intruder, *memory]
    work = _more_work(seen, rank, excess, clock, found, covered)
    return DeviceTime(covered, (*found, *work))


def _more_work(
    seen: RankEvidence, rank: int, excess: float, clock: LowClock | None, found: list[Part], covered: float | None
) -> list[Part]:
    """What is left of the device's time: its own slowness where nothing says why, and the rest, which is more work."""
    itself = _itself_slower(seen, rank, clock)
    if covered is None or itself is None:
        return []
    left = max(0.0, covered - sum(part.coverage for part in found))
    unexplained = min(left, max(0.0, itself / excess - sum(part.coverage for part in found)))
    why = NO_REASON if seen.pids_are_known else NO_PIDS
    slower = Part("device", unexplained, f"a device that is {100 * itself:.1f} % slower at anything", doubt=why)
    return [Part("device_work", left - unexplained, _work(seen, rank), _equal(seen, rank)), slower]


def _within(parts: list[Part], most: float) -> list[Part]:
    """The same parts, scaled down where together they would cover more than that."""
    total = sum(part.coverage for part in parts)
    if total <= most or total <= 0:
        return parts
    return [replace(part, coverage=part.coverage * most / total) for part in parts]


def _itself_slower(seen: RankEvidence, rank: int, clock: LowClock | None) -> float | None:
    """By how much the device is slower at any work, as a share; None when neither a probe nor stages can say.

    Stages are timed while the peers wait, which lets their clocks rise: what the clock takes is taken off, unless the
    probe from before the steps says that it is the device's. Either way it is no more than what stages have in common.
    Who waits for a core has longer stages with an equally fast device.
    """
    gemm, uniform = seen.gemm.slower(rank), None if is_put_off(seen, rank) else uniform_slowness(seen, rank)
    slower = gemm
    if uniform is not None:
        slower = min(uniform, max(gemm or 0.0, uniform - (clock.slower if clock is not None else 0.0)))
    return slower if slower is None or slower > SLOWER else 0.0


def _intruder(
    seen: RankEvidence, rank: int, excess: float, clock: LowClock | None, covered: float | None
) -> list[Part]:
    """A process of nobody's on the device, as far as the device is slower at any work.

    One that only holds memory slows nothing down: beyond what the clock takes, both forward and backward (or, without
    stages, a probe) must be slower.
    """
    pids = seen.strangers.get(seen.device_of(rank), ())
    if not pids or covered is None:
        return []
    uniform = uniform_slowness(seen, rank)
    probes = [value for value in (seen.gemm.slower(rank), seen.memory_copy.slower(rank)) if value is not None]
    slower = uniform if uniform is not None else max(probes, default=0.0)
    busy_before = (seen.reading(rank, "utilization_before_percent") or 0.0) >= BUSY_BEFORE_PERCENT
    beyond_clock = slower - (clock.slower if clock is not None else 0.0)
    if beyond_clock < ACTIVE * excess and not busy_before:
        return []
    share = min(1.0, slower / excess)
    names = ", ".join(str(pid) for pid in pids[:3]) + (" and others" if len(pids) > 3 else "")
    text = f"work of {'pid' if len(pids) == 1 else 'pids'} {names} on its device"
    return [Part("foreign_process", share, text, _other_use(seen, rank))]


def _other_use(seen: RankEvidence, rank: int) -> tuple[str, ...]:
    before = seen.reading(rank, "utilization_before_percent") or 0.0
    return (f"the device was {before:.0f} % busy before the run",) if before >= BUSY_BEFORE_PERCENT else ()


def _memory(seen: RankEvidence, rank: int, excess: float, left: float) -> list[Part]:
    """A device whose memory is slow while its matrix product is not: then the steps are slower as well, and of their
    stages the optimizer's, which moves memory and computes little.
    """
    slower, gemm, pair = seen.memory_copy.slower(rank), seen.gemm.slower(rank), seen.memory_copy.pair(rank)
    if slower is None or pair is None or slower <= SLOWER or (gemm is not None and gemm >= CORROBORATED * slower):
        return []
    uniform, update = uniform_slowness(seen, rank), seen.stages["update"].pair(rank)
    if uniform is not None and uniform < ACTIVE * excess:
        return []
    if update is not None and update[0] / update[1] - 1 < CORROBORATED * slower:
        return []
    text = f"slow device memory, {pair[0]:.0f} GB/s against {pair[1]:.0f} GB/s"
    return [Part("memory_bandwidth", max(0.0, min(left, slower / excess)), text, _memory_errors(seen, rank))]


def _memory_errors(seen: RankEvidence, rank: int) -> tuple[str, ...]:
    """Counters that grew over the phase."""
    names = {
        "ecc_corrected": "corrected ECC errors",
        "ecc_uncorrected": "uncorrectable ECC errors",
        "rows_remapped_uncorrectable": "remapped rows",
    }
    grown = {name: seen.growth(rank, key) for key, name in names.items()}
    return tuple(f"{count:.0f} new {name}" for name, count in grown.items() if count)


def _work(seen: RankEvidence, rank: int) -> str:
    stage = slowest_stage(seen, rank)
    return f"more work on its device (stage {stage})" if stage else "more work on its device"


def _equal(seen: RankEvidence, rank: int) -> tuple[str, ...]:
    gemm, memory = seen.gemm.pair(rank), seen.memory_copy.pair(rank)
    if gemm is None or memory is None or max(pair[1] / pair[0] for pair in (gemm, memory)) > 1 + SLOWER:
        return ()
    product = f"matrix product {gemm[0]:.0f} TFLOP/s, peers {gemm[1]:.0f} TFLOP/s"
    return (f"not a slower device: {product}; memory copy {memory[0]:.0f} GB/s, peers {memory[1]:.0f} GB/s",)


def slowest_stage(seen: RankEvidence, rank: int) -> str | None:
    """The stage of work that holds most of the excess, when it holds more than half of it."""
    shares = {stage: seen.share(seen.stages[stage], rank) or 0.0 for stage in WORK_STAGES}
    stage = max(shares, key=lambda name: shares[name], default=None)
    return stage if stage is not None and shares[stage] > 0.5 else None
