"""P: PCI Express. Width and generation shrink at rest by design, so that only a load can show a fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, groups_of, not_measured
from gpubalance.checks.probing.loaded import (
    MIN_SAMPLES,
    counter_change,
    loaded_samples,
    seconds_between_edges,
    was_loaded,
    why_no_change,
    why_no_samples,
)
from gpubalance.checks.probing.measured import each_measured, values_of
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe
from gpubalance.thresholds import plain

REPLAYS_A_LANE_AND_MINUTE = {1: 0.15, 2: 0.30, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""By generation: one wrong bit in 1e12, which PCI Express allows, at 2.5, 5, 8, 16, 32 and 64 GT/s."""


@dataclass(frozen=True)
class Part:
    """What the two halves of a link have in common: which keys hold it, and how bad it is to have less of it."""

    key: str
    what: str
    unit: str
    limits: tuple[str, ...]
    """Its maxima, by the GPU and by GPU and slot together; what matters is the smallest."""
    warn_steps: int
    """So many steps below the maximum only warn."""


WIDTH = Part("pcie_width", "PCIe width", "x", ("pcie_width_max",), 0)
GENERATION = Part("pcie_generation", "PCIe generation", "gen ", ("pcie_generation_gpu_max", "pcie_generation_max"), 1)


def width(probe: Probe) -> list[Finding]:
    """P1: under load, lanes that are missing fail (DCGM, Azure's health checks); at rest they say nothing.

    The yardstick is what GPU and slot can do, not a table. A virtual machine hides the slot: there a GPU is held
    against its peers, and less than its own maximum is only told.
    """
    return _link(probe, WIDTH)


def generation(probe: Probe) -> list[Finding]:
    """P2: under load, one generation too low warns and two fail; at rest it says nothing (NVSentinel, issue 890).

    In a virtual machine as for P1, but two generations below the GPU's own maximum warn: few slots are that old.
    """
    return _link(probe, GENERATION)


def _link(probe: Probe, part: Part) -> list[Finding]:
    gpus = gpus_of(probe)
    loaded = [gpu for gpu in gpus if was_loaded(probe, gpu.index)]
    return [
        *_at_rest([gpu for gpu in gpus if gpu not in loaded], part),
        *(_under_load(probe, loaded, part) if loaded else ()),
    ]


def _at_rest(gpus: Sequence[Gpu], part: Part) -> list[Finding]:
    seen = values_of(gpus, part.key)
    found = list(not_measured(gpus, part.key, part.what))
    if seen:
        lines = tuple(f"{g.name}: {_of(part, seen[g.index], limit_of(g, part))}" for g in gpus if g.index in seen)
        text = f"{part.what} says nothing at rest; --load judges it"
        found.append(finding(State.INFO, text, observed="; ".join(lines)))
    return found


def limit_of(gpu: Gpu, part: Part) -> float | None:
    """The smallest of the maxima that are known."""
    return min((limit for key in part.limits if (limit := gpu.number(key)) is not None), default=None)


def _of(part: Part, seen: float, limit: float | None) -> str:
    most = "an unknown maximum" if limit is None else f"{part.unit}{limit:.0f}"
    return f"{part.unit}{seen:.0f} of {most}"


def _under_load(probe: Probe, gpus: Sequence[Gpu], part: Part) -> list[Finding]:
    hidden = bool(probe.host.virtual_machine)
    best = {gpu.index: max(loaded_samples(probe, gpu.index, part.key), default=0.0) for gpu in gpus}
    peers = {gpu.index: max(best[peer.index] for peer in group) for group in groups_of(gpus) for gpu in group}

    def measure(gpu: Gpu) -> float | str:
        samples, limit = loaded_samples(probe, gpu.index, part.key), limit_of(gpu, part)
        if not samples:
            return gpu.reason(part.key) if gpu.value(part.key) is None else why_no_samples(probe, gpu.index, part.key)
        if limit is None:
            return gpu.reason(part.limits[-1])
        few = len(samples) < MIN_SAMPLES and max(samples) < limit
        return f"only {len(samples)} samples under load" if few else max(samples)

    def judge(gpu: Gpu, seen: float) -> Iterator[Finding]:
        limit = limit_of(gpu, part) or seen
        if seen < limit:
            yield _narrow(gpu, part, seen, limit, peers[gpu.index], hidden=hidden)

    text = f"{part.what} under load {'no worse than the best peer' if hidden else 'as GPU and slot allow'}"
    return each_measured(gpus, measure, f"{part.what} under load", judge, text)


def _narrow(gpu: Gpu, part: Part, seen: float, limit: float, peer: float, *, hidden: bool) -> Finding:
    """Less than the maximum. In a virtual machine the slots can do what the best peer reaches, and maybe no more."""
    due = peer if hidden and peer > seen else limit
    state = State.WARN if due - seen <= part.warn_steps else State.FAIL
    unsure = hidden and peer <= seen
    if unsure:
        state = State.WARN if part.warn_steps and state is State.FAIL else State.INFO
    return finding(
        state,
        f"{gpu.name} ran at {part.what} {seen:.0f} of {due:.0f} under load",
        subject=gpu.label,
        observed=f"{part.unit}{seen:.0f}",
        expected=f"{part.unit}{due:.0f}" + (f", as its best peer: {part.unit}{peer:.0f}" if peer > seen else ""),
        evidence=("the virtual machine hides what the slot can do, and no peer has more",) if unsure else (),
        next_step=None if state is State.INFO else "reseat the GPU or its riser, and look at the slot's BIOS setting",
    )


def replays(probe: Probe) -> list[Finding]:
    """P3: packets that had to be sent again.

    Their number since the driver was loaded is only told. Over a load, more than 80 fail, and more than the bit errors
    that PCI Express allows for these lanes and minutes warn (DCGM).
    """
    gpus = gpus_of(probe)
    loaded = [gpu for gpu in gpus if was_loaded(probe, gpu.index)]
    return [
        *_replays_so_far([gpu for gpu in gpus if gpu not in loaded]),
        *(_replays_under_load(probe, loaded) if loaded else ()),
    ]


def _replays_so_far(gpus: Sequence[Gpu]) -> list[Finding]:
    seen = values_of(gpus, "pcie_replays")
    found = list(not_measured(gpus, "pcie_replays", "PCIe replays"))
    if seen:
        text = f"{counted(int(max(seen.values())), 'PCIe replay')} a GPU at most since start-up; --load gives a rate"
        lines = "; ".join(f"GPU {index}: {count:.0f}" for index, count in seen.items())
        found.append(finding(State.INFO, text, observed=lines))
    return found


def _replays_under_load(probe: Probe, gpus: Sequence[Gpu]) -> list[Finding]:
    most = gates_of(probe)["pcie_replays_fail"]

    def measure(gpu: Gpu) -> float | str:
        change = counter_change(probe, gpu.index, "pcie_replays")
        if change is not None:
            return change
        missing = gpu.value("pcie_replays") is None
        return gpu.reason("pcie_replays") if missing else why_no_change(probe, gpu.index, "pcie_replays")

    def judge(gpu: Gpu, change: float) -> Iterator[Finding]:
        minutes = (seconds_between_edges(probe, gpu.index) or 0) / 60
        allowed = replays_allowed(gpu.number("pcie_width_max"), limit_of(gpu, GENERATION), minutes)
        if change > min(allowed, most):
            yield finding(
                State.FAIL if change > most else State.WARN,
                f"{gpu.name} sent {change:.0f} PCIe packets again under load",
                subject=gpu.label,
                observed=f"{change:.0f} replays in {60 * minutes:.0f} s",
                expected=f"at most {min(allowed, most):.1f} (fails above {plain(most)})",
                next_step="reseat the GPU or its riser; have cable, riser or slot replaced if it stays",
            )

    return each_measured(gpus, measure, "PCIe replays under load", judge, "few PCIe replays under load")


def replays_allowed(lanes: float | None, highest: float | None, minutes: float) -> float:
    """What the permitted bit errors amount to; without a limit where lanes or generation are not known."""
    rate = REPLAYS_A_LANE_AND_MINUTE.get(int(highest or 0))
    return float("inf") if lanes is None or rate is None else lanes * rate * minutes


CHECKS = (
    Check("P1", "PCIe width", width, "DCGM, Azure: the maximum of GPU and slot, under load"),
    Check("P2", "PCIe generation", generation, "NVSentinel: the maximum of GPU and slot, under load"),
    Check("P3", "PCIe replays", replays, "DCGM: 80 under load, or lanes x 0.48 (gen 3) to 3.84 (gen 6) a minute"),
)
