"""The jobs of a bench run: the first look, the confirming look, and the one process that sees all devices."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from gpubalance.record.job import Job, Slot
from gpubalance.record.run import Plan
from gpubalance.settings import BenchSettings

GROUP_MARGIN_S = 30.0
"""How much longer than the parent's own clock a collective may take: the parent must be first, because a watchdog that
aborts the waiting ranks hides who they waited for."""

NODE_PHASES = ("links", "data_parallel")
"""Links first: should a copy between two devices never return, it is this phase that names the pair."""


def first_job(settings: BenchSettings, plan: Plan, folder: Path) -> Job:
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
    )


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
