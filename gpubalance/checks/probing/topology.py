"""A: where GPUs sit in the host, and whether the host's cores and limits suit them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing import cores
from gpubalance.checks.probing.check import Check, Gpu, finding, gpus_of, is_absent
from gpubalance.checks.probing.measured import labels_of, numbers_of
from gpubalance.record.probe import Probe

LEVELS = ("INTERNAL", "SINGLE", "MULTIPLE", "HOSTBRIDGE", "NODE", "SYSTEM")
"""Nearest first: one board, one PCIe switch, several switches, one host bridge, one NUMA node, across NUMA nodes."""

SHORT = dict(zip(LEVELS, ("PSB", "PIX", "PXB", "PHB", "NODE", "SYS"), strict=True))
"""As nvidia-smi prints them."""

Matrix = dict[tuple[int, int], str]
"""Two NVML indices -> level, as far as NVML knows it."""


def matrix_of(gpus: Iterable[Gpu]) -> Matrix:
    """Levels as each GPU gives them; both directions stand for themselves."""
    return {
        (gpu.index, peer.nvml_index): peer.topology
        for gpu in gpus
        for peer in gpu.detail.peers
        if peer.topology is not None
    }


def topology(probe: Probe) -> list[Finding]:
    """A1: the PCIe matrix, told; it warns when two GPUs contradict each other, or when one GPU is farther from all its
    peers than these are from one another (nvbandwidth, superbenchmark). A virtual machine paints its own picture.
    """
    gpus = gpus_of(probe)
    if len(gpus) == 1:
        return [finding(State.SKIP, "one GPU has no peer")]
    matrix = matrix_of(gpus)
    found = [*_contradictions(gpus, matrix), *_unread(gpus, matrix)]
    if not probe.host.virtual_machine:
        found += [_far(gpu, gpus, matrix) for gpu in gpus if is_far(gpu.index, matrix, [g.index for g in gpus])]
    return [*found, *_told(probe, gpus, matrix)]


def _told(probe: Probe, gpus: Sequence[Gpu], matrix: Matrix) -> Iterator[Finding]:
    levels = {level: sum(1 for pair, seen in matrix.items() if seen == level and pair[0] < pair[1]) for level in LEVELS}
    text = ", ".join(f"{counted(number, 'pair')} {SHORT[level]}" for level, number in levels.items() if number)
    rows = tuple(f"{gpu.name}: {' '.join(_cell(gpu, other, matrix) for other in gpus)}" for gpu in gpus)
    painted = ("in a virtual machine this is the hypervisor's picture",) if probe.host.virtual_machine else ()
    if text:
        yield finding(State.INFO, f"topology: {text}", evidence=(*rows, *painted))


def _cell(gpu: Gpu, other: Gpu, matrix: Matrix) -> str:
    if gpu is other:
        return "X"
    level = matrix.get((gpu.index, other.index))
    return "?" if level is None else SHORT.get(level, level)


def _contradictions(gpus: Sequence[Gpu], matrix: Matrix) -> Iterator[Finding]:
    for a, b in ((a, b) for a in gpus for b in gpus if a.index < b.index):
        there, back = matrix.get((a.index, b.index)), matrix.get((b.index, a.index))
        if there is not None and back is not None and there != back:
            yield finding(
                State.WARN,
                f"GPU {a.index} and {b.index} contradict each other about their PCIe path",
                subject=labels_of((a, b)),
                observed=f"{there} there, {back} back",
                next_step="update the driver; the topology that NCCL plans with may be wrong as well",
            )


def is_far(index: int, matrix: Matrix, indices: Sequence[int]) -> bool:
    """Whether this GPU's nearest peer is farther than any two of its peers are from each other."""
    own = [_distance(matrix, index, other) for other in indices if other != index]
    rest = [_distance(matrix, a, b) for a in indices for b in indices if index not in (a, b) and a != b]
    return bool(rest) and -1 not in (*own, *rest) and min(own) > max(rest)


def _distance(matrix: Matrix, index: int, other: int) -> int:
    """-1 where it is not known."""
    level = matrix.get((index, other))
    return LEVELS.index(level) if level in LEVELS else -1


def _far(gpu: Gpu, gpus: Sequence[Gpu], matrix: Matrix) -> Finding:
    return finding(
        State.WARN,
        f"{gpu.name} is farther from all its peers than they are from each other",
        subject=gpu.label,
        observed=" ".join(_cell(gpu, other, matrix) for other in gpus),
        evidence=("over NVLink this costs little; over PCIe every ring runs at its pace",),
        next_step="see whether the card sits in the slot that the host's manual gives it",
    )


def _unread(gpus: Sequence[Gpu], matrix: Matrix) -> Iterator[Finding]:
    silent = [gpu for gpu in gpus if not any(index == gpu.index for index, _ in matrix)]
    for reason in dict.fromkeys(_reason(gpu) for gpu in silent):
        without = [gpu for gpu in silent if _reason(gpu) == reason]
        who = "" if len(without) == len(gpus) else f" of {numbers_of(without)}"
        if is_absent(reason):
            yield finding(State.SKIP, f"topology{who}: not supported")
        else:
            yield finding(State.UNKNOWN, f"topology{who} not measured: {reason}", subject=labels_of(without))


def _reason(gpu: Gpu) -> str:
    said = next((peer.missing["topology"] for peer in gpu.detail.peers if "topology" in peer.missing), None)
    return said or gpu.detail.failed or "not read"


CHECKS = (
    Check("A1", "topology", topology, "nvbandwidth, superbenchmark: one GPU in a worse class than its peers"),
    *cores.CHECKS,
)
