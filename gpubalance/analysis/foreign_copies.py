"""Copies that nvbandwidth and a run both made, device by device."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from gpubalance.analysis.foreign_pairs import Pair, Unpaired
from gpubalance.record.foreign import CopyMatrix, Foreign, TheirDevice
from gpubalance.record.node import Device
from gpubalance.record.run import Run

COPIES = {
    "host_to_device_memcpy_ce": ("h2d", 1.0),
    "device_to_host_memcpy_ce": ("d2h", 1.0),
    "device_local_copy": ("memory_copy", 2.0),
    "device_to_device_memcpy_write_ce": ("p2p", 1.0),
}
"""Tests of nvbandwidth that a run has as well, and the factor to our way of counting: a copy within a device is read
and written, and nvbandwidth counts it once. Its write test copies from the device of the row to that of the column,
by the engine of the former (testcases_ce.cpp), as a run does; the arrow in its heading points the other way."""


def pair_copies(run: Run, log: Foreign) -> tuple[list[Pair], list[Unpaired]]:
    """Pairs, and what the log alone has. Pure."""
    pairs: list[Pair] = []
    missing: list[Unpaired] = []
    places, ours = _columns(run.plan.devices, log.devices), _our_copies(run)
    for copy in log.copies:
        metric, factor = COPIES.get(copy.test, ("", 1.0))
        found = list(_copy_pairs(run, copy, metric, factor, places, ours))
        pairs += found
        if not found:
            missing.append(Unpaired("log", copy.test, 1, "the run has no such copy"))
    return pairs, missing


Ends = tuple[int | None, int]
"""Indices of devices: from which one (None: the host) to which one."""


def _our_copies(run: Run) -> dict[tuple[str, Ends], float]:
    """Copies of one device alone, where the links phase made them; else those of all devices at the same time."""
    found: dict[tuple[str, Ends], float] = {}
    for probe in run.probes:
        ends = (None, probe.device)
        found["h2d", ends] = probe.host_to_device_gb_per_s
        found["d2h", ends] = probe.device_to_host_gb_per_s
        found["memory_copy", ends] = probe.memory_copy_gb_per_s
    links = run.links
    for device in links.devices if links is not None else ():
        alone = (device.to_device_gb_per_s, device.from_device_gb_per_s, device.memory_copy_gb_per_s)
        for metric, value in zip(("h2d", "d2h", "memory_copy"), alone, strict=True):
            if value is not None:
                found[metric, (None, device.device)] = value
    for peer in links.peers if links is not None else ():
        if peer.looks_gb_per_s:
            found["p2p", (peer.source, peer.target)] = statistics.median(peer.looks_gb_per_s)
    return found


def _copy_pairs(
    run: Run,
    copy: CopyMatrix,
    metric: str,
    factor: float,
    places: Sequence[int | None],
    ours: Mapping[tuple[str, Ends], float],
) -> Iterator[Pair]:
    for (which, (source, target)), value in ours.items():
        if which != metric:
            continue
        row = 0 if source is None else places[source]
        theirs = _cell(copy, row, places[target])
        if theirs is not None:
            names = [_device_name(run, index) for index in (source, target) if index is not None]
            yield Pair(metric=metric, what=None, place=" to ".join(names), theirs=factor * theirs, ours=value)


def _cell(copy: CopyMatrix, row: int | None, column: int | None) -> float | None:
    if row is None or column is None or row >= len(copy.values) or column >= len(copy.values[row]):
        return None
    return copy.values[row][column]


def _device_name(run: Run, index: int) -> str:
    nvml_index = run.plan.devices[index].nvml_index
    return f"device {index}" if nvml_index is None else f"GPU {nvml_index}"


def _columns(devices: Sequence[Device], theirs: Sequence[TheirDevice]) -> list[int | None]:
    """The column of each device of the run: by PCI address where one is found (None: the log lacks the device), else by
    CUDA's number.
    """
    addresses = {_address(device.pci_bus_id): index for index, device in enumerate(theirs)}
    by_address = [addresses.get(_address(device.pci_bus_id)) for device in devices]
    if None not in addresses and any(index is not None for index in by_address):
        return by_address
    return [device.cuda_ordinal for device in devices]


def _address(text: str | None) -> tuple[int, ...] | None:
    """Domain, bus and device of 00000000:00:06, 0000:00:06 and 0000:00:06.0; None for what is none."""
    parts = (text or "").split(".")[0].split(":")
    try:
        return tuple(int(part, 16) for part in parts) if len(parts) == 3 else None
    except ValueError:
        return None
