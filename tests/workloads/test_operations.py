"""Collectives on their buffers, with ranks that live in one process: what is put in, and which elements are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.record.collectives import ELEMENT_BYTES, EXACT_LIMIT, IN_PLACE, NAMES, PLACEMENTS, CollectiveOptions
from gpubalance.record.job import Slot
from gpubalance.record.rank_log import RankLog
from gpubalance.workloads.clock import HostClock
from gpubalance.workloads.collectives import needs_two, planned
from gpubalance.workloads.context import Context
from gpubalance.workloads.operations import PLACES, Buffers, Layout, Values, build
from tests.support import make_job

CPU = torch.device("cpu")
EVERY = [(name, place) for name in NAMES for place in PLACEMENTS.get(name, (IN_PLACE,))]


def layouts(folder: Path, name: str, placement: str, ranks: int, count: int, dtype: str = "float32") -> list[Layout]:
    """One of each rank, on buffers of its own."""
    job = make_job(folder, ranks)
    values = Values.exact(dtype, ranks)
    bytes_of_all = count * ranks * ELEMENT_BYTES[dtype]
    found = []
    for rank in range(ranks):
        context = Context(job, rank, ranks, Slot(rank, None, None, ()), CPU, None, HostClock(), RankLog(folder / "log"))
        buffers = Buffers(bytes_of_all, dtype, CPU, two=True)
        found.append(Layout(context, buffers, name, placement, count, values))
    return found


def carry_out(name: str, every: list[Layout]) -> None:
    """What the collective does, worked out from what every rank put in."""
    for layout in every:
        layout.fill()
    wholes = [layout.views(0)[0].clone() for layout in every]
    parts = [layout.views(0)[1].clone() for layout in every]
    ranks, count = len(every), every[0].count
    total = torch.stack([whole.double() for whole in wholes]).sum(0)
    for rank, layout in enumerate(every):
        whole, part = layout.views(0)
        own = slice(rank * count, (rank + 1) * count)
        if name == "all_reduce" or (name == "reduce" and rank == 0):
            whole.copy_(total)
        elif name == "broadcast":
            whole.copy_(wholes[0])
        elif name == "all_gather":
            whole.copy_(torch.cat(parts))
        elif name == "reduce_scatter":
            part.copy_(total[own])
        elif name == "all_to_all":
            part.copy_(torch.cat([sent[own] for sent in wholes]))
        elif name == "send_recv":
            part.copy_(wholes[(rank - 1) % ranks])


def wrong_of(every: list[Layout]) -> list[tuple[int, int | None]]:
    return [(found.elements, found.first) for found in (layout.wrong() for layout in every)]


@pytest.mark.parametrize(("name", "placement"), EVERY)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_right_result_has_no_wrong_element_and_none_at_all_has_only_wrong_ones(
    tmp_path: Path, name: str, placement: str, dtype: str
) -> None:
    for ranks in (2, 3, 8):
        every = layouts(tmp_path, name, placement, ranks, 40, dtype)
        carry_out(name, every)
        assert wrong_of(every) == [(0, None)] * ranks
        for layout in every:
            layout.fill()
        untouched = [found for found, _ in wrong_of(every)]
        if name == "broadcast":
            assert untouched == [0, *[40] * (ranks - 1)]
        elif name == "reduce":
            assert untouched[0] > 0
        else:
            assert all(untouched)


@pytest.mark.parametrize(("name", "placement"), EVERY)
def test_planted_corruption_is_counted_and_its_first_place_named(tmp_path: Path, name: str, placement: str) -> None:
    every = layouts(tmp_path, name, placement, 3, 40)
    carry_out(name, every)
    whole, part = every[0].views(0)
    result = whole if name in ("all_reduce", "all_gather", "broadcast", "reduce") else part
    result[7] += 1
    result[31] = float("nan")
    assert wrong_of(every)[0] == (2, 7)
    result[-1] = 1e6
    assert wrong_of(every)[0] == (3, 7)


@pytest.mark.parametrize("name", ["all_gather", "all_to_all", "send_recv", "reduce_scatter"])
def test_data_of_another_rank_or_part_is_wrong(tmp_path: Path, name: str) -> None:
    """Rank 0 gets, whole, what rank 1 should have got."""
    placement = PLACEMENTS[name][0]
    every = layouts(tmp_path, name, placement, 3, 40)
    carry_out(name, every)
    index = 0 if name == "all_gather" else 1
    if name == "all_gather":  # every rank gets the same; two parts that changed places
        result = every[0].views(0)[0]
        result.copy_(torch.cat([result[40:80], result[:40], result[80:]]))
        assert wrong_of(every)[0][0] > 60
        return
    every[0].views(0)[index].copy_(every[1].views(0)[index])
    assert wrong_of(every)[0][0] > 30


def test_data_that_moved_by_an_element_is_wrong(tmp_path: Path) -> None:
    every = layouts(tmp_path, "all_reduce", IN_PLACE, 2, 400)
    carry_out("all_reduce", every)
    whole, _ = every[1].views(0)
    whole[1:] = whole[:-1].clone()
    assert wrong_of(every)[1] == (399, 1)


def test_chunks_are_compared_like_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubalance.workloads.operations.CHUNK", 30)
    every = layouts(tmp_path, "all_reduce", IN_PLACE, 2, 100)
    carry_out("all_reduce", every)
    assert wrong_of(every) == [(0, None)] * 2
    every[0].views(0)[0][61] = -5
    assert wrong_of(every)[0] == (1, 61)


@given(dtype=st.sampled_from(sorted(EXACT_LIMIT)), ranks=st.integers(1, 128))
def test_every_sum_is_exact_in_its_type(dtype: str, ranks: int) -> None:
    values = Values.exact(dtype, ranks)
    largest = ranks * (values.period - 1) + values.total()
    assert values.period >= 2
    assert largest < EXACT_LIMIT[dtype]
    torch_type: Any = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
    numbers = torch.arange(min(largest, 4096) + 1)
    assert torch.equal(numbers.to(torch_type).long(), numbers)


def test_more_ranks_than_a_type_can_count_are_refused() -> None:
    with pytest.raises(ValueError, match="not exact in bfloat16"):
        Values.exact("bfloat16", 256)


@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_hold_different_values(ranks: int) -> None:
    values = Values.exact("bfloat16", ranks)
    assert len({values.own(rank) for rank in range(ranks)}) == ranks


@pytest.mark.parametrize(
    ("largest", "size", "places"), [(1024, 1024, 1), (1024, 512, 2), (2**20, 8, PLACES), (64, 48, 1)]
)
def test_small_messages_rotate_through_the_largest_one(tmp_path: Path, largest: int, size: int, places: int) -> None:
    seen: list[int] = []
    (layout, *_) = layouts(tmp_path, "all_reduce", IN_PLACE, 1, 4)
    buffers = Buffers(largest, "float32", CPU, two=False)
    operation = build("all_reduce", IN_PLACE, size, layout.context, buffers)
    import gpubalance.workloads.operations as module

    call = module._CALLS["all_reduce"]
    module._CALLS["all_reduce"] = lambda _c, whole, _p: seen.append(whole.storage_offset())
    try:
        again = build("all_reduce", IN_PLACE, size, layout.context, buffers)
        for turn in range(2 * PLACES):
            again.run(turn)
    finally:
        module._CALLS["all_reduce"] = call
    assert operation.size_bytes == size
    assert sorted(set(seen)) == [place * size // 4 for place in range(places)]
    assert seen[0] == seen[places]


def test_what_is_planned() -> None:
    quick = CollectiveOptions(names=("all_reduce", "all_gather"))
    assert list(planned(quick)) == [("all_reduce", "in_place"), ("all_gather", "in_place")]
    assert not needs_two(quick)
    everything = CollectiveOptions(names=NAMES, every_placement=True)
    assert list(planned(everything)) == [
        ("all_reduce", "in_place"), ("all_gather", "out_of_place"), ("all_gather", "in_place"),
        ("reduce_scatter", "out_of_place"), ("reduce_scatter", "in_place"), ("all_to_all", "out_of_place"),
        ("broadcast", "in_place"), ("reduce", "in_place"), ("send_recv", "out_of_place"),
    ]  # fmt: skip
    assert needs_two(everything)
