"""Utilization of all devices over one another, on one time axis, with the phases of the run behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubalance.record.run import Phase
from gpubalance.record.samples import Column, DeviceSamples, Samples
from gpubalance.reports.canvas import BLUE, INK, VERMILLION, WIDTH_PX, axes_in, legend, svg_of
from gpubalance.reports.chart import MOST_ROWS, Chart, left_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 600
NVML, CPU = "utilization_percent", "cpu_percent"
PHASES = {
    "solo": "solo",
    "ddp": "ddp",
    "collectives": "collectives",
    "data_parallel": "DataParallel",
    "links": "links",
    "load speed": "load",
}
"""Phases of a whole workload; their parts are not shaded."""

_TOP, _ROW, _GAP, _FOOT, _LEFT, _RIGHT = 62, 46, 12, 40, 84, 84


_SHOWS_CPU = "Share of one core that the process used."
_SHOWS_NVML = "NVML: share of the time in which any kernel ran, waiting for other GPUs included."
_SHOWS_USEFUL = (
    " Useful: device time of a training step over the step in real training, one level for the whole run. "
    "The two are never mixed."
)


@dataclass(frozen=True)
class Curve:
    """One device: its samples, and the one level at which it was useful."""

    name: str
    values: Column
    useful: float | None = None
    """0 to 1."""


def utilization_chart(samples: Samples, phases: Sequence[Phase], names: Sequence[str], useful: Sequence[float | None],
                      *, on_cpu: bool = False) -> Chart:  # fmt: skip
    """By device: NVML's utilization as a curve and useful utilization as a level; `names` and `useful` by device."""
    key = CPU if on_cpu else NVML
    title = "CPU of each rank's process over time" if on_cpu else "Utilization over time"
    shows = _SHOWS_CPU if on_cpu else _SHOWS_NVML
    if any(level is not None for level in useful):
        shows += _SHOWS_USEFUL
    there = [device for device in samples.devices if _has_values(device, key) and device.device < len(names)]
    notes = tuple(note for index, name in enumerate(names) if (note := _why(samples, index, key, name)))
    if not there:
        return Chart(title, shows, missing="; ".join(notes) or "nothing was sampled")
    curves = [Curve(names[d.device], d.columns[key], useful[d.device]) for d in there]
    return Chart(title, shows, _svg(samples.t_s, curves[:MOST_ROWS], phases, key), None,
                 (*notes, *left_out(curves, "devices, the first ones")))  # fmt: skip


def _has_values(device: DeviceSamples, key: str) -> bool:
    return any(value is not None for value in device.columns.get(key, ()))


def _why(samples: Samples, index: int, key: str, name: str) -> str | None:
    device = next((d for d in samples.devices if d.device == index), None)
    if device is not None and _has_values(device, key):
        return None
    health = samples.health
    silent = health and (health.hung_in or health.died_with)
    reason = (device.missing.get(key) if device else None) or silent or "no sample"
    return f"{name} not measured: {reason}"


def thinned(t_s: Sequence[float], values: Column) -> tuple[list[float], list[float]]:
    """At most `MOST_POINTS` points that keep every peak and dip: of each stretch its lowest and highest, in order.

    A null stays a gap (NaN); a stretch that is all null is one.
    """
    pairs = list(zip(t_s, (math.nan if value is None else float(value) for value in values), strict=False))
    stretch = math.ceil(len(pairs) / (MOST_POINTS // 2))
    if stretch > 2:
        pairs = [point for at in range(0, len(pairs), stretch) for point in _extremes(pairs[at : at + stretch])]
    return [t for t, _ in pairs], [value for _, value in pairs]


def _extremes(stretch: list[tuple[float, float]]) -> list[tuple[float, float]]:
    known = [point for point in stretch if not math.isnan(point[1])]
    if not known:
        return stretch[:1]
    return sorted({min(known, key=lambda point: point[1]), max(known, key=lambda point: point[1])})


def _svg(t_s: Sequence[float], curves: Sequence[Curve], phases: Sequence[Phase], key: str) -> str:
    height = _TOP + len(curves) * (_ROW + _GAP) + _FOOT
    shaded = [phase for phase in phases if phase.name in PHASES and phase.end_s is not None]
    end = max([*t_s, *(phase.end_s or 0.0 for phase in shaded)])

    def draw(figure: Figure) -> None:
        for row, curve in enumerate(curves):
            top = _TOP + row * (_ROW + _GAP)
            axes = axes_in(figure, left=_LEFT, right=WIDTH_PX - _RIGHT, top=top, bottom=top + _ROW)
            _draw_row(axes, t_s, curve, shaded, end or 1.0)
            if row == 0:
                _name_phases(axes, shaded)
            last = row == len(curves) - 1
            axes.tick_params(labelbottom=last)
            if last:
                axes.set_xlabel("seconds since the start")
        named = [("NVML utilization, %", BLUE), ("useful utilization, %", VERMILLION)]
        if all(curve.useful is None for curve in curves):
            named = named[:1]
        legend(figure, [("CPU of the process, % of a core", BLUE)] if key == CPU else named)

    return svg_of("utilization", height, draw)


def _draw_row(axes: Axes, t_s: Sequence[float], curve: Curve, shaded: Sequence[Phase], end: float) -> None:
    times, values = thinned(t_s, curve.values)
    highest = max(100.0, *(value for value in values if not math.isnan(value)))
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.08 * highest)
    axes.set_yticks([0, highest / 2, highest])
    axes.tick_params(labelsize=9)
    for index, phase in enumerate(shaded):
        axes.axvspan(phase.begin_s, phase.end_s or end, facecolor=INK, alpha=0.06 + 0.06 * (index % 2), linewidth=0)
    axes.plot(times, values, color=BLUE, linewidth=1.1)
    axes.set_ylabel(curve.name, rotation=0, ha="right", va="center", labelpad=8)
    if curve.useful is not None:
        level = 100 * curve.useful
        axes.axhline(level, color=VERMILLION, linewidth=1.8, dashes=(6, 2))
        axes.annotate(f"useful {level:.0f} %", (1, level), xycoords=("axes fraction", "data"), xytext=(5, 0),
                      textcoords="offset points", va="center", color=VERMILLION, fontsize=10)  # fmt: skip


def _name_phases(axes: Axes, shaded: Sequence[Phase]) -> None:
    """Names stand on two levels in turn, so that those of short phases do not run into one another."""
    for index, phase in enumerate(shaded):
        again = f" {phase.attempt + 1}" if phase.attempt else ""
        middle = (phase.begin_s + (phase.end_s or phase.begin_s)) / 2
        above = (0, 3 + 12 * (index % 2))
        axes.annotate(f"{PHASES[phase.name]}{again}", (middle, 1), xycoords=("data", "axes fraction"),
                      xytext=above, textcoords="offset points", ha="center", fontsize=9.5)  # fmt: skip
