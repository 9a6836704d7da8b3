"""What a selftest plays on this node: which rows, on which ranks, how much of it, in which order. Pure.

Sizes follow the margins: what is twice the failing margin must be named whatever its cause is, 20 % on GPUs and 100 %
on the CPU. What is spelled in ms or MiB is sized by a healthy pass that was measured here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpubalance.checks.selftest.rows import HEALTHY, KINDS
from gpubalance.faults import Fault, parse_fault
from gpubalance.record.run import Skipped
from gpubalance.record.selftest import Played
from gpubalance.settings import Margin

COMPUTE_PERCENTS = (5, 8, 10, 20)
SURELY_ABOVE = 1.5
"""A slowdown of so many warning margins is played: 8 % against 5, 5 % against 3. Closer to it chance decides."""

STRONG = 0.20
TRANSIENT_PERCENT = {"nccl": 100.0, "gloo": 1000.0}
TRANSIENT_EVERY = 10
"""Where steps are mostly compute, this costs about 8 % of a step on GPUs (gate: 3 %) and half of it on the CPU (gate:
25 %); elsewhere more is played."""

SURELY_LOST = 2.0
"""What comes and goes is played so that it costs so many times the share of the step at which it is named; ours."""

MEMORY_PERCENT = 60.0
"""Of the device: above both gates of the skew."""

HOG_PROCESSES = {"nccl": 8, "gloo": 1}
"""On the CPU one takes half of the core. On a GPU node launching needs little of a core, and one would not be felt."""

COPY_GB_PER_S = {"nccl": 50.0, "gloo": 25.0}
"""From pinned memory over PCIe 5, and within host memory by one thread: the fastest that is likely, so that a copy of
the fault's size takes as long as was meant or longer (one thread of a recent server: 20 GB/s). Ours."""

QUICK = ("compute", "sleep", "loader", "data", "backward", "transient", "all")


@dataclass(frozen=True)
class Playable:
    """One row that can be played here."""

    row: str
    title: str
    faults: tuple[Fault, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Here:
    """What the matrix depends on."""

    ranks: int
    backend: str
    margin: Margin
    healthy_ms: float
    """Compute of a healthy step."""
    step_ms: float = 0.0
    """The same step with its communication."""
    transient_warn: float = 0.0
    """Share of a step at which what comes and goes is named."""
    pids_known: bool = True
    """Whether the driver tells which process on a GPU is which rank."""

    @property
    def strong(self) -> float:
        """A slowdown that nobody may overlook, as a share."""
        return max(STRONG, 2 * self.margin.fail)


def matrix(
    here: Here, *, quick: bool, wanted: Sequence[str] | None, generator: random.Random
) -> tuple[list[Playable], list[Skipped]]:
    """All faults that can be played here, each on ranks drawn anew, and those that cannot.

    `wanted` are names of kinds or rows; None is all of them, or with `quick` a choice that fits in a minute.
    """
    playable: list[Playable] = []
    skipped: list[Skipped] = []
    for name in KINDS:
        if name == HEALTHY or not _asked(name, quick=quick, wanted=wanted):
            continue
        reason = _reason(name, here)
        if reason is not None:
            skipped.append(Skipped(what=name, reason=reason))
            continue
        playable += [row for row in _rows(name, here, generator) if _is_wanted(row.row, name, wanted)]
    if quick and wanted is None:
        playable = [row for row in playable if not row.row.startswith("compute_") or row.row == _strongest(here)]
    return playable, skipped


def _asked(name: str, *, quick: bool, wanted: Sequence[str] | None) -> bool:
    if wanted is not None:
        return any(each.partition("_")[0] == name for each in wanted)
    return not quick or name in QUICK


def _is_wanted(row: str, name: str, wanted: Sequence[str] | None) -> bool:
    return wanted is None or row in wanted or name in wanted


def _reason(name: str, here: Here) -> str | None:
    """Why a kind of row cannot be played here."""
    on_cpu = here.backend == "gloo"
    rules = (
        (here.ranks < 2, KINDS, "one device: it has no peers"),
        (on_cpu, ("rival", "context"), "it needs GPUs"),
        (on_cpu, ("memory",), "there is no device memory on the CPU"),
        (not here.pids_known, ("rival", "context"), "the driver does not tell which process is which rank's"),
        (here.ranks < 4, ("half",), f"half of {here.ranks} ranks is one: the same as compute"),
        (here.ranks < 3, ("fast",), "one fast rank of two is one slow rank: the same as compute"),
    )
    return next((reason for holds, names, reason in rules if holds and name in names), None)


def compute_percents(margin: Margin) -> list[int]:
    """Sizes of extra compute that must be named under this margin, in percent."""
    found = [percent for percent in COMPUTE_PERCENTS if percent >= SURELY_ABOVE * 100 * margin.warn]
    return found or [round(200 * margin.fail)]


def _strongest(here: Here) -> str:
    return f"compute_{compute_percents(here.margin)[-1]}"


def _rows(name: str, here: Here, generator: random.Random) -> Iterator[Playable]:
    if name == "compute":
        for percent in compute_percents(here.margin):
            rank = generator.randrange(here.ranks)
            fault = Fault("compute", rank, percent=float(percent))
            yield Playable(f"compute_{percent}", f"compute +{percent} %", (fault,), (rank,))
        return
    if name in ("half", "fast", "all"):
        yield _several(name, here, generator)
        return
    rank = generator.randrange(here.ranks)
    title, fault = _SINGLE[name](here, rank, generator)
    yield Playable(name, title, (fault,), (rank,))


def _several(name: str, here: Here, generator: random.Random) -> Playable:
    """Several ranks slowed alike."""
    count = {"half": here.ranks // 2, "fast": here.ranks - 1, "all": here.ranks}[name]
    ranks = tuple(sorted(generator.sample(range(here.ranks), count)))
    percent = round(100 * here.strong)
    title = {"half": "half slow", "fast": "one fast", "all": "all slow"}[name]
    faults = tuple(Fault("compute", rank, percent=float(percent)) for rank in ranks)
    return Playable(name, f"{title} {percent} %", faults, ranks)


def _backward(here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    percent = round(100 * here.strong)
    return f"backward +{percent} %", Fault("backward", rank, percent=float(percent))


def _sleep(here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    ms = _milliseconds(here)
    return f"sleep {ms:g} ms", Fault("sleep", rank, ms=ms)


def _loader(here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    ms = _milliseconds(here)
    return f"input {ms:g} ms", Fault("loader", rank, ms=ms)


def _copies(here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    mib = max(1, round(_milliseconds(here) / 1000 * COPY_GB_PER_S[here.backend] * 1e9 / 2**20))
    return f"copies {mib} MiB", Fault("copies", rank, mib=float(mib))


def _data(here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    factor = 1 + here.strong
    return f"data x {factor:g}", Fault("data", rank, factor=factor)


def _hog(here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    count = HOG_PROCESSES[here.backend]
    return f"CPU hog x {count}", Fault("hog", rank, processes=count)


def _rival(_here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    return "rival process", Fault("rival", rank)


def _transient(here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    percent = max(TRANSIENT_PERCENT[here.backend], _surely_lost_percent(here))
    return f"1 in {TRANSIENT_EVERY} +{percent:g} %", Fault("transient", rank, percent=percent, every=TRANSIENT_EVERY)


def _surely_lost_percent(here: Here) -> float:
    """Of compute, in one step of ten, rounded up to 50: what makes the mean step longer by e costs e / (step + e)."""
    lost = min(0.5, SURELY_LOST * here.transient_warn)
    longer_ms = here.step_ms * lost / (1 - lost)
    return 50 * math.ceil(round(2 * TRANSIENT_EVERY * longer_ms / here.healthy_ms, 6))


def _memory(_here: Here, rank: int, _: random.Random) -> tuple[str, Fault]:
    return f"memory {MEMORY_PERCENT:g} %", Fault("memory", rank, percent=MEMORY_PERCENT)


def _context(here: Here, rank: int, generator: random.Random) -> tuple[str, Fault]:
    device = generator.choice([each for each in range(here.ranks) if each != rank])
    return f"context on GPU {device}", Fault("context", rank, device=device)


_SINGLE: Mapping[str, Callable[[Here, int, random.Random], tuple[str, Fault]]] = {
    "backward": _backward,
    "sleep": _sleep,
    "loader": _loader,
    "copies": _copies,
    "data": _data,
    "hog": _hog,
    "rival": _rival,
    "transient": _transient,
    "memory": _memory,
    "context": _context,
}


def _milliseconds(here: Here) -> float:
    """A delay that is as strong as the others, with three digits."""
    return float(f"{here.strong * here.healthy_ms:.3g}")


def schedule(rows: Sequence[Playable], *, first: int, beside: int, again: bool = False) -> list[Played]:
    """Passes from number `first` on, with a healthy one at both ends and after every `beside` faults, so that each
    fault has one next to it, or next but one.
    """
    order: list[Playable | None] = [None]
    for place, row in enumerate(rows, start=1):
        order.append(row)
        if place % beside == 0 or place == len(rows):
            order.append(None)
    return [_played(first + place, row, again=again) for place, row in enumerate(order)]


def healthy_passes(count: int, *, first: int, again: bool = False) -> list[Played]:
    """Healthy passes only."""
    return [_played(first + place, None, again=again) for place in range(count)]


def _played(number: int, row: Playable | None, *, again: bool) -> Played:
    if row is None:
        return Played(number=number, row=HEALTHY, title=HEALTHY, faults=[], ranks=[], again=again)
    faults = [fault.spelled() for fault in row.faults]
    return Played(number=number, row=row.row, title=row.title, faults=faults, ranks=list(row.ranks), again=again)


def once_more(played: Played) -> Playable:
    """What was played in a pass, to be played again."""
    faults = tuple(parse_fault(text) for text in played.faults)
    return Playable(played.row, played.title, faults, tuple(played.ranks))
