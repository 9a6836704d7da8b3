"""Which copies the links phase makes, in which order, and which it makes again. Knows nothing of CUDA: a copier carries
them out, so that all of this can be tried with plain memory.

Everything is written to the log as soon as it is known, and what is about to be copied before that: when a copy never
returns, the log names it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Protocol

SAMPLES = 3
SAMPLE_MS = 10.0
"""How long a sample is: 15 copies of 256 MiB at 400 GB/s."""
FEWEST_COPIES, MOST_COPIES = 2, 16
LONGEST_COPY_MS = 6.0
SMALLEST_BYTES = 2**25
"""Where a copy of the whole buffer takes longer than that (PCIe), a part of it is copied, but no less than this."""

REPEATS = 3
SIMILAR = (1.02, 1.35)
"""A pair is looked at again when two others are faster by 2 to 35 %: one dead link of 12 costs 8 %, and links of
another class mostly differ by a factor (ours). Normal spread is 0.4 % (nvbandwidth's README)."""
REPEAT_BUDGET_MS = 4000.0

UPLINK_SUSPECT = 0.9
"""Devices that get less of their rate than this when all copy from the host are tried in pairs (ours)."""
PER_SECOND = 1e6
"""Bytes in a millisecond -> GB/s."""

Say = Callable[..., None]
Key = tuple[int, int]


@dataclass(frozen=True)
class Route:
    """From one device to another, or to itself; None is pinned host memory."""

    source: int | None
    target: int | None


@dataclass(frozen=True)
class Checked:
    """What came of comparing a copied pattern with what it should be: on the target, and of a part in host memory."""

    checked_bytes: int
    wrong_bytes: int
    checked_on_host_bytes: int
    wrong_on_host_bytes: int


class Copier(Protocol):
    """Carries out copies between `devices` devices, numbered from 0, with buffers of `buffer_bytes`."""

    devices: int
    buffer_bytes: int

    def name(self, device: int) -> str:
        """How a message calls the device."""
        ...

    def reach(self, source: int, target: int) -> bool | None:
        """Whether the source may reach into the target's memory; None where nobody knows."""
        ...

    def check(self, source: int, target: int) -> Checked:
        """Copy a pattern of this pair, all of the buffer, and compare."""
        ...

    def host_buffer(self, device: int) -> tuple[int | None, str | None]:
        """Have pinned host memory near the device: its NUMA node, or why it is just anywhere. Raises RuntimeError where
        there is none to be had.
        """
        ...

    def times_ms(self, routes: Sequence[Route], size_bytes: int, copies: int) -> list[float]:
        """Start so many copies over each route at once, one after the other on each; milliseconds of one, by route."""
        ...


def rounds(devices: int) -> list[list[Key]]:
    """Rounds of disjoint pairs in which everybody meets everybody (the circle method): n - 1 of n/2 pairs, and where n
    is odd n rounds in each of which somebody sits out.
    """
    ring: list[int | None] = [*range(devices), *([None] if devices % 2 else [])]
    found = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        couples = zip(ring[:half], reversed(ring[half:]), strict=True)
        found.append([(a, b) for a, b in couples if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def sized(whole_ms: float, buffer_bytes: int) -> tuple[int, int]:
    """Bytes of a copy and copies of a sample, where a copy of the whole buffer takes so long."""
    share = min(1.0, LONGEST_COPY_MS / whole_ms)
    size = (
        buffer_bytes if share == 1.0 else max(min(SMALLEST_BYTES, buffer_bytes), int(buffer_bytes * share) >> 21 << 21)
    )
    copy_ms = whole_ms * size / buffer_bytes
    return size, min(MOST_COPIES, max(FEWEST_COPIES, math.ceil(SAMPLE_MS / copy_ms)))


def to_repeat(rates: Mapping[Key, float]) -> list[Key]:
    """Pairs that seem slow. First those that are slower than similar pairs (two of them, or the only other), then those
    that are slower than their ends are elsewhere or the other way, which they may be by their class. The farthest
    behind first.
    """
    similar: dict[Key, float] = {}
    other: dict[Key, float] = {}
    for pair, rate in rates.items():
        faster = [each / rate for each in rates.values() if SIMILAR[0] <= each / rate <= SIMILAR[1]]
        if faster and len(faster) >= min(2, len(rates) - 1):
            similar[pair] = max(faster)
        elif (elsewhere := _elsewhere(pair, rates)) > SIMILAR[0] * rate:
            other[pair] = elsewhere / rate
    return [pair for group in (similar, other) for pair in sorted(group, key=lambda pair: (-group[pair], pair))]


def _elsewhere(pair: Key, rates: Mapping[Key, float]) -> float:
    """What the ends of a pair reach with others, or the other way: the largest."""
    row = [rate for key, rate in rates.items() if key[0] == pair[0] and key != pair]
    column = [rate for key, rate in rates.items() if key[1] == pair[1] and key != pair]
    medians = [statistics.median_high(group) for group in (row, column) if group]
    return max([*medians, rates.get((pair[1], pair[0]), 0.0)])


@dataclass
class LinkPasses:
    """All passes of the phase. `window` marks the stretch in which the bus to the host is busy."""

    copier: Copier
    say: Say
    window: Callable[[str], AbstractContextManager[None]]
    _plans: dict[Key, tuple[int, int]] = field(default_factory=dict)
    _host_plans: dict[int, tuple[int, int]] = field(default_factory=dict)
    _missing: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Data, then rates one pair at a time, both ways, all at once; then the host."""
        if self.copier.devices > 1:
            self._check()
            rates = self._alone()
            self._again(rates)
            self._both_ways()
            self._together()
        else:
            self._missing["peers"] = "one device has no peer"
        self._memory()
        self._host()
        self.say("links_end", buffer_bytes=self.copier.buffer_bytes, missing=self._missing)

    def _doing(self, text: str, *devices: int) -> None:
        self.say("doing", what=f"{text} {' and '.join(self.copier.name(device) for device in devices)}")

    def _pairs(self) -> Iterator[Key]:
        return permutations(range(self.copier.devices), 2)

    def _check(self) -> None:
        for source, target in self._pairs():
            self.say("doing", what=f"copying from {self.copier.name(source)} to {self.copier.name(target)}")
            reach = self.copier.reach(source, target)
            checked = self.copier.check(source, target)
            self.say("link_check", source=source, target=target, peer_access=reach, **vars(checked))

    def _alone(self) -> dict[Key, float]:
        rates = {}
        for pair in self._pairs():
            whole_ms = self.copier.times_ms([Route(*pair)], self.copier.buffer_bytes, 1)[0]
            self._plans[pair] = sized(whole_ms, self.copier.buffer_bytes)
            rates[pair] = self._look(pair)
        return rates

    def _look(self, pair: Key) -> float:
        self.say("doing", what=f"timing copies from {self.copier.name(pair[0])} to {self.copier.name(pair[1])}")
        size, copies = self._plans[pair]
        rate = self._rates([Route(*pair)], size, copies)[0]
        self.say("link_look", source=pair[0], target=pair[1], copy_bytes=size, gb_per_s=rate)
        return rate

    def _rates(self, routes: Sequence[Route], size: int, copies: int) -> list[float]:
        """GB/s of each route, the median of the samples."""
        samples = [self.copier.times_ms(routes, size, copies) for _ in range(SAMPLES)]
        return [size / PER_SECOND / statistics.median(of_route) for of_route in zip(*samples, strict=True)]

    def _again(self, rates: Mapping[Key, float]) -> None:
        """Three more looks at what seems slow, one after the other so that whatever passes has time to pass."""
        chosen, left_ms = [], REPEAT_BUDGET_MS
        for pair in to_repeat(rates):
            size, copies = self._plans[pair]
            left_ms -= REPEATS * SAMPLES * copies * size / PER_SECOND / rates[pair]
            if left_ms > 0:
                chosen.append(pair)
        for _ in range(REPEATS):
            for pair in chosen:
                self._look(pair)

    def _plan_of(self, pairs: Sequence[Key]) -> tuple[int, int]:
        """One size for all of them: the slowest pair's."""
        return min(self._plans[pair] for pair in pairs)

    def _both_ways(self) -> None:
        for a, b in combinations(range(self.copier.devices), 2):
            self._doing("timing copies both ways between", a, b)
            pairs = [(a, b), (b, a)]
            rates = self._rates([Route(*pair) for pair in pairs], *self._plan_of(pairs))
            self._say_rates("link_both", pairs, rates)

    def _together(self) -> None:
        if self.copier.devices < 4:
            self._missing["together"] = "fewer than four devices: no two pairs can copy at once"
            return
        for couples in rounds(self.copier.devices):
            for pairs in (couples, [(b, a) for a, b in couples]):
                self._doing("timing copies at once between", *(device for pair in pairs for device in pair))
                rates = self._rates([Route(*pair) for pair in pairs], *self._plan_of(pairs))
                self._say_rates("link_together", pairs, rates)

    def _say_rates(self, event: str, pairs: Sequence[Key], rates: Sequence[float]) -> None:
        for (source, target), rate in zip(pairs, rates, strict=True):
            self.say(event, source=source, target=target, gb_per_s=rate)

    def _memory(self) -> None:
        for device in range(self.copier.devices):
            self._doing("copying within the memory of", device)
            rate = self._rates([Route(device, device)], self.copier.buffer_bytes, MOST_COPIES)[0]
            self.say("device_copies", device=device, memory_copy_gb_per_s=2 * rate)

    def _host(self) -> None:
        devices = range(self.copier.devices)
        for device in devices:
            self._doing("allocating host memory near", device)
            try:
                node, why = self.copier.host_buffer(device)
            except RuntimeError as error:
                self._missing["host"] = f"no pinned host memory: {str(error).strip().splitlines()[0]}"
                return
            self.say("device_copies", device=device, numa_node=node, not_bound=why)
        with self.window("links host"):
            alone = [self._to_and_from([device])[0][0] for device in devices]
            if self.copier.devices == 1:
                self._missing["host_together"] = "one device has nobody to share with"
                return
            together = self._to_and_from(list(devices))[0]
            self._in_pairs([d for d in devices if together[d] < UPLINK_SUSPECT * alone[d]])

    def _to_and_from(self, devices: Sequence[int]) -> list[list[float]]:
        """GB/s of each device to it, and from it; written down as alone or together."""
        self._doing("copying between the host and", *devices)
        found = []
        prefix = "together_" if len(devices) > 1 else ""
        for way, routes in (
            ("to", [Route(None, device) for device in devices]),
            ("from", [Route(device, None) for device in devices]),
        ):
            rates = self._rates(routes, *min(self._host_plan(device) for device in devices))
            for device, rate in zip(devices, rates, strict=True):
                self.say("device_copies", device=device, **{f"{prefix}{way}_device_gb_per_s": rate})
            found.append(rates)
        return found

    def _host_plan(self, device: int) -> tuple[int, int]:
        """Bytes and copies of a sample, from one copy to the device."""
        if device not in self._host_plans:
            whole_ms = self.copier.times_ms([Route(None, device)], self.copier.buffer_bytes, 1)[0]
            self._host_plans[device] = sized(whole_ms, self.copier.buffer_bytes)
        return self._host_plans[device]

    def _in_pairs(self, devices: Sequence[int]) -> None:
        for pair in combinations(devices, 2):
            self._doing("copying at once from the host to", *pair)
            routes = [Route(None, device) for device in pair]
            first, second = self._rates(routes, *min(self._host_plan(device) for device in pair))
            self.say("host_pair", first=pair[0], second=pair[1], first_gb_per_s=first, second_gb_per_s=second)


def planned_seconds(devices: int, peer_gb_per_s: float, host_gb_per_s: float, buffer_bytes: int = 2**28) -> float:
    """How long the copies of the phase take on a healthy node where no two of them share anything: what its figures are
    chosen by. Patterns, pinned memory and contexts come on top, about 10 ms a pair and 0.2 s a device.
    """
    peer_ms, peer_look_ms = _look_ms(peer_gb_per_s, buffer_bytes)
    host_ms, host_look_ms = _look_ms(host_gb_per_s, buffer_bytes)
    pairs = devices * (devices - 1)
    looks = pairs + pairs / 2 + (2 * len(rounds(devices)) if devices >= 4 else 0)
    sides = 2 * devices + (2 if devices > 1 else 0)
    return (2 * pairs * peer_ms + looks * peer_look_ms + devices * host_ms + sides * host_look_ms) / 1000


def _look_ms(gb_per_s: float, buffer_bytes: int) -> tuple[float, float]:
    """Of a copy of the whole buffer, and of the samples."""
    whole_ms = buffer_bytes / PER_SECOND / gb_per_s
    size, copies = sized(whole_ms, buffer_bytes)
    return whole_ms, SAMPLES * copies * size / PER_SECOND / gb_per_s
