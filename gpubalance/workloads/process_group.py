"""How ranks find each other: control over gloo on loopback, NCCL only for what is measured."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from gpubalance.record.job import LISTEN_VARIABLE, Job

START_LIMIT = timedelta(seconds=60)


def join_control(job: Job, rank: int, world: int) -> None:
    """Make gloo the default group. With an own parent the store listens on the socket that the parent opened (so
    that no other process can take the port in between); under a launcher the launcher's store is used.
    """
    descriptor = os.environ.get(LISTEN_VARIABLE)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" or "GPUBALANCE_OWN_STORE" not in os.environ:
        store: Store = next(iter(rendezvous("env://", rank, world, timeout=START_LIMIT)))[0]
    else:
        store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            world,
            is_master=rank == 0,
            timeout=START_LIMIT,
            wait_for_workers=False,
            master_listen_fd=int(descriptor) if rank == 0 and descriptor else None,
            use_libuv=False,  # the libuv back end does not take a listening descriptor
        )
    prefixed = PrefixStore(f"gpubalance/{job.crew}/{job.attempt}", store)
    timeout = timedelta(seconds=job.group_timeout_s)
    dist.init_process_group("gloo", store=prefixed, rank=rank, world_size=world, timeout=timeout)


def data_group(job: Job) -> dist.ProcessGroup | None:
    """The group whose traffic is measured, with a short time limit of its own; None is the default group."""
    if job.backend == "gloo":
        return None
    group = dist.new_group(backend="nccl", timeout=timedelta(seconds=job.group_timeout_s))
    assert isinstance(group, dist.ProcessGroup)
    return group


def leave(group: dist.ProcessGroup | None) -> None:
    """Destroy all groups where NCCL carried one. CUDA graphs that hold NCCL work must be gone by now, or this never
    returns. Gloo alone ends with the process: with torch 2.4 destroying it hangs now and then when a peer is faster.
    """
    if group is not None:
        torch.cuda.synchronize()
        dist.destroy_process_group()
