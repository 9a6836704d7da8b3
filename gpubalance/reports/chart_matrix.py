"""The matrix of copies between devices as a picture: a cell a direction, its number in it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpubalance.record.run import Run
from gpubalance.reports.canvas import INK, WIDTH_PX, axes_in, svg_of
from gpubalance.reports.chart import Chart, why_not

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_DEVICES = 16
_TOP, _ROW, _FOOT = 26, 34, 10
_LEFT = 70
_WIDEST = 92

COLOURS = "cividis"
"""Made for people who see colours differently (Nunez, Anderton, Renslow, PLoS ONE 2018); dark is slow."""

SPREAD = 0.10
"""The scale spans at least this share below the fastest, so that ordinary noise does not look like a fault."""

_DARK = 0.55
"""Cells below this part of the scale take light ink."""


def matrix_chart(run: Run, names: Sequence[str]) -> Chart:
    """Bandwidth from each device (row) to each other one (column); `names` by device."""
    title = "Link matrix"
    shows = "Copies from the device of the row to that of the column, one at a time, in GB/s (1e9 bytes)."
    rates = {
        (peer.source, peer.target): statistics.median(peer.looks_gb_per_s)
        for peer in (run.links.peers if run.links else ())
        if peer.looks_gb_per_s
    }
    if not rates:
        said = run.links.missing.get("peers") if run.links else None
        return Chart(title, shows, missing=said or why_not(run, "links"))
    devices = sorted({device for pair in rates for device in pair})
    kept = devices[:MOST_DEVICES]
    notes = (f"{len(kept)} of {len(devices)} devices, the first ones",) if len(kept) < len(devices) else ()
    return Chart(title, shows, _svg(rates, kept, names), None, notes)


def _svg(rates: Mapping[tuple[int, int], float], devices: Sequence[int], names: Sequence[str]) -> str:
    width = min(_WIDEST, (WIDTH_PX - _LEFT - 20) / len(devices))
    height = _TOP + _ROW * len(devices) + _FOOT
    fastest, slowest = max(rates.values()), min(rates.values())
    low = min(slowest, fastest * (1 - SPREAD))

    def draw(figure: Figure) -> None:
        import matplotlib as mpl

        colours = mpl.colormaps[COLOURS]
        axes = axes_in(figure, left=_LEFT, right=_LEFT + width * len(devices), top=_TOP, bottom=height - _FOOT)
        for row, source in enumerate(devices):
            for column, target in enumerate(devices):
                rate = rates.get((source, target))
                if rate is None:
                    axes.text(column, row, "" if source == target else "-", ha="center", va="center")
                    continue
                part = (rate - low) / (fastest - low)
                axes.fill([column - 0.5, column + 0.5, column + 0.5, column - 0.5],
                          [row - 0.5, row - 0.5, row + 0.5, row + 0.5], color=colours(part),
                          edgecolor=INK, linewidth=0.4)  # fmt: skip
                axes.text(column, row, f"{rate:.1f}", ha="center", va="center", fontsize=10 if width > 48 else 8,
                          color="#ffffff" if part < _DARK else "#000000")  # fmt: skip
        axes.set_xlim(-0.5, len(devices) - 0.5)
        axes.set_ylim(len(devices) - 0.5, -0.5)
        shown = [names[device].replace("GPU ", "") if width < 56 else names[device] for device in devices]
        axes.set_xticks(range(len(devices)), shown)
        axes.set_yticks(range(len(devices)), [names[device] for device in devices])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return svg_of("links", height, draw)
