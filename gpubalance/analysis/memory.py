"""Who holds the memory of each device, and how unevenly this run's own processes do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubalance.analysis.sampled import window_of
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import ProcessMemory
from gpubalance.record.timings import RankInfo

NEGLIGIBLE_BYTES = 256 * 2**20
NEGLIGIBLE_SHARE = 0.01
"""Skew below the larger of the two is what contexts and allocators differ by anyway."""


@dataclass(frozen=True)
class DeviceMemory:
    """How the used memory of one device splits at its peak; bytes. None: the driver did not say."""

    device: int
    capacity: int
    own: int | None
    """The rank's own process."""
    other_ranks: int | None
    """Other ranks of this run that leaked a context here."""
    foreign: int | None
    """Processes that are not of this run."""
    driver_reserved: int | None
    unexplained: int | None
    """Used, but in no visible process."""


@dataclass(frozen=True)
class Memory:
    """Skew of the ranks' own peaks."""

    score: float | None
    skew: float | None
    """1 - ref(p) / max(p), p being a rank's peak as a share of its device; None with a single device."""
    fullest: float | None
    """Largest share of a device that its own rank takes."""
    head_room_lost_bytes: int | None
    """What the other devices could still hold when the fullest is full."""
    devices: tuple[DeviceMemory, ...]
    missing: str | None = None


def memory_of(run: Run) -> Memory:
    """Judge the memory of the ddp phase."""
    ranks = [memory for memory in run.memory if memory.capacity_bytes > 0]
    if not ranks:
        reason = "no GPU memory was measured" if run.plan.backend == "nccl" else "there is no device memory on the CPU"
        return Memory(None, None, None, None, (), reason)
    processes, peaks = _processes(run), _peaks_used(run)
    devices = tuple(
        _split(run, memory.device, memory.capacity_bytes, processes.get(memory.device, []), peaks.get(memory.device))
        for memory in ranks
    )
    held = [
        device.own if device.own is not None else memory.peak_reserved_bytes
        for device, memory in zip(devices, ranks, strict=True)
    ]
    capacities = [memory.capacity_bytes for memory in ranks]
    score, skew, lost = skew_of(held, capacities)
    shares = [own / capacity for own, capacity in zip(held, capacities, strict=True)]
    return Memory(score, skew, max(shares), lost, devices)


def skew_of(peaks: Sequence[int], capacities: Sequence[int]) -> tuple[float, float, int]:
    """(score 0 to 100, skew 0 to 1, head-room lost in bytes) of the peaks of all ranks.

    The reference is the k-th smallest share, as for compute.
    """
    shares = [peak / capacity for peak, capacity in zip(peaks, capacities, strict=True)]
    fullest = max(shares)
    reference = _reference(shares)
    negligible = max(NEGLIGIBLE_BYTES / min(capacities), NEGLIGIBLE_SHARE)
    if fullest - reference < negligible:
        return 100.0, 0.0, 0
    lost = sum(int((fullest - share) * capacity) for share, capacity in zip(shares, capacities, strict=True))
    return 100 * reference / fullest, 1 - reference / fullest, lost


def _reference(shares: Sequence[float]) -> float:
    count = len(shares)
    k = 1 if count < 4 else max(2, -(-count // 4))
    return sorted(shares)[k - 1]


Held = tuple[ProcessMemory, int | None]
"""A process and the device that its rank works on; None for a foreign one."""


def _processes(run: Run) -> dict[int, list[Held]]:
    """By device, the processes whose memory is known. Nothing at all where no rank is among them: those are pids of
    another namespace, and nobody's share can be told.
    """
    homes = _homes(run)
    by_device: dict[int, list[Held]] = {}
    if any(process.rank is not None for process in run.samples.processes):
        for process in run.samples.processes:
            if process.memory_used_bytes is not None and (process.rank is None or process.pid in homes):
                home = None if process.rank is None else homes[process.pid]
                by_device.setdefault(process.device, []).append((process, home))
    return by_device


def _split(run: Run, device: int, capacity: int, processes: Sequence[Held], used: int | None) -> DeviceMemory:
    reserved = _whole(run.plan.devices[device].readings.get("memory_reserved_bytes"))
    if not processes:
        return DeviceMemory(device, capacity, None, None, None, reserved, used)
    own = [process.memory_used_bytes or 0 for process, home in processes if home == device]
    leaked = [process.memory_used_bytes or 0 for process, home in processes if home not in (None, device)]
    foreign = [process.memory_used_bytes or 0 for process, home in processes if home is None]
    unexplained = None if used is None else max(0, used - sum(own) - sum(leaked) - sum(foreign))
    return DeviceMemory(device, capacity, max(own, default=None), sum(leaked), sum(foreign), reserved, unexplained)


def _homes(run: Run) -> dict[int, int]:
    """Process -> device, of the ranks of the first attempt, which is the one that is judged. A confirming attempt uses
    the same devices later, and the process that sees all devices comes as rank 0 once more: what those hold is nobody's
    peak and nobody's leak.
    """
    first: dict[int, RankInfo] = {}
    for info in run.ranks:
        if info.attempt == 0:
            first.setdefault(info.rank, info)
    return {info.pid: info.device for info in first.values()}


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _peaks_used(run: Run) -> dict[int, int]:
    """By device. In the ddp phase, where there is one: it lasts long enough for the list of processes, which is read
    once a second, to see the same peak. The buffers of large collectives come and go between two looks.
    """
    window = window_of(run, "ddp")
    inside = [window is not None and _within(t_s, window) for t_s in run.samples.t_s]
    peaks: dict[int, int] = {}
    for samples in run.samples.devices:
        rows = [
            (counts, value)
            for counts, value in zip(inside, samples.columns.get("memory_used_bytes", []), strict=False)
            if value is not None
        ]
        values = [value for counts, value in rows if counts] or [value for _, value in rows]
        if values:
            peaks.setdefault(samples.device, int(max(values)))
    return peaks


def _within(t_s: float, window: Phase) -> bool:
    return window.begin_s <= t_s and (window.end_s is None or t_s <= window.end_s)
