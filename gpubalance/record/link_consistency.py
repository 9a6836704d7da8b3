"""That the measured links of a run fit its plan and each other; for `gpubalance.record.consistency`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubalance.record.links import DeviceCopies, HostPair, Links, PeerCopies
from gpubalance.record.run import Run


def link_problems(run: Run) -> Iterator[str]:
    """Devices that the plan does not have, a device that is its own peer, pairs told twice, rates that are no rates."""
    if run.links is None:
        return
    count = len(run.plan.devices)
    for place, devices in _devices_named(run.links):
        yield from (f"{place} names device {i}, the plan has {count}" for i in devices if not 0 <= i < count)
    yield from _twice("links.peers", [(peer.source, peer.target) for peer in run.links.peers])
    yield from _twice("links.devices", [copies.device for copies in run.links.devices])
    yield from _twice("links.host_pairs", [tuple(sorted((p.first, p.second))) for p in run.links.host_pairs])
    for peer in run.links.peers:
        yield from _peer(peer)
    measured: list[DeviceCopies | HostPair] = [*run.links.devices, *run.links.host_pairs]
    rates = [rate for copies in measured for rate in _rates(copies)]
    yield from (f"links: a rate is {rate:g}, it must be above 0" for rate in rates if not rate > 0)


def _devices_named(links: Links) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from (("links.peers", (peer.source, peer.target)) for peer in links.peers)
    yield from (("links.devices", (copies.device,)) for copies in links.devices)
    yield from (("links.host_pairs", (pair.first, pair.second)) for pair in links.host_pairs)


def _twice(place: str, keys: Iterable[object]) -> Iterator[str]:
    seen: set[object] = set()
    for key in keys:
        if key in seen or (isinstance(key, tuple) and key[0] == key[1]):
            yield f"{place} names {key} twice"
        seen.add(key)


def _peer(peer: PeerCopies) -> Iterator[str]:
    name = f"links.peers {peer.source} to {peer.target}"
    rates = [*peer.looks_gb_per_s, peer.both_ways_gb_per_s, peer.together_gb_per_s]
    yield from (
        f"{name}: a rate is {rate:g}, it must be above 0" for rate in rates if rate is not None and not rate > 0
    )
    for checked, wrong in (
        (peer.checked_bytes, peer.wrong_bytes),
        (peer.checked_on_host_bytes, peer.wrong_on_host_bytes),
    ):
        if (checked is None) != (wrong is None) or not 0 <= (wrong or 0) <= (checked or 0):
            yield f"{name}: {wrong} wrong bytes of {checked}"


def _rates(copies: DeviceCopies | HostPair) -> list[float]:
    if isinstance(copies, HostPair):
        return [copies.first_gb_per_s, copies.second_gb_per_s]
    values = (getattr(copies, name) for name in DeviceCopies.model_fields if name.endswith("_gb_per_s"))
    return [value for value in values if value is not None]
