"""Names and versions as nccl-tests writes them, and as our records do."""

from __future__ import annotations

import re

COLLECTIVES = {
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
    "sendrecv": "send_recv",
}

TYPES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "f8e4m3": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "fp8_e5m2": "float8_e5m2",
}

_PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoallv?|sendrecv|gather|scatter|hypercube)_perf"
)


def collective_of(text: str) -> str | None:
    """The collective of a program that the text names: all_reduce_perf, ./build/alltoall_perf_mpi."""
    found = _PROGRAM.search(text)
    return COLLECTIVES.get(found[1], found[1]) if found is not None else None


def dtype_of(word: str) -> str:
    """The type as torch calls it: float is float32; what has no other name stays."""
    return TYPES.get(word, word)


def redop_of(word: str | None) -> str | None:
    """sum, prod, max, min, avg, mulsum; None for none."""
    return None if word in (None, "", "none") else word


def version_of(code: int) -> str | None:
    """22809 is 2.28.9, 2804 is 2.8.4: NCCL counted in thousands before 2.9 (NCCL_VERSION in nccl.h)."""
    if code <= 0:
        return None
    major, minor, patch = (code // 10000, code // 100 % 100, code % 100)
    if code < 10000:
        major, minor, patch = (code // 1000, code // 100 % 10, code % 100)
    return f"{major}.{minor}.{patch}"
