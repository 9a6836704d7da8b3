"""Matrices of nvbandwidth, plain and as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.errors import UsageError
from gpubalance.readers.nvbandwidth import read_nvbandwidth, read_nvbandwidth_json
from gpubalance.record.foreign import Foreign
from tests.readers.helpers import COPIES, copies_document


def plain(data: bytes | str) -> Foreign:
    return read_nvbandwidth("log", data if isinstance(data, bytes) else data.encode())


def document(**values: Any) -> Foreign:
    return read_nvbandwidth_json("log.json", copies_document(**values))


def case(**values: Any) -> list[dict[str, Any]]:
    """One test case in place of all."""
    first: dict[str, Any] = copies_document()["nvbandwidth"]["testcases"][0]
    return [{**first, **values}]


def test_a_real_output() -> None:
    log = plain(COPIES)
    assert (log.version, log.driver_version, log.remarks) == ("0.8", "580.159.04", ())
    assert [(device.name, device.pci_bus_id) for device in log.devices] == [
        ("NVIDIA H200", "00000000:00:06"),
        ("NVIDIA H200", "00000000:00:07"),
    ]
    values = {copy.test: copy.values for copy in log.copies}
    assert values["host_to_device_memcpy_ce"] == ((55.20, 55.28),)
    assert values["device_to_device_memcpy_write_ce"] == ((None, 396.18), (396.14, None))
    assert values["device_local_copy"] == ((2093.06, 2080.90),)
    bidirectional = [c for c in log.copies if c.test == "device_to_device_bidirectional_memcpy_write_ce"]
    assert [c.description.split()[-3] for c in bidirectional] == ["Write1", "Write2", "Total"]


def test_json_gives_the_same_as_text() -> None:
    log = document()
    assert (log.version, log.driver_version, log.devices) == ("0.8", "580.159.04", plain(COPIES).devices)
    theirs = {copy.test: copy.values for copy in plain(COPIES).copies}  # of several matrices the last is the total
    assert {copy.test: copy.values for copy in log.copies} == {copy.test: theirs[copy.test] for copy in log.copies}
    assert [copy.test for copy in log.copies] == [
        "host_to_device_memcpy_ce",
        "device_to_device_memcpy_write_ce",
        "device_to_device_bidirectional_memcpy_write_ce",
    ]


def test_the_zeros_that_older_versions_print_from_a_device_to_itself_are_no_values() -> None:
    text = COPIES.decode().replace("N/A", "0.00")
    assert plain(text).copies == plain(COPIES).copies


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-11-30T12:00:00Z "])
def test_prefixes_of_launchers_change_nothing(prefix: str) -> None:
    assert plain("\n".join(prefix + line for line in COPIES.decode().splitlines())) == plain(COPIES)


def test_a_matrix_that_breaks_off_is_left_out_and_said() -> None:
    text, _, _ = COPIES.decode().partition(" 1    393.58")
    log = plain(text)
    assert [copy.test for copy in log.copies] == ["host_to_device_memcpy_ce", "device_to_host_memcpy_ce"]
    assert log.remarks == ("device_to_device_memcpy_read_ce breaks off: left out",)
    assert (log.complete, plain(COPIES).complete) == (False, True)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("", "x_ce has no result"),
        ("[CUDA_ERROR_ILLEGAL_ADDRESS] an illegal memory access in cuCtxSynchronize()\n", "x_ce: [CUDA_ERROR_ILLEGAL"),
        ("ASSERT in expression src >= 0 in f() : inline_common.h:36\n", "x_ce: ASSERT in expression"),
        ("NVML_ERROR: [Unknown Error] in expression nvmlInit() in main() : x.cpp:271\n", "x_ce: NVML_ERROR"),
        ("\nRunning y_ce.\nWaived: \n", "x_ce has no result"),
    ],
)
def test_a_test_that_left_no_result_makes_the_log_incomplete(end: str, told: str) -> None:
    """As error_handling.h spells what it prints before the program ends."""
    log = plain(COPIES.decode() + "\nRunning x_ce.\n" + end)
    assert log.copies == plain(COPIES).copies
    assert not log.complete
    assert log.remarks[0].startswith(told)


def test_a_test_that_cannot_be_made_here_is_no_failure() -> None:
    log = plain(COPIES.decode() + "\nRunning x_ce.\nWaived: needs another node\n")
    assert (log.complete, log.remarks) == (True, ("x_ce: Waived: needs another node",))


@pytest.mark.parametrize(
    ("status", "complete"), [("Passed", True), ("Waived", True), ("Error", False), ("Running", False)]
)
def test_the_state_of_a_test_without_a_matrix_in_the_json(status: str, complete: bool) -> None:
    whole = copies_document()
    cases = whole["nvbandwidth"]["testcases"]
    cases[:] = [*(each for each in cases if each["status"] == "Passed"), {"name": "x_ce", "status": status}]
    log = read_nvbandwidth_json("log.json", whole)
    assert (log.complete, [text.split(":")[0] for text in log.remarks]) == (complete, [] if complete else ["x_ce"])


def test_latencies_are_no_bandwidths_and_errors_are_told() -> None:
    latency = (
        "Running host_device_latency_sm.\nmemory latency SM CPU(row) <-> GPU(column) (ns)\n"
        "           0         1\n 0    772.58    772.10\n\nSUM host_device_latency_sm 1544.68\n"
        "Running x_ce.\nERROR: no peers\n"
    )
    log = plain(latency + COPIES.decode())
    assert log.copies == plain(COPIES).copies
    assert log.remarks == ("x_ce: ERROR: no peers",)


@pytest.mark.parametrize("text", ["nvbandwidth Version: v0.8\n", "Running x_ce.\nWaived: \n"])
def test_no_matrix_is_no_result(text: str) -> None:
    with pytest.raises(UsageError, match="log: no result in the output of nvbandwidth"):
        plain(text)


@pytest.mark.parametrize("cell", ["nan", "-55.20", "inf", "1e999"])
def test_a_number_that_nothing_measures_is_wrong_use(cell: str) -> None:
    with pytest.raises(UsageError, match=r"host_to_device_memcpy_ce: .* is no number"):
        plain(COPIES.decode().replace("55.20", cell))
    with pytest.raises(UsageError, match=r"host_to_device_memcpy_ce: .* is no number"):
        document(testcases=case(bandwidth_matrix=[[cell]]))


DAMAGED: dict[str, dict[str, Any]] = {
    "an error instead of results": {"testcases": None, "error": "Specified list did not match"},
    "test cases that are no list": {"testcases": {"a": 1}},
    "a test case that is no object": {"testcases": [5]},
    "a matrix that is no list": {"testcases": case(bandwidth_matrix="55")},
    "a row that is no list": {"testcases": case(bandwidth_matrix=[5])},
    "an empty row": {"testcases": case(bandwidth_matrix=[[]])},
    "an empty matrix": {"testcases": case(bandwidth_matrix=[])},
    "rows of two lengths": {"testcases": case(bandwidth_matrix=[["1", "2"], ["1"]])},
    "a cell that is an object": {"testcases": case(bandwidth_matrix=[[{}]])},
    "devices that are text": {"GPU Device list": "0: NVIDIA"},
}


@pytest.mark.parametrize("values", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_nvbandwidth_does_not_write_is_wrong_use(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^log\.json: ") as caught:
        document(**values)
    assert ("did not match" in caught.value.message) == ("error" in values)
    with pytest.raises(UsageError, match=r"^log\.json: "):
        read_nvbandwidth_json("log.json", {"nvbandwidth": []})
