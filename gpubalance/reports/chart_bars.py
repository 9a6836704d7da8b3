"""Pictures of horizontal bars: where each rank's time goes, what the step is made of, who holds the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubalance.analysis.balance import Balance
from gpubalance.analysis.facts import AttemptFacts
from gpubalance.analysis.memory import DeviceMemory, Memory
from gpubalance.reports.canvas import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    VERMILLION,
    WIDTH_PX,
    axes_in,
    legend,
    svg_of,
)
from gpubalance.reports.chart import MOST_ROWS, Chart, left_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOP, _ROW, _FOOT = 30, 26, 42
MEMORY_PARTS = (
    ("own", "own process", BLUE),
    ("other_ranks", "other ranks", VERMILLION),
    ("foreign", "foreign processes", ORANGE),
    ("driver_reserved", "reserved by the driver", GREEN),
    ("unexplained", "unexplained", PURPLE),
)


@dataclass(frozen=True)
class Bar:
    """One row: parts end to end from `start`, and what is written behind them."""

    name: str
    parts: tuple[tuple[float, str], ...]
    """Length and colour."""
    text: str
    start: float = 0.0

    @property
    def end(self) -> float:
        """Where the last part ends."""
        return self.start + sum(length for length, _ in self.parts)


def time_chart(first: AttemptFacts) -> Chart:
    """Compute and wait of each rank, ms a step."""
    rows = range(len(first.compute_ms))
    kept = sorted(sorted(rows, key=lambda rank: first.wait_ms[rank])[:MOST_ROWS])
    bars = [
        Bar(
            f"rank {rank}",
            ((first.compute_ms[rank], BLUE), (first.wait_ms[rank], ORANGE)),
            f"{first.compute_ms[rank]:.2f} + {first.wait_ms[rank]:.2f}",
        )
        for rank in kept
    ]
    shows = (
        "A rank's own work in a step (median), and how long it waits for the slowest (mean). The culprit waits least."
    )
    svg = _svg("time", bars, "ms a step", [("compute", BLUE), ("wait", ORANGE)])
    return Chart("Compute and wait", shows, svg, None, left_out(rows, "ranks, those that wait least"))


def memory_chart(memory: Memory, names: Sequence[str]) -> Chart:
    """How the memory of each device splits at its peak; `names` by device."""
    title, shows = "Memory", "Who held each device's memory at its peak."
    devices = [device for device in memory.devices if _parts(device)]
    if not devices:
        return Chart(title, shows, missing=memory.missing or "the driver did not say who holds memory")
    bars = [_memory_bar(device, names[device.device]) for device in devices[:MOST_ROWS]]
    used = [(name, colour) for key, name, colour in MEMORY_PARTS if any(getattr(d, key) is not None for d in devices)]
    notes = tuple(note for device in memory.devices if (note := _untold(device, names[device.device])))
    svg = _svg("memory", bars, "GB (1e9 bytes)", used)
    return Chart(title, shows, svg, None, (*notes, *left_out(devices, "devices, the first ones")))


def _parts(device: DeviceMemory) -> tuple[tuple[float, str], ...]:
    values = ((getattr(device, key), colour) for key, _, colour in MEMORY_PARTS)
    return tuple((value / 1e9, colour) for value, colour in values if value is not None)


def _memory_bar(device: DeviceMemory, name: str) -> Bar:
    parts = _parts(device)
    total = sum(length for length, _ in parts)
    share = 100e9 * total / device.capacity
    return Bar(name, parts, f"{total:.1f} of {device.capacity / 1e9:.1f} GB ({share:.0f} %)")


def _untold(device: DeviceMemory, name: str) -> str | None:
    unknown = [text for key, text, _ in MEMORY_PARTS if getattr(device, key) is None]
    return f"{name}, not measured: {', '.join(unknown)}" if unknown else None


def step_chart(balance: Balance) -> Chart:
    """From the reference's compute over each rank's blame to the slowest rank, and on to the whole step."""
    at = balance.reference_ms
    bars = [Bar("reference (ref)", ((at, BLUE),), f"{at:.2f}")]
    for name, blame in _blamed(balance.blame_ms):
        bars.append(Bar(name, ((blame, VERMILLION),), f"{blame:+.2f}", at))
        at += blame
    bars.append(Bar("slowest (M)", ((balance.slowest_ms, BLUE),), f"{balance.slowest_ms:.2f}"))
    notes: tuple[str, ...] = ("communication that is not hidden (X) was not measured",)
    if balance.exposed_ms is not None:
        notes = ()
        bars.append(
            Bar("exposed (X)", ((balance.exposed_ms, ORANGE),), f"{balance.exposed_ms:+.2f}", balance.slowest_ms)
        )
        bars.append(Bar("step (T)", ((balance.step_ms, GREEN),), f"{balance.step_ms:.2f}"))
    shows = (
        "From the reference rank's compute, over what each rank adds to it, to the slowest rank of each step (mean), "
        "and over communication that is not hidden behind compute to the step of real training."
    )
    return Chart("What the step is made of", shows, _svg("step", bars, "ms a step", []), None, notes)


def _blamed(blame_ms: Sequence[float]) -> list[tuple[str, float]]:
    """All ranks; where they are too many, those with the largest blame and the sum of the others."""
    ranks = range(len(blame_ms))
    kept = set(sorted(ranks, key=lambda rank: -abs(blame_ms[rank]))[: MOST_ROWS - 1])
    if len(blame_ms) <= MOST_ROWS:
        kept = set(ranks)
    rows = [(f"rank {rank}", blame_ms[rank]) for rank in sorted(kept)]
    others = [blame_ms[rank] for rank in ranks if rank not in kept]
    return rows + ([(f"{len(others)} other ranks", sum(others))] if others else [])


def _svg(name: str, bars: Sequence[Bar], unit: str, names: Sequence[tuple[str, str]]) -> str:
    top = _TOP if names else 8
    height = top + _ROW * len(bars) + _FOOT

    def draw(figure: Figure) -> None:
        axes = axes_in(figure, left=120, right=WIDTH_PX - 150, top=top, bottom=height - _FOOT)
        for row, bar in enumerate(bars):
            at = bar.start
            for length, colour in bar.parts:
                axes.barh(row, length, left=at, height=0.66, color=colour, edgecolor=INK, linewidth=0.4)
                at += length
            axes.annotate(bar.text, (max(bar.end, bar.start), row), xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=10, annotation_clip=False)  # fmt: skip
        axes.set_xlim(0, 1.02 * max(1e-9, *(bar.end for bar in bars)))
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_xlabel(unit)
        if names:
            legend(figure, names)

    return svg_of(name, height, draw)
