"""Which core each CPU rank has for itself, and what a launcher's binding leaves to the ranks."""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.errors import UsageError
from gpubalance.launch.launcher_env import Share
from gpubalance.node.host import ranks_that_fit
from gpubalance.record.node import Device, Node
from gpubalance.settings import BenchSettings

BOUND_CPUS = 2
"""A rank that may use no more has one core, perhaps with two threads of hardware, for itself, autograd and NCCL."""

SHARED = "ranks that share a core slow each other"

Masks = Sequence[Sequence[int]]
"""The cores that each rank may use, by rank."""


def cpu_slots(node: Node, settings: BenchSettings, world: int | None, masks: Masks = ()) -> list[Device]:
    """A core for each rank, out of this process's own, or out of those that a launcher gave the ranks.

    Raises UsageError when there are too few: ranks that share a core slow each other.
    """
    ranks = world or settings.nproc or ranks_that_fit(node.cpu_effective)
    if settings.devices:
        raise UsageError("--devices names GPUs, and this run is on the CPU", "use --nproc")
    cores = one_core_each(masks) if masks else node.cpu_cores[:ranks]
    if cores is None:
        raise UsageError(
            f"the launcher binds {ranks} ranks to too few cores ({_spelled(masks)}); {SHARED}",
            "let it bind none (mpirun --bind-to none, srun --cpu-bind=none)",
        )
    if len(cores) < ranks:
        usable = len(cores)
        raise UsageError(f"{ranks} ranks asked, {usable} CPU cores usable; {SHARED}", f"give --nproc {usable} or less")
    name, memory = node.cpu_model or "CPU", node.memory_total_bytes
    return [Device(kind="cpu", name=name, cpu_cores=[core], memory_total_bytes=memory) for core in cores]


def one_core_each(masks: Masks) -> list[int] | None:
    """A core of its own for each rank, or None. Who has the least choice chooses first, which finds one wherever masks
    are alike, apart, or one within the other, as those of launchers are.
    """
    chosen: dict[int, int] = {}
    for rank in sorted(range(len(masks)), key=lambda rank: len(masks[rank])):
        free = sorted(set(masks[rank]) - set(chosen.values()))
        if not free:
            return None
        chosen[rank] = free[0]
    return [chosen[rank] for rank in range(len(masks))]


def _spelled(masks: Masks) -> str:
    shown = [f"rank {rank}: {','.join(map(str, mask[:4]))}" for rank, mask in enumerate(masks[:4])]
    return "; ".join(shown) + ("; ..." if len(masks) > 4 else "")


def seen_by_all(node: Node, masks: Masks) -> Node:
    """The node with the cores of all ranks, not only those of the process that looked."""
    cores = sorted({core for mask in masks for core in mask}.union(node.cpu_cores))
    limited = node.cpu_effective < len(node.cpu_cores)  # by the control group, whose quota is one for all
    return node.model_copy(
        update={"cpu_cores": cores, "cpu_effective": node.cpu_effective if limited else float(len(cores))}
    )


def short_of_cpu(node: Node, slots: Sequence[Device]) -> list[str]:
    """A note where more ranks than CPUs will run."""
    if len(slots) <= node.cpu_effective:
        return []
    return [f"{len(slots)} ranks on {node.cpu_effective:g} CPUs (control group): they will be throttled at random"]


def bound(node: Node, share: Share) -> list[str]:
    """A note where a launcher keeps each GPU rank on a core, as Open MPI does by default with two processes; its users
    are told to turn that off (https://horovod.readthedocs.io/en/stable/mpi_include.html).
    """
    mine = len(node.cpu_cores)
    if share.rank is None or mine > BOUND_CPUS or mine >= node.cpu_count:
        return []
    cure = "mpirun --bind-to none, srun --cpu-bind=none"
    return [f"{share.launcher} binds this rank to {mine} of {node.cpu_count} CPUs, for NCCL's threads as well ({cure})"]
