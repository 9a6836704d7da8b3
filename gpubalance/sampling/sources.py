"""What a tick reads: GPUs through NVML, or the ranks' own processes where there is no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import psutil

from gpubalance.node.devices import list_processes
from gpubalance.node.nvml import Nvml
from gpubalance.node.readings import TICK, take
from gpubalance.sampling.gpm import Gpm

Values = dict[str, float | int | None]


class Source(Protocol):
    """Something that can be read at each tick, one entry a device of the plan."""

    devices: Sequence[int]

    def tick(self) -> tuple[list[Values], dict[int, dict[str, str]]]:
        """Values of each device, and reasons for nulls by device (only those that are new)."""
        ...

    def processes(self) -> list[dict[str, Any]]:
        """Device memory of each process that is visible."""
        ...

    def set_ranks(self, pids: Mapping[int, int]) -> None:
        """Tell which process each rank is."""
        ...


class GpuSource:
    """Readings of GPUs by NVML index."""

    def __init__(self, nvml: Nvml, indices: Sequence[int], devices: Sequence[int]) -> None:
        self._nvml = nvml
        self._indices = indices
        self.devices = devices
        self._gpm = [Gpm(nvml, index) for index in indices]
        self._said: set[tuple[int, str]] = set()

    def tick(self) -> tuple[list[Values], dict[int, dict[str, str]]]:
        """One look at each GPU, GPM included where there is GPM."""
        rows: list[Values] = []
        news: dict[int, dict[str, str]] = {}
        for index, gpm, device in zip(self._indices, self._gpm, self.devices, strict=True):
            values, missing = take(TICK, self._nvml, index)
            metrics, refused = gpm.read()
            missing.update(refused)
            rows.append({**values, **metrics})
            fresh = {key: reason for key, reason in missing.items() if (device, key) not in self._said}
            self._said.update((device, key) for key in fresh)
            if fresh:
                news[device] = fresh
        return rows, news

    def processes(self) -> list[dict[str, Any]]:
        """Memory of each compute process, as NVML shows it here."""
        return [
            {"device": device, "pid": process.pid, "memory_used_bytes": process.memory_used_bytes}
            for index, device in zip(self._indices, self.devices, strict=True)
            for process in list_processes(self._nvml, index)[0]
        ]

    def set_ranks(self, pids: Mapping[int, int]) -> None:
        """GPUs are read whole; the owner of each pid is settled by the parent."""


class HostSource:
    """CPU time and resident memory of each rank's process, for runs without a GPU."""

    def __init__(self, devices: Sequence[int]) -> None:
        self.devices = devices
        self._processes: dict[int, psutil.Process] = {}

    def set_ranks(self, pids: Mapping[int, int]) -> None:
        """Follow these processes; rank r works on slot r."""
        for rank, pid in pids.items():
            try:
                process = psutil.Process(pid)
                process.cpu_percent(interval=None)
            except psutil.Error:
                continue
            self._processes[rank] = process

    def tick(self) -> tuple[list[Values], dict[int, dict[str, str]]]:
        """CPU share since the last tick (100 is one core) and resident bytes; null once the process is gone."""
        return [self._read(device) for device in self.devices], {}

    def _read(self, device: int) -> Values:
        try:
            process = self._processes[device]
            with process.oneshot():
                return {"cpu_percent": process.cpu_percent(), "resident_bytes": process.memory_info().rss}
        except (KeyError, psutil.Error):
            return {"cpu_percent": None, "resident_bytes": None}

    def processes(self) -> list[dict[str, Any]]:
        """There is no device memory."""
        return []
