"""What a collective is called, what it counts and how it is rounded: nccl-tests' definitions, in one place. Pure.

`algbw = S / t` and `busbw = algbw x factor`, GB = 1e9 bytes, sizes binary. S is the whole buffer of a rank; for
all_gather the large side is the received one, for reduce_scatter the sent one.

https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

CollectiveName = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv"
]  # fmt: skip
NAMES: tuple[CollectiveName, ...] = get_args(CollectiveName)

IN_PLACE, OUT_OF_PLACE = "in_place", "out_of_place"
PLACEMENTS: dict[str, tuple[str, ...]] = {
    "all_gather": (OUT_OF_PLACE, IN_PLACE),
    "reduce_scatter": (OUT_OF_PLACE, IN_PLACE),
    "all_to_all": (OUT_OF_PLACE,),
    "send_recv": (OUT_OF_PLACE,),
}
"""What torch's calls can do; all others work in place only. The last one is the placement that is always measured."""

SPLIT = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""S is n parts, one for each rank."""

REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
ROOTED = frozenset({"broadcast", "reduce"})

ALIGNMENT = 16
"""nccl-tests rounds the part of a rank down to 16 bytes where S is split (collectives' GetCollByteCount)."""

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
EXACT_LIMIT = {"float32": 2**24, "bfloat16": 2**8, "float16": 2**11}
"""Whole numbers up to this are exact in the type, and so are all sums that stay below it."""


@dataclass(frozen=True)
class CollectiveOptions:
    """What the collectives workload measures. Plain types only: ranks read it from JSON."""

    sizes: tuple[int, ...] = (2**13, 2**20, 2**24)
    """Bytes, ascending; before rounding."""
    names: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter")
    dtype: str = "float32"
    every_placement: bool = False
    """Out of place as well, where torch's call can do both."""
    compat: bool = False
    """nccl-tests' procedure: 20 iterations whatever they take, and the host's clock."""
    jitter: bool = False


def bus_factor(name: str, ranks: int) -> float:
    """Busbw / algbw: 2(n-1)/n for all_reduce; (n-1)/n where S is split; 1 for broadcast, reduce and send_recv."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share}.get(name, share if name in SPLIT else 1.0)


def parts_of(name: str, ranks: int) -> int:
    """Into how many parts S is split."""
    return ranks if name in SPLIT else 1


def nearly_bytes(size_bytes: int, ranks: int) -> int:
    """The least that a message of this size may be after rounding."""
    return size_bytes - ALIGNMENT * ranks


def part_count(name: str, size_bytes: int, ranks: int, element_bytes: int) -> int:
    """Elements of one part, rounded as nccl-tests does; 0 where nothing is left to move. It is also nccl-tests' column
    `count`.
    """
    if name not in SPLIT:
        return size_bytes // element_bytes
    return size_bytes // element_bytes // ranks // (ALIGNMENT // element_bytes) * (ALIGNMENT // element_bytes)


def rounded_bytes(name: str, size_bytes: int, ranks: int, element_bytes: int) -> int:
    """S after rounding, which is what is reported."""
    return part_count(name, size_bytes, ranks, element_bytes) * parts_of(name, ranks) * element_bytes


def rounded_sizes(name: str, sizes: Iterable[int], ranks: int, element_bytes: int) -> list[int]:
    """Sizes after rounding, ascending, without those that round to nothing or to one another."""
    rounded = {rounded_bytes(name, size, ranks, element_bytes) for size in sizes}
    return sorted(rounded - {0})
