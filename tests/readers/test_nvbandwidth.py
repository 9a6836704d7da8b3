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
