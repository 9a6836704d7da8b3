"""The whole story with scripted ranks and a stand-in NVML: no torch, no GPU, but real processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubalance.checks.verdict import Verdict
from gpubalance.errors import CannotMeasureError, UsageError
from gpubalance.faults import Fault
from gpubalance.launch.lock import MeasuringLock
from gpubalance.record.consistency import contradiction
from gpubalance.record.run import Run as Record
from gpubalance.session.bench import Doubt, Finished, bench
from gpubalance.session.experiments import SIZES
from gpubalance.settings import BenchSettings
from gpubalance.testing.profiles import h200_node
from tests.support import HEALTHY, SCRIPTED, slow, write_script

Run = Callable[..., Finished]

SOLO = {
    "eager_step_ms": 100.0,
    "graph_step_ms": 90.0,
    "graph_missing": None,
    "output_digest": "d",
    "samples_per_step": 4096,
}
PARALLEL = {
    "global_batch": 8192,
    "shards": [4096, 4096],
    "step_ms": 20.0,
    "one_device_step_ms": 19.0,
    "peak_memory_bytes": [4, 1],
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """bench() on two stand-in H200s with scripted ranks."""
    monkeypatch.setattr("gpubalance.launch.follow.GRACE_S", 0.5)

    def start(
        script: dict[str, Any], profile: dict[str, Any] | None = None, doubt: Doubt | None = None, **settings: Any
    ) -> Finished:
        for name, value in write_script(tmp_path, script).items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "profile.json"
        path.write_text(json.dumps(profile or h200_node()))
        finished = bench(BenchSettings(force=True, **settings), None, doubt, module=SCRIPTED, stand_in=path)
        assert finished is not None
        return finished

    return start


def with_solo(script: list[list[Any]]) -> list[list[Any]]:
    return [["phase", "solo"], ["event", "solo", SOLO], *script[1:]]


def test_a_healthy_node_passes_with_all_that_was_measured_in_one_record(run: Run) -> None:
    read = [["wait_for", "sensor.jsonl", f'"edge": "ddp {edge}"', 2] for edge in ("begin", "end")]  # both devices
    parallel = [["phase", "data_parallel"], *read, ["event", "data_parallel", PARALLEL], ["end"]]
    ranks = [*with_solo(HEALTHY), ["wait_for", "sensor.jsonl", '"sample"', 1]]
    finished = run({"ranks-0": {"*": ranks}, "node-0": {"*": parallel}})
    record = finished.run
    assert finished.judgement.verdict is Verdict.PASS
    assert len(record.samples.t_s) >= 1
    assert [phase.name for phase in record.phases] == ["solo", "ddp", "data_parallel"]
    assert record.data_parallel is not None
    assert len(record.ddp) == 1
    assert [rank.device_uuid for rank in record.ranks[:2]] == [device.uuid for device in record.plan.devices]
    assert record.samples.health is not None
    assert record.samples.health.died_with is None
    assert {reading.edge for reading in record.samples.counters} >= {"ddp begin", "ddp end"}
    assert not record.errors


CHECKED = {
    "source": 0, "target": 1, "peer_access": True, "checked_bytes": 8, "wrong_bytes": 0, "checked_on_host_bytes": 8,
    "wrong_on_host_bytes": 0,
}  # fmt: skip
COPYING = [["event", "doing", {"what": "copying from GPU-a to GPU-b"}], ["event", "link_check", CHECKED]]
LINKS_END = ["event", "links_end", {"buffer_bytes": 8, "missing": {}}]


def timed(source: int, target: int, rate: float) -> list[Any]:
    return ["event", "link_look", {"source": source, "target": target, "copy_bytes": 8, "gb_per_s": rate}]


def test_links_are_measured_by_one_process_that_sees_all_devices_and_judged(run: Run) -> None:
    steps = [["phase", "links"], *COPYING, timed(0, 1, 395.0), timed(1, 0, 394.0), LINKS_END, ["end"]]
    finished = run({"node-0": {"*": steps}}, workloads=("links",))
    assert finished.run.links is not None
    assert finished.run.links.complete
    assert finished.judgement.verdict is Verdict.PASS
    link = next(finding for finding in finished.judgement.findings if finding.id == "link_limit")
    assert "18 links x 25 GB/s = 450 GB/s" in link.message


def test_a_copy_that_never_returns_is_named_by_its_pair_and_what_was_measured_is_kept(run: Run) -> None:
    hung = ["event", "doing", {"what": "copying from GPU-b to GPU-a"}]
    finished = run(
        {"node-0": {"*": [["phase", "links"], *COPYING, hung, ["sleep"]]}}, workloads=("links",), stall_s=1.0
    )
    (error,) = finished.run.errors
    assert (error.kind, error.phase) == ("stalled", "links")
    assert error.message.startswith(
        "the process that sees all devices made no progress for 1 s in links, copying from GPU-b to GPU-a: "
    )
    assert finished.run.links is not None
    assert [(peer.source, peer.target) for peer in finished.run.links.peers] == [(0, 1)]
    assert finished.judgement.verdict is not Verdict.PASS


def test_what_comes_after_a_phase_that_failed_is_skipped_with_its_reason(run: Run) -> None:
    finished = run({"node-0": {"*": [["phase", "links"], ["raise", "no"]]}}, workloads=("links", "data_parallel"))
    assert ("data_parallel", "an earlier phase failed") in {(s.what, s.reason) for s in finished.run.skipped}
    assert ("links", "an earlier phase failed") not in {(s.what, s.reason) for s in finished.run.skipped}


def test_a_slow_device_is_confirmed_in_fresh_processes_with_ranks_rotated(run: Run) -> None:
    finished = run(
        {
            "ranks-0": {"0": HEALTHY, "1": slow(120.0)},
            "ranks-1": {"0": slow(120.0)[2:], "1": HEALTHY[2:]},
            "node-0": {"*": []},
        },
        workloads=("ddp",),
    )
    assert [attempt.ranks[0].device for attempt in finished.run.ddp] == [0, 1]
    first_pids, second_pids = ({r.pid for r in finished.run.ranks if r.attempt == a} for a in (0, 1))
    assert not first_pids & second_pids
    assert finished.judgement.verdict is Verdict.FAIL
    straggler = next(f for f in finished.judgement.findings if f.id == "straggler")
    assert straggler.subject == f"rank 1 on cuda:1 nvml:1 {finished.run.plan.devices[1].uuid} 0000:07:00.0"
    assert any("follows the device" in line for line in straggler.evidence)


def test_a_slowness_that_is_gone_the_second_time_gets_no_verdict(run: Run) -> None:
    finished = run({"ranks-0": {"0": HEALTHY, "1": slow(120.0)}, "ranks-1": {"*": HEALTHY[2:]}}, workloads=("ddp",))
    assert finished.judgement.verdict is Verdict.INCONCLUSIVE
    assert "not confirmed" in finished.judgement.sentence


def test_slower_by_eight_percent_warns_without_a_second_look(run: Run) -> None:
    finished = run({"ranks-0": {"0": HEALTHY, "1": slow(108.0)}}, workloads=("ddp",))
    assert finished.judgement.verdict is Verdict.WARN
    assert len(finished.run.ddp) == 1


DOUBTS: dict[str, tuple[dict[str, Any], tuple[str, ...], bool, int, list[int]]] = {
    # script, workloads, what the doubt says; passes that were made, passes that the doubt saw each time it was asked
    "no doubt": ({"*": HEALTHY}, ("ddp",), False, 1, [1]),
    "a doubt": ({"ranks-0": {"*": HEALTHY}, "ranks-1": {"*": HEALTHY[2:]}}, ("ddp",), True, 2, [1]),
    "somebody is slow in any case": (
        {"ranks-0": {"0": HEALTHY, "1": slow(120.0)}, "ranks-1": {"*": HEALTHY[2:]}}, ("ddp",), False, 2, [],
    ),
    "a warning needs no second pass by itself": ({"0": HEALTHY, "1": slow(108.0)}, ("ddp",), False, 1, [1]),
    "nothing to doubt": ({"*": with_solo(HEALTHY[:2])}, ("solo",), True, 0, []),
    "a rank that died": ({"0": HEALTHY, "1": [*HEALTHY[:5], ["kill", 9]]}, ("ddp",), True, 1, []),
}  # fmt: skip


@pytest.mark.parametrize(("script", "workloads", "says", "passes", "asked"), DOUBTS.values(), ids=DOUBTS.keys())
def test_a_doubt_is_asked_after_a_calm_first_pass_and_leads_to_a_second(
    run: Run, script: dict[str, Any], workloads: tuple[str, ...], says: bool, passes: int, asked: list[int]
) -> None:
    seen: list[Record] = []

    def doubt(record: Record) -> bool:
        seen.append(record)
        return says

    finished = run(script, doubt=doubt, workloads=workloads)
    assert len(finished.run.ddp) == passes
    assert [len(record.ddp) for record in seen] == asked
    assert all((record.plan, record.node) == (finished.run.plan, finished.run.node) for record in seen)
    assert all(record.settings == finished.run.settings for record in seen)


def test_the_second_pass_that_a_doubt_asks_for_rotates_the_ranks(run: Run) -> None:
    script = {"ranks-0": {"*": HEALTHY}, "ranks-1": {"*": HEALTHY[2:]}}
    finished = run(script, doubt=lambda _: True, workloads=("ddp",))
    assert [[rank.device for rank in attempt.ranks] for attempt in finished.run.ddp] == [[0, 1], [1, 0]]
    assert finished.judgement.verdict is Verdict.PASS


def test_a_rank_that_dies_leaves_no_verdict_and_what_was_measured(run: Run) -> None:
    dying = [["phase", "solo"], ["end"], ["phase", "ddp"], ["blocks", 6, 100.0], ["kill", int(signal.SIGKILL)]]
    finished = run({"ranks-0": {"0": HEALTHY, "1": dying}})
    assert finished.judgement.verdict is Verdict.INCONCLUSIVE
    assert finished.judgement.sentence.startswith("rank 1 killed by SIGKILL")
    assert finished.judgement.sentence.endswith("in phase ddp")
    assert [len(rank.fenced) for rank in finished.run.ddp[0].ranks] == [6, 6]
    assert ("data_parallel", "an earlier phase failed") in {(s.what, s.reason) for s in finished.run.skipped}


def test_the_record_names_injected_faults_and_the_origin_of_settings(run: Run) -> None:
    finished = run(
        {"ranks-0": {"*": HEALTHY}},
        workloads=("ddp",),
        inject=(Fault("sleep", rank=1, ms=5.0),),
        origins={"inject": "flag"},
    )
    assert finished.run.injected == ["sleep:rank=1,ms=5"]
    assert finished.run.settings["inject"].origin == "flag"
    assert finished.run.settings["seed"].origin == "default"


def test_only_the_chosen_devices_take_part_and_the_plan_says_so(run: Run) -> None:
    script = [*HEALTHY, ["wait_for", "sensor.jsonl", '"sample"', 1]]
    finished = run({"ranks-0": {"*": script}}, profile=h200_node(4), devices=("2", "0"), workloads=("ddp",))
    assert [device.nvml_index for device in finished.run.plan.devices] == [2, 0]
    assert finished.run.plan.notes == ["2 of 4 GPUs take part (restricted by --devices)"]
    assert [device.device for device in finished.run.samples.devices] == [0, 1]


def test_what_cannot_run_is_refused_before_any_rank_starts(run: Run) -> None:
    with pytest.raises(UsageError, match="3 ranks asked, 2 of 2 GPUs visible"):
        run({}, nproc=3)
    profile = h200_node()
    profile["devices"][1]["MigMode"] = [1, 1]
    with pytest.raises(CannotMeasureError, match="MIG mode"):
        run({}, profile=profile)


def test_a_driver_that_hangs_in_mid_run_costs_the_sensor_and_nothing_else(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubalance.sampling.client.STOP_LIMIT_S", 0.5)
    profile = h200_node()
    profile["faults"] = [{"call": "nvmlDeviceGetPowerUsage", "device": 1, "delay_s": 600, "after": 2}]
    hang = [["wait_for", "sensor.jsonl", '"sample"', 2], ["wait_for", "sensor.call", "DeviceGetPowerUsage 1", 1]]
    finished = run({"ranks-0": {"*": [*HEALTHY, *hang]}}, profile=profile, workloads=("ddp",), sample_interval_s=0.05)
    health = finished.run.samples.health
    assert health is not None
    assert health.hung_in is not None
    assert "PowerUsage on the GPU with NVML index 1" in health.hung_in
    assert finished.judgement.verdict is Verdict.WARN
    assert finished.judgement.facts.first is not None


def test_nobody_can_measure_when_the_driver_never_answers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubalance.sampling.client.CALL_LIMIT_S", 0.1)
    profile = h200_node()
    profile["faults"] = [{"call": "nvmlDeviceGetName", "device": 0, "delay_s": 600}]
    with pytest.raises(CannotMeasureError, match="nvmlDeviceGetName on the GPU with NVML index 0"):
        run({}, profile=profile)


def test_who_else_measured_stands_in_the_record_of_a_forced_run(run: Run) -> None:
    other = MeasuringLock()
    other.acquire(force=True)
    try:
        finished = run({"*": HEALTHY}, workloads=("ddp",))
    finally:
        other.release()
    assert finished.run.shared_with == "another gpubalance (pid unknown)"  # of this process itself
    assert finished.judgement.verdict is Verdict.INCONCLUSIVE
    assert finished.judgement.sentence.endswith("was measuring on this machine when the run began")


def test_the_clocks_of_the_machine_stand_in_the_record(run: Run) -> None:
    clocks = run({"*": HEALTHY}, workloads=("ddp",)).run.clocks
    assert clocks is not None
    assert clocks.monotonic_s > 0
    assert clocks.boottime_s == pytest.approx(clocks.monotonic_s, abs=0.1)


def touched(rate: float) -> dict[str, Any]:
    """A trial in which every size has this rate."""
    lines = [
        ["event", "touch", {"size_bytes": size, "time_us": 1.0, "bus_bandwidth_gb_per_s": rate, "wrong_elements": 0}]
        for size in SIZES
    ]
    return {"*": [["phase", "touch"], *lines, ["end"]]}


def test_a_variable_that_was_left_on_is_measured_both_ways_and_its_cost_warned_of(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    script = {
        "ranks-0": {"*": HEALTHY},
        "touch NCCL_P2P_DISABLE=0": touched(328.0),
        "touch NCCL_P2P_DISABLE=1": touched(41.0),
    }
    finished = run(script, workloads=("ddp",), what_if=("p2p",))
    (experiment,) = finished.run.experiments
    assert experiment.found == "1"
    assert [arm.rows[-1].bus_bandwidth_gb_per_s for arm in experiment.arms] == [328.0, 41.0]
    assert finished.judgement.sentence == "NCCL_P2P_DISABLE=1 is set here and costs a factor of 8.0"
    assert finished.judgement.verdict is Verdict.WARN


def test_an_experiment_after_a_failure_is_skipped_with_its_reason(run: Run) -> None:
    finished = run({"*": [["phase", "ddp"], ["raise", "bad kernel"]]}, workloads=("ddp",), what_if=("p2p",))
    assert finished.run.experiments == []
    assert ("what-if p2p", "an earlier phase failed") in [(skip.what, skip.reason) for skip in finished.run.skipped]


def test_a_hang_that_fresh_processes_repeat_fails_with_the_switch_that_cures_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubalance.session.trial.STALL_S", 0.5)
    hangs = [["phase", "touch"], ["fences", 1], ["sleep"]]
    script = {
        "ranks-0": {"*": [["phase", "ddp"], ["fences", 7], ["sleep"]]},
        "touch": {"*": hangs},
        "touch NCCL_P2P_DISABLE=1": touched(41.0),
    }
    finished = run(script, workloads=("ddp",), stall_s=0.5)
    record = finished.run
    assert record.hang is not None
    assert record.hang.ras_missing == "no rank listens for it"
    assert record.errors[0].message == "all ranks entered all_reduce 7 of ddp and none came back within 0.5 s"
    assert record.bisection is not None
    assert record.bisection.cures == ["NCCL_P2P_DISABLE=1"]
    assert finished.judgement.verdict is Verdict.FAIL
    assert finished.judgement.sentence.startswith(
        "all-reduce over GPUs 0 and 1 hangs, works with NCCL_P2P_DISABLE=1: peer-to-peer is broken between them"
    )
    assert contradiction(record) is None
