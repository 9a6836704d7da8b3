"""N6: what GPUs may do in each other's memory, by NVML's word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, is_absent
from gpubalance.record.node import Peer
from gpubalance.record.probe import Probe

BRAND_GEFORCE = 5
MODE_VGPU = 2
"""nvml.h: NVML_BRAND_GEFORCE, NVML_GPU_VIRTUALIZATION_MODE_VGPU."""

KINDS = ("read", "write", "nvlink", "atomics")
CLOSE = frozenset({"INTERNAL", "SINGLE", "MULTIPLE"})
"""One board, one PCIe switch, several switches: nothing of the host lies between."""


@dataclass(frozen=True)
class Pair:
    """Two GPUs and what each says of the other; null where it said nothing."""

    first: Gpu
    second: Gpu
    there: Peer | None
    back: Peer | None

    @property
    def numbers(self) -> str:
        """0-1"""
        return f"{self.first.index}-{self.second.index}"

    def status(self, kind: str) -> list[str]:
        """Both directions as far as known; NVML's UNKNOWN is nothing known."""
        both = [peer.p2p.get(kind) for peer in (self.there, self.back) if peer is not None]
        return [status for status in both if status is not None and status != "UNKNOWN"]

    @property
    def one_way(self) -> list[str]:
        """Kinds that work in one direction only."""
        return [kind for kind in KINDS if len(set(self.status(kind))) == 2 and "OK" in self.status(kind)]

    @property
    def blocked(self) -> str | None:
        """Why neither may read or write the other."""
        return next((status for status in self.status("read") + self.status("write") if status != "OK"), None)

    @property
    def nvlink(self) -> bool:
        """True when NVLink lies between them."""
        return "OK" in self.status("nvlink")

    @property
    def measured(self) -> bool:
        """True when both reads and writes are known, or one of them is known to be blocked."""
        return self.blocked is not None or bool(self.status("read") and self.status("write"))


def pairs_of(gpus: Sequence[Gpu]) -> list[Pair]:
    """Every two GPUs."""
    peers = {(gpu.index, peer.nvml_index): peer for gpu in gpus for peer in gpu.detail.peers}
    return [Pair(a, b, peers.get((a.index, b.index)), peers.get((b.index, a.index))) for a, b in combinations(gpus, 2)]


def peer_access(probe: Probe) -> list[Finding]:
    """N6: peer-to-peer works in both directions where the hardware has a way for it (NCCL's and nvbandwidth's docs).

    GeForce cards, vGPUs, MIG slices and WSL go without by design; pairs with the host between them may.
    """
    pairs = pairs_of(gpus_of(probe))
    known = [pair for pair in pairs if pair.measured]
    if not pairs:
        return [finding(State.SKIP, "one GPU has no peer")] if gpus_of(probe) else []
    one_way = [pair for pair in known if pair.one_way]
    blocked = [pair for pair in known if pair.blocked is not None and pair not in one_way]
    found = [_one_way(pair) for pair in one_way] + _blocked(probe, blocked) + _unread(pairs)
    free = [pair for pair in known if pair not in one_way and pair not in blocked]
    if free:
        links = sum(pair.nvlink for pair in free)
        evidence = (f"over NVLink: {counted(links, 'pair')}", f"over PCIe: {counted(len(free) - links, 'pair')}")
        found.append(finding(State.PASS, f"peer-to-peer works for {counted(len(free), 'pair')}", evidence=evidence))
    return found


def _one_way(pair: Pair) -> Finding:
    kinds = ", ".join(pair.one_way)
    return finding(
        State.WARN,
        f"peer-to-peer works one way only between GPU {pair.first.index} and {pair.second.index}",
        subject=f"{pair.first.label}; {pair.second.label}",
        evidence=(f"one way only: {kinds}", *(f"{kind}: {', '.join(pair.status(kind))}" for kind in pair.one_way)),
        next_step="reset both GPUs; if it stays, reboot the node",
    )


def _blocked(probe: Probe, pairs: Iterable[Pair]) -> list[Finding]:
    kinds: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        kinds[_why_blocked(probe, pair)].append(pair)
    return [_blocked_pairs(why, group) for why, group in kinds.items()]


def _why_blocked(probe: Probe, pair: Pair) -> str:
    both = (pair.first, pair.second)
    if any(gpu.value("brand") == BRAND_GEFORCE or "geforce" in gpu.device.name.lower() for gpu in both):
        return "by design of GeForce"
    if any(gpu.device.mig_enabled for gpu in both):
        return "while MIG is on"
    if probe.host.wsl or any(gpu.value("virtualization_mode") == MODE_VGPU for gpu in both):
        return "by the virtual machine"
    return "" if _is_close(pair) else "with the host between them"


def _is_close(pair: Pair) -> bool:
    topology = {peer.topology for peer in (pair.there, pair.back) if peer is not None}
    switched = all(gpu.value("fabric_state") == "COMPLETED" for gpu in (pair.first, pair.second))
    return pair.nvlink or switched or bool(topology & CLOSE)


def _blocked_pairs(why: str, pairs: Sequence[Pair]) -> Finding:
    statuses: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        statuses[pair.blocked or ""].append(pair.numbers)
    evidence = tuple(f"{status}: GPU {', '.join(numbers)}" for status, numbers in statuses.items())
    between = f"between GPU {pairs[0].first.index} and {pairs[0].second.index}"
    who = between if len(pairs) == 1 else f"for {counted(len(pairs), 'pair')} of GPUs"
    if why:
        return finding(State.INFO, f"no peer-to-peer {who}, {why}", evidence=evidence)
    return finding(
        State.WARN,
        f"peer-to-peer is blocked {who}, though they are close",
        evidence=evidence,
        next_step="look at ACS and IOMMU of the host and at the nvidia module's options",
    )


def _unread(pairs: Sequence[Pair]) -> list[Finding]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        if not pair.measured:
            reasons[_reason(pair)].append(pair.numbers)
    return [
        finding(State.SKIP, f"peer-to-peer of GPU {', '.join(numbers)}: not supported")
        if is_absent(reason)
        else finding(State.UNKNOWN, f"peer-to-peer of GPU {', '.join(numbers)} not measured: {reason}")
        for reason, numbers in reasons.items()
    ]


def _reason(pair: Pair) -> str:
    peers = [peer for peer in (pair.there, pair.back) if peer is not None]
    said = [peer.missing[key] for peer in peers for key in ("p2p_read", "p2p_write") if key in peer.missing]
    reason = next(iter(said), pair.first.detail.failed or pair.second.detail.failed or "not read")
    return reason.removeprefix("SKIPPED after ")


CHECKS = (
    Check("N6", "peer-to-peer", peer_access, "NCCL's and nvbandwidth's docs: blocked or one-way where a way exists"),
)
