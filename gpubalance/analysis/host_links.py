"""Each device's way to the host: alone, all at once, and with whom it shares it."""

from __future__ import annotations

from dataclasses import dataclass

from gpubalance.analysis.sampled import window_of
from gpubalance.record.limits import PCIE_GB_PER_S_PER_LANE
from gpubalance.record.links import DeviceCopies, HostPair
from gpubalance.record.node import Device
from gpubalance.record.run import Run

SHARED = 0.75
"""Two devices share a way when both get less of their rate than this while both copy (ours: a shared way gives 0.5)."""


@dataclass(frozen=True)
class Bus:
    """A device's PCIe link while it copied; null where the sensor did not see it."""

    generation: int | None
    width: int | None
    generation_max: int | None
    width_max: int | None

    @property
    def limit_gb_per_s(self) -> float | None:
        """Lanes x rate in one direction, as it was seen; where it was not seen, as it can be."""
        generation, width = self.generation or self.generation_max, self.width or self.width_max
        rate = PCIE_GB_PER_S_PER_LANE.get(generation or 0)
        return None if rate is None or not width else rate * width


@dataclass(frozen=True)
class HostLink:
    """One device and the host; shares are of the rate that the device reaches alone."""

    device: int
    copies: DeviceCopies
    bus: Bus
    together_to: float | None
    together_from: float | None


@dataclass(frozen=True)
class HostFacts:
    """All devices, and who shares a way with whom."""

    links: tuple[HostLink, ...]
    shared: tuple[tuple[int, ...], ...]
    """Groups of devices that slow each other when two of them copy from the host."""
    share: tuple[float, ...]
    """By group: the smallest share that one of two gets."""


def host_facts(run: Run) -> HostFacts | None:
    """Facts of copies from and to the host; None where there were none."""
    if run.links is None or not any(copies.to_device_gb_per_s for copies in run.links.devices):
        return None
    links = tuple(_host_link(run, copies) for copies in run.links.devices)
    groups, shares = _shared(run.links.host_pairs, {link.device: link.copies for link in links})
    return HostFacts(links, groups, shares)


def _host_link(run: Run, copies: DeviceCopies) -> HostLink:
    return HostLink(
        device=copies.device,
        copies=copies,
        bus=bus_of(run, copies.device),
        together_to=_share(copies.together_to_device_gb_per_s, copies.to_device_gb_per_s),
        together_from=_share(copies.together_from_device_gb_per_s, copies.from_device_gb_per_s),
    )


def _share(rate: float | None, alone: float | None) -> float | None:
    return None if rate is None or alone is None else rate / alone


def bus_of(run: Run, device: int) -> Bus:
    """The largest generation and width that the sensor saw while the host was copied from: GPUs at rest slow their link
    down, and none is faster than it can be.
    """
    window = window_of(run, "links host", "links")
    columns = next((d.columns for d in run.samples.devices if d.device == device), {})
    inside = [i for i, t in enumerate(run.samples.t_s) if window and window.begin_s <= t <= (window.end_s or 0.0)]

    def seen(key: str) -> int | None:
        column = columns.get(key, [])
        values = [int(value) for i in inside if i < len(column) and (value := column[i]) is not None]
        return max(values, default=None)

    rest = run.plan.devices[device]
    return Bus(seen("pcie_generation"), seen("pcie_width"), _whole(rest, "pcie_generation_max"),
               _whole(rest, "pcie_width_max"))  # fmt: skip


def _whole(device: Device, key: str) -> int | None:
    value = device.readings.get(key)
    return int(value) if isinstance(value, int | float) else None


def _shared(
    pairs: list[HostPair], alone: dict[int, DeviceCopies]
) -> tuple[tuple[tuple[int, ...], ...], tuple[float, ...]]:
    """Devices joined by pairs in which both lose, and the smallest share in each group."""
    groups: list[set[int]] = []
    shares: dict[int, float] = {}
    for pair in pairs:
        rates = ((pair.first, pair.first_gb_per_s), (pair.second, pair.second_gb_per_s))
        both = [_share(rate, alone[d].to_device_gb_per_s) for d, rate in rates if d in alone]
        lost = [share for share in both if share is not None and share < SHARED]
        if len(lost) < 2:
            continue
        for device in (pair.first, pair.second):
            shares[device] = min([*lost, shares.get(device, 1.0)])
        joined = [group for group in groups if group & {pair.first, pair.second}]
        groups = [group for group in groups if group not in joined]
        groups.append({pair.first, pair.second}.union(*joined))
    ordered = tuple(sorted(tuple(sorted(group)) for group in groups))
    return ordered, tuple(min(shares[device] for device in group) for group in ordered)
