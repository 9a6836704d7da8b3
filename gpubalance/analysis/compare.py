"""Two runs, or a run and a band of earlier ones: are they comparable, what changed, and is the change more than noise?

A change is *real* when its interval does not hold zero. Against one earlier run the interval is that of a difference
of two independent estimates (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). Against several runs it is the
distance to their band, from the smallest to the largest value seen.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubalance.record.baselines import Collective, Fact, SavedRun, Setup

MORE_IS_BETTER: Mapping[str, bool] = {
    "score": True,
    "step": False,
    "compute": False,
    "exposed": False,
    "busbw": True,
    "gemm": True,
    "memory_copy": True,
    "h2d": True,
    "d2h": True,
    "p2p": True,
    "memory": False,
}

MUST_MATCH = ("devices", "CPU", "backend", "model", "batch")
"""Where these differ, two runs did different work, and no number of one says anything about the other."""

GATED_BYTES = 10**6
"""Below this size a collective is launch time, which says nothing about a link; a MiB rounded to 16 bytes a rank is
above it."""

Place = tuple[str, str | None, Collective | None]


@dataclass(frozen=True)
class Difference:
    """Something under which the two sides did not measure alike."""

    what: str
    base: str
    new: str
    blocking: bool
    """True when the sides cannot be compared because of it."""


@dataclass(frozen=True)
class Change:
    """One number on both sides, in the units of `Fact`."""

    metric: str
    device: int | None
    """Index into the devices of NEW."""
    collective: Collective | None
    base: float
    """Median of the earlier runs."""
    base_smallest: float
    base_largest: float
    runs: int
    """How many earlier runs have it."""
    new: float
    difference: float
    low: float | None
    high: float | None
    """Interval of the difference; null when there is one value on each side, which shows no noise."""

    @property
    def real(self) -> bool | None:
        """True when the interval does not hold zero; None when there is no interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0

    @property
    def worse(self) -> float:
        """The difference, positive when it is for the worse."""
        return -self.difference if MORE_IS_BETTER[self.metric] else self.difference

    @property
    def gated(self) -> bool:
        """False for what is shown and never judged: small collectives, and those replayed from a graph."""
        return _gated(self.collective)

    def relative(self, value: float | None) -> float | None:
        """A difference as a share of the base; None when the base is 0."""
        return value / self.base if value is not None and self.base > 0 else None


@dataclass(frozen=True)
class Unmatched:
    """A number that only one side has."""

    metric: str
    device: int | None
    """Index into the devices of the side that has it."""
    collective: Collective | None
    side: str
    """BASE or NEW."""

    @property
    def gated(self) -> bool:
        """As of a change."""
        return _gated(self.collective)


def _gated(which: Collective | None) -> bool:
    return which is None or (which.size_bytes >= GATED_BYTES and which.mode == "eager")


@dataclass(frozen=True)
class Comparison:
    """NEW against the earlier runs."""

    runs: int
    base_started: tuple[str, ...]
    new_started: str
    same_devices: bool
    """Both sides are about the very same devices, so that BASE is their history."""
    differences: tuple[Difference, ...]
    changes: tuple[Change, ...]
    unmatched: tuple[Unmatched, ...]

    @property
    def blocking(self) -> tuple[Difference, ...]:
        """Why the sides cannot be compared; empty when they can."""
        return tuple(difference for difference in self.differences if difference.blocking)


def compare_runs(base: Sequence[SavedRun], new: SavedRun) -> Comparison:
    """Hold NEW against one or more earlier runs. Pure."""
    same = all(same_devices(saved.setup, new.setup) for saved in base)
    earlier = _places(base, same=same)
    present = _places([new], same=same)
    index = _device_index(new.setup, same=same)
    changes = [_change(place, index, earlier[place], facts[0]) for place, facts in present.items() if place in earlier]
    return Comparison(
        runs=len(base),
        base_started=tuple(saved.started_at for saved in base),
        new_started=new.started_at,
        same_devices=same,
        differences=tuple(_differences(base, new)),
        changes=tuple(changes),
        unmatched=(
            *(_unmatched(facts[0], "BASE") for place, facts in earlier.items() if place not in present),
            *(_unmatched(facts[0], "NEW") for place, facts in present.items() if place not in earlier),
        ),
    )


def same_devices(one: Setup, other: Setup) -> bool:
    """True when both are about the same devices, in any order: by UUID, and on the CPU by model and number of ranks."""
    if one.backend == "gloo" or other.backend == "gloo":
        alike = (one.backend, one.cpu_model, len(one.devices)) == (other.backend, other.cpu_model, len(other.devices))
        return alike and one.cpu_model is not None
    uuids = [[device.uuid for device in setup.devices] for setup in (one, other)]
    return all(None not in side for side in uuids) and Counter(uuids[0]) == Counter(uuids[1])


def _identity(setup: Setup, device: int | None, *, same: bool) -> str | None:
    """By which name the device is the same on both sides: its UUID, or its place where the devices are other ones."""
    if device is None:
        return None
    return (setup.devices[device].uuid if same else None) or str(device)


def _device_index(setup: Setup, *, same: bool) -> dict[str | None, int]:
    return {_identity(setup, device, same=same): device for device in range(len(setup.devices))}


def _places(runs: Sequence[SavedRun], *, same: bool) -> dict[Place, list[Fact]]:
    found: dict[Place, list[Fact]] = {}
    for saved in runs:
        for fact in saved.facts:
            place = (fact.metric, _identity(saved.setup, fact.device, same=same), fact.collective)
            found.setdefault(place, []).append(fact)
    return found


def _change(place: Place, index: Mapping[str | None, int], earlier: Sequence[Fact], new: Fact) -> Change:
    values = [fact.value for fact in earlier]
    base = statistics.median(values)
    low, high = _to_one(earlier[0], new) if len(earlier) == 1 else _to_band(earlier, new)
    return Change(
        metric=place[0],
        device=None if place[1] is None else index[place[1]],
        collective=place[2],
        base=base,
        base_smallest=min(values),
        base_largest=max(values),
        runs=len(values),
        new=new.value,
        difference=new.value - base,
        low=low,
        high=high,
    )


def _to_one(base: Fact, new: Fact) -> tuple[float | None, float | None]:
    """MOVER: the distances to the limits of both intervals, added in quadrature."""
    if base.low is None or base.high is None or new.low is None or new.high is None:
        return None, None
    difference = new.value - base.value
    down = math.hypot(new.value - new.low, base.high - base.value)
    up = math.hypot(new.high - new.value, base.value - base.low)
    return difference - down, difference + up


def _to_band(earlier: Sequence[Fact], new: Fact) -> tuple[float, float]:
    """Spread between runs is larger than noise within one, so that the band takes the wider of the two."""
    smallest = min(fact.value if fact.low is None else min(fact.low, fact.value) for fact in earlier)
    largest = max(fact.value if fact.high is None else max(fact.high, fact.value) for fact in earlier)
    low, high = (new.value if limit is None else limit for limit in (new.low, new.high))
    return low - largest, high - smallest


def _unmatched(fact: Fact, side: str) -> Unmatched:
    return Unmatched(fact.metric, fact.device, fact.collective, side)


def _differences(base: Sequence[SavedRun], new: SavedRun) -> list[Difference]:
    earlier, now = [_aspects(saved) for saved in base], _aspects(new)
    found = []
    for what, value in now.items():
        before = list(dict.fromkeys(aspects[what] for aspects in earlier))
        if before != [value]:
            found.append(Difference(what, " or ".join(before), value, what in MUST_MATCH))
    return found


def _aspects(saved: SavedRun) -> dict[str, str]:
    """Everything that could explain a change, in words."""
    setup = saved.setup
    model = setup.model
    limits = sorted({device.power_limit_w for device in setup.devices if device.power_limit_w is not None})
    uuids = sorted(device.uuid or "unknown" for device in setup.devices)
    on_cpu = setup.backend == "gloo"
    return {
        "devices": ", ".join(f"{n} x {name}" for name, n in sorted(Counter(d.name for d in setup.devices).items())),
        "CPU": (setup.cpu_model or "unknown") if on_cpu else "any",
        "backend": setup.backend,
        "model": f"{model.kind} of {model.layers} x {model.width} in {model.dtype}",
        "batch": f"{setup.global_batch} ({setup.per_rank_batch} a rank)",
        "UUIDs": " ".join(uuids),
        "workloads": ", ".join(sorted(setup.workloads)),
        **{name: version or "none" for name, version in sorted(setup.versions.items())},
        "power limit": ", ".join(f"{limit:g} W" for limit in limits) or "none",
        "variables of NCCL": " ".join(f"{name}={value}" for name, value in sorted(setup.environment.items())) or "none",
        "gpubalance": saved.gpubalance_version,
        "injected faults": ", ".join(saved.injected) or "none",
        "ended by": "itself" if saved.interrupted_by is None else f"signal {saved.interrupted_by}",
    }
