"""Processes that get in a rank's way: they take its core, and they are gone when they should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from gpubalance.workloads import rivals
from gpubalance.workloads.host_use import HostMeter
from gpubalance.workloads.rivals import busy_core
from tests.support import alive, children_of, command_environment, eventually


def own_children() -> list[psutil.Process]:
    return psutil.Process().children()


def spend(cpu_s: float) -> dict[str, float]:
    """What the host says when this process spends so much time of its core."""
    before = HostMeter.now()
    begin = time.thread_time()
    while time.thread_time() - begin < cpu_s:
        sum(range(1000))
    used = HostMeter.now().since(before)
    return {name: value for name, value in used.items() if value is not None}


def test_hogs_take_the_core_that_this_process_is_on() -> None:
    with busy_core(3, 0):
        (core,) = os.sched_getaffinity(0)
        hogs = own_children()
        assert [child.cpu_affinity() for child in hogs] == [[core]] * 3
        before = [hog.cpu_times().user for hog in hogs]
        used = spend(0.3)
        assert all(hog.cpu_times().user > start for hog, start in zip(hogs, before, strict=True))
    assert used["cpu_s"] < 0.6 * used["wall_s"]  # four processes on one core; 1/4 by the scheduler's book
    assert used["involuntary_switches"] > 1
    if "queued_s" in used:
        assert used["queued_s"] > 0.2 * used["wall_s"]


def test_after_the_fault_the_hogs_are_gone_and_every_thread_may_go_where_it_could() -> None:
    allowed = os.sched_getaffinity(0)
    inside: list[set[int]] = []
    stop = threading.Event()
    waiting = threading.Thread(target=stop.wait)
    waiting.start()
    with busy_core(1, 1):
        inside += [os.sched_getaffinity(thread) for thread in rivals._threads()]
        late = threading.Thread(target=stop.wait)  # inherits the one core
        late.start()
    after = [os.sched_getaffinity(thread) for thread in rivals._threads()]
    stop.set()
    waiting.join()
    late.join()
    assert {len(cores) for cores in inside} == {1}
    assert len(inside) >= 2
    assert after == [allowed] * len(after)
    assert own_children() == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is everybody's")
def test_ranks_that_share_their_cores_are_hogged_on_different_ones() -> None:
    cores = []
    for rank in (0, 1):
        with busy_core(1, rank):
            cores.append(os.sched_getaffinity(0))
    assert cores[0].isdisjoint(cores[1])


def test_an_error_in_the_pass_ends_the_hogs() -> None:
    def fail() -> None:
        with busy_core(2, 0):
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert own_children() == []


def test_a_rival_that_cannot_start_is_an_error_and_leaves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "MODULE", "gpubalance.no_such_module")
    with pytest.raises(RuntimeError, match="plays hog ended at once"), busy_core(2, 0):
        pass
    assert own_children() == []


RANK = """
import signal, sys
from gpubalance.workloads.rivals import busy_core
with busy_core(2, 0):
    print("hogged", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_hog_outlives_a_rank_that_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    rank = subprocess.Popen([sys.executable, "-c", RANK], env=command_environment(), stdout=subprocess.PIPE)
    assert rank.stdout is not None
    assert rank.stdout.readline() == b"hogged\n"
    hogs = children_of(rank.pid)
    assert len(hogs) == 2
    rank.send_signal(number)
    rank.wait()
    rank.stdout.close()
    eventually(lambda: not alive(hogs), seconds=10)
