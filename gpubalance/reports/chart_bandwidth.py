"""Bus bandwidth of the collectives against the size of the message."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpubalance.analysis.bandwidth import Bandwidth
from gpubalance.message_sizes import size_text
from gpubalance.record.timings import CollectiveRow
from gpubalance.reports.canvas import BLUE, GREEN, INK, ORANGE, PURPLE, VERMILLION, WIDTH_PX, axes_in, svg_of
from gpubalance.reports.chart import Chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 330
_MOST_TICKS = 10
_COLOURS = {"all_reduce": BLUE, "all_gather": GREEN, "reduce_scatter": VERMILLION, "all_to_all": ORANGE,
            "send_recv": PURPLE, "broadcast": BLUE, "reduce": GREEN}  # fmt: skip
_MARKERS = {"all_reduce": "o", "all_gather": "s", "reduce_scatter": "^", "all_to_all": "D", "send_recv": "v",
            "broadcast": "P", "reduce": "X"}  # fmt: skip
Curves = dict[tuple[str, str], list[tuple[int, float]]]
Lines = Mapping[float, str]
"""GB/s of a line across the chart -> what it is called."""


def bandwidth_chart(rows: Sequence[CollectiveRow], bandwidth: Bandwidth, missing: str) -> Chart:
    """One curve a collective and mode, in the faster placement, and the lines that are expected; `missing` is why there
    are none.
    """
    title = "Bus bandwidth of collectives"
    shows = "nccl-tests' busbw; GB = 1e9 bytes. Replayed from a CUDA graph a collective has no launch cost in it."
    if not rows:
        return Chart(title, shows, missing=missing)
    best: dict[tuple[str, str, int], float] = {}
    for row in rows:
        key = row.collective, row.mode, row.size_bytes
        best[key] = max(row.bus_bandwidth_gb_per_s, best.get(key, 0.0))
    curves: Curves = defaultdict(list)
    for (collective, mode, size), value in best.items():
        curves[collective, mode].append((size, value))
    expected = [each.expected for each in bandwidth.largest if each.expected is not None]
    lines = {each.gb_per_s: f"expected of {each.algorithm}, {each.gb_per_s:.0f}" for each in expected}
    return Chart(title, shows, _svg(curves, lines), None, _notes(bandwidth))


def _notes(bandwidth: Bandwidth) -> tuple[str, ...]:
    """Where each line comes from, or why there is none."""
    expected = [each.expected for each in bandwidth.largest if each.expected is not None]
    texts = [f"expected {each.gb_per_s:.0f} GB/s because {each.because}" for each in expected]
    reasons = [f"nothing is expected: {each.why_not}" for each in bandwidth.largest if each.why_not is not None]
    none = "nothing is expected of gloo" if not bandwidth.largest else None
    return tuple(dict.fromkeys([*texts, *reasons, *([none] if none else [])]))


def _svg(curves: Curves, lines: Lines) -> str:
    sizes = sorted({size for points in curves.values() for size, _ in points})

    def draw(figure: Figure) -> None:
        axes = axes_in(figure, left=64, right=WIDTH_PX - 16, top=14, bottom=_HEIGHT - 50)
        for (collective, mode), points in sorted(curves.items()):
            xs, ys = zip(*sorted(points), strict=True)
            graph = mode == "graph"
            axes.plot(xs, ys, color=_COLOURS[collective], marker=_MARKERS[collective], markersize=4, linewidth=1.6,
                      linestyle="--" if graph else "-", fillstyle="none" if graph else "full",
                      label=f"{collective}, graph" if graph else collective)  # fmt: skip
        for value, name in sorted(lines.items()):
            axes.axhline(value, color=INK, linewidth=0.8, linestyle=":", label=name)
        axes.set_xscale("log", base=2)
        named = sizes[:: math.ceil(len(sizes) / _MOST_TICKS)]
        axes.set_xticks(named, [size_text(size) for size in named])
        axes.set_xticks([], minor=True)
        axes.set_xlim(sizes[0] / 2, sizes[-1] * 2)
        axes.set_ylim(bottom=0)
        axes.grid(axis="both")
        axes.set_xlabel("size of the message")
        axes.set_ylabel("busbw, GB/s")
        axes.legend(loc="upper left")

    return svg_of("bandwidth", _HEIGHT, draw)
