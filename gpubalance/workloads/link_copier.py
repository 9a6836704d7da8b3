"""Copies by the copy engines of GPUs, timed on the device that sends.

A contiguous `copy_` between two devices is one asynchronous copy on the *source* device's current stream. Before it
that stream waits for the destination device's current stream, and that one waits for the copy (ATen,
native/cuda/Copy.cu).
So with default streams a to b and b to a never overlap, and even one pair stalls between two copies. Here each device
sends on a stream of its own and receives on two others in turn, and the next copy never waits for the last.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack

import torch

from gpubalance.record.job import Slot
from gpubalance.workloads.link_passes import Checked, Route
from gpubalance.workloads.numa import near

BUFFER_BYTES = 2**28
LEAST_BYTES = 2**24
SHARE_OF_FREE = 8
"""A device needs three buffers at a time, and a fourth is room."""
HOST_PART_BYTES = 2**24
WORD = 8

HOLD_CYCLES_PER_COPY = 100_000
"""About 50 us at 2 GHz: enqueueing a copy takes less."""


class TooLittleMemoryError(Exception):
    """A device has no room for the smallest buffers."""


class CudaCopier:
    """Copies between the devices of these slots, numbered as the slots are."""

    def __init__(self, slots: Sequence[Slot], seed: int) -> None:
        """Raise TooLittleMemoryError where a device has no room for buffers."""
        self._slots = slots
        self._seed = seed
        self.devices = len(slots)
        self._ids = [torch.device("cuda", slot.ordinal or 0) for slot in slots]
        free = min(torch.cuda.mem_get_info(device)[0] for device in self._ids)
        self.buffer_bytes = min(BUFFER_BYTES, free // SHARE_OF_FREE // LEAST_BYTES * LEAST_BYTES)
        if self.buffer_bytes == 0:
            raise TooLittleMemoryError(f"a device has {free / 2**20:.0f} MiB free, too little for buffers")
        words = self.buffer_bytes // WORD
        self._out = [torch.arange(words, device=device) for device in self._ids]
        self._in = [torch.zeros(words, dtype=torch.int64, device=device) for device in self._ids]
        self._host: dict[int, torch.Tensor] = {}
        self._sending = [torch.cuda.Stream(device) for device in self._ids]
        self._receiving = [[torch.cuda.Stream(device) for _ in range(2)] for device in self._ids]

    def name(self, device: int) -> str:
        """The UUID where there is one."""
        slot = self._slots[device]
        return slot.uuid or f"cuda:{slot.ordinal or 0}"

    def reach(self, source: int, target: int) -> bool | None:
        """CUDA's word (cudaDeviceCanAccessPeer)."""
        return torch.cuda.can_device_access_peer(self._ids[source], self._ids[target])

    def check(self, source: int, target: int) -> Checked:
        """A pattern that no other pair has: word number i is i * m + c, with m and c drawn for the pair. Whole numbers
        wrap alike everywhere, so the target works out by itself what should have come.
        """
        drawn = random.Random(f"{self._seed}:{source}:{target}")
        factor, offset = drawn.getrandbits(62) | 1, drawn.getrandbits(62)
        words = len(self._out[source])
        _pattern(self._out[source], factor, offset)
        self._in[target].zero_()
        self._wait()
        self._in[target].copy_(self._out[source])
        expected = torch.empty_like(self._in[target])
        _pattern(expected, factor, offset)
        wrong = wrong_bytes(self._in[target], expected)
        del expected
        part = min(words, HOST_PART_BYTES // WORD)
        first = drawn.randrange(words - part + 1)
        on_host = self._in[target][first : first + part].cpu()
        return Checked(
            checked_bytes=words * WORD,
            wrong_bytes=wrong,
            checked_on_host_bytes=part * WORD,
            wrong_on_host_bytes=wrong_bytes(on_host, torch.arange(first, first + part).mul_(factor).add_(offset)),
        )

    def host_buffer(self, device: int) -> tuple[int | None, str | None]:
        """Allocated by a thread on the cores of the GPU's NUMA node; its bytes are those of the device's buffer."""
        with near(self._slots[device].bus_id) as (node, why):
            host = torch.empty(self.buffer_bytes // WORD, dtype=torch.int64, pin_memory=True)
        host.copy_(self._out[device])
        self._host[device] = host
        return node, why

    def times_ms(self, routes: Sequence[Route], size_bytes: int, copies: int) -> list[float]:
        """All copies are enqueued while the streams are held back, so that launching them costs nothing."""
        self._wait()
        lanes = [_Lane(self, route, size_bytes // WORD) for route in routes]
        for lane in lanes:
            lane.begin(HOLD_CYCLES_PER_COPY * copies * len(lanes))
        for turn in range(copies):
            for lane in lanes:
                lane.copy(turn)
        for lane in lanes:
            lane.ended.record(lane.stream)
        for lane in lanes:
            lane.ended.synchronize()
        return [lane.began.elapsed_time(lane.ended) / copies for lane in lanes]

    def _wait(self) -> None:
        for device in self._ids:
            torch.cuda.synchronize(device)

    def ends(self, route: Route) -> tuple[torch.Tensor, torch.Tensor]:
        """What is read and what is written."""
        if route.source is None:
            assert route.target is not None
            return self._host[route.target], self._in[route.target]
        if route.target is None:
            return self._out[route.source], self._host[route.source]
        return self._out[route.source], self._in[route.target]

    def streams(self, route: Route, turn: int) -> list[torch.cuda.Stream]:
        """The stream that copies comes last, so that its device is the current one."""
        if route.source is None:
            assert route.target is not None
            return [self._receiving[route.target][0]]
        if route.target is None or route.target == route.source:
            return [self._sending[route.source]]
        return [self._receiving[route.target][turn % 2], self._sending[route.source]]


class _Lane:
    """One route that is being timed."""

    def __init__(self, copier: CudaCopier, route: Route, words: int) -> None:
        self._copier = copier
        self._route = route
        source, target = copier.ends(route)
        self._source, self._target = source[:words], target[:words]
        self.stream = copier.streams(route, 0)[-1]
        self.began, self.ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def begin(self, hold_cycles: int) -> None:
        """Hold the stream back where torch can (a private call), and mark the beginning behind that."""
        hold = getattr(torch.cuda, "_sleep", None)
        with torch.cuda.stream(self.stream):
            if hold is not None:
                hold(hold_cycles)
            self.began.record()

    def copy(self, turn: int) -> None:
        """Enqueue one copy."""
        with ExitStack() as stack:
            for stream in self._copier.streams(self._route, turn):
                stack.enter_context(torch.cuda.stream(stream))
            self._target.copy_(self._source, non_blocking=True)


def _pattern(words: torch.Tensor, factor: int, offset: int) -> None:
    torch.arange(len(words), out=words)
    words.mul_(factor).add_(offset)


def wrong_bytes(seen: torch.Tensor, expected: torch.Tensor) -> int:
    """How many bytes of the words differ. Words first: bytes take eight times the memory, and hardly ever matter."""
    different = seen != expected
    if not different.any():
        return 0
    return int((seen[different].view(torch.uint8) != expected[different].view(torch.uint8)).sum())
