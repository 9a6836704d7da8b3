"""What a low clock explains, and what holds it down.

A device at clock f_i takes f_ref / f_i - 1 longer than peers at f_ref. That share is split over what held the clock
down in each sample: heat, power, or nothing that the driver names. Event reasons are bits, tested with AND, because
several are usually set at once. A power cap is what a healthy GPU does at full load, and a rank with more work meets
it more often than peers that wait: it decides only where something says that the device itself is limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpubalance.analysis.attribution import EXPLAINS, CauseKind, Part
from gpubalance.analysis.rank_evidence import DEVICE_STAGES, POWER_CAP_BIT, RankEvidence
from gpubalance.analysis.steps import Array
from gpubalance.record.samples import Column

THERMAL_BITS, BRAKE_BIT, HARDWARE_BIT, APPLICATION_BIT = 0x60, 0x80, 0x8, 0x2
"""Software and hardware thermal slowdown; power brake; hardware slowdown, which is set together
with the one that caused it; application clocks (nvml.h, nvmlClocksEventReason*)."""

ALL_BITS = 2**32 - 1

CAPPED_ALIKE = 0.20
"""Peers are as capped when their share of capped samples is less than this below. Ours."""

OFTEN = 0.20
"""A bit that is set less often than this holds nothing down for long. Ours."""

VIOLATED = 0.1
"""Share of the phase from which a counter of violations is worth a word. Ours."""

CAPPED_TOO = "its peers are as capped: this may follow from its work"

CORROBORATED = 0.5
"""Another measure of the device must show at least this share of the slowness; ours."""

UNIFORM = 0.8
"""When forward and backward both show this share of it, the device is as slow at anything; ours."""

NOT_TOLD = "the driver does not say what holds it"


@dataclass(frozen=True)
class LowClock:
    """The clock of one rank's device against its peers."""

    own_mhz: float
    peers_mhz: float
    slower: float
    """f_ref / f_i - 1."""
    held: Mapping[CauseKind, float]
    """What held it down -> its share of the deficit; shares add up to 1."""
    set_share: Mapping[int, float]
    """Event reason bit -> share of loaded samples in which it was set."""
    told: bool = True
    """False when neither event reasons nor counters of violations could be read."""


def low_clock(seen: RankEvidence, rank: int) -> LowClock | None:
    """The clock deficit of a rank; None without samples, and where its clock is not below its peers'."""
    pair = seen.clock.pair(rank)
    if pair is None or pair[0] >= pair[1] or pair[0] <= 0:
        return None
    columns = seen.columns[seen.device_of(rank)]
    read = _read(columns)
    bits = np.array([reason for _, reason in read], dtype=np.int64)
    deficit = np.maximum(0.0, pair[1] - np.array([clock for clock, _ in read], dtype=float))
    set_share = {1 << place: float((bits & (1 << place) != 0).mean()) for place in range(32)} if len(bits) else {}
    slower, set_share = pair[1] / pair[0] - 1, {bit: share for bit, share in set_share.items() if share > 0}
    if len(read) and deficit.sum() > 0:
        return LowClock(pair[0], pair[1], slower, _by_reason(bits, deficit), set_share)
    counted = _by_counters(seen, rank)
    return LowClock(pair[0], pair[1], slower, {counted or "clock_limit": 1.0}, set_share, told=counted is not None)


def _read(columns: Mapping[str, Column]) -> list[tuple[float, int]]:
    """(clock, reasons) of the samples that have both."""
    pairs = zip(columns.get("sm_clock_mhz", []), columns.get("event_reasons", []), strict=False)
    return [(float(clock), int(bits) & ALL_BITS) for clock, bits in pairs if clock is not None and bits is not None]


def _by_reason(bits: NDArray[np.int64], deficit: Array) -> dict[CauseKind, float]:
    """What holds most of the deficit (as much as names a cause) holds all of it: a bit that is not set in every sample
    of a clock that stays low is one that was read between two of its spells.
    """
    thermal = (bits & THERMAL_BITS) != 0
    power = ((bits & (BRAKE_BIT | POWER_CAP_BIT)) != 0) & ~thermal
    shares: dict[CauseKind, float] = {
        "thermal": float(deficit[thermal].sum() / deficit.sum()),
        "power_cap": float(deficit[power].sum() / deficit.sum()),
    }
    shares["clock_limit"] = 1.0 - shares["thermal"] - shares["power_cap"]
    most = max(shares, key=lambda kind: shares[kind])
    if shares[most] >= EXPLAINS:
        return {most: 1.0}
    return {kind: share for kind, share in shares.items() if share > 0}


def _by_counters(seen: RankEvidence, rank: int) -> CauseKind | None:
    """Where the driver does not give its reasons: the violation counter that grew most, if it is worth a word. None
    where none was read, or one of them was not and the other does not explain it.
    """
    thermal, power = (seen.violation(rank, key) for key in ("thermal_violation_ns", "power_violation_ns"))
    if max(thermal or 0.0, power or 0.0) >= VIOLATED:
        return "thermal" if (thermal or 0.0) >= (power or 0.0) else "power_cap"
    return None if thermal is None or power is None else "clock_limit"


def clock_parts(seen: RankEvidence, rank: int, excess: float, clock: LowClock | None) -> list[Part]:
    """Parts by what holds the clock down, consequences left out. Peers that wait clock up, so that a low clock alone
    says little: it explains no more than what forward and backward have in common.
    """
    if clock is None or excess <= 0:
        return []
    found = []
    most = slower_at_anything(seen, rank, excess)
    for kind, share in clock.held.items():
        coverage = min(1.0 if most is None else most, clock.slower * share / excess)
        if kind == "thermal":
            found.append(Part(kind, coverage, _heat(clock), _violation(seen, rank)))
        elif _is_limited(seen, rank, kind, clock, excess):
            text = _power(seen, rank, clock) if kind == "power_cap" else _limit(seen, rank, clock)
            doubt = CAPPED_TOO if kind == "power_cap" and _alike(seen, rank, clock) else ""
            doubt = doubt or ("" if clock.told or is_set_lower(seen, rank, kind) else NOT_TOLD)
            found.append(Part(kind, coverage, text, doubt=doubt))
    return found


def _is_limited(seen: RankEvidence, rank: int, kind: CauseKind, clock: LowClock, excess: float) -> bool:
    """Whether the device itself is held down, and not only at a lower clock because it has more to do."""
    bits = BRAKE_BIT if kind == "power_cap" else APPLICATION_BIT | HARDWARE_BIT
    if is_set_lower(seen, rank, kind) or _set(clock, bits) >= OFTEN:
        return True
    gemm = seen.gemm.slower(rank)
    if gemm is not None:
        return gemm >= CORROBORATED * clock.slower
    uniform = uniform_slowness(seen, rank)
    return uniform is None or uniform >= UNIFORM * excess


def is_set_lower(seen: RankEvidence, rank: int, kind: CauseKind) -> bool:
    """Whether somebody set this device a lower limit than its peers have."""
    if kind == "power_cap":
        return _limit_is_lower(seen, rank)
    return kind == "clock_limit" and _maximum_is_lower(seen, rank)


def uniform_slowness(seen: RankEvidence, rank: int) -> float | None:
    """The slowness that forward and backward have in common: a slower device has it in both, extra work has not."""
    pairs = [seen.stages[stage].pair(rank) for stage in DEVICE_STAGES]
    ratios = [pair[0] / pair[1] for pair in pairs if pair is not None and pair[1] > 0]
    return max(0.0, min(ratios) - 1) if len(ratios) == len(DEVICE_STAGES) else None


def slower_at_anything(seen: RankEvidence, rank: int, excess: float) -> float | None:
    """The share of the excess (0 to 1) that a slower device can explain; None where stages were not timed."""
    uniform = uniform_slowness(seen, rank)
    if uniform is None:
        return None
    return 1.0 if uniform >= UNIFORM * excess else uniform / excess


def _set(clock: LowClock, bits: int) -> float:
    """The largest share of samples in which one of these bits was set."""
    return max((share for bit, share in clock.set_share.items() if bit & bits), default=0.0)


def _limit_is_lower(seen: RankEvidence, rank: int) -> bool:
    pair = seen.power_limit.pair(rank)
    return pair is not None and pair[0] < 0.99 * pair[1]


def _maximum_is_lower(seen: RankEvidence, rank: int) -> bool:
    pair = seen.clock_max.pair(rank)
    return pair is not None and pair[0] < pair[1]


def _alike(seen: RankEvidence, rank: int, clock: LowClock) -> bool:
    """Peers under the same limit are capped as often: then the cap is not what makes the difference."""
    if _limit_is_lower(seen, rank) or _set(clock, BRAKE_BIT) >= OFTEN:
        return False
    pair = seen.capped.pair(rank)
    return pair is not None and pair[0] - pair[1] <= CAPPED_ALIKE


def _clocks(clock: LowClock) -> str:
    return f"clock {clock.own_mhz:.0f} of {clock.peers_mhz:.0f} MHz"


def _heat(clock: LowClock) -> str:
    share = _set(clock, THERMAL_BITS)
    often = f" {100 * share:.0f} % of the time" if share else ""
    return f"thermal slowdown{often}, {_clocks(clock)}"


def _violation(seen: RankEvidence, rank: int) -> tuple[str, ...]:
    share = seen.violation(rank, "thermal_violation_ns")
    return (f"the driver counts thermal violations for {100 * share:.0f} % of the phase",) if share else ()


def _power(seen: RankEvidence, rank: int, clock: LowClock) -> str:
    brake = _set(clock, BRAKE_BIT)
    if brake >= OFTEN:
        return f"hardware power brake {100 * brake:.0f} % of the time, {_clocks(clock)}"
    limits, capped = seen.power_limit.pair(rank), seen.capped.pair(rank)
    if limits is not None and _limit_is_lower(seen, rank):
        return f"power limit {limits[0]:.0f} W against {limits[1]:.0f} W, {_clocks(clock)}"
    often = "" if capped is None else f" {100 * capped[0]:.0f} % of the time, peers {100 * capped[1]:.0f} %"
    return f"power cap{often}, {_clocks(clock)}"


def _limit(seen: RankEvidence, rank: int, clock: LowClock) -> str:
    highest = seen.clock_max.pair(rank)
    if highest is not None and _maximum_is_lower(seen, rank):
        return f"highest clock set to {highest[0]:.0f} MHz, peers {highest[1]:.0f} MHz, {_clocks(clock)}"
    for bit, name in ((HARDWARE_BIT, "hardware slowdown"), (APPLICATION_BIT, "application clocks")):
        share = _set(clock, bit)
        if share >= OFTEN:
            return f"{name} set {100 * share:.0f} % of the time, {_clocks(clock)}"
    return f"a {'clock held down by neither heat nor power' if clock.told else 'low clock'}, {_clocks(clock)}"
