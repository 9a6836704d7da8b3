"""Devices of one kind: only those can be held against each other. A slower model is no straggler among faster ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpubalance.record.node import Device


@dataclass(frozen=True)
class Kind:
    """Ranks whose devices are alike."""

    name: str
    ranks: tuple[int, ...]
    compute_ms: float
    """Median over these ranks of their compute for each work unit."""


def kinds_of(devices: Sequence[Device]) -> tuple[int, ...]:
    """By device: the number of its kind, which is its model, MIG state and the power limit its board comes with.

    The limit that is in force does not make a kind: where somebody lowered it, that is why the device is slow.
    """
    keys = [(device.name, device.mig_enabled, device.readings.get("power_default_limit_w")) for device in devices]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return tuple(numbers[key] for key in keys)


def named_kinds(
    devices: Sequence[Device], device_of_rank: Sequence[int], per_unit_ms: Sequence[float]
) -> tuple[Kind, ...]:
    """The kinds of an attempt's ranks, in the order of their first rank."""
    kinds = kinds_of(devices)
    ranks: dict[int, list[int]] = {}
    for rank, device in enumerate(device_of_rank):
        ranks.setdefault(kinds[device], []).append(rank)
    names = [devices[device_of_rank[members[0]]].name for members in ranks.values()]
    return tuple(
        Kind(
            name=name if names.count(name) == 1 else f"{name} ({_variant(devices[device_of_rank[members[0]]])})",
            ranks=tuple(members),
            compute_ms=float(np.median([per_unit_ms[rank] for rank in members])),
        )
        for name, members in zip(names, ranks.values(), strict=True)
    )


def _variant(device: Device) -> str:
    """What tells two kinds of one model apart."""
    watts = device.readings.get("power_default_limit_w")
    board = f"{watts:.0f} W" if isinstance(watts, int | float) else "power limit unknown"
    return f"{board}, MIG" if device.mig_enabled else board
