"""A copier between pieces of plain memory, and one that only says how fast it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from gpubalance.workloads.link_copier import wrong_bytes
from gpubalance.workloads.link_passes import PER_SECOND, Checked, Route


class HostCopier:
    """Devices are tensors in host memory. `spoil` is the pair whose copies lose a bit."""

    def __init__(self, devices: int, buffer_bytes: int = 2**16, spoil: tuple[int, int] | None = None) -> None:
        self.devices, self.buffer_bytes, self.spoil = devices, buffer_bytes, spoil
        self._out = [torch.full((buffer_bytes // 8,), device + 1) for device in range(devices)]
        self._in = [torch.zeros(buffer_bytes // 8, dtype=torch.int64) for _ in range(devices)]

    def name(self, device: int) -> str:
        return f"part {device}"

    def reach(self, source: int, target: int) -> bool | None:
        return True

    def check(self, source: int, target: int) -> Checked:
        self._in[target].copy_(self._out[source])
        if (source, target) == self.spoil:
            self._in[target][5] ^= 1
        wrong = wrong_bytes(self._in[target], self._out[source])
        return Checked(self.buffer_bytes, wrong, 64, wrong_bytes(self._in[target][:8], self._out[source][:8]))

    def host_buffer(self, device: int) -> tuple[int | None, str | None]:
        return None, "it is host memory already"

    def times_ms(self, routes: Sequence[Route], size_bytes: int, copies: int) -> list[float]:
        begin = time.perf_counter_ns()
        for _ in range(copies):
            for route in routes:
                source = self._out[route.source or 0][: size_bytes // 8]
                self._in[route.target or 0][: size_bytes // 8].copy_(source)
        return [max(1, time.perf_counter_ns() - begin) / 1e6 / copies] * len(routes)


class ToldCopier(HostCopier):
    """Takes what `rate` says for a route among routes, in GB/s, and remembers what was asked."""

    def __init__(self, devices: int, rate: Callable[[Route, Sequence[Route]], float]) -> None:
        super().__init__(devices, 2**10)
        self.buffer_bytes = 2**28
        self.rate = rate
        self.asked: list[tuple[tuple[Route, ...], int, int]] = []

    def times_ms(self, routes: Sequence[Route], size_bytes: int, copies: int) -> list[float]:
        self.asked.append((tuple(routes), size_bytes, copies))
        return [size_bytes / PER_SECOND / self.rate(route, routes) for route in routes]
