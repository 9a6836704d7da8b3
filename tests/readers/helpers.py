"""Logs of other tools: real ones of two H200s, and the forms that other versions and launchers give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
REAL = (DATA / "nccl-tests-h200x2.txt").read_bytes()
COPIES = (DATA / "nvbandwidth-h200x2.txt").read_bytes()

OLD = """\
# nThread 1 nGpus 4 minBytes 8388608 maxBytes 16777216 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  71234 on       node device  0 [0x07] NVIDIA A100-SXM4-40GB
#   Rank  1 Pid  71234 on       node device  1 [0x0f] NVIDIA A100-SXM4-40GB
#   Rank  2 Pid  71234 on       node device  2 [0x47] NVIDIA A100-SXM4-40GB
#   Rank  3 Pid  71234 on       node device  3 [0x4e] NVIDIA A100-SXM4-40GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152   float     sum    100.0   83.89  125.83  2e-07    102.0   82.24  123.36  2e-07
    16777216       4194304   float     sum    160.0  104.86  157.29  2e-07    161.0  104.21  156.31    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 140.698
#
"""
"""Version 2.9: no name of the program, no root, `error` is a deviation, an address is a bus alone."""

OLD_GATHER = """\
+ ./build/all_gather_perf -b 1M -e 1M -g 2
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 0
#   Rank  0 Pid  1 on       node device  0 [0x07] GPU
#   Rank  1 Pid  1 on       node device  1 [0x0f] GPU
#                                             out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072    half    50.00   20.97   10.49    N/A    50.00   20.97   10.49    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 10.49
"""


def json_result(size: int, out_of_place: dict[str, Any] | None, in_place: dict[str, Any] | None) -> dict[str, Any]:
    """One entry of `results`."""
    return {
        "size": size,
        "count": size // 4,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": out_of_place,
        "in_place": in_place,
        "actual_iterations": 20,
        "experiment_name": "",
    }


def cells(time_us: float, bus: float, wrong: float | None = 0.0) -> dict[str, Any]:
    """One placement of an entry."""
    return {"time": time_us, "alg_bw": bus, "bus_bw": bus, "nwrong": wrong}


def json_document(**values: Any) -> dict[str, Any]:
    """What all_reduce_perf -J writes on two GPUs of one process each; `values` replace keys."""
    device = {"rank": 0, "group": 0, "pid": 1000, "hostname": "node", "device": 0, "device_hex": "0000:00:06",
              "device_info": "NVIDIA H200"}  # fmt: skip
    return {
        "version": 3,
        "start_time": "2026-11-30 12:00:00",
        "args": ["./build/all_reduce_perf", "-b", "64M", "-J", "out.json"],
        "env": ["HOME=/root"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1, "ngpus": 2, "minimum_bytes": 67108864, "maximum_bytes": 1073741824, "step_factor": 16,
            "warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1, "validation": 1, "graph": 0,
            "blocking_collectives": "false", "parallel_init": "false", "devices": [device],
        },
        "results": [
            json_result(67108864, cells(250.0, 268.435456), cells(251.0, 267.365992)),
            json_result(1073741824, cells(3200.0, 335.54432), cells(3210.0, 334.499011)),
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 301.461195, "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-11-30 12:00:10",
        **values,
    }  # fmt: skip


def copies_document(**values: Any) -> dict[str, Any]:
    """What nvbandwidth -j writes on two GPUs; `values` replace keys below the title."""
    total = [["N/A", "391.75"], ["391.77", "N/A"], ["N/A", "391.77"], ["391.77", "N/A"], ["N/A", "783.52"],
             ["783.54", "N/A"]]  # fmt: skip
    root = {
        "CUDA Runtime Version": 13000,
        "Driver Version": "580.159.04",
        "GPU Device list": [f"{index}: NVIDIA H200 (00000000:00:0{6 + index}): (node)" for index in (0, 1)],
        "git_version": "",
        "version": "v0.8",
        "testcases": [
            {"name": "host_to_device_memcpy_ce", "status": "Passed", "sum": 110.48,
             "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
             "bandwidth_matrix": [["55.20", "55.28"]]},
            {"name": "device_to_device_memcpy_write_ce", "status": "Passed", "sum": 792.32,
             "bandwidth_description": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
             "bandwidth_matrix": [["0", "396.18"], ["396.14", "0"]]},
            {"name": "device_to_device_bidirectional_memcpy_write_ce", "status": "Passed", "sum": 1567.06,
             "bandwidth_description": "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
             "bandwidth_matrix": total},
            {"name": "device_to_device_latency_sm", "status": "Passed", "sum": 1.5,
             "bandwidth_description": "Device to Device Latency SM GPU(row) <-> GPU(column) (ns)",
             "bandwidth_matrix": [["N/A", "700"], ["701", "N/A"]]},
            {"name": "multinode_bisect_write_ce", "status": "Running"},
            {"name": "multinode_bisect_write_ce", "status": "Waived"},
        ],
        **values,
    }  # fmt: skip
    return {"nvbandwidth": root}
