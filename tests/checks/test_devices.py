"""Checks on single devices: wrong results, memory, and what the driver says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import Phase, Run
from gpubalance.record.samples import CounterReading, DeviceSamples, ProcessMemory, Samples, XidEvent
from gpubalance.record.timings import CollectiveRow, DdpAttempt, RankMemory
from gpubalance.testing.runs import make_attempt, make_gpu, make_run, make_solo, steady
from tests.checks.helpers import all_of, evidence, healthy, look, one

MIB, GIB = 2**20, 2**30

# Bits


def with_digests(*digests: str, **values: Any) -> Run:
    solo = [make_solo(rank, 90.0, digest=digest) for rank, digest in enumerate(digests)]
    return healthy(len(digests), solo=solo, **values)


def test_devices_that_compute_the_same_bits_pass() -> None:
    finding = one(with_digests("a", "a", "a"), "same_bits")
    assert (finding.state, finding.required) == (State.PASS, True)
    assert finding.message == "3 x NVIDIA H200 give the same bits"


def test_of_two_devices_with_different_bits_nobody_is_named() -> None:
    run = with_digests("a", "b")
    finding = one(run, "same_bits")
    assert (finding.state, finding.subject) == (State.FAIL, None)
    assert finding.message.startswith("ranks compute different bits")
    assert look(run).verdict is Verdict.FAIL


def test_of_four_devices_the_odd_one_is_named() -> None:
    finding = one(with_digests("a", "a", "b", "a"), "same_bits")
    assert finding.state is State.FAIL
    assert finding.message.startswith("rank 2 computes different bits")
    assert finding.message.endswith("silent corruption")
    assert finding.subject is not None
    assert finding.subject.startswith("rank 2 on cuda:2 nvml:2 GPU-00000003-")


@pytest.mark.parametrize("digests", ["aabb", "abc", "aabc", "aabbcc"])
def test_without_a_majority_of_equal_bits_nobody_is_named(digests: str) -> None:
    assert one(with_digests(*digests), "same_bits").subject is None


@pytest.mark.parametrize("digests", ["aabaacaa", "aabaabaa"])
def test_every_odd_device_is_named(digests: str) -> None:
    finding = one(with_digests(*digests), "same_bits")
    assert finding.message.startswith("ranks 2, 5 compute different bits")
    assert finding.subject is not None
    assert "rank 2 on cuda:2" in finding.subject
    assert "rank 5 on cuda:5" in finding.subject


def with_models(run: Run, *names: str) -> Run:
    devices = [device.model_copy(update={"name": name}) for device, name in zip(run.plan.devices, names, strict=True)]
    return run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})


def test_devices_of_different_models_are_not_compared() -> None:
    assert all_of(with_models(with_digests("a", "b"), "NVIDIA H200", "NVIDIA H100"), "same_bits") == []


def test_each_model_is_compared_with_itself() -> None:
    run = with_models(with_digests("a", "b", "a", "c"), *["NVIDIA H200", "NVIDIA H100"] * 2)
    good, bad = sorted(all_of(run, "same_bits"), key=lambda finding: finding.state is State.FAIL)
    assert (good.state, good.message) == (State.PASS, "2 x NVIDIA H200 give the same bits")
    assert (bad.state, "NVIDIA H100" in bad.message) == (State.FAIL, True)


def test_ranks_with_different_work_are_not_compared() -> None:
    solo = [make_solo(0, 90.0, digest="a"), make_solo(1, 135.0, digest="b", samples=6144)]
    assert all_of(healthy(solo=solo), "same_bits") == []


def test_cpu_slots_are_not_compared() -> None:
    solo = [make_solo(0, None, digest="a"), make_solo(1, None, digest="b")]
    run = make_run([make_attempt(steady([20.0, 20.0]))], on_cpu=True, solo=solo)
    assert all_of(run, "same_bits") == []


# Collectives and losses


def row(wrong: int, collective: str = "all_reduce", size: int = 1024) -> CollectiveRow:
    values = {"backend": "nccl", "mode": "eager", "ranks": 2, "dtype": "float32", "iterations": 5}
    times = {"time_us": 9.0, "time_max_us": 9.0, "algorithm_bandwidth_gb_per_s": 1.0, "bus_bandwidth_gb_per_s": 1.0}
    return CollectiveRow(collective=collective, size_bytes=size, wrong_elements=wrong, **values, **times)


def test_collectives_that_move_the_right_data_pass() -> None:
    finding = one(healthy(collectives=[row(0), row(0, "all_gather")]), "collective_data")
    assert (finding.state, finding.required) == (State.PASS, True)


def test_a_collective_with_wrong_elements_fails_and_is_named() -> None:
    run = healthy(collectives=[row(0), row(3, "reduce_scatter", 4096), row(1)])
    finding = one(run, "collective_data")
    assert finding.state is State.FAIL
    assert finding.message == "reduce_scatter of 4096 bytes gave 3 wrong elements"
    assert look(run).verdict is Verdict.FAIL


def test_without_collectives_nothing_is_said_of_them() -> None:
    assert all_of(healthy(), "collective_data") == []


def losses(*values: float | None, attempt: int = 0, complete: bool = True) -> DdpAttempt:
    made = make_attempt(steady([100.0] * len(values)), attempt=attempt)
    ranks = [rank.model_copy(update={"loss": loss}) for rank, loss in zip(made.ranks, values, strict=True)]
    return made.model_copy(update={"ranks": ranks, "complete": complete})


def test_a_loss_that_is_not_finite_on_one_rank_fails_and_is_named() -> None:
    run = make_run([losses(0.5, None, 0.5)])
    finding = one(run, "loss")
    assert finding.state is State.FAIL
    assert finding.message == "the loss of rank 1 is not a number while its peers' is"
    assert finding.subject is not None
    assert finding.subject.startswith("rank 1 on cuda:1")
    assert look(run).verdict is Verdict.FAIL


def test_losses_that_are_numbers_are_no_finding() -> None:
    assert all_of(make_run([losses(0.5, 0.5)]), "loss") == []


def test_a_loss_that_is_not_a_number_on_any_rank_fails_and_names_nobody() -> None:
    """One rank's NaN reaches all others in the next all-reduce."""
    finding = one(make_run([losses(None, None)]), "loss")
    assert finding.state is State.FAIL
    assert finding.subject is None


def test_ranks_are_compared_with_their_peers_of_the_same_attempt() -> None:
    findings = all_of(make_run([losses(0.5, 0.5), losses(None, 0.5, attempt=1)]), "loss")
    assert [finding.message for finding in findings] == ["the loss of rank 0 is not a number while its peers' is"]


def test_an_attempt_that_was_cut_short_has_no_losses_to_compare() -> None:
    assert all_of(make_run([losses(0.5, None, complete=False)]), "loss") == []


# Memory

CAPACITY = 100 * GIB


def holding(*gib: float, **values: Any) -> Run:
    """Ranks whose own peak is so many GiB of 100."""
    memory = [
        RankMemory(
            rank=rank,
            device=rank,
            peak_allocated_bytes=int(each * GIB),
            peak_reserved_bytes=int(each * GIB),
            capacity_bytes=CAPACITY,
        )
        for rank, each in enumerate(gib)
    ]
    return healthy(len(gib), memory=memory, **values)


@pytest.mark.parametrize(
    ("fullest", "other", "state"),
    [
        (40, 40, State.PASS),
        (40, 32.1, State.PASS),  # skew 19.8 %
        (40, 31.9, State.WARN),  # skew 20.3 %, 40 % full
        (30, 20, State.PASS),  # skew 33 %, but no more than 30 % full
        (31, 20, State.WARN),  # skew 35 %, more than 30 % full but not more than half
        (50, 30, State.WARN),  # skew 40 %, exactly half full
        (51, 30, State.FAIL),  # skew 41 %, more than half full
        (60, 42.1, State.WARN),  # skew 29.8 %
        (60, 41.9, State.FAIL),  # skew 30.2 %
    ],
)
def test_memory_skew_warns_and_fails_by_skew_and_by_how_full_it_is(fullest: float, other: float, state: State) -> None:
    assert one(holding(fullest, other), "memory_skew").state is state


def test_uneven_memory_is_described_and_the_fullest_device_named() -> None:
    run = holding(41, 60)
    finding = one(run, "memory_skew")
    assert "the fullest device is 60 % full, the emptiest holds 31.7 % less" in finding.message
    assert finding.subject is not None
    assert finding.subject.startswith("rank 1 on cuda:1")
    assert finding.evidence == ("head-room lost on the other devices: 19.0 GiB",)
    assert look(run).verdict is Verdict.FAIL


def test_the_fullest_device_is_the_one_with_the_largest_share() -> None:
    """40 of 50 GiB are more than 60 of 100."""
    run = holding(40, 60)
    small = run.memory[0].model_copy(update={"capacity_bytes": 50 * GIB})
    finding = one(run.model_copy(update={"memory": [small, run.memory[1]]}), "memory_skew")
    assert "is 80 % full, the emptiest holds 25 % less" in finding.message
    assert finding.subject is not None
    assert finding.subject.startswith("rank 0 ")


def test_memory_that_was_taken_on_purpose_needs_no_repair() -> None:
    finding = one(holding(41, 60, injected=["memory:rank=1,percent=35"]), "memory_skew")
    assert finding.next_step == "none: this fault was injected on purpose"


def test_one_device_has_no_memory_skew() -> None:
    assert all_of(holding(60), "memory_skew") == []


def leaking(leaked: int, pid: int = 1001, rank: int = 1) -> Run:
    processes = [
        ProcessMemory(device=0, pid=1000, rank=0, memory_used_bytes=20 * GIB),
        ProcessMemory(device=1, pid=1001, rank=1, memory_used_bytes=20 * GIB),
        ProcessMemory(device=0, pid=pid, rank=rank, memory_used_bytes=leaked),
    ]
    return holding(20, 20, samples=Samples(processes=processes))


def test_a_context_that_leaked_onto_a_neighbour_is_a_warning_that_names_the_device() -> None:
    finding = one(leaking(512 * MIB), "leaked_context")
    assert finding.state is State.WARN
    assert finding.message == "other ranks hold 512 MiB on GPU 0"
    assert finding.subject is not None
    assert finding.subject.startswith("cuda:0 nvml:0 GPU-00000001-")


@pytest.mark.parametrize(("leaked", "reported"), [(64 * MIB, False), (65 * MIB, True)])
def test_a_few_mebibytes_on_a_neighbour_are_no_leak(leaked: int, reported: bool) -> None:
    assert bool(all_of(leaking(leaked), "leaked_context")) is reported


# The driver's own word


def with_xids(*xids: int) -> Run:
    return healthy(samples=Samples(xids=[XidEvent(t_s=3.0, nvml_index=1, xid=xid) for xid in xids]))


@pytest.mark.parametrize("xid", [48, 62, 64, 74, 79, 95, 119, 120, 140])
def test_xids_that_end_a_nodes_service_fail(xid: int) -> None:
    run = with_xids(xid)
    finding = one(run, "xid")
    assert finding.state is State.FAIL
    assert finding.message == f"the driver reported Xid {xid} on GPU 1"
    assert finding.subject is not None
    assert finding.subject.startswith("cuda:1 nvml:1 GPU-00000002-")
    assert look(run).verdict is Verdict.FAIL


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_xids_that_are_usually_the_applications_fault_are_information(xid: int) -> None:
    run = with_xids(xid)
    assert one(run, "xid").state is State.INFO
    assert look(run).verdict is Verdict.PASS


@pytest.mark.parametrize("xid", [63, 92, 94, 999])
def test_other_xids_warn(xid: int) -> None:
    assert one(with_xids(xid), "xid").state is State.WARN


@pytest.mark.parametrize(("index", "where"), [(None, "a GPU"), (7, "GPU 7")])
def test_an_xid_of_a_gpu_that_takes_no_part_is_reported_without_its_names(index: int | None, where: str) -> None:
    finding = one(healthy(samples=Samples(xids=[XidEvent(t_s=3.0, nvml_index=index, xid=79)])), "xid")
    assert (finding.message, finding.subject) == (f"the driver reported Xid 79 on {where}", None)


def test_every_xid_is_reported() -> None:
    assert [finding.state for finding in all_of(with_xids(13, 79, 63), "xid")] == [State.FAIL, State.WARN, State.INFO]


def counted(key: str, *values: int | None, device: int = 1) -> Run:
    readings = [
        CounterReading(t_s=float(place), edge=f"edge {place}", device=device, values={key: value})
        for place, value in enumerate(values)
    ]
    return healthy(samples=Samples(counters=readings))


@pytest.mark.parametrize(
    ("key", "name", "verdict"),
    [
        ("ecc_uncorrected", "uncorrectable ECC errors", Verdict.FAIL),
        ("nvlink_replays", "NVLink replays", Verdict.WARN),
        ("nvlink_recoveries", "NVLink recoveries", Verdict.WARN),
        ("nvlink_crc_errors", "NVLink CRC errors", Verdict.WARN),
    ],
)
def test_counters_that_grow_during_the_run_are_reported(key: str, name: str, verdict: Verdict) -> None:
    run = counted(key, 5, 5, 8)
    assert one(run, key).message == f"3 new {name} on GPU 1 during the run"
    assert look(run).verdict is verdict


@pytest.mark.parametrize("values", [(5, 5, 5), (5,), (None, 5), (7, 0), ()])
def test_counters_that_do_not_grow_are_no_finding(values: Sequence[int | None]) -> None:
    """A single reading shows no growth; one that is smaller was reset meanwhile."""
    assert all_of(counted("ecc_uncorrected", *values), "ecc_uncorrected") == []


def test_errors_that_the_run_did_not_see_happen_are_not_counted() -> None:
    """Corrected errors are normal, and their growth is no finding."""
    assert look(counted("ecc_corrected", 5, 500)).verdict is Verdict.PASS


def slowed(*reasons: int) -> Run:
    """Device 1 gives these event reasons, one a sample, during overlapped training."""
    columns = {"event_reasons": list(reasons)}
    return healthy(
        samples=Samples(t_s=[1.0] * len(reasons), devices=[DeviceSamples(device=1, columns=columns)]),
        phases=[Phase(name="ddp overlapped", attempt=0, begin_s=0.0, end_s=2.0)],
    )


@pytest.mark.parametrize(
    ("bit", "name"),
    [
        (0x8, "hardware slowdown"),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "hardware power brake"),
    ],
)
def test_a_slowdown_that_is_never_normal_is_said_with_its_share_of_the_time(bit: int, name: str) -> None:
    run = slowed(0x4 | bit, 0x4, 0x4, 0x4)
    finding = one(run, "slowdown")
    assert finding.message == f"GPU 1: {name} in 25 % of the loaded samples"
    assert look(run).verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("bit", "slow", "samples", "verdict"),
    [
        (0x80, 2, 4, Verdict.WARN),  # two samples may be the edge of a load
        (0x80, 3, 4, Verdict.FAIL),
        (0x40, 3, 299, Verdict.FAIL),  # 1.003 % is above 1 %
        (0x40, 3, 300, Verdict.WARN),  # 1 % is not
        (0x20, 3, 30, Verdict.WARN),  # software thermal slowdown: 10 % is not above 10 %
        (0x20, 4, 30, Verdict.FAIL),
        (0x20, 1, 100, Verdict.PASS),  # 1 % of software thermal slowdown is let pass
    ],
)
def test_a_slowdown_fails_by_its_share_of_the_time(bit: int, slow: int, samples: int, verdict: Verdict) -> None:
    assert look(slowed(*[bit] * slow, *[0x4] * (samples - slow))).verdict is verdict


def multiplying(clock_mhz: int, reason: int) -> Run:
    """Device 1 multiplies matrices at this clock, and trains with this event reason."""
    columns = {"sm_clock_mhz": [clock_mhz, clock_mhz], "event_reasons": [reason, reason]}
    return healthy(
        samples=Samples(t_s=[1.0, 3.0], devices=[DeviceSamples(device=1, columns=columns)]),
        phases=[
            Phase(name="probe gemm", attempt=0, begin_s=0.0, end_s=2.0),
            Phase(name="ddp overlapped", attempt=0, begin_s=2.0, end_s=4.0),
        ],
    )


@pytest.mark.parametrize(("clock_mhz", "reason", "warns"), [(1286, 0, True), (1287, 0, False), (1000, 0x4, False)])
def test_a_low_clock_warns_unless_a_power_cap_explains_it(clock_mhz: int, reason: int, warns: bool) -> None:
    """65 % of 1980 MHz are 1287 MHz."""
    found = all_of(multiplying(clock_mhz, reason), "low_clock")
    assert [finding.state for finding in found] == [State.WARN] * warns


@pytest.mark.parametrize("reasons", [(0x4, 0x4), (0x1, 0x2), (0x10, 0x100), (0, 0)])
def test_a_software_power_cap_or_idling_is_no_finding(reasons: tuple[int, ...]) -> None:
    run = slowed(*reasons)
    assert all_of(run, "slowdown") == []
    assert look(run).verdict is Verdict.PASS


def test_a_hidden_device_is_labelled_by_the_names_it_has() -> None:
    device = make_gpu(1).model_copy(update={"pci_bus_id": None})
    run = counted("nvlink_replays", 0, 1)
    run = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": [run.plan.devices[0], device]})})
    assert one(run, "nvlink_replays").subject == "cuda:1 nvml:1 GPU-00000002-aaaa-bbbb-cccc-000000000001"


def test_where_a_link_retries_and_no_rank_is_slow_the_transfer_of_all_is_said() -> None:
    read = ((1.0, 0), (2.0, 7))
    counters = [CounterReading(t_s=t, edge="ddp", device=0, values={"nvlink_replays": n}) for t, n in read]
    finding = one(healthy(samples=Samples(counters=counters)), "nvlink_replays")
    assert "moving gradients takes all of them 20.00 ms beside a step of 12" in evidence(finding)
