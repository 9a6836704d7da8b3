"""Bus bandwidth of the collectives against the size of the message."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpubalance.record.timings import CollectiveRow
from gpubalance.reports.canvas import BLUE, GREEN, VERMILLION, WIDTH_PX, axes_in, svg_of
from gpubalance.reports.chart import Chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 330
_MOST_TICKS = 10
_COLOURS = {"all_reduce": BLUE, "all_gather": GREEN, "reduce_scatter": VERMILLION}
_MARKERS = {"all_reduce": "o", "all_gather": "s", "reduce_scatter": "^"}
Curves = dict[tuple[str, str], list[tuple[int, float]]]


def bandwidth_chart(rows: Sequence[CollectiveRow], missing: str) -> Chart:
    """One curve a collective and mode; `missing` is why there are none."""
    title = "Bus bandwidth of collectives"
    shows = "nccl-tests' busbw; GB = 1e9 bytes. Replayed from a CUDA graph a collective has no launch cost in it."
    if not rows:
        return Chart(title, shows, missing=missing)
    curves: Curves = defaultdict(list)
    for row in rows:
        curves[row.collective, row.mode].append((row.size_bytes, row.bus_bandwidth_gb_per_s))
    return Chart(title, shows, _svg(curves), None, ("no expected value yet",))


def size_text(size: float) -> str:
    """8 KiB, 1 GiB; the nearest whole number."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.0f} {name}"
    return f"{size:.0f} B"


def _svg(curves: Curves) -> str:
    sizes = sorted({size for points in curves.values() for size, _ in points})

    def draw(figure: Figure) -> None:
        axes = axes_in(figure, left=64, right=WIDTH_PX - 16, top=14, bottom=_HEIGHT - 50)
        for (collective, mode), points in sorted(curves.items()):
            xs, ys = zip(*sorted(points), strict=True)
            graph = mode == "graph"
            axes.plot(xs, ys, color=_COLOURS[collective], marker=_MARKERS[collective], markersize=4, linewidth=1.6,
                      linestyle="--" if graph else "-", fillstyle="none" if graph else "full",
                      label=f"{collective}, graph" if graph else collective)  # fmt: skip
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
