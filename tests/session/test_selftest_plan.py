"""What is played where: the matrix by ranks, backend, margins and wishes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpubalance.checks.selftest.rows import HEALTHY, KINDS, check_row_names
from gpubalance.errors import UsageError
from gpubalance.faults import FAULTS, parse_fault
from gpubalance.record.run import Skipped
from gpubalance.session.selftest_plan import (
    Here,
    Playable,
    compute_percents,
    healthy_passes,
    matrix,
    once_more,
    schedule,
)
from gpubalance.settings import CPU_MARGIN, GPU_MARGIN, Margin

ALL = [name for name in KINDS if name != HEALTHY]


def drawn(
    ranks: int = 8, backend: str = "nccl", seed: int = 0, margin: Margin | None = None, **wishes: Any
) -> tuple[dict[str, Playable], list[Skipped]]:
    default = CPU_MARGIN if backend == "gloo" else GPU_MARGIN
    here = Here(ranks, backend, margin or default, healthy_ms=10.0)
    rows, skipped = matrix(here, generator=random.Random(seed), **{"quick": False, "wanted": None, **wishes})
    return {row.row: row for row in rows}, skipped


def test_eight_gpus_can_play_everything() -> None:
    rows, skipped = drawn()
    assert list(rows) == ["compute_8", "compute_10", "compute_20", *ALL[1:]]
    assert skipped == []


def test_two_gpus_skip_what_would_be_the_same_as_one_slow_rank() -> None:
    rows, skipped = drawn(2)
    assert [skip.what for skip in skipped] == ["half", "fast"]
    assert all("the same as compute" in skip.reason for skip in skipped)
    assert {"all", "context", "rival"} <= set(rows)


def test_three_ranks_can_play_one_fast_but_not_half() -> None:
    rows, skipped = drawn(3)
    assert [skip.what for skip in skipped] == ["half"]
    assert len(rows["fast"].ranks) == 2


def test_the_cpu_skips_what_needs_a_gpu_and_says_why() -> None:
    rows, skipped = drawn(4, "gloo")
    assert {skip.what: skip.reason for skip in skipped} == {
        "rival": "it needs GPUs",
        "context": "it needs GPUs",
        "memory": "there is no device memory on the CPU",
    }
    assert "compute_100" in rows


def test_where_the_driver_counts_processes_otherwise_no_process_can_be_named() -> None:
    here = Here(2, "nccl", GPU_MARGIN, healthy_ms=10.0, pids_known=False)
    _, skipped = matrix(here, quick=False, wanted=("rival", "context", "sleep"), generator=random.Random(0))
    assert [skip.what for skip in skipped] == ["rival", "context"]
    assert all("which process is which rank" in skip.reason for skip in skipped)


def test_one_device_can_play_nothing() -> None:
    rows, skipped = drawn(1)
    assert rows == {}
    assert [skip.what for skip in skipped] == ALL
    assert {skip.reason for skip in skipped} == {"one device: it has no peers"}


@pytest.mark.parametrize(
    ("margin", "percents"),
    [(GPU_MARGIN, [8, 10, 20]), (Margin(0.03, 0.05), [5, 8, 10, 20]), (CPU_MARGIN, [100]), (Margin(0.1, 0.2), [20])],
)
def test_extra_compute_is_what_the_margin_must_name(margin: Margin, percents: list[int]) -> None:
    assert compute_percents(margin) == percents
    assert all(percent >= 150 * margin.warn for percent in percents)


@pytest.mark.parametrize(("backend", "share"), [("nccl", 0.2), ("gloo", 1.0)])
def test_sizes_follow_the_healthy_step_and_the_margin(backend: str, share: float) -> None:
    rows, _ = drawn(4, backend)
    faults = {name: row.faults[0] for name, row in rows.items()}
    assert faults["sleep"].ms == faults["loader"].ms == pytest.approx(10.0 * share)
    assert faults["data"].factor == pytest.approx(1 + share)
    assert faults["backward"].percent == pytest.approx(100 * share)
    assert {fault.percent for fault in rows["all"].faults} == {100 * share}
    rate = {"nccl": 50e9, "gloo": 25e9}[backend]
    assert faults["copies"].mib is not None
    assert faults["copies"].mib * 2**20 / rate == pytest.approx(0.010 * share, rel=0.1)


@pytest.mark.parametrize(
    ("backend", "step_ms", "gate", "percent"),
    [
        ("nccl", 11.0, 0.03, 100),
        ("nccl", 33.0, 0.03, 250),  # 6 % of a step are 2.1 of 35.1 ms, in one step of ten 21 ms
        ("nccl", 11.0, 0.10, 300),  # 20 %: 2.75 of 13.75 ms
        ("gloo", 10.0, 0.25, 1000),
        ("gloo", 15.0, 0.25, 1500),
        ("gloo", 15.0, 0.90, 1500),  # more than half of a step is not asked of anybody
    ],
)
def test_what_comes_and_goes_costs_twice_its_gate_however_much_of_a_step_is_communication(
    backend: str, step_ms: float, gate: float, percent: float
) -> None:
    here = Here(2, backend, GPU_MARGIN, healthy_ms=10.0, step_ms=step_ms, transient_warn=gate)
    (row,), _ = matrix(here, quick=False, wanted=("transient",), generator=random.Random(0))
    assert row.faults[0].percent == percent
    longer_ms = percent / 100 * 10.0 / 10
    assert longer_ms / (step_ms + longer_ms) >= min(0.5, 2 * gate) - 1e-9


def test_a_copy_is_never_of_nothing() -> None:
    rows, _ = matrix(Here(2, "nccl", GPU_MARGIN, 1e-4), quick=False, wanted=("copies",), generator=random.Random(0))
    assert rows[0].faults[0].mib == 1


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 9])
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_every_fault_can_be_spelled_and_is_on_the_ranks_it_says(ranks: int, backend: str) -> None:
    for seed in range(5):
        rows, _ = drawn(ranks, backend, seed)
        for row in rows.values():
            assert tuple(fault.rank for fault in row.faults) == row.ranks
            assert all(0 <= rank < ranks for rank in row.ranks)
            for fault in row.faults:
                assert fault.kind in FAULTS
                assert parse_fault(fault.spelled()) == fault
                assert fault.device is None or (fault.device != fault.rank and 0 <= fault.device < ranks)


def test_ranks_are_drawn_by_the_seed_and_each_rank_is_drawn() -> None:
    first, second = drawn(seed=7)[0], drawn(seed=7)[0]
    assert first == second
    for name in ("sleep", "compute_8", "data"):
        assert {drawn(4, seed=seed)[0][name].ranks[0] for seed in range(60)} == {0, 1, 2, 3}


def test_several_slow_ranks_are_half_all_but_one_or_all() -> None:
    rows, _ = drawn(8)
    assert len(rows["half"].ranks) == 4
    assert len(rows["fast"].ranks) == 7
    assert rows["all"].ranks == tuple(range(8))
    assert len({drawn(8, seed=seed)[0]["half"].ranks for seed in range(20)}) > 5


def test_quick_plays_a_choice_that_has_the_strongest_compute_only() -> None:
    rows, skipped = drawn(2, quick=True)
    assert list(rows) == ["compute_20", "backward", "sleep", "loader", "data", "transient", "all"]
    assert skipped == []


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (("compute",), ["compute_8", "compute_10", "compute_20"]),
        (("compute_20",), ["compute_20"]),
        (("sleep", "all"), ["sleep", "all"]),
        (("compute_5",), []),
    ],
)
def test_rows_can_be_chosen_and_quick_adds_none(wanted: tuple[str, ...], rows: list[str]) -> None:
    for quick in (False, True):
        assert list(drawn(2, wanted=wanted, quick=quick)[0]) == rows


def test_a_row_that_was_asked_for_and_cannot_be_played_is_skipped_with_its_reason() -> None:
    rows, skipped = drawn(2, "gloo", wanted=("rival", "sleep"))
    assert list(rows) == ["sleep"]
    assert [(skip.what, skip.reason) for skip in skipped] == [("rival", "it needs GPUs")]


@pytest.mark.parametrize("name", ["heat", "healthy", "sleep_5", ""])
def test_names_that_cannot_be_asked_for(name: str) -> None:
    with pytest.raises(UsageError, match="is not known"):
        check_row_names(["compute_20", name])


def rows_of(count: int) -> list[Playable]:
    return list(drawn(8)[0].values())[:count]


@pytest.mark.parametrize(
    ("count", "beside", "healthy"), [(3, 1, [0, 2, 4, 6]), (4, 2, [0, 3, 6]), (3, 2, [0, 3, 5]), (0, 1, [0])]
)
def test_each_fault_stands_beside_a_healthy_pass(count: int, beside: int, healthy: list[int]) -> None:
    passes = schedule(rows_of(count), first=10, beside=beside)
    assert [each.number for each in passes] == list(range(10, 10 + len(passes)))
    assert [each.number - 10 for each in passes if each.row == HEALTHY] == healthy
    assert [each.row for each in passes if each.row != HEALTHY] == [row.row for row in rows_of(count)]


def test_what_is_played_again_is_marked() -> None:
    assert {each.again for each in schedule(rows_of(2), first=0, beside=1, again=True)} == {True}
    assert not any(each.again for each in [*schedule(rows_of(2), first=0, beside=1), *healthy_passes(2, first=0)])


def test_what_was_played_is_read_back_from_the_record() -> None:
    rows = list(drawn(8)[0].values())
    passes = schedule(rows, first=0, beside=1)
    assert [once_more(each) for each in passes if each.faults] == rows
