"""Sizes of messages as people write them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.errors import UsageError
from gpubalance.message_sizes import LARGEST_BYTES, MOST_SIZES, parse_sizes, size_text

K, M, G = 2**10, 2**20, 2**30


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", (8,)),
        ("64M,1G", (64 * M, G)),
        ("1G, 64m , 64M", (64 * M, G)),
        ("8:64:x2", (8, 16, 32, 64)),
        ("8:100:x3", (8, 24, 72)),
        ("1K:4K:+1K", (K, 2 * K, 3 * K, 4 * K)),
        ("1KiB", (K,)),
        ("3MB", (3 * M,)),
        ("1024G", (LARGEST_BYTES,)),
        ("8:8:x2", (8,)),
    ],
)
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


def test_the_ladder_of_nccl_tests_ends_at_its_end() -> None:
    sizes = parse_sizes("8:8G:x2")
    assert (len(sizes), sizes[0], sizes[-1]) == (31, 8, 8 * G)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"), ("8,", "''"), ("8Q", "'8Q'"), ("-8", "'-8'"), ("1.5G", "'1.5G'"), ("8:8G", "FROM:TO:STEP"),
        ("8:8G:x2:x2", "FROM:TO:STEP"), ("8:8G:2", "'2'"), ("8:8G:x1", "'1'"), ("8:8G:x", "''"),
        ("8:8G:x999999", "factor"), ("8G:8:x2", "larger than 8"), ("0", "between"), ("1025G", "between"),
        ("9999999999999999G", "no size"), ("8:8G:+1", "more than 256"), ("8:8G:+0", "between"), ("\u0668", "no size"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, part: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_sizes(text)
    assert part in refused.value.message
    assert refused.value.next_step


@given(first=st.integers(1, 2**20), ratio=st.integers(1, 2**20), factor=st.integers(2, 99999))
def test_a_ladder_grows_by_its_factor_and_stays_within_its_ends(first: int, ratio: int, factor: int) -> None:
    last = first * ratio
    sizes = parse_sizes(f"{first}:{last}:x{factor}")
    assert sizes[0] == first
    assert all(after == factor * before for before, after in pairwise(sizes))
    assert sizes[-1] <= last < sizes[-1] * factor


@given(st.lists(st.integers(1, LARGEST_BYTES), min_size=1, max_size=40))
def test_a_list_comes_back_sorted_and_each_once(sizes: list[int]) -> None:
    assert parse_sizes(",".join(map(str, sizes))) == tuple(sorted(set(sizes)))


@given(st.text(max_size=30))
def test_any_text_is_sizes_or_a_usage_error(text: str) -> None:
    try:
        sizes = parse_sizes(text)
    except UsageError:
        return
    assert 1 <= len(sizes) <= max(MOST_SIZES, text.count(",") + 1)
    assert all(0 < size <= LARGEST_BYTES for size in sizes)


@given(st.integers(1, LARGEST_BYTES))
def test_a_size_in_words_reads_back(size: int) -> None:
    number, unit = size_text(size).split(" ")
    assert parse_sizes(number + unit) == (size,)
