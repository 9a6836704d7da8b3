"""Tables about copies over single links, for html and markdown."""

from __future__ import annotations

import statistics

from gpubalance.checks.identity import name_of
from gpubalance.record.run import Run
from gpubalance.reports.link_lines import cell, host_cells
from gpubalance.reports.table import NONE, Column, Table, number, words

LONGEST_MATRIX = 16
"""Devices; the table of all links has every one of them."""


def matrix_table(run: Run) -> Table:
    """Bandwidth from each device (row) to each other one."""
    looks = {
        (peer.source, peer.target): statistics.median(peer.looks_gb_per_s)
        for peer in (run.links.peers if run.links else ())
        if peer.looks_gb_per_s
    }
    devices = sorted({device for pair in looks for device in pair})[:LONGEST_MATRIX]
    columns = (Column("to", words=True), *(Column(name_of(run, device), "GB/s") for device in devices))
    rows = tuple(
        (name_of(run, a), *(cell(looks.get((a, b)), same=a == b) for b in devices)) for a in devices
    )  # fmt: skip
    note = "one copy at a time, from row to column; GB = 1e9 bytes"
    return Table("Copies between devices", columns, rows, (note,), matrix=True)


def link_table(run: Run) -> Table:
    """A row a direction: what CUDA says of it, whether the data was right, how fast alone and beside others."""
    columns = (
        *words("from", "to", "peer access"),
        Column("wrong", "bytes"),
        Column("alone", "GB/s"),
        Column("looks"),
        Column("both ways", "GB/s"),
        Column("together", "GB/s"),
    )
    rows = tuple(
        (
            name_of(run, peer.source),
            name_of(run, peer.target),
            NONE if peer.peer_access is None else "yes" if peer.peer_access else "no",
            number(_wrong(peer.wrong_bytes, peer.wrong_on_host_bytes)),
            number(statistics.median(peer.looks_gb_per_s) if peer.looks_gb_per_s else None, 1),
            str(len(peer.looks_gb_per_s)),
            number(peer.both_ways_gb_per_s, 1),
            number(peer.together_gb_per_s, 1),
        )
        for peer in (run.links.peers if run.links else ())
    )
    notes = (
        "alone: median of the looks; both ways: this direction while the opposite one copies",
        "together: while all other devices copy in pairs",
    )
    return Table("Every link", columns, rows, notes)


def _wrong(on_target: int | None, on_host: int | None) -> int | None:
    """Of the two comparisons the one that found more."""
    return max((count for count in (on_target, on_host) if count is not None), default=None)


def host_link_table(run: Run) -> Table:
    """A row a device: copies within its memory, from and to the host, alone and with all devices together."""
    columns = (
        Column("device", words=True),
        Column("memory", "GB/s"),
        Column("from host", "GB/s"),
        Column("together", "GB/s"),
        Column("to host", "GB/s"),
        Column("together", "GB/s"),
        Column("host memory on", words=True),
    )
    rows = tuple(
        (
            *host_cells(run, copies),
            f"NUMA node {copies.numa_node}" if copies.numa_node is not None else copies.not_bound or NONE,
        )
        for copies in (run.links.devices if run.links else ())
    )
    notes = ("memory: bytes read plus bytes written; host memory is pinned", *_missing(run))
    return Table("Copies with memory and host", columns, rows, notes)


def _missing(run: Run) -> tuple[str, ...]:
    return tuple(f"{what} not measured: {why}" for what, why in (run.links.missing.items() if run.links else ()))
