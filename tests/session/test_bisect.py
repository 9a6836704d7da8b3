"""The search after a hang, with scripted ranks that hang, fail and work; and trials with real ones."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubalance.launch.launcher_env import Share
from gpubalance.launch.start import RANK_MODULE, child_environment
from gpubalance.record.hang import Bisection, HangReport, RankHang
from gpubalance.record.run import RunError
from gpubalance.session import bisect as search
from gpubalance.session import trial
from gpubalance.session.bisect import bisect, is_suspect, no_bisection
from gpubalance.session.experiments import SIZES, run_p2p
from gpubalance.session.trial import KIB, MIB, run_together, touch_job
from tests.support import SCRIPTED, alive, make_job, write_script

OK = [["phase", "touch"], ["event", "touch", {"size_bytes": 1024, "time_us": 5.0, "bus_bandwidth_gb_per_s": 0.2,
      "wrong_elements": 0}], ["end"]]  # fmt: skip
WRONG = [[*OK[1][:2], {**OK[1][2], "wrong_elements": 3}] if step[0] == "event" else step for step in OK]
HANGS = [["phase", "touch"], ["fences", 1], ["sleep"]]
FAILS = [["phase", "touch"], ["fences", 1], ["fail_collective", "Multicast bind failed"]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "STALL_S", 0.5)
    monkeypatch.setattr("gpubalance.launch.follow.GRACE_S", 0.2)


def run(folder: Path, script: dict[str, Any], ranks: int = 2, **values: Any) -> tuple[Bisection, list[str]]:
    """What a search finds and says; nobody is left behind."""
    job = make_job(folder, ranks, backend=values.pop("backend", "nccl"))
    environment = child_environment({**os.environ, **write_script(folder, script), **values}, ())
    pids: dict[int, int] = {}
    said: list[str] = []
    found = bisect(job, environment, SCRIPTED, pids, said.append)
    assert pids
    assert alive([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]) == []
    return found, said


def test_a_hang_that_peer_to_peer_off_cures(tmp_path: Path) -> None:
    found, said = run(tmp_path, {"touch": {"*": HANGS}, "touch NCCL_P2P_DISABLE=1": {"*": OK}})
    assert found.repeated is True
    assert (found.smallest, found.cures, found.left_out) == ([0, 1], ["NCCL_P2P_DISABLE=1"], None)
    assert [(t.switch, t.outcome) for t in found.trials] == [
        (None, "hangs"),
        ("NCCL_P2P_DISABLE=1", "works"),
        ("NCCL_NVLS_ENABLE=0", "hangs"),
        ("NCCL_SHM_DISABLE=1", "hangs"),
        ("NCCL_CUMEM_ENABLE=0", "hangs"),
    ]
    assert found.trials[0].message == "all ranks entered all_reduce 1 of touch and none came back within 0.5 s"
    assert said[0] == "searching for the cause in fresh processes, at most 300 s"
    assert said[1].startswith("  ranks 0, 1, as is: hangs (")


def test_a_failing_pair_of_three_is_found_and_the_cure_is_tried_on_it(tmp_path: Path) -> None:
    script = {
        "touch": {"*": OK},
        "touch 0,1,2 as is": {"*": FAILS},
        "touch 0,1,2 NCCL_SHM_DISABLE=1": {"*": FAILS},
        "touch 1,2 as is": {"*": HANGS},
        "touch 1,2 NCCL_P2P_DISABLE=1": {"*": HANGS},
    }
    found, _ = run(tmp_path, script, ranks=3)
    assert found.smallest == [1, 2]
    assert found.cures == ["NCCL_NVLS_ENABLE=0", "NCCL_CUMEM_ENABLE=0"]
    assert found.trials[0].message is not None
    assert "Multicast bind failed" in found.trials[0].message


def test_what_works_in_fresh_processes_was_not_repeated(tmp_path: Path) -> None:
    found, _ = run(tmp_path, {"touch": {"*": OK}})
    assert (found.repeated, found.smallest, found.cures, len(found.trials)) == (False, None, [], 1)


def test_wrong_sums_are_a_failure(tmp_path: Path) -> None:
    found, _ = run(tmp_path, {"touch": {"*": OK}, "touch as is": {"*": WRONG}})
    assert found.trials[0].outcome == "wrong"
    assert found.trials[0].message == "3 elements of the sums were wrong"
    assert found.repeated is True


def test_the_interface_of_gloo_is_switched_where_the_user_chose_one(tmp_path: Path) -> None:
    script = {"touch": {"*": FAILS}, "touch GLOO_SOCKET_IFNAME=lo": {"*": OK}}
    found, _ = run(tmp_path, script, backend="gloo", GLOO_SOCKET_IFNAME="nonexistent")
    assert (found.smallest, found.cures) == ([0, 1], ["GLOO_SOCKET_IFNAME=lo"])


def test_a_search_ends_when_its_time_is_over_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LIMIT_S", 1.0)
    monkeypatch.setattr(trial, "STALL_S", 60.0)
    found, _ = run(tmp_path, {"touch": {"*": HANGS}})
    assert [t.outcome for t in found.trials] == ["unfinished"]
    assert (found.repeated, found.smallest) == (None, None)
    assert found.left_out == "the search ended after 1 s"


def report(state: str, crew: Any = "ranks") -> HangReport:
    rank = RankHang(rank=1, pid=1, phase="ddp", fence=1, collective="all_reduce", state=state)
    return HangReport(attempt=0, crew=crew, t_s=1.0, deadline_s=1.0, gathered_in_s=0.1, ranks=[rank])


OWN = Share("own")


def test_when_there_is_nothing_to_search_for(tmp_path: Path) -> None:
    job, node, alone = make_job(tmp_path), make_job(tmp_path, crew="node"), make_job(tmp_path, 1)
    launched = Share("torchrun", rank=0, world=2, run_key="x")
    assert no_bisection(job, report("S"), OWN, "auto") is None
    assert no_bisection(job, None, OWN, "auto") is None
    assert no_bisection(job, report("S"), OWN, "never") == "--bisect never was given"
    assert no_bisection(job, report("T"), OWN, "auto") == "the process of rank 1 was stopped from outside"
    assert no_bisection(job, report("t"), OWN, "auto") == "the process of rank 1 was stopped from outside"
    assert no_bisection(node, report("S", "node"), OWN, "auto") == "one process alone waits for no other rank"
    assert no_bisection(alone, report("S"), OWN, "auto") == "one process alone waits for no other rank"
    assert "torchrun" in (no_bisection(job, report("S"), launched, "auto") or "")


@pytest.mark.parametrize(
    ("kind", "where", "suspect"),
    [
        ("stalled", "work", True),
        ("stalled", "collective", True),
        ("absent", "work", True),
        ("exception", "collective", True),
        ("exception", "work", False),
        ("out_of_memory", "work", False),
        ("killed", "work", False),
        ("exited", "work", False),
        ("no_cuda", "work", False),
    ],
)
def test_only_what_may_lie_between_ranks_is_searched_for(kind: str, where: Any, suspect: bool) -> None:
    assert is_suspect(RunError(kind=kind, where=where, message="m")) is suspect


def rows(rate: float) -> list[list[Any]]:
    lines = [
        ["event", "touch", {"size_bytes": size, "time_us": 1.0, "bus_bandwidth_gb_per_s": rate, "wrong_elements": 0}]
        for size in SIZES
    ]
    return [["phase", "touch"], *lines, ["end"]]


def test_both_ways_of_peer_to_peer_are_measured_whatever_the_user_has_set(tmp_path: Path) -> None:
    script = {"touch NCCL_P2P_DISABLE=0": {"*": rows(329.0)}, "touch NCCL_P2P_DISABLE=1": {"*": rows(41.0)}}
    environment = child_environment({**os.environ, **write_script(tmp_path, script), "NCCL_P2P_DISABLE": "1"}, ())
    found = run_p2p(make_job(tmp_path), environment, "1", SCRIPTED, {}, lambda _text: None)
    assert (found.variable, found.found, found.ranks) == ("NCCL_P2P_DISABLE", "1", 2)
    assert [(arm.value, arm.missing) for arm in found.arms] == [("0", None), ("1", None)]
    assert [[row.bus_bandwidth_gb_per_s for row in arm.rows] for arm in found.arms] == [[329.0] * 2, [41.0] * 2]
    assert [row.size_bytes for row in found.arms[0].rows] == [64 * MIB, 1024 * MIB]


def test_a_way_that_hangs_or_is_cut_short_says_so(tmp_path: Path) -> None:
    script = {"touch NCCL_P2P_DISABLE=0": {"*": HANGS}, "touch NCCL_P2P_DISABLE=1": {"*": rows(41.0)[:2]}}
    environment = child_environment({**os.environ, **write_script(tmp_path, script)}, ())
    on, off = run_p2p(make_job(tmp_path), environment, None, SCRIPTED, {}, lambda _text: None).arms
    assert on.rows == []
    assert (on.missing or "").startswith("it hangs: all ranks entered all_reduce 1 of touch")
    assert off.missing == "a device has too little free memory for the largest size"


def test_a_trial_has_the_environment_of_the_run_and_its_own_variables_count_more(tmp_path: Path) -> None:
    """What `--nccl-tests-compat` sets may be what hangs."""
    job = make_job(tmp_path, environment={"NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE": "1", "NCCL_P2P_DISABLE": "0"})
    assert touch_job(job, (0, 1), 3, {"NCCL_P2P_DISABLE": "1"}, (KIB,)).environment == {
        "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE": "1", "NCCL_P2P_DISABLE": "1",
    }  # fmt: skip


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_a_trial_of_real_ranks_over_gloo_works_with_exact_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "STALL_S", 60.0)
    job = touch_job(make_job(tmp_path), (0, 1), 3, {"GLOO_SOCKET_IFNAME": "lo"}, (KIB, 4 * MIB))
    environment = child_environment({**os.environ, "GLOO_SOCKET_IFNAME": "nonexistent"}, ())
    (touched,) = run_together([job], environment, RANK_MODULE, time.monotonic() + 120, {})
    assert (touched.outcome, touched.message) == ("works", None)
    assert [row["size_bytes"] for row in touched.rows] == [KIB, 4 * MIB]
    for row in touched.rows:
        assert row["wrong_elements"] == 0
        seconds = row["time_us"] / 1e6
        assert row["bus_bandwidth_gb_per_s"] == pytest.approx(row["size_bytes"] / seconds / 1e9)  # 2(n-1)/n = 1
