"""The note of the call that is under way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpubalance.sampling.call_note import CallNote, read_note


def test_a_call_on_a_device_is_read_back_with_the_time_of_its_begin(tmp_path: Path) -> None:
    note = CallNote(tmp_path / "note")
    before = time.monotonic()
    note("DeviceGetPowerUsage", 3)
    after = time.monotonic()
    read = read_note(tmp_path / "note")
    assert read is not None
    begin, call = read
    assert before - 1e-6 <= begin <= after + 1e-6  # it is written with six digits
    assert call == "nvmlDeviceGetPowerUsage on the GPU with NVML index 3"


def test_the_device_with_index_zero_is_named_too(tmp_path: Path) -> None:
    CallNote(tmp_path / "note")("DeviceGetName", 0)
    read = read_note(tmp_path / "note")
    assert read is not None
    assert read[1] == "nvmlDeviceGetName on the GPU with NVML index 0"


def test_a_call_on_the_system_names_no_device(tmp_path: Path) -> None:
    CallNote(tmp_path / "note")("Init", None)
    read = read_note(tmp_path / "note")
    assert read is not None
    assert read[1] == "nvmlInit"


def test_a_cleared_note_says_that_no_call_is_under_way(tmp_path: Path) -> None:
    note = CallNote(tmp_path / "note")
    note("DeviceGetComputeRunningProcesses_v3", 1)
    note("", None)
    assert read_note(tmp_path / "note") is None


def test_a_short_note_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    note = CallNote(tmp_path / "note")
    note("DeviceGetComputeRunningProcesses_v3", 11)
    note("Init", None)
    read = read_note(tmp_path / "note")
    assert read is not None
    assert read[1] == "nvmlInit"


@pytest.mark.parametrize(
    "torn",
    [bytes(32) + b"PowerUsage 1", b"12345.6", b"12345.678901 DeviceGetP", b"\0 DeviceGetName 1", b"\xff\xfe a b"],
)
def test_a_note_that_is_seen_half_written_is_none(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "note").write_bytes(torn.ljust(256, b"\0"))
    assert read_note(tmp_path / "note") is None


@pytest.mark.parametrize("made", [True, False])
def test_before_the_first_call_there_is_no_note(tmp_path: Path, made: bool) -> None:
    if made:
        CallNote(tmp_path / "note")
    assert read_note(tmp_path / "note") is None
