"""Limits, rights, shared memory and control groups of a made-up host."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from gpubalance.node import limits
from tests.node.planted import plant

INFINITY = resource.RLIM_INFINITY


def test_soft_limits_count_and_unlimited_is_null(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = {
        resource.RLIMIT_NOFILE: (1024, 4096),
        resource.RLIMIT_MEMLOCK: (INFINITY, INFINITY),
        resource.RLIMIT_STACK: (8388608, INFINITY),
    }
    monkeypatch.setattr(limits.resource, "getrlimit", table.__getitem__)
    values, _ = limits.read_limits(tmp_path)
    assert (values["open_files_limit"], values["memlock_limit_bytes"], values["stack_limit_bytes"]) == (
        1024,
        None,
        8388608,
    )


@pytest.mark.parametrize(
    ("mask", "nice"),
    [("000001ffffffffff", True), ("0000000000800000", True), ("00000000a80425fb", False), ("0", False)],
)
def test_the_right_to_place_memory_is_bit_23(tmp_path: Path, mask: str, nice: bool) -> None:
    plant(tmp_path, {"proc/self/status": f"Name:\tpython\nCapPrm:\t0\nCapEff:\t{mask}\n"})
    assert limits.read_limits(tmp_path)[0]["sys_nice"] is nice


def test_rights_that_cannot_be_read_are_null(tmp_path: Path) -> None:
    values, missing = limits.read_limits(tmp_path)
    assert (values["sys_nice"], missing["sys_nice"]) == (None, "not readable")


# Shared memory


def test_shared_memory_is_what_the_file_system_says(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    values, missing = limits.read_limits(tmp_path)
    found = os.statvfs(tmp_path / "dev/shm")
    assert values["shm_total_bytes"] == found.f_blocks * found.f_frsize > 0
    assert 0 <= values["shm_free_bytes"] <= values["shm_total_bytes"]
    assert "shm_total_bytes" not in missing


def test_without_shared_memory_the_reason_is_kept(tmp_path: Path) -> None:
    values, missing = limits.read_limits(tmp_path)
    assert (values["shm_total_bytes"], values["shm_free_bytes"]) == (None, None)
    assert (missing["shm_total_bytes"], missing["shm_free_bytes"]) == ("ENOENT", "ENOENT")


def segment(root: Path, name: str, age_s: float, size: int = 1) -> None:
    plant(root, {f"dev/shm/{name}": "x" * size})
    then = time.time() - age_s
    os.utime(root / "dev/shm" / name, (then, then))


def test_old_segments_are_listed_the_largest_first(tmp_path: Path) -> None:
    segment(tmp_path, "nccl-abc123", 7200, size=10)
    segment(tmp_path, "torch_4711_1", 90000, size=30)
    segment(tmp_path, "nccl-young", 60)
    segment(tmp_path, "sem.other", 90000)
    plant(tmp_path, {"etc/passwd": f"alice:x:{os.getuid()}:100::/home/alice:/bin/sh\n"})
    found = limits.read_limits(tmp_path)[0]["shm_stale"]
    assert [(each["name"], each["size_bytes"], each["owner"]) for each in found] == [
        ("torch_4711_1", 30, "alice"),
        ("nccl-abc123", 10, "alice"),
    ]
    assert found[0]["age_s"] == pytest.approx(90000, abs=600)


def test_an_owner_without_a_name_keeps_the_number(tmp_path: Path) -> None:
    segment(tmp_path, "nccl-abc123", 7200)
    (found,) = limits.read_limits(tmp_path)[0]["shm_stale"]
    assert found["owner"] == f"uid {os.getuid()}"


def test_of_very_many_segments_the_largest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_STALE", 2)
    for number in (1, 2, 3):
        segment(tmp_path, f"nccl-{number}", 7200, size=number)
    values, missing = limits.read_limits(tmp_path)
    assert [each["name"] for each in values["shm_stale"]] == ["nccl-3", "nccl-2"]
    assert missing["shm_stale"] == "the largest 2 of 3"


# Control groups


def test_the_smallest_memory_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod\n",
            "sys/fs/cgroup/kubepods/memory.max": "4000000000\n",
            "sys/fs/cgroup/kubepods/pod/memory.max": "max\n",
            "sys/fs/cgroup/kubepods/pod/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/kubepods/pod/cpu.stat": "usage_usec 5\nnr_periods 200\nnr_throttled 30\n",
        },
    )
    values, _ = limits.read_limits(tmp_path)
    assert values["cgroup_memory_limit_bytes"] == 4_000_000_000
    assert values["cgroup_cpu_quota"] == 2.5
    assert (values["cgroup_periods"], values["cgroup_periods_throttled"]) == (200, 30)
    assert limits.cpu_throttling(tmp_path) == (200, 30)


def test_a_group_that_counts_no_periods_stops_nobody_that_we_know_of(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "usage_usec 5\n"})
    assert limits.cpu_throttling(tmp_path) is None


@pytest.mark.parametrize(("text", "limit"), [("8589934592", 8589934592), ("9223372036854771712", None)])
def test_the_first_version_says_no_limit_by_a_huge_number(tmp_path: Path, text: str, limit: int | None) -> None:
    plant(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": text,
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.stat": "nr_periods 7\nnr_throttled 0\nthrottled_time 0\n",
        },
    )
    values, _ = limits.read_limits(tmp_path)
    assert values["cgroup_memory_limit_bytes"] == limit
    assert (values["cgroup_periods"], values["cgroup_periods_throttled"]) == (7, 0)


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    values, _ = limits.read_limits(tmp_path)
    assert (values["cgroup_memory_limit_bytes"], values["cgroup_cpu_quota"]) == (None, None)
    assert "cgroup_periods" not in values
