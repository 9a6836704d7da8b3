"""Collectives as people read them: nccl-tests' columns, what was expected, which way NCCL took, and gloo beside it."""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.analysis.bandwidth import JUDGED, Bandwidth
from gpubalance.message_sizes import size_text
from gpubalance.record.collectives import ELEMENT_BYTES, REDUCING, ROOTED, parts_of
from gpubalance.record.run import Run
from gpubalance.record.timings import CollectiveRow, NcclFacts
from gpubalance.reports.rank_table import aligned

FEW_SIZES = 3
"""So many sizes of each collective stand in one table; more get a table a collective, as nccl-tests prints them."""

TYPES = {"float32": "float", "bfloat16": "bfloat16", "float16": "half"}
"""nccl-tests' words."""

PLACES = {"in_place": "in place", "out_of_place": "out of place"}


def bandwidth_lines(run: Run, bandwidth: Bandwidth) -> list[str]:
    """The collectives; replayed from a CUDA graph they have no launch cost in them."""
    rows = own_rows(run)
    if not rows:
        return []
    sizes = {(row.collective, row.placement): 0 for row in rows}
    for row in rows:
        sizes[row.collective, row.placement] += row.mode == "eager"
    lines = _one_table(rows) if max(sizes.values()) <= FEW_SIZES else _tables(rows)
    return [
        *lines,
        definitions_text(run, rows),
        *_jitter_lines(rows),
        *_expected_lines(bandwidth),
        *_log_lines(run.nccl, rows),
        *_gloo_lines(run, bandwidth),
    ]


def own_rows(run: Run) -> list[CollectiveRow]:
    """What was measured over the run's own backend; not gloo beside NCCL."""
    return [row for row in run.collectives if row.backend == run.plan.backend]


def definitions_text(run: Run, rows: Sequence[CollectiveRow]) -> str:
    """What the numbers are."""
    if run.plan.backend != "nccl":
        return "gloo: not comparable with NCCL"
    types = ", ".join(sorted({row.dtype for row in rows}))
    places = {row.placement for row in rows}
    where = PLACES[next(iter(places))] if len(places) == 1 else "in place where nccl-tests has it"
    host = ", host's clock and 20 iterations as nccl-tests" if any(row.clock == "host" for row in rows) else ""
    return f"GB = 1e9 bytes, nccl-tests' definitions, {types} {where}{host}"


def count_of(row: CollectiveRow) -> int:
    """Nccl-tests' column: elements of one part."""
    return row.size_bytes // ELEMENT_BYTES.get(row.dtype, 4) // parts_of(row.collective, row.ranks)


def redop_of(row: CollectiveRow) -> str:
    """Nccl-tests' column."""
    return "sum" if row.collective in REDUCING else "none"


def root_of(row: CollectiveRow) -> int:
    """Nccl-tests' column."""
    return 0 if row.collective in ROOTED else -1


def bandwidth_text(gb_per_s: float) -> str:
    """Two decimals as nccl-tests prints them, four where those would say 0.0."""
    return f"{gb_per_s:.2f}" if gb_per_s >= 0.1 else f"{gb_per_s:.4f}"


Key = tuple[str, str, int]


def _key(row: CollectiveRow) -> Key:
    return row.collective, row.placement, row.size_bytes


def _one_table(rows: Sequence[CollectiveRow]) -> list[str]:
    names = ["collective", "ranks", "size", "time", "algbw", "busbw", "wrong"]
    cells = [
        [row.collective, str(row.ranks), size_text(row.size_bytes), *_speed(row), str(row.wrong_elements)]
        for row in rows
        if row.mode == "eager"
    ]
    return _with_graphs(names, ["", "", "", "us", "GB/s", "GB/s", ""], cells, rows, names_first=1)


def _tables(rows: Sequence[CollectiveRow]) -> list[str]:
    """One for each collective and placement. What is the same in all of its rows stands above it."""
    lines: list[str] = []
    for place in dict.fromkeys((row.collective, row.placement) for row in rows):
        own = [row for row in rows if (row.collective, row.placement) == place]
        first = own[0]
        operation = f"type {TYPES.get(first.dtype, first.dtype)}, redop {redop_of(first)}, root {root_of(first)}"
        lines.append(f"{first.collective} {PLACES[first.placement]}, {first.ranks} ranks, {operation}")
        cells = [
            [str(row.size_bytes), str(count_of(row)), *_speed(row), str(row.wrong_elements)]
            for row in own
            if row.mode == "eager"
        ]
        units = ["(B)", "(elements)", "(us)", "(GB/s)", "(GB/s)", ""]
        lines += _with_graphs(["size", "count", "time", "algbw", "busbw", "#wrong"], units, cells, own, names_first=0)
    return lines


def _with_graphs(
    names: list[str], units: list[str], cells: list[list[str]], rows: Sequence[CollectiveRow], *, names_first: int
) -> list[str]:
    graphs = {_key(row): row for row in rows if row.mode == "graph"}
    if not graphs:
        return aligned([names, units, *cells], names=names_first)
    micros, gigabytes = units[-3].replace("GB/s", "us"), units[-3]
    eager = [row for row in rows if row.mode == "eager"]
    table = [[*names, "graph", "busbw"], [*units, micros, gigabytes]]
    table += [[*shown, *_graph_cells(graphs.get(_key(row)))] for row, shown in zip(eager, cells, strict=True)]
    return aligned(table, names=names_first)


def _jitter_lines(rows: Sequence[CollectiveRow]) -> list[str]:
    """How much single operations differ, where that was asked for."""
    table = [["single operations", "size", "p50", "p99", "largest", "spread"], ["", "", "us", "us", "us", "%"]]
    for row in rows:
        if row.jitter is not None:
            times = (row.jitter.p50_us, row.jitter.p99_us, row.jitter.max_us, 100 * row.jitter.cv)
            name = f"{row.collective} {PLACES[row.placement]}"
            table.append([name, size_text(row.size_bytes), *(f"{value:.1f}" for value in times)])
    return aligned(table, names=1) if len(table) > 2 else []


def _speed(row: CollectiveRow) -> list[str]:
    bandwidths = (row.algorithm_bandwidth_gb_per_s, row.bus_bandwidth_gb_per_s)
    return [f"{row.time_us:.1f}", *map(bandwidth_text, bandwidths)]


def _graph_cells(row: CollectiveRow | None) -> list[str]:
    return ["-", "-"] if row is None else [f"{row.time_us:.1f}", bandwidth_text(row.bus_bandwidth_gb_per_s)]


def _expected_lines(bandwidth: Bandwidth) -> list[str]:
    """What the links let expect, and which share of it the largest messages reach that are judged."""
    shares: dict[str, list[str]] = {}
    for each in (each for name in JUDGED for each in bandwidth.largest if each.collective == name):
        if each.expected is not None and each.is_large_enough:
            head = f"Of the {each.expected.gb_per_s:.0f} GB/s expected ({each.expected.because})"
            share = 100 * each.bus_bandwidth_gb_per_s / each.expected.gb_per_s
            shares.setdefault(head, []).append(f"{each.collective} {share:.0f} % at {size_text(each.size_bytes)}")
    return [f"{head}: {', '.join(parts)}." for head, parts in shares.items()]


def _log_lines(facts: NcclFacts | None, rows: Sequence[CollectiveRow]) -> list[str]:
    """The way and the algorithm, by NCCL's own word."""
    if facts is None:
        return []
    ways = sorted({way.via for way in facts.transports})
    said = [f"data goes by {', '.join(ways)}"] if ways else []
    if facts.nvls_available is not None:
        said.append(f"NVLS {'available' if facts.nvls_available else 'not available'}")
    largest = {row.collective: row.size_bytes for row in sorted(rows, key=lambda row: row.size_bytes)}
    for choice in facts.choices:
        if largest.get(choice.collective) == choice.size_bytes and choice.collective in JUDGED:
            where = f" on {choice.channels} channels" if choice.channels else ""
            said.append(f"{choice.collective} of {size_text(choice.size_bytes)} uses {choice.algorithm}{where}")
    lines = [f"NCCL's log: {'; '.join(said)}."] if said else []
    return lines + [f"NCCL warned: {warning}" for warning in facts.warnings[:3]]


def _gloo_lines(run: Run, bandwidth: Bandwidth) -> list[str]:
    slow = next((row for row in run.collectives if row.backend == "gloo"), None)
    if run.plan.backend != "nccl" or slow is None or bandwidth.gloo_times_slower is None:
        return []
    what = f"The same {slow.collective} of {size_text(slow.size_bytes)} through gloo and host memory"
    return [f"{what}: {slow.bus_bandwidth_gb_per_s:.1f} GB/s, {bandwidth.gloo_times_slower:.0f} x less."]
