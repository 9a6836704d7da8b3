"""Lines about copies over single links: a matrix of devices, and a row a device for the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpubalance.analysis.facts import Facts
from gpubalance.analysis.links import PeerLink
from gpubalance.checks.identity import name_of
from gpubalance.record.links import DeviceCopies
from gpubalance.record.run import Run
from gpubalance.reports.rank_table import aligned
from gpubalance.reports.table import NONE, number

COLUMNS = 8
"""Devices side by side; more of them stand below."""

HOST = (
    ("copies", "memory", "from host", "together", "to host", "together"),
    ("", "GB/s", "GB/s", "GB/s", "GB/s", "GB/s"),
)


def link_lines(run: Run, facts: Facts) -> list[str]:
    """Both tables, with what can be seen beside them in one line each."""
    if run.links is None:
        return []
    peers = facts.links.peers if facts.links else ()
    return [*_matrix(run, peers), *_remarks(run, peers), *_host(run)]


def _matrix(run: Run, peers: Sequence[PeerLink]) -> Iterator[str]:
    rates = {(peer.source, peer.target): peer.gb_per_s for peer in peers}
    devices = sorted({device for pair in rates for device in pair})
    for first in range(0, len(devices), COLUMNS):
        shown = devices[first : first + COLUMNS]
        head = ("GB/s to", *(_short(run, device) for device in shown))
        rows = [
            (name_of(run, source), *(cell(rates.get((source, target)), same=source == target) for target in shown))
            for source in devices
        ]
        yield from aligned([head, *rows], names=1)


def cell(rate: float | None, *, same: bool) -> str:
    """A number of the matrix; nothing copies from a device to itself here."""
    return "." if same else number(rate, 1)


def host_cells(run: Run, copies: DeviceCopies) -> tuple[str, ...]:
    """A device, its copies within its memory, from the host alone and with all others, and to the host likewise."""
    return (
        name_of(run, copies.device),
        number(copies.memory_copy_gb_per_s),
        number(copies.to_device_gb_per_s, 1),
        number(copies.together_to_device_gb_per_s, 1),
        number(copies.from_device_gb_per_s, 1),
        number(copies.together_from_device_gb_per_s, 1),
    )


def _short(run: Run, device: int) -> str:
    return name_of(run, device).removeprefix("GPU ")


def _remarks(run: Run, peers: Sequence[PeerLink]) -> Iterator[str]:
    if not peers:
        return
    names = list(dict.fromkeys(peer.link.name for peer in peers))
    limits = {peer.link.limit_gb_per_s for peer in peers}
    limit = limits.pop() if len(limits) == 1 else None
    expected = f" = {limit:.0f} GB/s, of which copies reach 0.83 to 0.91" if limit else ""
    yield f"one copy at a time, from row to column, over {', '.join(names)}{expected}"
    assert run.links is not None
    both = [peer.both_ways_gb_per_s for peer in run.links.peers if peer.both_ways_gb_per_s is not None]
    together = [peer.together_gb_per_s for peer in run.links.peers if peer.together_gb_per_s is not None]
    texts = [f"both ways at once {_range(both)} GB/s each way"] if both else []
    texts += [f"all in pairs at once {_range(together)} GB/s"] if together else []
    if texts:
        yield "; ".join(texts)


def _range(rates: Sequence[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _host(run: Run) -> Iterator[str]:
    assert run.links is not None
    if not run.links.devices:
        return
    rows = [host_cells(run, copies) for copies in run.links.devices]
    yield from aligned([*HOST, *rows], names=1)
    missing = [f"{what}: {why}" for what, why in run.links.missing.items() if what in ("peers", "host")]
    yield from missing
    if any(NONE not in row for row in rows):
        yield "memory: read plus written; host memory is pinned; together: all devices at once"
