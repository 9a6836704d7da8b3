"""Eight ranks from end to end: scripted ones on a stand-in node with eight H200s and on eight CPU slots, and real ones
that share what cores there are.
"""

from __future__ import annotations

import json
import random
import resource
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.selftest.rows import HEALTHY as HEALTHY_ROW
from gpubalance.checks.verdict import Verdict
from gpubalance.record.node import Node
from gpubalance.sampling.client import SensorProcess
from gpubalance.session import trial
from gpubalance.session.bench import Finished, bench
from gpubalance.session.selftest import HEALTHY_FIRST, selftest
from gpubalance.session.selftest_plan import Here, matrix, schedule
from gpubalance.settings import CPU_MARGIN, BenchSettings, SelftestSettings
from gpubalance.testing.profiles import profile
from tests.benchmarks.error_rates import How, run_passes
from tests.end_to_end.short_passes import BLOCKS
from tests.reports.helpers import lines_of
from tests.session.selftest_scripts import COMPUTE_MS, healthy_crew, truthful
from tests.session.test_bisect import FAILS, OK, run
from tests.support import HEALTHY, SCRIPTED, slow, write_script

RANKS = 8
SLOW = 5


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubalance.launch.follow.GRACE_S", 0.5)


def on_eight_gpus(folder: Path, patch: pytest.MonkeyPatch, script: dict[str, Any], **settings: Any) -> Finished:
    for name, value in write_script(folder, script).items():
        patch.setenv(name, value)
    path = folder / "profile.json"
    path.write_text(json.dumps(profile("h200x8")))
    done = bench(
        BenchSettings(force=True, workloads=("solo", "ddp"), **settings), None, None, module=SCRIPTED, stand_in=path
    )
    assert done is not None
    return done


@pytest.fixture
def eight_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this machine had eight cores: ranks are bound to the ones it has in turn, several to one."""
    real = SensorProcess.node

    def node(sensor: SensorProcess) -> Node:
        found = real(sensor)
        cores = (found.cpu_cores * RANKS)[:RANKS]
        return found.model_copy(update={"cpu_cores": cores, "cpu_effective": float(RANKS)})

    monkeypatch.setattr(SensorProcess, "node", node)


def wide(done: Finished) -> list[str]:
    return [line for line in lines_of(done.run) if len(line) > 80]


def by_device(device: int, attempt: int) -> dict[str, Any]:
    """Scripts of a pass in which that device is slow: in the second one rank r is on device r + 1."""
    skip = 2 * attempt
    scripts: dict[str, Any] = {str((device - attempt) % RANKS): slow(120.0)[skip:]}
    return {"*": HEALTHY[skip:], **scripts}


@pytest.mark.parametrize("device", [0, SLOW, RANKS - 1])
def test_of_eight_the_slow_device_is_followed_around_the_ring(
    device: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = on_eight_gpus(tmp_path, monkeypatch, {"ranks-0": by_device(device, 0), "ranks-1": by_device(device, 1)})
    assert not done.run.errors
    assert [[rank.device for rank in attempt.ranks] for attempt in done.run.ddp] == [
        list(range(RANKS)),
        [*range(1, RANKS), 0],
    ]
    assert done.judgement.verdict is Verdict.FAIL
    worst = done.judgement.findings[0]
    assert worst.message.startswith(f"rank {device} is 20 % slower")
    assert "it follows the device" in worst.evidence[0]
    assert wide(done) == []


def test_eight_healthy_ranks_have_a_row_each_and_the_parent_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = on_eight_gpus(tmp_path, monkeypatch, {"ranks-0": {"*": HEALTHY}})
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert done.judgement.verdict is Verdict.PASS
    assert {len(rank.fenced) for rank in done.run.ddp[0].ranks} == {24}
    assert wide(done) == []
    assert grown_mib < 100


def test_of_eight_the_one_that_did_not_arrive_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven wait in the fence of a block; the deadline is one for all, not one a rank."""
    waiting = [["phase", "ddp"], ["fences", 8], ["sleep"]]
    script = {"*": waiting, str(SLOW): [["phase", "ddp"], ["fences", 7], ["sleep"]]}
    done = on_eight_gpus(tmp_path, monkeypatch, {"ranks-0": script}, stall_s=5.0, bisect="never")
    first = [error for error in done.run.errors if error.first_cause]
    assert [(error.kind, error.rank) for error in first] == [("stalled", SLOW)]
    assert done.run.hang is not None
    assert len(done.run.hang.ranks) == RANKS
    assert wide(done) == []


def test_a_failing_pair_of_eight_is_found_in_rounds_of_four_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is and four switches over all, then rounds of disjoint pairs until one fails, then the cures over it."""
    monkeypatch.setattr(trial, "STALL_S", 20.0)
    everybody = ",".join(map(str, range(RANKS)))
    script = {
        "touch": {"*": OK},
        f"touch {everybody} as is": {"*": FAILS},
        f"touch {everybody} NCCL_SHM_DISABLE=1": {"*": FAILS},
        f"touch {everybody} NCCL_NVLS_ENABLE=0": {"*": FAILS},
        f"touch {everybody} NCCL_CUMEM_ENABLE=0": {"*": FAILS},
        "touch 2,5 as is": {"*": FAILS},
    }
    found, _ = run(tmp_path, script, ranks=RANKS)
    pairs = [trial.ranks for trial in found.trials if len(trial.ranks) == 2 and trial.switch is None]
    assert (found.smallest, found.cures) == ([2, 5], ["NCCL_P2P_DISABLE=1"])
    assert len(pairs) % 4 == 0
    assert len(pairs) <= 28
    assert len({tuple(pair) for pair in pairs}) == len(pairs)


def test_rows_that_need_eight_ranks_are_judged_by_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eight_slots: None
) -> None:
    """Half slow, one fast and all slow, and one slow rank: who is named, and whether that is right."""
    rows = ("compute", "half", "fast", "all")
    here = Here(RANKS, "gloo", CPU_MARGIN, healthy_ms=COMPUTE_MS)
    found, skipped = matrix(here, quick=False, wanted=rows, generator=random.Random(3))
    passes = schedule(found, first=HEALTHY_FIRST, beside=1)
    script = {"ranks-0": {"*": healthy_crew(HEALTHY_FIRST)}, "ranks-1": truthful(passes, RANKS)}
    for name, value in write_script(tmp_path, script).items():
        monkeypatch.setenv(name, value)
    done = selftest(
        SelftestSettings(device="cpu", force=True, seed=3, nproc=RANKS, rows=rows, stall_s=60.0), module=SCRIPTED
    )
    assert skipped == []
    assert not done.record.errors
    by_row = {each.row: each for each in done.judgement.outcomes if each.row != HEALTHY_ROW}
    assert {name: outcome.reason for name, outcome in by_row.items()} == dict.fromkeys(by_row)
    assert len(by_row["half"].ranks) == 4
    assert (by_row["fast"].named, by_row["all"].named) == ((), ())
    assert len(by_row["fast"].ranks) == RANKS - 1
    assert done.judgement.verdict is Verdict.PASS


def test_eight_real_ranks_share_the_cores_and_play_their_pass(eight_slots: None) -> None:
    """Who is named on shared cores is chance; that all ranks measured it is not."""
    how = How(16 * RANKS, nproc=RANKS, device="cpu", module="tests.end_to_end.short_passes")
    (played,) = run_passes([(SLOW, 10.0)], how)
    assert played.facts.device_of_rank == tuple(range(RANKS))
    assert played.facts.stragglers.blocks == BLOCKS
    assert all(ms > 0 for ms in played.facts.compute_ms)
