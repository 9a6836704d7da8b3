"""What NCCL and torch leave in files."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from gpubalance.launch.nccl_traces import MOST_LINES, find_dumps, nccl_warnings, recorder_is_on, trigger_dumps

WARN = "node:42:99 [0] transport.cc:1 (setup) NCCL WARN Cuda failure 'peer access is not supported'"


def test_warnings_are_found_in_the_output_and_in_the_debug_file_of_the_rank(tmp_path: Path) -> None:
    output = tmp_path / "rank0.txt"
    output.write_text(f"node:42:99 [0] NCCL INFO fine\n{WARN}\n")
    debug = tmp_path / f"nccl.{socket.gethostname()}.42"
    debug.write_text("NCCL INFO\nx NCCL WARN second\n")
    environment = {"NCCL_DEBUG_FILE": str(tmp_path / "nccl.%h.%p")}
    assert nccl_warnings(output, 42, environment) == [WARN, "x NCCL WARN second"]
    assert nccl_warnings(output, 43, environment) == [WARN]
    assert nccl_warnings(output, None, environment) == [WARN]


def test_the_last_warnings_are_kept_and_none_is_long(tmp_path: Path) -> None:
    output = tmp_path / "rank0.txt"
    output.write_text("".join(f"NCCL WARN {number} {'x' * 1000}\n" for number in range(50)))
    lines = nccl_warnings(output, 1, {})
    assert [line.split()[2] for line in lines] == [str(number) for number in range(50 - MOST_LINES, 50)]
    assert {len(line) for line in lines} == {400}


def test_a_pipe_that_is_named_as_debug_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert nccl_warnings(tmp_path / "none", 1, {"NCCL_DEBUG_FILE": str(tmp_path / "pipe")}) == []


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        ({}, False),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, False),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, True),
        ({"TORCH_FR_BUFFER_SIZE": "2000"}, True),
        ({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/ask_"}, True),
        ({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/ask_", "TORCH_FR_BUFFER_SIZE": "0"}, False),
    ],
)
def test_the_flight_recorder_is_on_where_the_user_gave_it_room(environment: dict[str, str], on: bool) -> None:
    assert recorder_is_on(environment) is on


def test_dumps_of_this_run_are_named_and_older_ones_are_not(tmp_path: Path) -> None:
    prefix = str(tmp_path / "dump_")
    now = time.time()
    for rank, age_s in ((0, 0.0), (1, 500.0)):
        path = Path(f"{prefix}{rank}")
        path.touch()
        os.utime(path, (now - age_s, now - age_s))
    for name in ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"):
        assert find_dumps(3, {name: prefix}, now - 100) == [f"{prefix}0"]


def test_dumps_are_looked_for_where_newer_versions_of_torch_leave_them(tmp_path: Path) -> None:
    dump = tmp_path / "cache" / "torch" / "comm_lib_trace_rank_1"
    dump.parent.mkdir(parents=True)
    dump.touch()
    assert find_dumps(2, {"XDG_CACHE_HOME": str(tmp_path / "cache")}, time.time() - 100) == [str(dump)]
    (tmp_path / ".cache").symlink_to(tmp_path / "cache")
    assert find_dumps(2, {"HOME": str(tmp_path)}, time.time() - 100) == [
        str(tmp_path / ".cache/torch/comm_lib_trace_rank_1")
    ]


def test_torch_is_asked_for_its_dumps_through_the_pipes_that_it_reads(tmp_path: Path) -> None:
    prefix = str(tmp_path / "ask_")
    os.mkfifo(f"{prefix}0.pipe")
    os.mkfifo(f"{prefix}1.pipe")  # nobody reads this one, and nobody waits for that
    Path(f"{prefix}2.pipe").touch()
    reader = os.open(f"{prefix}0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert trigger_dumps(4, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": prefix})
        assert os.read(reader, 10) == b"1\n"
    finally:
        os.close(reader)
    assert Path(f"{prefix}2.pipe").read_bytes() == b""
    assert not trigger_dumps(4, {})
    assert not trigger_dumps(1, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "nobody_")})
