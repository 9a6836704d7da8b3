"""C1: /dev/shm, where NCCL and DataLoader workers put what they share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import finding, gpus_of
from gpubalance.checks.probing.environment import is_switched_on
from gpubalance.checks.probing.host import not_read, of_host
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe
from gpubalance.thresholds import plain

MIB, GIB = 2**20, 2**30

SHM_DOCKER_BYTES = 64 * MIB
"""Docker's default."""

SHM_PER_PEER_BYTES = 10_000_000
"""NCCL's segment for one peer is 9.6 MB with its default buffers."""

_SHM_STEP = "start the container with --shm-size=1g or more, or with --ipc=host"


@of_host
def shared_memory(probe: Probe) -> list[Finding]:
    """C1: WARN below 1 GiB of /dev/shm, which NCCL's documentation asks for.

    FAIL at 64 MiB or less, Docker's default, where GPUs will go through host memory and their segments (10 MB for each
    pair and direction) do not fit. Old segments are listed, never deleted.
    """
    total, free = probe.host.shm_total_bytes, probe.host.shm_free_bytes
    if total is None or free is None:
        return [not_read(probe, "shm_total_bytes", "size of shared memory"), *_stale(probe)]
    return [_size(probe, total, free), *_stale(probe)]


def _size(probe: Probe, total: int, free: int) -> Finding:
    gpus = len(gpus_of(probe))
    enough = gates_of(probe)["shm_warn"]
    needed = SHM_PER_PEER_BYTES * gpus * (gpus - 1)
    observed = f"{total / MIB:.0f} MiB, {free / MIB:.0f} MiB free"
    if needed > free and goes_through_host(probe):
        return finding(
            State.FAIL if total <= SHM_DOCKER_BYTES else State.WARN,
            f"shared memory has {free / MIB:.0f} MiB free, NCCL needs {needed / MIB:.0f} MiB",
            observed=observed,
            expected=f"{needed / MIB:.0f} MiB for {gpus} GPUs, better {plain(enough / GIB)} GiB",
            evidence=("some GPUs cannot reach each other directly, or it is not known whether they can",),
            next_step=_SHM_STEP,
        )
    if total < enough:
        message = f"shared memory (/dev/shm) has only {total / MIB:.0f} MiB"
        expected = f"at least {plain(enough / GIB)} GiB"
        return finding(State.WARN, message, observed=observed, expected=expected, next_step=_SHM_STEP)
    return finding(State.PASS, f"shared memory has {total / GIB:.0f} GiB", observed=observed)


def goes_through_host(probe: Probe) -> bool:
    """True when NCCL will move data between some GPUs through /dev/shm: peer access is off, blocked, or not known."""
    gpus = gpus_of(probe)
    if len(gpus) < 2 or is_switched_on(probe, "NCCL_SHM_DISABLE"):
        return False
    if is_switched_on(probe, "NCCL_P2P_DISABLE"):
        return True
    reachable = {(gpu.index, peer.nvml_index) for gpu in gpus for peer in gpu.detail.peers
                 if peer.p2p.get("read") == "OK"}  # fmt: skip
    return any(pair not in reachable for pair in permutations([gpu.index for gpu in gpus], 2))


def _stale(probe: Probe) -> Iterator[Finding]:
    files = probe.host.shm_stale
    if files:
        size = sum(each.size_bytes for each in files)
        yield finding(
            State.INFO,
            f"{counted(len(files), 'segment')} in /dev/shm, {size / MIB:.0f} MiB, older than 1 h",
            evidence=tuple(
                f"{each.name}: {each.size_bytes} bytes, {each.age_s / 3600:.1f} h, {each.owner}" for each in files[:10]
            ),
            next_step="remove what no running job of its owner uses",
        )
