"""Collectives on their buffers: what runs, what is put in before, and which elements are wrong after.

Values are small whole numbers that depend on rank and place, so that every sum is exact in the type whatever the order
of adding, and data of another rank, another part or a neighbouring element is seen as wrong.

Buffers are views of one allocation of the largest size. As in nccl-tests, operation i of a loop works at
i x size, modulo as many places as fit: small messages would otherwise never leave the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gpubalance.record.collectives import (
    ELEMENT_BYTES,
    EXACT_LIMIT,
    IN_PLACE,
    NAMES,
    OUT_OF_PLACE,
    REDUCING,
    part_count,
    parts_of,
)
from gpubalance.workloads.context import Context

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ROOT = 0
CHUNK = 2**24
"""Elements that are filled or compared at once: whole numbers of eight bytes are made for each."""

PLACES = 20
"""Most places that operations rotate through; nccl-tests visits no more in its 20 iterations."""


@dataclass(frozen=True)
class Wrong:
    """Wrong elements of this rank's result, and where the first is."""

    elements: int
    first: int | None


@dataclass(frozen=True)
class Operation:
    """One collective of one size. `run(i)` does it at place i; `fill` and `wrong` are about place 0."""

    name: str
    placement: str
    size_bytes: int
    run: Callable[[int], object]
    fill: Callable[[], None]
    wrong: Callable[[], Wrong]


@dataclass(frozen=True)
class Values:
    """What rank r holds at index i of part p: (i + p) % period + r % spread."""

    ranks: int
    period: int
    spread: int

    @classmethod
    def exact(cls, dtype: str, ranks: int) -> Values:
        """So small that the sum over all ranks is exact in the type. Raises ValueError for more ranks than that."""
        most = (EXACT_LIMIT[dtype] - 1) // ranks
        if most < 1:
            raise ValueError(f"sums over {ranks} ranks are not exact in {dtype}")
        spread = min(ranks, most // 2 + 1)
        return cls(ranks, min(13, most - spread + 2), spread)

    @property
    def unused(self) -> int:
        """A number that no rank holds and no sum of them is: it marks what must be overwritten."""
        return -1

    def own(self, rank: int) -> int:
        """What rank adds to the pattern."""
        return rank % self.spread

    def total(self) -> int:
        """What all ranks together add."""
        return sum(self.own(rank) for rank in range(self.ranks))


class Buffers:
    """One allocation that data lies in, and for results that lie elsewhere a second one; both as large as the largest
    message.
    """

    def __init__(self, size_bytes: int, dtype: str, device: torch.device, *, two: bool) -> None:
        count = math.ceil(size_bytes / ELEMENT_BYTES[dtype])
        self.dtype = dtype
        self.elements = count
        self.first = torch.zeros(count, dtype=DTYPES[dtype], device=device)
        self.second = torch.zeros(count if two else 0, dtype=DTYPES[dtype], device=device)

    def places(self, elements: int) -> int:
        """How many messages of so many elements lie side by side."""
        return max(1, min(PLACES, self.elements // elements))


def build(name: str, placement: str, size: int, context: Context, buffers: Buffers) -> Operation:
    """The operation of at most `size` bytes; it must not round to nothing. Raises KeyError for an unknown name."""
    element = ELEMENT_BYTES[buffers.dtype]
    layout = Layout(
        context, buffers, name, placement, part_count(name, size, context.world, element),
        Values.exact(buffers.dtype, context.world),
    )  # fmt: skip
    places = buffers.places(layout.total)
    views = [layout.views(place) for place in range(places)]
    call = _CALLS[name]

    def run(turn: int) -> object:
        whole, part = views[turn % places]
        return call(context, whole, part)

    return Operation(name, placement, layout.total * element, run, layout.fill, layout.wrong)


@dataclass(frozen=True)
class Layout:
    """Where the data of one message lies, what is in it before, and what must be in it after."""

    context: Context
    buffers: Buffers
    name: str
    placement: str
    count: int
    """Elements of a part."""
    values: Values

    @property
    def total(self) -> int:
        """Elements of the message."""
        return self.count * parts_of(self.name, self.context.world)

    def views(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The large side and the small one (all_gather, reduce_scatter); what is sent and what is received (all_to_all,
        send_recv); twice the same buffer for what works in place.
        """
        begin = place * self.total
        whole = self.buffers.first[begin : begin + self.total]
        if self.name not in ("all_gather", "reduce_scatter"):
            return whole, self.buffers.second[begin : begin + self.total] if self.placement == OUT_OF_PLACE else whole
        if self.placement == IN_PLACE:
            own = self.context.rank * self.count
            return whole, whole[own : own + self.count]
        return whole, self.buffers.second[begin : begin + self.count]

    def fill(self) -> None:
        """Put in what this rank sends; everything that must be overwritten is marked."""
        whole, part = self.views(0)
        rank, parts = self.context.rank, parts_of(self.name, self.context.world)
        for view in (whole, part):
            view.fill_(self.values.unused)
        if self.name == "all_gather":
            self._put(part, rank)
        elif self.name != "broadcast" or rank == ROOT:
            for index in range(parts):
                self._put(whole[index * self.count : (index + 1) * self.count], index)

    def _put(self, view: torch.Tensor, part: int) -> None:
        own = self.values.own(self.context.rank)
        for begin, end, pattern in self._patterns(part):
            view[begin:end].copy_(pattern + own)

    def wrong(self) -> Wrong:
        """Compare the result with what it must be."""
        whole, part = self.views(0)
        rank, ranks, own = self.context.rank, self.context.world, self.values.own
        if self.name == "reduce" and rank != ROOT:
            return Wrong(0, None)
        if self.name in REDUCING:
            index = rank if self.name == "reduce_scatter" else 0
            return self._compare(part, index, ranks, self.values.total())
        if self.name == "broadcast":
            return self._compare(whole, 0, 1, own(ROOT))
        if self.name == "send_recv":
            return self._compare(part, 0, 1, own((rank - 1) % ranks))
        result = whole if self.name == "all_gather" else part
        found = [
            self._compare(
                result[source * self.count : (source + 1) * self.count],
                source if self.name == "all_gather" else rank, 1, own(source),
            )
            for source in range(ranks)
        ]  # fmt: skip
        firsts = [each.first + source * self.count for source, each in enumerate(found) if each.first is not None]
        return Wrong(sum(each.elements for each in found), min(firsts, default=None))

    def _compare(self, view: torch.Tensor, part: int, scale: int, add: int) -> Wrong:
        """Not a number is wrong as well."""
        elements, first = 0, None
        for begin, end, pattern in self._patterns(part):
            different = view[begin:end] != (pattern * scale + add).to(view.dtype)
            count = int(different.sum())
            if count and first is None:
                first = begin + int(different.nonzero()[0])
            elements += count
        return Wrong(elements, first)

    def _patterns(self, part: int) -> list[tuple[int, int, torch.Tensor]]:
        """(index + part) % period of each chunk. One period of chunks repeats, so that few are made."""
        device, made = self.context.device, []
        chunk = CHUNK // self.values.period * self.values.period
        full = (torch.arange(min(chunk, self.count), device=device) + part) % self.values.period
        for begin in range(0, self.count, chunk):
            end = min(begin + chunk, self.count)
            made.append((begin, end, full[: end - begin]))
        return made


def _send_recv(context: Context, whole: torch.Tensor, part: torch.Tensor) -> object:
    """Every rank sends to the next one and receives from the one before, as one group."""
    rank, ranks = context.rank, context.world
    group = context.data
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, whole, (rank + 1) % ranks, group),
        dist.P2POp(dist.irecv, part, (rank - 1) % ranks, group),
    ])  # fmt: skip
    for work in works:
        work.wait()  # on a GPU this orders streams and does not hold the host
    return works


Call = Callable[[Context, torch.Tensor, torch.Tensor], object]

_CALLS: dict[str, Call] = {
    "all_reduce": lambda c, whole, _: dist.all_reduce(whole, group=c.data),
    "all_gather": lambda c, whole, part: dist.all_gather_into_tensor(whole, part, group=c.data),
    "reduce_scatter": lambda c, whole, part: dist.reduce_scatter_tensor(part, whole, group=c.data),
    "all_to_all": lambda c, whole, part: dist.all_to_all_single(part, whole, group=c.data),
    "broadcast": lambda c, whole, _: dist.broadcast(whole, ROOT, group=c.data),
    "reduce": lambda c, whole, _: dist.reduce(whole, ROOT, group=c.data),
    "send_recv": _send_recv,
}
assert set(_CALLS) == set(NAMES)
