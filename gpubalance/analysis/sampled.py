"""What the sensor saw of one device in one window of the run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import Column


@dataclass(frozen=True)
class Sampled:
    """Means over the steady part of a phase; None where the device or the driver does not offer the reading."""

    device: int
    samples: int
    utilization: float | None
    """NVML utilization, 0 to 1: the share of time in which any kernel ran, waiting in NCCL included."""
    sm: float | None
    """GPM SM_UTIL, 0 to 1."""
    power_w: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    reasons_share: dict[int, float]
    """Event reason bit -> share of samples in which it was set."""
    cpu: float | None
    """CPU cores used by the rank's process, where there is no GPU."""
    resident_bytes: int | None


def window_of(run: Run, *names: str, attempt: int = 0) -> Phase | None:
    """The first window of these names that was finished, or None."""
    for name in names:
        for phase in run.phases:
            if phase.name == name and phase.attempt == attempt and phase.end_s is not None:
                return phase
    return None


def sampled_in(run: Run, window: Phase | None, device: int) -> Sampled | None:
    """Means of one device over the window, or None when nothing was sampled in it."""
    return sampled_each(run, window, [device])[0]


def sampled_each(run: Run, window: Phase | None, devices: Iterable[int]) -> tuple[Sampled | None, ...]:
    """The same for each of these devices, in one pass over the samples."""
    if window is None or window.end_s is None:
        return tuple(None for _ in devices)
    rows = [i for i, t in enumerate(run.samples.t_s) if window.begin_s <= t <= window.end_s]
    columns = {samples.device: samples.columns for samples in reversed(run.samples.devices)}
    return tuple(_sampled(device, rows, columns[device]) if rows and device in columns else None for device in devices)


def _sampled(device: int, rows: list[int], columns: Mapping[str, Column]) -> Sampled:
    def values(key: str) -> list[float | int]:
        column = columns.get(key)
        return [] if column is None else [v for i in rows if (v := column[i]) is not None]

    def mean(key: str, scale: float = 1.0) -> float | None:
        found = values(key)
        return statistics.fmean(found) * scale if found else None

    resident = mean("resident_bytes")
    return Sampled(
        device=device,
        samples=len(rows),
        utilization=mean("utilization_percent", 0.01),
        sm=mean("gpm_sm_percent", 0.01),
        power_w=mean("power_w"),
        sm_clock_mhz=mean("sm_clock_mhz"),
        temperature_c=mean("temperature_c"),
        reasons_share=_shares([int(value) for value in values("event_reasons")]),
        cpu=mean("cpu_percent", 0.01),
        resident_bytes=None if resident is None else int(resident),
    )


def _shares(reasons: list[int]) -> dict[int, float]:
    bits = sorted({1 << place for value in reasons for place in range(value.bit_length()) if value >> place & 1})
    return {bit: sum(1 for value in reasons if value & bit) / len(reasons) for bit in bits}
