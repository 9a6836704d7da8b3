"""Who holds the memory of each device, and how uneven the ranks' own processes are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubalance.analysis.memory import DeviceMemory, memory_of, skew_of
from gpubalance.record.run import Run
from gpubalance.record.samples import DeviceSamples, ProcessMemory, Samples
from gpubalance.record.timings import RankInfo, RankMemory
from gpubalance.testing.runs import make_attempt, make_run, steady

repeatable = settings(deadline=None, derandomize=True)

MIB, GIB = 2**20, 2**30
H200 = 150754820096
RESERVED = 644939776
"""What the driver of a ready-made H200 keeps for itself."""


def rank_memory(rank: int, reserved: int, capacity: int = H200, device: int | None = None) -> RankMemory:
    return RankMemory(
        rank=rank,
        device=rank if device is None else device,
        peak_allocated_bytes=reserved // 2,
        peak_reserved_bytes=reserved,
        capacity_bytes=capacity,
    )


def process(device: int, pid: int, rank: int | None, used: int | None) -> ProcessMemory:
    return ProcessMemory(device=device, pid=pid, rank=rank, memory_used_bytes=used)


def run_with(processes: Sequence[ProcessMemory], *, ranks: int = 2, used: Sequence[int] = (), **values: Any) -> Run:
    """A run of ranks 0, 1, ... with pids 1000, 1001, ...; `used` is the peak of each device, as the driver says."""
    devices = [
        DeviceSamples(device=device, columns={"memory_used_bytes": [0, peak, peak // 2, None]})
        for device, peak in enumerate(used)
    ]
    samples = Samples(t_s=[1.0, 2.0, 3.0, 4.0], devices=devices, processes=list(processes))
    memory = [rank_memory(rank, 1 * GIB) for rank in range(ranks)]
    return make_run([make_attempt(steady([100.0] * ranks))], **{"memory": memory, "samples": samples, **values})


def split(run: Run, device: int) -> DeviceMemory:
    return memory_of(run).devices[device]


# Skew


def test_the_first_device_of_data_parallel_holds_twice_as_much() -> None:
    """7681 and 3923 MiB, as DataParallel leaves two H200s."""
    score, skew, lost = skew_of([7681 * MIB, 3923 * MIB], [H200, H200])
    assert score == pytest.approx(51.07, abs=0.005)
    assert skew == pytest.approx(0.4893, abs=5e-5)
    assert lost == pytest.approx(3758 * MIB, abs=1)


def test_even_memory_scores_100() -> None:
    assert skew_of([5 * GIB] * 4, [80 * GIB] * 4) == (100.0, 0.0, 0)


@pytest.mark.parametrize(
    ("capacity", "difference", "counts"),
    [
        (8 * GIB, 255 * MIB, False),  # one percent is less than 256 MiB
        (8 * GIB, 257 * MIB, True),
        (100 * GIB, 1023 * MIB, False),  # one percent is more
        (100 * GIB, 1025 * MIB, True),
    ],
)
def test_a_difference_below_256_mib_or_one_percent_counts_as_none(capacity: int, difference: int, counts: bool) -> None:
    score, skew, lost = skew_of([2 * GIB + difference, 2 * GIB], [capacity, capacity])
    assert (score < 100, skew > 0, lost > 0) == (counts, counts, counts)


def test_devices_of_different_size_are_compared_by_share() -> None:
    assert skew_of([40 * GIB, 20 * GIB], [80 * GIB, 40 * GIB])[0] == 100.0
    assert skew_of([40 * GIB, 40 * GIB], [80 * GIB, 160 * GIB])[:2] == pytest.approx((50.0, 0.5))


def test_one_nearly_empty_device_of_eight_does_not_count() -> None:
    assert skew_of([40 * GIB] * 7 + [8 * GIB], [80 * GIB] * 8)[0] == 100.0


def test_one_full_device_of_eight_is_held_against_the_second_emptiest() -> None:
    """70 % against 49 % of the capacity: 30 % less. Every other device could hold 21 % or, the emptiest, 28 % more."""
    peaks = [70 * GIB, *[49 * GIB] * 6, 42 * GIB]
    score, skew, lost = skew_of(peaks, [100 * GIB] * 8)
    assert (score, skew) == pytest.approx((70.0, 0.3))
    assert lost == pytest.approx((6 * 21 + 28) * GIB, abs=8)


@pytest.mark.parametrize(("ranks", "place"), [(2, 1), (3, 1), (4, 2), (8, 2), (9, 3), (12, 3), (13, 4)])
def test_the_reference_is_the_kth_emptiest(ranks: int, place: int) -> None:
    """Ranks hold 20, 22, 24, ... of 100 GiB: what lies between the reference and the fullest is skew."""
    peaks = [(20 + 2 * rank) * GIB for rank in range(ranks)]
    assert skew_of(peaks, [100 * GIB] * ranks)[1] == pytest.approx(1 - peaks[place - 1] / peaks[-1])


@repeatable
@given(st.lists(st.integers(1 * GIB, 80 * GIB), min_size=2, max_size=12))
def test_the_score_is_what_is_left_of_the_skew(peaks: list[int]) -> None:
    score, skew, lost = skew_of(peaks, [80 * GIB] * len(peaks))
    assert 0 < score <= 100
    assert score == pytest.approx(100 * (1 - skew))
    assert lost >= 0


# Split


def test_a_device_is_split_by_who_holds_it() -> None:
    run = run_with(
        [
            process(0, 1000, 0, 8 * GIB),
            process(0, 1001, 1, 512 * MIB),
            process(0, 4242, None, 3 * GIB),
            process(1, 1001, 1, 7 * GIB),
        ],
        used=[12 * GIB, 7 * GIB],
    )
    assert split(run, 0) == DeviceMemory(0, H200, 8 * GIB, 512 * MIB, 3 * GIB, RESERVED, 512 * MIB)
    assert split(run, 1) == DeviceMemory(1, H200, 7 * GIB, 0, 0, RESERVED, 0)


def test_skew_is_that_of_the_ranks_own_processes() -> None:
    """Rank 0 holds 40 GiB and rank 1 20 GiB; somebody else's 30 GiB on device 1 change nothing."""
    run = run_with([process(0, 1000, 0, 40 * GIB), process(1, 1001, 1, 20 * GIB), process(1, 9, None, 30 * GIB)])
    memory = memory_of(run)
    assert (memory.score, memory.skew) == pytest.approx((50.0, 0.5))
    assert memory.fullest == pytest.approx(40 * GIB / H200)
    assert memory.head_room_lost_bytes == pytest.approx(20 * GIB, abs=1)


def test_without_visible_processes_the_ranks_own_word_counts() -> None:
    run = run_with([], used=[5 * GIB, 6 * GIB], memory=[rank_memory(0, 60 * GIB), rank_memory(1, 30 * GIB)])
    memory = memory_of(run)
    assert (memory.score, memory.fullest) == pytest.approx((50.0, 60 * GIB / H200))
    assert memory.devices[0] == DeviceMemory(0, H200, None, None, None, RESERVED, 5 * GIB)


def test_processes_whose_memory_the_driver_does_not_say_are_not_counted_as_empty() -> None:
    run = run_with([process(0, 1000, 0, None), process(1, 1001, 1, None)])
    assert split(run, 0).own is None
    assert memory_of(run).score == 100.0


def test_where_none_of_our_own_pids_is_listed_the_ranks_own_word_counts() -> None:
    """Inside a container the driver may give the host's pids: who holds what cannot be told then."""
    foreign = [process(0, 90001, None, 60 * GIB), process(1, 90002, None, 60 * GIB)]
    run = run_with(foreign, memory=[rank_memory(0, 60 * GIB), rank_memory(1, 30 * GIB)])
    assert memory_of(run).score == pytest.approx(50.0)
    assert (split(run, 0).own, split(run, 0).foreign) == (None, None)


def test_a_rank_whose_device_size_is_not_known_is_left_out() -> None:
    run = run_with(
        [], memory=[rank_memory(0, 8 * GIB), rank_memory(1, 8 * GIB), rank_memory(2, GIB, capacity=0)], ranks=3
    )
    assert len(memory_of(run).devices) == 2
    assert memory_of(run).score == 100.0


def test_what_was_never_sampled_is_not_explained_either() -> None:
    assert split(run_with([process(0, 1000, 0, GIB)]), 0).unexplained is None


def test_a_rank_that_moved_to_another_device_in_the_second_look_leaked_nothing() -> None:
    attempts = [make_attempt(steady([100.0] * 2)), make_attempt(steady([100.0] * 2), attempt=1, devices=[1, 0])]
    processes = [
        process(0, 1000, 0, 8 * GIB),
        process(1, 1001, 1, 8 * GIB),
        process(1, 2000, 0, 8 * GIB),
        process(0, 2001, 1, 8 * GIB),
    ]
    memory = [rank_memory(0, GIB), rank_memory(1, GIB)]
    run = make_run(attempts, memory=memory, samples=Samples(processes=processes))
    assert [(device.own, device.other_ranks) for device in memory_of(run).devices] == [(8 * GIB, 0)] * 2


def test_the_one_process_that_sees_all_devices_is_no_leak_and_no_skew() -> None:
    """DataParallel runs after the ranks have left, in one process that calls itself rank 0 and works on all devices."""
    run = run_with([])
    everywhere = RankInfo(rank=0, local_rank=0, attempt=0, pid=5000, device=0, device_name="NVIDIA H200")
    processes = [
        process(0, 1000, 0, 8 * GIB),
        process(1, 1001, 1, 8 * GIB),
        process(0, 5000, 0, 60 * GIB),
        process(1, 5000, 0, 20 * GIB),
    ]
    run = run.model_copy(update={"ranks": [*run.ranks, everywhere], "samples": Samples(processes=processes)})
    memory = memory_of(run)
    assert [(device.own, device.other_ranks) for device in memory.devices] == [(8 * GIB, 0)] * 2
    assert memory.score == 100.0


@pytest.mark.parametrize(
    ("on_cpu", "reason"), [(True, "there is no device memory on the CPU"), (False, "no GPU memory was measured")]
)
def test_without_measured_memory_the_reason_is_said(on_cpu: bool, reason: str) -> None:
    memory = memory_of(make_run([make_attempt(steady([100.0, 100.0]))], on_cpu=on_cpu))
    assert (memory.score, memory.skew, memory.devices, memory.missing) == (None, None, (), reason)
