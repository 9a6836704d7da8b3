"""Ready-made measurements of links, for tests and demonstrations that want to see them judged."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np

from gpubalance.record.links import DeviceCopies, Links, PeerCopies
from gpubalance.record.node import Device, Peer
from gpubalance.record.run import Run
from gpubalance.testing.runs import make_gpu, make_node, make_run

NVLINK_GB_PER_S = 395.0
"""A copy between two H200s with 18 links."""

HOST_GB_PER_S = 55.3
BUFFER_BYTES = 2**28
Key = tuple[int, int]


def make_peer(index: int, *, nvlink: bool = True, topology: str = "NODE", links: int | None = None) -> Peer:
    """How a GPU stands to the one with this NVML index."""
    status = {"read": "OK", "write": "OK", "nvlink": "OK" if nvlink else "NOT_SUPPORTED", "atomics": "OK"}
    return Peer(nvml_index=index, topology=topology, p2p=dict(status), nvlinks=links)


def joined_gpus(count: int, **readings: Any) -> list[Device]:
    """H200s that all reach each other over NVSwitches; `readings` replace what they read at rest."""
    base = {"nvlink_speed_mb_per_s": 26562, "nvlinks_active": 18, **readings}
    return [
        make_gpu(index, **base).model_copy(
            update={"peers": [make_peer(other) for other in range(count) if other != index]}
        )
        for index in range(count)
    ]


def make_links(
    count: int,
    shares: Mapping[Key, float] | None = None,
    *,
    noise: float = 0.0,
    seed: int = 0,
    rate: float = NVLINK_GB_PER_S,
    looks: int | None = None,
    **values: Any,
) -> Links:
    """Copies between so many devices at `rate`, times the share of each pair that has one. Slow pairs were looked at
    four times, others once, unless `looks` says otherwise; `noise` is the half width of the spread, as a share.
    """
    generator = np.random.default_rng(seed)
    shares = shares or {}

    def looked(pair: Key) -> list[float]:
        times = looks if looks is not None else 4 if shares.get(pair, 1.0) < 0.98 else 1
        return [rate * shares.get(pair, 1.0) * (1 + noise * generator.uniform(-1, 1)) for _ in range(times)]

    peers = [
        PeerCopies(
            source=pair[0],
            target=pair[1],
            peer_access=True,
            checked_bytes=BUFFER_BYTES,
            wrong_bytes=0,
            checked_on_host_bytes=2**24,
            wrong_on_host_bytes=0,
            copy_bytes=BUFFER_BYTES,
            looks_gb_per_s=looked(pair),
            both_ways_gb_per_s=0.99 * rate * shares.get(pair, 1.0),
            together_gb_per_s=rate * shares.get(pair, 1.0) if count > 3 else None,
        )
        for pair in permutations(range(count), 2)
    ]
    devices = [
        DeviceCopies(
            device=device,
            memory_copy_gb_per_s=4250.0,
            to_device_gb_per_s=HOST_GB_PER_S,
            from_device_gb_per_s=HOST_GB_PER_S,
            together_to_device_gb_per_s=HOST_GB_PER_S if count > 1 else None,
            together_from_device_gb_per_s=HOST_GB_PER_S if count > 1 else None,
            numa_node=device * 2 // count,
        )
        for device in range(count)
    ]
    base: dict[str, Any] = {"buffer_bytes": BUFFER_BYTES, "peers": peers, "devices": devices, "complete": True}
    return Links(**{**base, **values})


def with_links(run: Run, links: Links | None, **readings: Any) -> Run:
    """The same run on GPUs joined by NVSwitches, with these links measured."""
    devices = joined_gpus(len(run.plan.devices), **readings)
    plan = run.plan.model_copy(update={"devices": devices, "workloads": [*run.plan.workloads, "links"]})
    return run.model_copy(update={"plan": plan, "node": make_node(devices), "links": links})


def link_run(count: int, shares: Mapping[Key, float] | None = None, **values: Any) -> Run:
    """A run that measured links and nothing else."""
    run = with_links(make_run([], ranks=count), make_links(count, shares, **values))
    return run.model_copy(update={"plan": run.plan.model_copy(update={"workloads": ["links"]})})
