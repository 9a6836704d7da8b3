"""From a job to a working rank: bind the device before anything touches CUDA, join the groups, run the phases."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import torch

from gpubalance.record.job import Job, Slot
from gpubalance.record.rank_log import RankLog
from gpubalance.workloads import collectives, data_parallel, ddp, links, load, nccl_log, passes, solo, touch
from gpubalance.workloads.clock import Clock, CudaClock, HostClock
from gpubalance.workloads.context import Context
from gpubalance.workloads.process_group import data_group, join_control, leave

PHASES: dict[str, Callable[[Context], None]] = {
    "solo": solo.run,
    "ddp": ddp.run,
    "passes": passes.run,
    "collectives": collectives.run,
    "nccl_log": nccl_log.run,
    "data_parallel": data_parallel.run,
    "links": links.run,
    "load": load.run,
    "touch": touch.run,
}


class NoCudaError(RuntimeError):
    """The installed torch cannot use the GPU that NVML sees."""


def run(job: Job, rank: int, log: RankLog) -> None:
    """Everything this rank does, from binding its device to leaving the groups."""
    slot = job.slots[rank]
    device, clock = _bind(job, slot)
    log.write("device", **_who(slot, device))
    ranked = job.crew == "ranks"  # a single rank has its groups as well: DDP does not work without
    world = len(job.slots) if ranked else 1
    log.begin("join")
    log.where = "collective"
    if ranked:
        join_control(job, rank, world)
    group = data_group(job) if ranked else None
    log.left()
    context = Context(job, rank, world, slot, device, group, clock, log)
    log.end()
    for phase in job.phases:
        context.meet()
        log.begin(phase)
        PHASES[phase](context)
        log.end()
    if ranked:
        context.meet()
        leave(group)


def _bind(job: Job, slot: Slot) -> tuple[torch.device, Clock]:
    if job.device == "cpu":
        if slot.cores:
            os.sched_setaffinity(0, slot.cores)
        torch.set_num_threads(max(1, len(slot.cores)))
        return torch.device("cpu"), HostClock()
    if not torch.cuda.is_available():
        built = torch.version.cuda
        raise NoCudaError(
            f"torch {torch.__version__} has no CUDA"
            if built is None
            else f"torch {torch.__version__} (CUDA {built}) cannot use the GPU: driver too old, or no device visible"
        )
    torch.cuda.set_device(slot.ordinal or 0)
    device = torch.device("cuda", slot.ordinal or 0)
    torch.ones(8, device=device).square_().sum().item()  # one kernel: "available" may still mean "no kernel image"
    return device, CudaClock()


def _who(slot: Slot, device: torch.device) -> dict[str, object]:
    versions: dict[str, str | None] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    if device.type == "cpu":
        return {"slot": slot.device, "name": "CPU", "uuid": None, "versions": versions}
    properties = torch.cuda.get_device_properties(device)
    cudnn = torch.backends.cudnn.version()
    versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    versions["nccl_library"] = loaded_library("libnccl")
    versions["cudnn"] = None if cudnn is None else str(cudnn)
    uuid = getattr(properties, "uuid", None)  # torch 2.4 has none
    return {
        "slot": slot.device,
        "name": properties.name,
        "uuid": None if uuid is None else f"GPU-{uuid}",
        "versions": versions,
    }


def loaded_library(name: str) -> str | None:
    """Base name of the shared library that this process really loaded; "linked statically" leaves none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rsplit(" ", 1)[-1]
        if f"/{name}" in path:
            return Path(path).name
    return None
