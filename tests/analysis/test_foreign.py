"""A run beside a log: which numbers are about the same thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpubalance.analysis.foreign import ForeignComparison, compare_foreign
from gpubalance.readers.nccl_tests import read_nccl_tests
from gpubalance.readers.nvbandwidth import read_nvbandwidth
from gpubalance.record.foreign import CollectiveTest, CopyMatrix, Foreign, TheirDevice, TheirRow
from gpubalance.record.links import DeviceCopies, Links, PeerCopies
from gpubalance.record.run import Run
from gpubalance.record.timings import CollectiveRow, DeviceProbe
from gpubalance.testing.runs import make_run
from tests.readers.helpers import COPIES, REAL

MIB = 2**20


def our_row(size: int = 32 * MIB, time_us: float = 140.0, **values: Any) -> CollectiveRow:
    base: dict[str, Any] = {
        "collective": "all_reduce", "backend": "nccl", "mode": "eager", "ranks": 2, "size_bytes": size,
        "dtype": "float32", "iterations": 20, "time_us": time_us, "time_max_us": time_us,
        "algorithm_bandwidth_gb_per_s": size / time_us / 1e3, "bus_bandwidth_gb_per_s": size / time_us / 1e3,
        "wrong_elements": 0,
    }  # fmt: skip
    return CollectiveRow(**{**base, **values})


def their_row(size: int = 32 * MIB, time_us: float | None = 140.0, **values: Any) -> TheirRow:
    bandwidth = 0.0 if time_us is None else round(size / time_us / 1e3, 2)
    return replace(TheirRow(size, "float32", "in_place", time_us, bandwidth, bandwidth, 0), **values)


def their_test(*rows: TheirRow, **values: Any) -> CollectiveTest:
    device = TheirDevice("NVIDIA H200", "0000:00:06")
    base = CollectiveTest("all_reduce", 2, 1, "eager", rows, complete=True, devices=(device, device))
    return replace(base, **values)


def log_of(*tests: CollectiveTest) -> Foreign:
    return Foreign("nccl-tests", tests)


def run_of(*rows: CollectiveRow, **values: Any) -> Run:
    return make_run(collectives=list(rows), **values)


def compared(rows: list[CollectiveRow], *tests: CollectiveTest) -> ForeignComparison:
    return compare_foreign(run_of(*rows), log_of(*tests))


def reasons(comparison: ForeignComparison, side: str = "log") -> list[str]:
    return [each.reason for each in comparison.unpaired if each.side == side]


def test_the_same_row_is_paired_and_its_ratio_is_that_of_the_times() -> None:
    (pair,) = compared([our_row(time_us=138.04)], *read_nccl_tests("log", REAL).tests).pairs
    assert (pair.theirs, pair.theirs_us, pair.ours_us) == (243.07, 138.04, 138.04)
    assert pair.ratio == 1.0
    assert pair.gated


def test_small_messages_have_a_ratio_although_their_bandwidth_is_printed_as_0() -> None:
    (pair,) = compared([our_row(8, 40.0)], their_test(their_row(8, 20.0))).pairs
    assert (pair.theirs, pair.ratio, pair.gated) == (0.0, 0.5, False)


def test_without_a_time_the_bandwidths_are_compared_and_0_gives_no_ratio() -> None:
    rows = their_row(time_us=None, bus_bandwidth_gb_per_s=480.0), their_row(8, None)
    first, second = compared([our_row(time_us=140.0), our_row(8, 40.0)], their_test(*rows)).pairs
    assert first.ratio == pytest.approx(32 * MIB / 140.0 / 1e3 / 480.0)
    assert second.ratio is None


OTHERS: dict[str, tuple[CollectiveTest, str]] = {
    "another collective": (their_test(their_row(), collective="all_to_all"), "the run has no row of it"),
    "another number of ranks": (their_test(their_row(), ranks=8), "8 ranks in the log, 2 ranks in the run"),
    "ranks not told": (their_test(their_row(), ranks=None), ("an unknown number of ranks in the log, "
                                                             "2 ranks in the run")),
    "another type": (their_test(their_row(dtype="float16")), "float16 in the log, float32 in the run"),
    "a graph": (their_test(their_row(), mode="graph"), "graph mode in the log, eager mode in the run"),
    "another placement": (their_test(their_row(placement="out_of_place")), ("out of place in the log, "
                                                                            "in place in the run")),
    "another size": (their_test(their_row(64 * MIB)), "the run has no such size"),
}  # fmt: skip


@pytest.mark.parametrize(("test", "reason"), OTHERS.values(), ids=OTHERS.keys())
def test_what_cannot_be_matched_is_told_with_the_first_reason(test: CollectiveTest, reason: str) -> None:
    comparison = compared([our_row()], test)
    assert comparison.pairs == ()
    assert reasons(comparison) == [reason]
    assert len(reasons(comparison, "run")) == 1


def test_nothing_that_moves_no_bytes_is_compared() -> None:
    comparison = compared([our_row(0, 5.0)], their_test(their_row(0, 1.0)))
    assert comparison.pairs == ()
    assert reasons(comparison) == ["0 bytes a rank"]


def test_several_runs_in_one_log_give_the_median_of_each_row() -> None:
    tests = [their_test(their_row(time_us=time)) for time in (100.0, 400.0, 140.0)]
    (pair,) = compared([our_row(time_us=140.0)], *tests).pairs
    assert (pair.theirs_us, pair.repeats, pair.ratio) == (140.0, 3, 1.0)


def test_rows_of_another_backend_are_not_compared() -> None:
    comparison = compared([our_row(backend="gloo")], their_test(their_row()))
    assert comparison.pairs == ()


def test_the_hosts_clock_is_used_where_a_row_has_it_as_nccl_tests_does() -> None:
    run = run_of(our_row(time_us=140.0, host_time_us=145.0))
    (pair,) = compare_foreign(run, log_of(their_test(their_row(time_us=145.0)))).pairs
    assert pair.ratio == 1.0
    assert pair.ours == pytest.approx(32 * MIB / 145.0 / 1e3)


def unlike(run: Run, log: Foreign) -> dict[str, tuple[str, str, bool]]:
    return {each.what: (each.theirs, each.ours, each.blocking) for each in compare_foreign(run, log).unlike}


def test_what_was_unlike_is_told_and_only_other_hardware_blocks() -> None:
    run = run_of(our_row())
    here = "not known"
    assert unlike(run, log_of(their_test(their_row(), nccl_version="2.28.9"))) == {
        "NCCL library": ("2.28.9", here, False)
    }
    other = their_test(their_row(), ranks=8, nodes=2, devices=(TheirDevice("NVIDIA A100"),))
    found = unlike(run, log_of(other))
    assert found["GPU"] == ("NVIDIA A100", "NVIDIA H200", True)
    assert found["number of GPUs"] == ("8", "2", False)
    assert found["nodes"] == ("2", "1", True)
    on_cpu = unlike(make_run(on_cpu=True), log_of(other))
    assert on_cpu == {"devices": ("GPUs", "CPU ranks over gloo", True)}


def test_variables_of_nccl_and_injected_faults_are_told() -> None:
    run = run_of(our_row(), injected=["sleep:rank=1,ms=5"])
    node = run.node.model_copy(update={"environment": {"NCCL_P2P_DISABLE": "1", "NCCL_VERSION": "2", "PATH": "/"}})
    found = unlike(run.model_copy(update={"node": node}), log_of(their_test(their_row())))
    assert found["variables of NCCL"][1] == "NCCL_P2P_DISABLE=1"
    assert found["injected faults"][1] == "sleep:rank=1,ms=5"


def test_wrong_elements_of_either_side_and_remarks_are_kept() -> None:
    broken = their_test(their_row(wrong_elements=3), complete=False, remarks=("it waits",), nccl_version="2.28.9",
                        nccl_headers="2.32.3")  # fmt: skip
    comparison = compared([our_row(wrong_elements=2)], broken)
    assert [text.partition(":")[0] for text in comparison.wrong] == ["the log", "the run"]
    assert not comparison.complete
    assert comparison.remarks == (
        "it waits", "built against NCCL 2.32.3, loaded 2.28.9", "all_reduce breaks off after 1 values",
    )  # fmt: skip


def probe(device: int, copies: float) -> DeviceProbe:
    return DeviceProbe(rank=device, device=device, gemm_tflops=600.0, memory_copy_gb_per_s=2 * copies,
                       host_to_device_gb_per_s=copies, device_to_host_gb_per_s=copies)  # fmt: skip


def copied(run: Any, log: Foreign) -> dict[tuple[str, str], tuple[float, float]]:
    return {(pair.metric, pair.place): (pair.theirs, pair.ours) for pair in compare_foreign(run, log).pairs}


def test_copies_are_matched_by_address_and_a_local_copy_counts_reading_and_writing() -> None:
    log = read_nvbandwidth("log", COPIES)
    swapped = Foreign(
        "nvbandwidth",
        copies=tuple(CopyMatrix(c.test, c.description, tuple(row[::-1] for row in c.values[::-1])) for c in log.copies),
        devices=log.devices[::-1],
    )
    run = make_run(probes=[probe(0, 50.0), probe(1, 60.0)])
    addresses = ["00000000:00:06.0", "0000:00:07.0"]  # as NVML and as sysfs write them
    devices = [d.model_copy(update={"pci_bus_id": a}) for d, a in zip(run.plan.devices, addresses, strict=True)]
    run = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})
    for each in (log, swapped):
        found = copied(run, each)
        assert found["h2d", "GPU 0"] == (55.20, 50.0)
        assert found["d2h", "GPU 1"] == (55.33, 60.0)
        assert found["memory_copy", "GPU 0"] == (2 * 2093.06, 100.0)
    assert "one GPU copies at a time, in the run all at once" in compare_foreign(run, log).remarks
    assert len(found) == 6


def test_without_known_addresses_cudas_numbers_count_and_other_devices_have_no_column() -> None:
    log = replace(read_nvbandwidth("log", COPIES), devices=())
    run = make_run(probes=[probe(0, 50.0), probe(1, 60.0), probe(2, 60.0)], ranks=3)
    found = copied(run, log)
    assert found["h2d", "GPU 1"] == (55.28, 60.0)
    assert ("h2d", "GPU 2") not in found
    assert next(u.what for u in compare_foreign(make_run(), log).unpaired) == "host_to_device_memcpy_ce"


def test_the_links_phase_is_preferred_and_pairs_of_gpus_are_compared() -> None:
    run = make_run(probes=[probe(0, 50.0), probe(1, 60.0)])
    peers = [PeerCopies(source=0, target=1, looks_gb_per_s=[390.0, 396.0, 400.0]), PeerCopies(source=1, target=0)]
    links = Links(peers=peers, devices=[DeviceCopies(device=0, to_device_gb_per_s=55.0)])
    linked = run.model_copy(update={"links": links})
    found = copied(linked, read_nvbandwidth("log", COPIES))
    assert found["h2d", "GPU 0"] == (55.20, 55.0)
    assert found["d2h", "GPU 0"] == (55.34, 50.0)
    assert found["p2p", "GPU 0 to GPU 1"] == (396.18, 396.0)
    assert ("p2p", "GPU 1 to GPU 0") not in found


def test_rows_that_reduce_otherwise_are_left_out_and_told() -> None:
    """nccl-tests -o all."""
    rows = [
        their_row(time_us=time_us, redop=redop) for redop, time_us in (("sum", 140.0), ("prod", 70.0), ("max", 70.0))
    ]
    comparison = compared([our_row(time_us=140.0)], their_test(*rows))
    assert [(pair.theirs_us, pair.repeats) for pair in comparison.pairs] == [(140.0, 1)]
    assert comparison.remarks == ("rows of max, prod are left out: a run sums",)


def test_values_out_of_bounds_are_wrong_data_where_no_row_counts_them() -> None:
    old = their_test(their_row(wrong_elements=None), out_of_bounds=4)
    assert compared([our_row()], old).wrong == ("the log: all_reduce: 4 values out of bounds",)
    new = their_test(their_row(wrong_elements=4), out_of_bounds=4)
    assert compared([our_row()], new).wrong == ("the log: all_reduce of 33554432 bytes in place: 4 wrong elements",)


def test_a_log_whose_program_left_nothing_is_not_complete() -> None:
    assert not compare_foreign(run_of(our_row()), replace(log_of(their_test(their_row())), complete=False)).complete


def test_devices_that_the_log_lacks_are_not_taken_for_others_by_their_number() -> None:
    """nvbandwidth on GPUs 4 and 5 of the eight of a run."""
    run = make_run(ranks=8)
    listed = tuple(TheirDevice("NVIDIA H200", run.plan.devices[index].pci_bus_id) for index in (4, 5))
    log = Foreign(
        "nvbandwidth", copies=(CopyMatrix("host_to_device_memcpy_ce", "x", ((25.0, 55.28),)),), devices=listed
    )
    run = run.model_copy(update={"probes": [probe(device, 55.3) for device in range(8)]})
    pairs = compare_foreign(run, log).pairs
    assert [(pair.place, pair.theirs) for pair in pairs] == [("GPU 4", 25.0), ("GPU 5", 55.28)]
