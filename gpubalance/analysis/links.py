"""Which copies between devices are slower than their peers', and what that points to: a device, a side of it, a link.

A copy is held against what its two ends reach elsewhere, among links of one class: the largest of the medians of the
source's other copies, of the target's other copies, and of all others. The largest, because each of them may be spoilt
by the very fault that is looked for: where a GPU receives slowly, all copies to it are slow, and the geometric mean of
the medians of row and column would see only half of it (one dead link of 18 would read 2.8 %, not 5.6 %).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpubalance.analysis.link_classes import LinkClass, link_class
from gpubalance.record.links import PeerCopies
from gpubalance.record.run import Run

LOOKS = 4
"""One look at all pairs, three more at those that seem slow: a link is named when all four say so."""

NOISE = 0.006
"""How far the share of a dead link may be from 1 / links: both medians spread by 0.4 % (nvbandwidth's README)."""

MOST_DEAD = 4
Side = Literal["device", "sends", "receives", "pair", "direction"]
Key = tuple[int, int]


@dataclass(frozen=True)
class PeerLink:
    """One direction between two devices."""

    source: int
    target: int
    link: LinkClass
    gb_per_s: float
    """Median of the looks."""
    expected_gb_per_s: float | None
    """What peers of its class let expect; None without any."""
    ratio: float | None
    """The best look over that: how slow it was at least, every time."""
    looks: int

    @property
    def share_of_limit(self) -> float | None:
        """Of the bandwidth of its NVLinks."""
        limit = self.link.limit_gb_per_s
        return self.gb_per_s / limit if limit else None


@dataclass(frozen=True)
class Slow:
    """What is slow, and by how much."""

    side: Side
    """A device both ways, its sending or receiving side, both directions of a pair, or one of them."""
    devices: tuple[int, ...]
    """The device, or source and target."""
    behind: float
    """Share that is missing; the median over its copies of the median over their looks."""
    least_behind: float
    """The same by the best look of each copy; what is judged."""
    dead_links: int | None
    """How many NVLinks of `links` would explain it within noise."""
    links: int | None
    copies: tuple[PeerLink, ...]
    confirmed: bool


@dataclass(frozen=True)
class LinkFacts:
    """Everything that is derived from copies between devices."""

    peers: tuple[PeerLink, ...]
    slow: tuple[Slow, ...]
    """Worst first."""
    score: float | None
    """100 x the smallest bandwidth over the median of its class; None where no pair was timed."""
    slowest: float | None
    """Share of the expected bandwidth that the slowest confirmed link reaches; 1 where none is slow, None where no link
    was held against a peer."""


def link_facts(run: Run, warn: float) -> LinkFacts | None:
    """Facts of the links phase; None where it did not run. `warn` is the share by which a link may be behind."""
    if run.links is None:
        return None
    peers = tuple(_peer_links(run, [peer for peer in run.links.peers if peer.looks_gb_per_s]))
    slow = tuple(sorted(find_slow(peers, warn), key=lambda each: (-each.behind, each.devices)))
    judged = [peer for peer in peers if peer.ratio is not None]
    worst = [1 - each.behind for each in slow if each.confirmed]
    return LinkFacts(peers, slow, _score(peers), (min(worst, default=1.0) if judged else None))


def _peer_links(run: Run, copies: Sequence[PeerCopies]) -> list[PeerLink]:
    classes = {(c.source, c.target): link_class(run, c.source, c.target) for c in copies}
    rates = {(c.source, c.target): statistics.median(c.looks_gb_per_s) for c in copies}
    expected = {key: _expected(key, rates, classes) for key in rates}
    return [
        PeerLink(
            source=c.source,
            target=c.target,
            link=classes[c.source, c.target],
            gb_per_s=rates[c.source, c.target],
            expected_gb_per_s=(due := expected[c.source, c.target]),
            ratio=None if due is None else max(c.looks_gb_per_s) / due,
            looks=len(c.looks_gb_per_s),
        )
        for c in copies
    ]


def _expected(key: Key, rates: Mapping[Key, float], classes: Mapping[Key, LinkClass]) -> float | None:
    """Where no class is known, the only thing that is surely alike is the same link the other way."""
    own = classes[key]
    if not own.comparable:
        return rates.get((key[1], key[0]))
    others = {other: rate for other, rate in rates.items() if other != key and classes[other] == own}
    row = [rate for (source, _), rate in others.items() if source == key[0]]
    column = [rate for (_, target), rate in others.items() if target == key[1]]
    medians = [statistics.median_high(group) for group in (row, column, list(others.values())) if group]
    return max(medians, default=None)


def find_slow(peers: Sequence[PeerLink], warn: float) -> list[Slow]:
    """The fewest things that explain all slow copies: devices first, then their sides, then pairs and directions."""
    judged = [peer for peer in peers if peer.ratio is not None]
    left = {(p.source, p.target): p for p in judged if p.ratio is not None and p.ratio < 1 - warn}
    sending = _whole(left.values(), judged, sends=True)
    receiving = _whole(left.values(), judged, sends=False)
    found = [_slow("device", (d,), [*sending[d], *receiving[d]]) for d in sending if d in receiving]
    found += [_slow("sends", (d,), copies) for d, copies in sending.items() if d not in receiving]
    found += [_slow("receives", (d,), copies) for d, copies in receiving.items() if d not in sending]
    for each in found:
        for copy in each.copies:
            left.pop((copy.source, copy.target), None)
    for (source, target), copy in list(left.items()):
        back = left.get((target, source))
        if back is None:
            found.append(_slow("direction", (source, target), [copy]))
        elif source < target:
            found.append(_slow("pair", (source, target), [copy, back]))
    return found


def _whole(slow: Iterable[PeerLink], judged: Sequence[PeerLink], *, sends: bool) -> dict[int, list[PeerLink]]:
    """Devices of which every copy in this direction is slow, where there are two or more."""
    every: dict[int, int] = defaultdict(int)
    for peer in judged:
        every[peer.source if sends else peer.target] += 1
    found: dict[int, list[PeerLink]] = defaultdict(list)
    for peer in slow:
        found[peer.source if sends else peer.target].append(peer)
    return {device: copies for device, copies in found.items() if len(copies) == every[device] >= 2}


def _slow(side: Side, devices: tuple[int, ...], copies: Sequence[PeerLink]) -> Slow:
    behind = 1 - statistics.median(c.gb_per_s / c.expected_gb_per_s for c in copies if c.expected_gb_per_s)
    links = copies[0].link.links
    return Slow(
        side=side,
        devices=devices,
        behind=behind,
        least_behind=1 - statistics.median(copy.ratio for copy in copies if copy.ratio is not None),
        dead_links=dead_links(behind, links),
        links=links,
        copies=tuple(copies),
        confirmed=all(copy.looks >= LOOKS for copy in copies),
    )


def dead_links(behind: float, links: int | None) -> int | None:
    """How many of the NVLinks would explain this share: 1 / 18 is 5.6 %, 1 / 12 is 8.3 %. None where no number does."""
    for dead in range(1, min(MOST_DEAD, (links or 0) // 2) + 1):
        if abs(behind - dead / (links or 1)) <= NOISE:
            return dead
    return None


def _score(peers: Sequence[PeerLink]) -> float | None:
    classes: dict[object, list[float]] = defaultdict(list)
    for peer in peers:
        alone = (min(peer.source, peer.target), max(peer.source, peer.target))
        classes[peer.link if peer.link.comparable else alone].append(peer.gb_per_s)
    shares = [min(1.0, min(rates) / statistics.median_high(rates)) for rates in classes.values()]
    return 100 * min(shares) if shares else None
