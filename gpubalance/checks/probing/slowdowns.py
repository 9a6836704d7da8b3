"""T2: why a GPU is not at its highest clock. Some reasons are normal, some never are.

Reasons are bits, several at once, and are tested with AND.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, not_measured
from gpubalance.checks.probing.loaded import (
    MIN_SAMPLES,
    loaded_rows,
    loaded_samples,
    was_loaded,
    why_no_samples,
)
from gpubalance.checks.probing.measured import each_measured, peers_of, values_of
from gpubalance.node.readings import EVENT_REASONS, reason_names
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe

POWER_CAP = 0x4
HARDWARE = 0x8 | 0x40 | 0x80
SOFTWARE_THERMAL = 0x20
LOW_POWER = "capped_power_warn"
"""The gate for the share of its limit below which a GPU has no business to be power-capped."""
CAP_DIFFERS = 0.20
COOLING = "check power supply and cooling of that GPU"


@dataclass(frozen=True)
class Band:
    """Bits, and the gates of the shares of the loaded samples above which they warn and fail."""

    bits: int
    gates: str


BANDS = (Band(HARDWARE, "hardware_slowdown"), Band(SOFTWARE_THERMAL, "thermal_slowdown"))


def slowdowns(probe: Probe) -> list[Finding]:
    """T2: by their share of the time under load, slowdowns of the hardware warn above 0 and fail above 1 %, software
    thermal ones warn above 1 % and fail above 10 %.

    A software power cap at full load is normal; it warns where the GPU draws less than 60 % of its limit, and is told
    where its share differs from that of the peers by more than 20 points. At rest a hardware slowdown warns, as one
    look may catch the edge of a load. The bits are those of DCGM's mask, the shares our guess.
    """
    gpus = gpus_of(probe)
    loaded = [gpu for gpu in gpus if was_loaded(probe, gpu.index)]
    return [
        *_at_rest(probe, [gpu for gpu in gpus if gpu not in loaded]),
        *(_under_load(probe, loaded) if loaded else ()),
    ]


def _at_rest(probe: Probe, gpus: Sequence[Gpu]) -> list[Finding]:
    least = gates_of(probe)[LOW_POWER]
    seen = values_of(gpus, "event_reasons")
    found = list(not_measured(gpus, "event_reasons", "clock event reasons"))
    judged = [f for gpu in gpus if gpu.index in seen for f in _one_look(gpu, int(seen[gpu.index]), least)]
    if seen and not any(f.state is State.WARN for f in judged):
        judged.append(finding(State.PASS, f"no hardware slowdown at rest on {counted(len(seen), 'GPU')}"))
    return found + judged


def _one_look(gpu: Gpu, bits: int, least: float) -> Iterator[Finding]:
    power, limit = gpu.number("power_w"), gpu.number("power_limit_w")
    low = power is not None and limit is not None and power < least * limit
    if bits & HARDWARE:
        yield finding(
            State.WARN,
            f"{gpu.name}: {_main(bits & HARDWARE)} at rest",
            subject=gpu.label,
            observed=_names(bits),
            evidence=("one look, which may have caught the edge of a load",),
            next_step="look again with --load, which judges by the share of the time",
        )
    told = bits & (SOFTWARE_THERMAL | (POWER_CAP if low else 0))
    if told:
        text = f"{gpu.name}: {_names(told)} in one look at rest"
        yield finding(State.INFO, text, subject=gpu.label, observed=f"{bits:#x}")
    yield from _unknown(gpu, [bits])


def _under_load(probe: Probe, gpus: Sequence[Gpu]) -> list[Finding]:
    def measure(gpu: Gpu) -> float | str:
        reasons = _reasons(probe, gpu)
        if reasons:
            return float(len(reasons))
        missing = gpu.value("event_reasons") is None
        return gpu.reason("event_reasons") if missing else why_no_samples(probe, gpu.index, "event_reasons")

    gates = gates_of(probe)

    def judge(gpu: Gpu, _samples: float) -> Iterator[Finding]:
        reasons = _reasons(probe, gpu)
        for band in BANDS:
            yield from _in_band(gpu, reasons, band.bits, gates.pair(band.gates))
        yield from _capped_at_low_power(probe, gpu)
        yield from _unknown(gpu, reasons)

    found = each_measured(gpus, measure, "slowdowns under load", judge, "no abnormal slowdown under load")
    return [*found, *_capped_unlike_peers(probe, gpus)]


def _reasons(probe: Probe, gpu: Gpu) -> list[int]:
    return [int(bits) for bits in loaded_samples(probe, gpu.index, "event_reasons")]


def _in_band(gpu: Gpu, reasons: Sequence[int], mask: int, gates: tuple[float, float]) -> Iterator[Finding]:
    slow = [bits & mask for bits in reasons if bits & mask]
    share, (warn, fail) = len(slow) / len(reasons), gates
    if share > warn:
        yield finding(
            State.FAIL if share > fail and len(slow) >= MIN_SAMPLES else State.WARN,
            f"{gpu.name}: {_main(_union(slow))} {percent(share)} of the time under load",
            subject=gpu.label,
            observed=f"{len(slow)} of {len(reasons)} samples: {_names(_union(slow))}",
            expected=f"at most {percent(warn)} (fails above {percent(fail)})",
            next_step=COOLING,
        )


def _capped_at_low_power(probe: Probe, gpu: Gpu) -> Iterator[Finding]:
    """A cap that draws little contradicts itself: something but the limit holds the GPU back."""
    rows = loaded_rows(probe, gpu.index, ("event_reasons", "power_w"))
    capped = [power for bits, power in rows if int(bits) & POWER_CAP]
    limit, least = gpu.number("power_limit_w"), gates_of(probe)[LOW_POWER]
    if limit and len(capped) >= MIN_SAMPLES and statistics.fmean(capped) < least * limit:
        drawn = statistics.fmean(capped)
        yield finding(
            State.WARN,
            f"{gpu.name} is power-capped at {percent(drawn / limit)} of its power limit",
            subject=gpu.label,
            observed=f"{drawn:.0f} W in {len(capped)} of {len(rows)} samples",
            expected=f"at least {percent(least)} of {limit:.0f} W while capped",
            next_step="check the power supply of that GPU and its board, and limits set outside the driver",
        )


def cap_share(probe: Probe, gpu: Gpu) -> float | None:
    """Share of the loaded samples with a software power cap; None without samples."""
    reasons = _reasons(probe, gpu)
    return sum(1 for bits in reasons if bits & POWER_CAP) / len(reasons) if reasons else None


def _capped_unlike_peers(probe: Probe, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Of two GPUs only the one that is capped more is told."""
    shares = {gpu.index: share for gpu in gpus if (share := cap_share(probe, gpu)) is not None}
    peers = peers_of(gpus, shares)
    for gpu in gpus:
        alike = peers.get(gpu.index)
        if not alike:
            continue
        own, usual = shares[gpu.index], statistics.median(alike)
        if own - usual > CAP_DIFFERS or (len(alike) > 1 and usual - own > CAP_DIFFERS):
            text = f"{gpu.name} is power-capped {percent(own)} of the time, its peers {percent(usual)}"
            yield finding(State.INFO, text, subject=gpu.label, observed=percent(own), expected=percent(usual))


def _unknown(gpu: Gpu, reasons: Iterable[int]) -> Iterator[Finding]:
    bits = _union(reasons) & ~sum(EVENT_REASONS)
    if bits:
        yield finding(State.INFO, f"{gpu.name}: unknown clock event reason {bits:#x}", subject=gpu.label)


def _union(reasons: Iterable[int]) -> int:
    union = 0
    for bits in reasons:
        union |= bits
    return union


def _main(bits: int) -> str:
    """The reasons that say most: the general bit 0x8 stands beside each of the special ones of the hardware."""
    return _names(bits & ~0x8 or bits)


def _names(bits: int) -> str:
    return ", ".join(reason_names(bits))


SLOWDOWNS = (
    Check("T2", "slowdowns", slowdowns, "DCGM's mask of bits; shares of the time under load: our guess", required=True),
)
