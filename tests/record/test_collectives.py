"""Factors and rounding of collectives, against nccl-tests' own numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.record.collectives import (
    ELEMENT_BYTES,
    NAMES,
    SPLIT,
    bus_factor,
    part_count,
    parts_of,
    rounded_bytes,
    rounded_sizes,
)
from gpubalance.settings import COLLECTIVES, DTYPES


def test_settings_and_records_know_the_same_names() -> None:
    assert COLLECTIVES == NAMES
    assert set(DTYPES) == set(ELEMENT_BYTES)


@pytest.mark.parametrize(
    ("ranks", "all_reduce", "split"),
    [
        (1, 0, 0),
        (2, 1, 0.5),
        (3, 4 / 3, 2 / 3),
        (4, 1.5, 0.75),
        (8, 1.75, 0.875),
        (16, 1.875, 0.9375),
        (64, 1.96875, 0.984375),
    ],
)
def test_factors(ranks: int, all_reduce: float, split: float) -> None:
    found = {name: bus_factor(name, ranks) for name in NAMES}
    assert found == pytest.approx({
        "all_reduce": all_reduce, "all_gather": split, "reduce_scatter": split, "all_to_all": split,
        "broadcast": 1, "reduce": 1, "send_recv": 1,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("name", "asked", "ranks", "size", "count"),
    [
        # all_gather_perf and reduce_scatter_perf on two GPUs, float: what they print for -b 8 -f 4
        ("all_gather", 8, 2, 0, 0),
        ("all_gather", 32, 2, 32, 4),
        ("all_gather", 128, 2, 128, 16),
        ("reduce_scatter", 2**31, 2, 2147483648, 268435456),
        ("all_reduce", 8, 2, 8, 2),
        ("send_recv", 8192, 2, 8192, 2048),
        # eight ranks: everything below 128 bytes is nothing
        ("all_to_all", 127, 8, 0, 0),
        ("all_to_all", 128, 8, 128, 4),
        ("all_gather", 1000, 8, 896, 28),
        # three ranks: 1 GiB / 3 is no multiple of 16
        ("reduce_scatter", 2**30, 3, 3 * (2**30 // 3 // 16 * 16), 2**30 // 3 // 16 * 4),
        ("broadcast", 10, 8, 8, 2),
    ],
)
def test_rounding_is_that_of_nccl_tests(name: str, asked: int, ranks: int, size: int, count: int) -> None:
    assert rounded_bytes(name, asked, ranks, 4) == size
    assert part_count(name, asked, ranks, 4) == count


@given(
    name=st.sampled_from(NAMES), size=st.integers(0, 2**34), ranks=st.integers(1, 64), element=st.sampled_from([2, 4])
)
def test_a_rounded_size_is_whole_parts_that_are_aligned_and_no_larger(
    name: str, size: int, ranks: int, element: int
) -> None:
    rounded = rounded_bytes(name, size, ranks, element)
    part = part_count(name, size, ranks, element) * element
    assert rounded == part * parts_of(name, ranks)
    assert rounded <= size
    if name in SPLIT:
        assert part % 16 == 0
        assert size - rounded < ranks * 16 + element  # not a step more than needed
    assert rounded_bytes(name, rounded, ranks, element) == rounded


def test_sizes_that_round_to_nothing_or_to_one_another_are_left_out() -> None:
    assert rounded_sizes("all_gather", (8, 32, 40, 64), 2, 4) == [32, 64]
    assert rounded_sizes("all_reduce", (2, 8, 9), 2, 4) == [8]
