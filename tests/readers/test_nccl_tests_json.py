"""The file that nccl-tests writes with -J."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.errors import UsageError
from gpubalance.readers.nccl_tests_json import read_nccl_tests_json
from gpubalance.record.foreign import CollectiveTest, TheirRow
from tests.readers.helpers import cells, json_document, json_result


def read(**values: Any) -> CollectiveTest:
    (test,) = read_nccl_tests_json("log.json", json_document(**values)).tests
    return test


def config(**values: Any) -> dict[str, Any]:
    base: dict[str, Any] = json_document()["config"]
    return {**base, **values}


def test_a_whole_document() -> None:
    test = read()
    assert (test.collective, test.ranks, test.nodes, test.mode) == ("all_reduce", 2, 1, "eager")
    assert (test.nccl_version, test.complete, test.remarks) == ("2.28.9", True, ())
    assert test.average_bus_bandwidth_gb_per_s == 301.461195
    assert len(test.rows) == 4
    assert test.rows[2] == TheirRow(1073741824, "float32", "out_of_place", 3200.0, 335.54432, 335.54432, 0, "sum")


def test_values_out_of_bounds_are_counted() -> None:
    assert read(out_of_bounds={"count": 4, "okay": False}).out_of_bounds == 4
    assert read().out_of_bounds == 0


def test_ranks_are_processes_times_what_each_of_them_drives() -> None:
    device = config()["devices"][0]
    hosts = [{**device, "hostname": host} for host in ("a", "a", "b", "b")]
    test = read(config=config(nthreads=2, ngpus=4, devices=hosts))
    assert (test.ranks, test.nodes) == (32, 2)
    assert read(config={}).ranks is None


def test_the_misspelt_keys_of_version_1_are_known() -> None:
    document = json_document(version=1, average_bus_bandwidith={"bandwidith": 12.5, "okay": "unchecked"})
    del document["average_bus_bandwidth"]
    (test,) = read_nccl_tests_json("log.json", document).tests
    assert (test.average_bus_bandwidth_gb_per_s, test.complete) == (12.5, True)


def test_a_placement_that_was_not_measured_an_unchecked_one_and_the_time_of_the_cpu() -> None:
    cpu = {"cpu_time": 5.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 2.0}
    test = read(results=[json_result(8, None, cells(1.0, 2.0, None)), json_result(16, cpu, None)])
    assert [(r.placement, r.time_us, r.wrong_elements) for r in test.rows] == [
        ("in_place", 1.0, None),
        ("out_of_place", None, 2),
    ]


def test_what_makes_it_unlike_is_told() -> None:
    changed = config(graph=20, aggregated_iterations=4, blocking_collectives="true")
    test = read(config=changed, errors=["unhandled cuda error"], args=["sendrecv_perf_mpi"])
    assert (test.mode, test.collective) == ("graph", "send_recv")
    assert [remark.split(",")[0] for remark in test.remarks] == [
        "unhandled cuda error",
        "it waits after each operation (-z)",
        "it groups 4 operations (-m)",
    ]


def test_a_document_that_was_finished_early_is_not_complete() -> None:
    document = json_document()
    del document["average_bus_bandwidth"]
    (test,) = read_nccl_tests_json("log.json", document).tests
    assert not test.complete


@pytest.mark.parametrize("results", [[], None, [json_result(8, None, None)]])
def test_no_row_is_no_result_and_never_0(results: Any) -> None:
    with pytest.raises(UsageError, match=r"log\.json: no result"):
        read(results=results)


DAMAGED: dict[str, dict[str, Any]] = {
    "results are no list": {"results": {}},
    "an entry is no object": {"results": [5]},
    "a placement is no object": {"results": [{"size": 8, "type": "float", "out_of_place": 5}]},
    "no size": {"results": [{"type": "float", "out_of_place": cells(1.0, 1.0)}]},
    "a size that is negative": {"results": [json_result(-8, cells(1.0, 1.0), None)]},
    "a size that is no number": {"results": [{**json_result(8, cells(1.0, 1.0), None), "size": "8x"}]},
    "a time that is negative": {"results": [json_result(8, cells(-1.0, 1.0), None)]},
    "a bandwidth that is nan": {"results": [json_result(8, {**cells(1.0, 1.0), "bus_bw": "nan"}, None)]},
    "a bandwidth beyond all": {"results": [json_result(8, cells(1.0, 1e300), None)]},
    "a bandwidth without an end": {"results": [json_result(8, {**cells(1.0, 1.0), "bus_bw": 10**400}, None)]},
    "a bandwidth that is true": {"results": [json_result(8, {**cells(1.0, 1.0), "bus_bw": True}, None)]},
    "half an element wrong": {"results": [json_result(8, cells(1.0, 1.0, 0.5), None)]},
    "a config that is a list": {"config": []},
    "devices that are numbers": {"config": {"devices": [1]}},
    "ranks that are text": {"config": {"ngpus": "two", "devices": [{}]}},
    "an average that is text": {"average_bus_bandwidth": {"bandwidth": "much"}},
}


@pytest.mark.parametrize("values", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_nccl_tests_does_not_write_is_wrong_use(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^log\.json: ") as caught:
        read(**values)
    assert len(caught.value.message) < 200
