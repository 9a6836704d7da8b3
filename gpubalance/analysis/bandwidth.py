"""What bandwidth the links that are there let a collective reach, and which share of it was measured. Pure.

The expectation is NCCL's own: active links x the rate that it takes for a link of that architecture. A ring keeps every
link busy in one direction, so that its busbw is that product. With NVLS the switch adds up: each GPU sends S + S/n
instead of 2S(n-1)/n, and an all_reduce may read *more* than the links carry.

Rates: nccl src/graph/topo.h. Efficiency of NVLS: nccl src/graph/tuning.cc; with the traffic model it fits seven
published points within -3.5 to +2 % (ml-engineering's tables of H200 and B200). PCIe: NCCL's model by generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubalance.analysis.link_classes import nvlinks_active, over_nvlink
from gpubalance.record.collectives import nearly_bytes
from gpubalance.record.node import Device
from gpubalance.record.run import Run
from gpubalance.record.timings import CollectiveRow

LINK_RATES = {70: 20.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1}
"""Compute capability -> GB/s of one NVLink and direction that NCCL counts on."""
LINK_SPEC = {70: 25.0, 80: 25.0, 86: 14.0, 90: 25.0, 100: 50.0}
"""What one carries by its specification."""
NVLS_EFFICIENCY = {90: 0.85, 100: 0.74}
PCIE_RATES = {3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""Generation -> GB/s of 16 lanes and one direction."""

GIB = 2**30
JUDGED_BYTES, JUDGED_BYTES_BLACKWELL = GIB, 8 * GIB
"""Below this a bandwidth is not saturated: 256 MiB reaches 0.83 to 0.90 of the final value (A100, H200), 4 GiB 0.89 on
B200."""
JUDGED_BYTES_SPLIT = 4 * GIB
"""The same for all_gather and reduce_scatter on more than two GPUs: a rank's part is n times smaller. Ours."""

JUDGED = ("all_reduce", "all_gather", "reduce_scatter")
MOST_DIRECT = 4
"""More GPUs than this are all joined with each other by a switch only."""
ABOVE_RING = 1.05
"""An all_reduce this far above the ring's share is not a ring's. Ours: rings are seen at 0.92 to 0.99."""


@dataclass(frozen=True)
class Fabric:
    """How the GPUs that take part are joined."""

    kind: str
    """switched, direct (every pair, no switch), unknown (links, but not where to), mixed, pcie, none (no GPU)."""
    links: int
    """Active NVLinks of the GPU that has fewest."""
    capability: int | None
    """Of the oldest GPU: 90 is 9.0."""
    pcie_gb_per_s: float | None = None
    """What NCCL counts on for the slowest PCIe link."""
    pcie: str | None = None
    """PCIe 4 x16."""


@dataclass(frozen=True)
class Expectation:
    """What a collective should reach."""

    gb_per_s: float
    because: str
    """18 links x 20.6 GB/s, ring."""
    gates: str
    """Base name of the thresholds on the share of it that must be reached."""
    algorithm: str
    """Ring or NVLS."""
    from_log: bool
    """NCCL's log named the algorithm."""
    spec_gb_per_s: float | None
    """What the links carry by their specification, one direction."""
    can_fail: bool
    """False: too little is known, so that it only warns."""


@dataclass(frozen=True)
class Measured:
    """A row beside its expectation."""

    collective: str
    placement: str
    ranks: int
    size_bytes: int
    bus_bandwidth_gb_per_s: float
    expected: Expectation | None
    why_not: str | None
    """Why nothing is expected."""
    judged_from_bytes: int

    @property
    def share(self) -> float | None:
        """Of the expectation; None where there is none."""
        return None if self.expected is None else self.bus_bandwidth_gb_per_s / self.expected.gb_per_s

    @property
    def is_large_enough(self) -> bool:
        """Whether a message of this size fills the links."""
        return self.size_bytes > nearly_bytes(self.judged_from_bytes, self.ranks)


@dataclass(frozen=True)
class Bandwidth:
    """The bandwidths of a run."""

    fabric: Fabric
    largest: tuple[Measured, ...]
    """Of each collective the largest message, eager, in the faster placement."""
    gloo_times_slower: float | None = None
    """NCCL's bandwidth over that of gloo for the same message."""


NOTHING = Bandwidth(Fabric("none", 0, None), ())
"""Of a run without GPUs."""


def bandwidth_of(run: Run) -> Bandwidth:
    """Every collective of the run at its largest message."""
    fabric = fabric_of(run)
    rows = [row for row in run.collectives if row.mode == "eager" and row.backend == "nccl"]
    best: dict[str, CollectiveRow] = {}
    for row in rows:
        old = best.get(row.collective)
        if old is None or _rank(row) > _rank(old):
            best[row.collective] = row
    measured = tuple(measure(run, fabric, row) for row in best.values())
    return Bandwidth(fabric, measured, _times_slower(run, rows))


def _rank(row: CollectiveRow) -> tuple[int, float]:
    return row.size_bytes, row.bus_bandwidth_gb_per_s


def _times_slower(run: Run, rows: Sequence[CollectiveRow]) -> float | None:
    for slow in run.collectives:
        same = [
            r for r in rows if (r.collective, r.size_bytes, r.dtype) == (slow.collective, slow.size_bytes, slow.dtype)
        ]
        if slow.backend == "gloo" and same and slow.bus_bandwidth_gb_per_s > 0:
            return same[0].bus_bandwidth_gb_per_s / slow.bus_bandwidth_gb_per_s
    return None


def measure(run: Run, fabric: Fabric, row: CollectiveRow) -> Measured:
    """A row beside what is expected of it."""
    expected = expect(fabric, row.collective, row.ranks, algorithm_of(run, row), row.bus_bandwidth_gb_per_s)
    known = isinstance(expected, Expectation)
    return Measured(
        row.collective, row.placement, row.ranks, row.size_bytes, row.bus_bandwidth_gb_per_s,
        expected if isinstance(expected, Expectation) else None, None if known else str(expected),
        judged_from(fabric, row.collective, row.ranks),
    )  # fmt: skip


def judged_from(fabric: Fabric, collective: str, ranks: int) -> int:
    """Bytes from which a bandwidth is judged."""
    if (fabric.capability or 0) >= 100:
        return JUDGED_BYTES_BLACKWELL
    return JUDGED_BYTES_SPLIT if collective != "all_reduce" and ranks > 2 else JUDGED_BYTES


def algorithm_of(run: Run, row: CollectiveRow) -> str | None:
    """What NCCL's log names for this message; None when it was not read."""
    for choice in run.nccl.choices if run.nccl is not None else ():
        if (choice.collective, choice.size_bytes) == (row.collective, row.size_bytes):
            return choice.algorithm
    return None


def fabric_of(run: Run) -> Fabric:
    """How the GPUs of a run are joined, by what each said before it."""
    devices = [device for device in run.plan.devices if device.kind == "cuda"]
    if not devices:
        return Fabric("none", 0, None)
    capabilities = [_capability(device) for device in devices]
    known = [capability for capability in capabilities if capability is not None]
    capability = min(known) if len(known) == len(devices) else None
    links = [links_of(device) for device in devices]
    kind = _kind(devices, run.node.devices) if all(links) else "mixed" if any(links) else "pcie"
    paths = [path for device in devices if (path := _pcie(device)) is not None]
    slowest = min(paths) if len(paths) == len(devices) else (None, None)
    return Fabric(kind, min(links), capability, *slowest)


def _pcie(device: Device) -> tuple[float, str] | None:
    generation, width = device.readings.get("pcie_generation_max"), device.readings.get("pcie_width_max")
    if not isinstance(generation, int) or not isinstance(width, int) or generation not in PCIE_RATES or width < 1:
        return None
    return PCIE_RATES[generation] * width / 16, f"PCIe {generation} x{width}"


def _capability(device: Device) -> int | None:
    major, minor = (device.readings.get(f"compute_capability_{part}") for part in ("major", "minor"))
    return 10 * major + minor if isinstance(major, int) and isinstance(minor, int) else None


def links_of(device: Device) -> int:
    """Links that are up; records from before they were counted have the number that the GPU has."""
    active = nvlinks_active(device)
    count = device.readings.get("nvlink_count") if active is None else active
    return max(0, count) if isinstance(count, int) else 0


def _kind(devices: Sequence[Device], all_devices: Sequence[Device]) -> str:
    """Whether all reach each other over NVLink, and by what."""
    reached = [_peers(device) for device in devices]
    if any(peers is None for peers in reached):
        return "unknown"
    indices = {device.nvml_index for device in devices}
    joined = [len(indices & (peers or set())) for peers in reached]
    if all(count == len(devices) - 1 for count in joined):
        whole = sum(1 for device in all_devices if len(_peers(device) or ()) >= MOST_DIRECT)
        return "switched" if whole > MOST_DIRECT else "direct"
    return "mixed" if any(joined) else "pcie"


def _peers(device: Device) -> set[int | None] | None:
    """A GPU that is lost hides no other one: only where nobody is known there is no answer."""
    known = [peer for peer in device.peers if peer.p2p.get("nvlink") is not None or peer.nvlinks is not None]
    return {peer.nvml_index for peer in known if over_nvlink(peer)} if known else None


def expect(
    fabric: Fabric, collective: str, ranks: int, algorithm: str | None = None, seen_gb_per_s: float = 0.0
) -> Expectation | str:
    """What this collective should reach over these links, or why that is not known.

    `algorithm` is what NCCL's log says. Without it an all_reduce beyond what a ring can do is taken for NVLS.
    """
    if fabric.kind in ("none", "mixed"):
        return {
            "none": "no GPU",
            "mixed": "not all GPUs reach each other over NVLink, so that the slowest hop decides",
        }[fabric.kind]
    if fabric.kind == "pcie":
        return _over_pcie(fabric, algorithm)
    rate = LINK_RATES.get(fabric.capability or 0) or (
        LINK_RATES[100] if 100 <= (fabric.capability or 0) < 110 else None
    )
    if rate is None:
        return "NCCL's rate for links of these GPUs is not known"
    return _over_links(fabric, collective, ranks, algorithm, seen_gb_per_s, rate)


def _over_pcie(fabric: Fabric, algorithm: str | None) -> Expectation | str:
    """At most: host bridges, sockets and ways through host memory lie between GPUs, and nothing here tells which."""
    if fabric.pcie_gb_per_s is None:
        return "generation and width of their PCIe links are not known"
    because = f"{fabric.pcie}, a ring at the pace of its slowest hop"
    return Expectation(fabric.pcie_gb_per_s, because, "busbw_pcie", "Ring", algorithm is not None, None, can_fail=True)


def _over_links(
    fabric: Fabric, collective: str, ranks: int, algorithm: str | None, seen: float, rate: float
) -> Expectation:
    family = min(fabric.capability or 0, 100)
    ring = fabric.links * rate
    spec = fabric.links * LINK_SPEC[family]
    efficiency = NVLS_EFFICIENCY.get(family)
    links = f"{fabric.links} {'link' if fabric.links == 1 else 'links'} x {rate:g} GB/s"
    by_nvls = algorithm is not None and algorithm.startswith("NVLS")
    guessed = algorithm is None and fabric.kind == "switched" and ranks > 2 and seen > ABOVE_RING * ring
    if collective == "all_reduce" and efficiency is not None and (by_nvls or guessed):
        gain = 2 * (ranks - 1) / (ranks + 1)
        because = f"{links} x {efficiency:g} x {gain:.2f}, NVLS on {ranks} GPUs"
        return Expectation(ring * efficiency * gain, because, "busbw_nvls", "NVLS", by_nvls, spec, can_fail=False)
    gates = "busbw" if fabric.kind == "switched" and ranks > 2 else "busbw_direct"
    if collective != "all_reduce" and ranks == 2:
        gates = "busbw_pair_split"
    from_log = algorithm is not None
    can_fail = fabric.kind != "unknown" and (algorithm is None or algorithm == "Ring")
    return Expectation(ring, f"{links}, ring", gates, "Ring", from_log, spec, can_fail)
