"""Copies between devices: is the data right, is a link slower than its peers, or than its NVLinks let expect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.link_classes import nvlinks_active, over_nvlink
from gpubalance.analysis.links import LOOKS, LinkFacts, PeerLink, Slow
from gpubalance.checks.finding import Finding, State, counted, percent
from gpubalance.checks.identity import labels_of, name_of
from gpubalance.record.gates import gates_of
from gpubalance.record.limits import host_link_limit_gb_per_s
from gpubalance.record.links import PeerCopies
from gpubalance.record.node import Device
from gpubalance.record.run import Run

HEALTHY = "healthy GPUs copy at 0.83 (H100, H200) to 0.91 (A100) of that, meshes of four A100s at 0.72"
"""Published copies by the copy engine: H100 376 and H200 396 of 450 GB/s, A100 274 of 300, mesh of A100s 72 of 100."""

COMMUNICATION = ("link", "link_data", "link_limit", "nvlinks_up")
"""Checks that look at what the score of communication is made of."""

DIRECT = 1.25
"""A pair that should copy over NVLink and does not exceed the host link by more than this goes another way (ours)."""

MEND = "reseat the GPU or its bridge, or replace the part that the slowness follows"
P2P_CURE = "set NCCL_P2P_DISABLE=1 for jobs, then look at IOMMU and ACS of the host and at the driver"


def check_links(run: Run, facts: Facts) -> list[Finding]:
    """NVLinks that are down, and all that copies between devices show."""
    down = list(_uneven_nvlinks(run))
    if run.links is None:
        return down
    found = [*_data(run), *down]
    if facts.links is None or not facts.links.peers:
        return found
    return [*found, *_slow_links(run, facts.links, _cost(facts)), *_against_limit(run, facts.links), *_no_access(run)]


def _cost(facts: Facts) -> tuple[str, ...]:
    """What the slowest link costs, where training shows it; no rank is slow by it, all wait for it alike."""
    link = facts.first.balance.link if facts.first is not None else None
    return (
        () if link is None or link >= 100 else (f"the slowest link costs {percent(1 - link / 100)} of the step rate",)
    )


def _data(run: Run) -> Iterator[Finding]:
    assert run.links is not None
    checked = [peer for peer in run.links.peers if peer.checked_bytes]
    wrong = [peer for peer in checked if peer.wrong_bytes or peer.wrong_on_host_bytes]
    for peer in wrong:
        yield _wrong(run, peer)
    if checked and not wrong:
        text = f"{len(checked)} {'copy' if len(checked) == 1 else 'copies'} between devices brought the right bytes"
        yield Finding("link_data", State.PASS, text, required=True)


def _wrong(run: Run, peer: PeerCopies) -> Finding:
    count, of = (peer.wrong_bytes, peer.checked_bytes) if peer.wrong_bytes else (
        peer.wrong_on_host_bytes, peer.checked_on_host_bytes)  # fmt: skip
    claim = " though the driver says that peer access works" if peer.peer_access else ""
    where = "" if peer.wrong_bytes else " when they are read in host memory"
    return Finding(
        "link_data",
        State.FAIL,
        f"{name_of(run, peer.source)} to {name_of(run, peer.target)}: the copy returned wrong bytes{where}{claim}",
        subject=labels_of(run, peer.source, peer.target),
        observed=f"{count} of {of} bytes wrong",
        expected="0",
        evidence=("do not train here: gradients that take this way are wrong in silence",),
        next_step=P2P_CURE,
        required=True,
    )


def _uneven_nvlinks(run: Run) -> Iterator[Finding]:
    """Links that a peer of the same model has up and this one does not; that is a fault however fast they are."""
    models: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, device in enumerate(run.plan.devices):
        up = nvlinks_active(device)
        if up is not None:
            models[device.name].append((index, up))
    for group in models.values():
        most = max(up for _, up in group)
        for index, up in group:
            if up < most:
                yield Finding(
                    "nvlinks_up",
                    State.FAIL,
                    f"{name_of(run, index)} has {counted(up, 'NVLink')} up, its peers have {most}",
                    subject=labels_of(run, index),
                    observed=str(up),
                    expected=str(most),
                    next_step="reseat the GPU or its bridge; gpubalance probe names the link that is down",
                )


def _slow_links(run: Run, facts: LinkFacts, cost: tuple[str, ...]) -> list[Finding]:
    warn, fail = gates_of(run).pair("link")
    found = [_slow(run, slow, warn, fail, cost if slow.confirmed else ()) for slow in facts.slow[:1]]
    found += [_slow(run, slow, warn, fail, ()) for slow in facts.slow[1:]]
    judged = [peer.ratio for peer in facts.peers if peer.ratio is not None]
    if not judged:
        alone = "no two links here are of one class, and NVML does not say more"
        return [Finding("link", State.SKIP, f"links cannot be held against each other: {alone}")]
    if found:
        return found
    two = len({peer.source for peer in facts.peers}) == 2
    text = (
        f"both directions between two devices are alike within {percent(max(0.0, 1 - min(judged)))}"
        if two
        else f"each of {len(judged)} links reaches {percent(min(judged))} or more of what its peers let expect"
    )
    note = ("with two devices no link can stand out; one direction is held against the other",) if two else ()
    return [Finding("link", State.PASS, text, evidence=note, required=True)]


def _slow(run: Run, slow: Slow, warn: float, fail: float, cost: tuple[str, ...]) -> Finding:
    state = State.FAIL if slow.least_behind > fail else State.WARN
    if not slow.confirmed:
        state = State.UNKNOWN
    looks = min(copy.looks for copy in slow.copies)
    two = len(run.plan.devices) == 2
    return Finding(
        "link",
        state,
        f"{_who(run, slow)} {percent(slow.behind)} less than {_than(slow, two=two)}{_dead(slow)}",
        subject=labels_of(run, *slow.devices),
        observed=_observed(slow.copies),
        expected=f"at most {percent(warn)} less than its peers of the same class ({slow.copies[0].link.name}); "
        f"fails above {percent(fail)}",
        evidence=(
            *cost,
            f"seen in each of {looks} looks" if slow.confirmed else f"only {looks} of {LOOKS} looks were taken",
            *_up(run, slow),
            *(["with two devices no link can stand out; which direction is the abnormal one needs a baseline"] * two),
        ),
        next_step=MEND if slow.confirmed else "measure again: gpubalance bench --workload links",
    )


def _who(run: Run, slow: Slow) -> str:
    names = [name_of(run, device) for device in slow.devices]
    if slow.side == "device":
        return f"{names[0]} sends and receives"
    if slow.side in ("sends", "receives"):
        return f"{names[0]} {slow.side}"
    if slow.side == "pair":
        return f"{names[0]} and {names[1]} exchange"
    return f"{names[0]} to {names[1]} moves"


def _than(slow: Slow, *, two: bool) -> str:
    if slow.side in ("device", "sends", "receives"):
        return "its peers"
    if slow.side == "direction" and (two or not slow.copies[0].link.comparable):
        return "the other way"
    return "their peers" if slow.side == "pair" else "other links of its kind"


def _dead(slow: Slow) -> str:
    if slow.dead_links is None:
        return ""
    one = "one" if slow.dead_links == 1 else str(slow.dead_links)
    return f": {one} of {slow.links} links"


def _up(run: Run, slow: Slow) -> Iterator[str]:
    for device in slow.devices:
        up = nvlinks_active(run.plan.devices[device])
        if up is not None:
            yield f"NVML says that {counted(up, 'NVLink')} of {name_of(run, device)} {'is' if up == 1 else 'are'} up"


def _observed(copies: Sequence[PeerLink]) -> str:
    rates = sorted(copy.gb_per_s for copy in copies)
    text = " to ".join(dict.fromkeys(f"{rate:.1f}" for rate in (rates[0], rates[-1])))
    due = max(copy.expected_gb_per_s or 0.0 for copy in copies)
    return f"{text} GB/s, peers {due:.1f} GB/s"


def _against_limit(run: Run, facts: LinkFacts) -> list[Finding]:
    """NVLinks x 25 or 50 GB/s. Other ways have no limit of their own: what lies between is the host's affair."""
    warn, fail = gates_of(run).pair("link_limit")
    known = [peer for peer in facts.peers if peer.share_of_limit is not None]
    low: dict[str, list[PeerLink]] = defaultdict(list)
    for peer in known:
        share = peer.share_of_limit or 0.0
        if share < warn:
            low[_reason(run, peer, share, fail)].append(peer)
    found = [_below(run, reason, group, warn, fail) for reason, group in low.items()]
    if known and not found:
        shares = [peer.share_of_limit or 0.0 for peer in known]
        least = min(known, key=lambda peer: peer.share_of_limit or 0.0)
        text = f"copies over NVLink reach {min(shares):.2f} of {_limit(least)} or more"
        found.append(Finding("link_limit", State.PASS, text, expected=f"at least {percent(warn)}: {HEALTHY}"))
    return found


def _limit(peer: PeerLink) -> str:
    limit, links = peer.link.limit_gb_per_s or 0.0, peer.link.links or 1
    return f"{counted(links, 'link')} x {limit / links:g} GB/s = {limit:.0f} GB/s"


def _reason(run: Run, peer: PeerLink, share: float, fail: float) -> str:
    """PCIe where it is no faster than the link to the host, else slow NVLink."""
    host = [host_link_limit_gb_per_s(run.plan.devices[device]) for device in (peer.source, peer.target)]
    slowest = min((limit for limit in host if limit is not None), default=None)
    by_host = share < fail and slowest is not None and peer.gb_per_s <= DIRECT * slowest
    return "host" if by_host else "fail" if share < fail else "warn"


def _below(run: Run, reason: str, group: Sequence[PeerLink], warn: float, fail: float) -> Finding:
    first = min(group, key=lambda peer: peer.gb_per_s)
    more = f", and {counted(len(group) - 1, 'other')}" if len(group) > 1 else ""
    pair = f"{name_of(run, first.source)} to {name_of(run, first.target)}{more}"
    text = f"{pair}: copies reach {percent(first.share_of_limit or 0.0)} of what {first.link.name} carry"
    if reason == "host":
        text = (
            f"{pair}: NVLink joins them, but copies run at {first.gb_per_s:.1f} GB/s, as over PCIe: peer-to-peer is off"
        )
    devices = sorted({device for peer in group for device in (peer.source, peer.target)})
    return Finding(
        "link_limit",
        State.WARN if reason == "warn" else State.FAIL,
        text,
        subject=labels_of(run, *devices),
        observed=f"{first.gb_per_s:.1f} GB/s",
        expected=f"at least {percent(warn)} (fails below {percent(fail)}) of {_limit(first)}; {HEALTHY}",
        evidence=tuple(_p2p(run, first)),
        next_step="look at IOMMU, ACS, the fabric manager and the nvidia module's options; gpubalance probe tells more"
        if reason == "host"
        else "gpubalance probe looks at NVLink errors and the fabric",
    )


def _p2p(run: Run, peer: PeerLink) -> Iterator[str]:
    assert run.links is not None
    copies = next((c for c in run.links.peers if (c.source, c.target) == (peer.source, peer.target)), None)
    if copies is not None and copies.peer_access is not None:
        yield f"CUDA says that peer access is {'possible' if copies.peer_access else 'not possible'}"
    said = _said(run.plan.devices[peer.source], run.plan.devices[peer.target])
    statuses = [f"{kind} {status}" for kind, status in said.items() if status is not None]
    if statuses:
        yield f"NVML says of peer-to-peer: {', '.join(statuses)}"


def _said(one: Device, other: Device) -> dict[str, str | None]:
    return next((dict(peer.p2p) for peer in one.peers if peer.nvml_index == other.nvml_index), {})


def _no_access(run: Run) -> Iterator[Finding]:
    """Told, not judged, where no NVLink joins the two: many cards go through host memory by design."""
    assert run.links is not None
    without = {
        tuple(sorted((peer.source, peer.target)))
        for peer in run.links.peers
        if peer.peer_access is False and not _is_joined(run, peer)
    }
    if without:
        names = [" and ".join(name_of(run, device) for device in pair) for pair in sorted(without)]
        text = "no peer access between some devices: copies go through host memory"
        yield Finding("peer_access", State.INFO, text, evidence=(f"between {'; '.join(names)}",))


def _is_joined(run: Run, copies: PeerCopies) -> bool:
    one, other = run.plan.devices[copies.source], run.plan.devices[copies.target]
    return any(peer.nvml_index == other.nvml_index and over_nvlink(peer) for peer in one.peers)
