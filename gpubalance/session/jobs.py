"""The jobs of a bench run: the first look, the confirming look, and the one process that sees all devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from gpubalance.analysis.bandwidth import links_of
from gpubalance.record.collectives import NAMES, CollectiveOptions
from gpubalance.record.job import Job, Slot
from gpubalance.record.run import Plan
from gpubalance.settings import BenchSettings

GROUP_MARGIN_S = 30.0
"""How much longer than the parent's own clock a collective may take: the parent must be first, because a watchdog that
aborts the waiting ranks hides who they waited for."""

NODE_PHASES = ("links", "data_parallel")
"""Links first: should a copy between two devices never return, it is this phase that names the pair."""

KIB, MIB, GIB = 2**10, 2**20, 2**30
FEW_NAMES = ("all_reduce", "all_gather", "reduce_scatter")
FEW_SIZES = {"nccl": (8 * KIB, 64 * MIB, GIB), "gloo": (8 * KIB, MIB, 16 * MIB)}
"""Beside training: latency, a gradient bucket, and the size from which bandwidth is judged; where that is more (over
NVLink, more than two GPUs or Blackwell), the last one is."""

MANY_SIZES = {
    "nccl": (8, KIB, 32 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB),
    "gloo": (8, KIB, 64 * KIB, MIB, 16 * MIB),
}
"""When collectives are all that is asked for; with the last size about 12 s on two GPUs."""

LAST_SIZE, LAST_SIZE_BLACKWELL = 4 * GIB, 8 * GIB
"""The later a GPU saturates the larger: B200 reaches 0.89 of its final bandwidth at 4 GiB (ml-engineering)."""

LINK_WORKLOADS = frozenset({"collectives", "links"})
COMPAT_VARIABLE = "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE"
"""nccl-tests asks NCCL 2.28 and later for this way of scheduling; torch leaves the default (nccl src/init.cc)."""


def first_job(settings: BenchSettings, plan: Plan, folder: Path, environment: Mapping[str, str] | None = None) -> Job:
    """One rank a device, every workload that ranks can run."""
    return Job(
        attempt=0,
        crew="ranks",
        device="cuda" if plan.backend == "nccl" else "cpu",
        backend=plan.backend,
        slots=_slots(plan),
        phases=tuple(name for name in plan.workloads if name not in NODE_PHASES),
        model=plan.model.model_dump(),
        global_batch=plan.global_batch,
        per_rank_batch=plan.per_rank_batch,
        faults=tuple(asdict(fault) for fault in settings.inject),
        budget_s=settings.budget_s,
        group_timeout_s=settings.stall_s + GROUP_MARGIN_S,
        log_folder=str(folder),
        seed=settings.seed,
        collectives=collective_options(settings, plan),
        environment=_compat_environment(settings, environment or {}),
    )


def asks_for_all(settings: BenchSettings) -> bool:
    """Whether nothing but the links between devices is to be measured: then all of it is."""
    return settings.workloads is not None and LINK_WORKLOADS.issuperset(settings.workloads)


def collective_options(settings: BenchSettings, plan: Plan) -> CollectiveOptions:
    """Which collectives at which sizes: what was asked for; few and quick beside training; else all."""
    everything = asks_for_all(settings)
    sizes = MANY_SIZES[plan.backend] if everything else FEW_SIZES[plan.backend]
    late = any(device.readings.get("compute_capability_major") == 10 for device in plan.devices)
    last = LAST_SIZE_BLACKWELL if late else LAST_SIZE
    if everything and plan.backend == "nccl":
        sizes = (*sizes, last)
    elif (late or len(plan.devices) > 2) and all(links_of(device) for device in plan.devices):
        sizes = (*sizes[:-1], last)
    return CollectiveOptions(
        sizes=settings.sizes or sizes,
        names=settings.collectives or (NAMES if everything else FEW_NAMES),
        dtype=settings.dtype,
        every_placement=everything or settings.collectives is not None,
        compat=settings.nccl_tests_compat,
        jitter=settings.jitter,
    )


def _compat_environment(settings: BenchSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """What the user set stays."""
    return {COMPAT_VARIABLE: "1"} if settings.nccl_tests_compat and COMPAT_VARIABLE not in environment else {}


def _slots(plan: Plan) -> tuple[Slot, ...]:
    """Where rank r works. Children see the chosen devices in the plan's order, named by UUID; where a UUID could not
    be read they see what this process sees, and CUDA's own ordinal counts.
    """
    named = all(device.uuid for device in plan.devices)
    return tuple(
        Slot(index, index if named else device.cuda_ordinal, device.uuid, tuple(device.cpu_cores), device.pci_bus_id)
        for index, device in enumerate(plan.devices)
    )


def rotated_job(job: Job) -> Job:
    """The ddp phase again with every rank on the next device: what follows the device is the device's."""
    return replace(job, attempt=job.attempt + 1, slots=(*job.slots[1:], job.slots[0]), phases=("ddp",))


def node_job(job: Job, plan: Plan) -> Job:
    """One process that sees all devices, with the workloads of the plan that need one; no phases: it is not needed."""
    return replace(job, crew="node", phases=tuple(name for name in NODE_PHASES if name in plan.workloads))
