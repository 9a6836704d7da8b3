"""Copies between devices and pinned host memory: alone, against peers and the bus, and all at once."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.host_links import SHARED, Bus, HostFacts, HostLink
from gpubalance.checks.finding import Finding, State, percent
from gpubalance.checks.identity import labels_of, name_of
from gpubalance.record.gates import gates_of
from gpubalance.record.run import Run

HEALTHY = "healthy copies reach 0.82 to 0.88 of their bus"
"""Published: 26.3 of 31.5 GB/s at generation 4, 55.4 of 63 at generation 5."""

WAYS = {"to_device_gb_per_s": "from host to device", "from_device_gb_per_s": "from device to host"}
NO_CULPRIT = "with two devices, which of them is the abnormal one needs a baseline"
LOOK = "look at link width, slot, riser and IOMMU, and at what else uses that NUMA node"


def check_host_links(run: Run, facts: Facts) -> list[Finding]:
    """All that copies from and to the host show; one pass line when nothing is wrong."""
    if facts.host is None:
        return []
    found = [*_bus(run, facts.host), *_limits(run, facts.host), *_peers(run, facts.host)]
    if not found:
        shares = [share for link in facts.host.links if (share := _share(link)) is not None]
        text = f"copies from and to the host reach {min(shares):.2f} of their bus or more" if shares else None
        if text is None and len(facts.host.links) > 1:
            text = "copies from and to the host are alike on all devices"
        state = State.UNKNOWN if text is None else State.PASS
        unknown = "no limit of the link to the host is known, and there is no peer"
        found = [Finding("host_link", state, text or unknown, required=text is not None)]
    return [*found, *_shared(run, facts.host)]


def _rates(link: HostLink) -> dict[str, float]:
    values = {key: getattr(link.copies, key) for key in WAYS}
    return {key: value for key, value in values.items() if value is not None}


def _share(link: HostLink) -> float | None:
    limit = link.bus.limit_gb_per_s
    rates = _rates(link)
    return min(rates.values()) / limit if limit and rates else None


def _bus(run: Run, host: HostFacts) -> Iterator[Finding]:
    """A bus that is narrower or slower than device and slot allow, while it was copied over."""
    for link in host.links:
        bus = link.bus
        narrow = bus.width is not None and bus.width_max is not None and bus.width < bus.width_max
        slow = bus.generation is not None and bus.generation_max is not None and bus.generation < bus.generation_max
        if narrow or slow:
            yield Finding(
                "host_link",
                State.FAIL if narrow else State.WARN,
                f"{name_of(run, link.device)} copies over a PCIe link of {_bus_text(bus)}",
                subject=labels_of(run, link.device),
                observed=_bus_text(bus),
                expected=f"generation {bus.generation_max} x{bus.width_max}",
                next_step="reseat the card, then check slot, riser and BIOS settings",
            )


def _bus_text(bus: Bus) -> str:
    return f"generation {bus.generation or bus.generation_max} x{bus.width or bus.width_max}"


def _limits(run: Run, host: HostFacts) -> Iterator[Finding]:
    warn, fail = gates_of(run).pair("host_link")
    for link in host.links:
        limit = link.bus.limit_gb_per_s
        for key, rate in _rates(link).items() if limit else ():
            share = rate / (limit or rate)
            if share < warn:
                at = _bus_text(link.bus) + ("" if link.bus.generation else " (at most; not seen while it copied)")
                yield Finding(
                    "host_link",
                    State.FAIL if share < fail else State.WARN,
                    f"{name_of(run, link.device)} copies {WAYS[key]} at {percent(share)} of its bus",
                    subject=labels_of(run, link.device),
                    observed=f"{rate:.1f} GB/s",
                    expected=f"at least {percent(warn)} (fails below {percent(fail)}) of {limit:.1f} GB/s, {at}",
                    evidence=(*_binding(link), HEALTHY),
                    next_step=LOOK,
                )


def _binding(link: HostLink) -> Iterator[str]:
    if link.copies.numa_node is not None:
        yield f"host memory was allocated on its NUMA node {link.copies.numa_node}"
    elif link.copies.not_bound is not None:
        yield f"host memory was not bound to a NUMA node: {link.copies.not_bound}"


def _peers(run: Run, host: HostFacts) -> Iterator[Finding]:
    """Against the median of the others of the same model and bus; of two others against the slower."""
    warn, fail = gates_of(run).pair("host_copy_peer")
    groups: dict[tuple[object, ...], list[HostLink]] = defaultdict(list)
    for link in host.links:
        groups[run.plan.devices[link.device].name, link.bus.generation_max, link.bus.width_max].append(link)
    for group in groups.values():
        for key in WAYS:
            rates = {link.device: rate for link in group if (rate := _rates(link).get(key)) is not None}
            yield from _behind(run, key, rates, warn, fail)


def _behind(run: Run, key: str, rates: dict[int, float], warn: float, fail: float) -> Iterator[Finding]:
    for device, rate in rates.items():
        others = [other for index, other in rates.items() if index != device]
        peer = _middle(others)
        behind = 0.0 if peer is None else 1 - rate / peer
        if behind <= warn:
            continue
        yield Finding(
            "host_link",
            State.FAIL if behind > fail and len(others) > 1 else State.WARN,
            f"{name_of(run, device)} copies {WAYS[key]} {percent(behind)} slower than its peers",
            subject=labels_of(run, device),
            observed=f"{rate:.1f} GB/s",
            expected=f"{peer:.1f} GB/s as its peers, at most {percent(warn)} below (fails above {percent(fail)})",
            evidence=(NO_CULPRIT,) if len(others) == 1 else (),
            next_step=LOOK,
        )


def _middle(others: Sequence[float]) -> float | None:
    if not others:
        return None
    return min(others) if len(others) == 2 else statistics.median(others)


def _shared(run: Run, host: HostFacts) -> Iterator[Finding]:
    """Told, not judged: many boards put two GPUs below one uplink."""
    for group, share in zip(host.shared, host.share, strict=True):
        names = [name_of(run, device) for device in group]
        who = f"{', '.join(names[:-1])} and {names[-1]}"
        yield Finding(
            "shared_uplink",
            State.INFO,
            f"{who} share an uplink: each gets {share:.2f} of its rate when two of them copy from the host",
            subject=labels_of(run, *group),
        )
    grouped = {device for group in host.shared for device in group}
    rest = [link for link in host.links if link.device not in grouped and (link.together_to or 1.0) < SHARED]
    if rest and len(host.links) > 2:
        least = min(link.together_to or 1.0 for link in rest)
        text = f"when all devices copy from the host, {len(rest)} of them get no more than {least:.2f} of their rate"
        evidence = ("no two of them slow each other: host memory or the way between sockets is full",)
        yield Finding("shared_uplink", State.INFO, text, evidence=evidence)
