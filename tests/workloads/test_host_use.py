"""What the host spends on a process, against what the process did."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpubalance.record.timings import HostUse
from gpubalance.workloads import host_use
from gpubalance.workloads.host_use import HostMeter


def test_two_moments_differ_by_what_was_used_between_them() -> None:
    earlier = HostMeter(wall_s=10.0, cpu_s=1.0, voluntary=5, involuntary=7, queued_s=0.25)
    later = HostMeter(wall_s=12.5, cpu_s=2.0, voluntary=6, involuntary=10, queued_s=0.75)
    assert later.since(earlier) == {
        "wall_s": 2.5,
        "cpu_s": 1.0,
        "voluntary_switches": 1,
        "involuntary_switches": 3,
        "queued_s": 0.5,
    }


def test_work_and_sleep_are_told_apart() -> None:
    before = HostMeter.now()
    begin = time.process_time()
    while time.process_time() - begin < 0.05:
        sum(range(1000))
    worked = HostMeter.now()
    time.sleep(0.05)
    slept = HostMeter.now()
    busy, idle = HostUse(**worked.since(before)), HostUse(**slept.since(worked))
    assert busy.cpu_s >= 0.05 > idle.cpu_s
    assert idle.voluntary_switches >= 1
    assert idle.wall_s >= 0.05


@pytest.mark.parametrize("text", [None, "", "17"])
def test_a_kernel_that_does_not_count_queueing_leaves_it_open(
    text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "12").mkdir()
    if text is not None:
        (tmp_path / "12" / "schedstat").write_text(text)
    monkeypatch.setattr(host_use, "THREADS", tmp_path)
    moment = HostMeter.now()
    assert moment.queued_s is None
    assert HostMeter.now().since(moment)["queued_s"] is None


def test_the_lines_of_all_threads_are_added_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for thread, queued_ns in (("12", 1_000_000_000), ("13", 500_000_000), ("14", None)):
        (tmp_path / thread).mkdir()
        if queued_ns is not None:
            (tmp_path / thread / "schedstat").write_text(f"1 {queued_ns} 3\n")
    monkeypatch.setattr(host_use, "THREADS", tmp_path)
    assert HostMeter.now().queued_s == 1.5
