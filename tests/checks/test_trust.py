"""The measurement itself: what leaves no verdict, what is only said, and what a failing check becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gpubalance.checks.finding import Finding, State
from gpubalance.checks.trust import settled
from gpubalance.checks.verdict import Verdict
from gpubalance.record.node import Process
from gpubalance.record.run import Clocks, Phase, Run
from gpubalance.record.samples import Samples, SensorHealth
from gpubalance.record.timings import DdpAttempt
from gpubalance.testing.runs import make_attempt, make_gpu, make_node, make_run, make_solo, steady
from tests.analysis.test_trust import rising, wandering, with_host
from tests.checks.helpers import all_of, evidence, healthy, look, one


def rising_together(end: float, on_cpu: bool = False) -> Run:
    return of_blocks([rising(end)] * 2, on_cpu=on_cpu)


def of_blocks(rows: Sequence[Sequence[float]], **values: Any) -> Run:
    return make_run([make_attempt(np.repeat(np.array(rows)[:, :, None], 5, axis=2))], **values)


def twice_slow(slow: float = 200.0, **values: Any) -> Run:
    """Rank 1 fails, and fails again."""
    first, second = (make_attempt(steady([100.0, slow]), attempt=number) for number in range(2))
    return make_run([first, second], **values)


# What voids step times


def test_somebody_else_who_was_measuring_leaves_no_verdict() -> None:
    run = healthy(shared_with="another gpubalance (pid 7)")
    judgement = look(run)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.sentence == "another gpubalance (pid 7) was measuring on this machine when the run began"


def test_a_failing_check_of_times_is_not_judged_then_and_says_why() -> None:
    assert look(twice_slow()).verdict is Verdict.FAIL
    run = twice_slow(shared_with="another gpubalance (pid 7)")
    finding = one(run, "straggler")
    assert finding.state is State.UNKNOWN
    assert finding.message.startswith("not judged: rank 1 is 100 % slower than rank 0")
    assert "since another gpubalance (pid 7) was measuring" in evidence(finding)
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_wrong_bits_fail_whoever_else_uses_the_machine() -> None:
    solo = [make_solo(rank, 90.0, digest=str(rank)) for rank in range(2)]
    assert look(twice_slow(shared_with="another", solo=solo)).verdict is Verdict.FAIL


def test_what_is_settled_once_stays_so() -> None:
    void = Finding("starved", State.UNKNOWN, "no cores", next_step="wait", required=True)
    once = settled([void, Finding("straggler", State.FAIL, "slow"), Finding("xid", State.FAIL, "Xid 79")])
    assert settled(once) == once
    assert [finding.state for finding in once] == [State.UNKNOWN, State.UNKNOWN, State.FAIL]


def on_gpus(**values: Any) -> Run:
    run = twice_slow()
    devices = [make_gpu(0), make_gpu(1, **values.pop("readings", {}))]
    node = make_node(devices, **values)
    return run.model_copy(update={"node": node, "plan": run.plan.model_copy(update={"devices": devices})})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"readings": {"utilization_before_percent": 40}}, "before the run GPU 1 is 40 % busy: times are about both"),
        ({"readings": {"memory_used_before_bytes": 6 * 2**30}}, "holds 6.0 GiB of processes not visible here"),
        ({"processes": [Process(nvml_index=1, pid=77, memory_used_bytes=2**30)]}, "is in use by pid 77, 1.0 GiB"),
    ],
)
def test_a_gpu_that_was_in_use_before_a_forced_run_leaves_no_verdict(values: dict[str, Any], text: str) -> None:
    run = on_gpus(**values)
    finding = one(run, "used_before")
    assert text in finding.message
    assert str(finding.subject).startswith("cuda:1 ")
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_a_gpu_in_use_that_takes_no_part_does_not_matter() -> None:
    run = on_gpus(processes=[Process(nvml_index=5, pid=77, memory_used_bytes=2**30)])
    assert look(run).verdict is Verdict.FAIL


def starving(
    shares: Sequence[float], lost: Sequence[int], second: Sequence[float] | None = None, on_cpu: bool = True
) -> Run:
    attempts = [with_host(make_attempt(steady([100.0, 200.0])), shares, lost)]
    attempts.append(with_host(make_attempt(steady([100.0, 200.0]), attempt=1), second or shares, lost))
    return make_run(attempts, on_cpu=on_cpu)


def test_ranks_that_all_lose_their_cores_leave_no_verdict() -> None:
    run = starving([0.4, 0.5], [200, 100])
    text = "no rank had its core for more than 50 % of the time in which it computed: others use the cores"
    assert one(run, "starved").message.startswith(text)
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_a_second_look_on_a_starved_machine_confirms_nothing() -> None:
    assert look(starving([1.0, 1.0], [200, 100], second=[0.5, 0.5])).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "run",
    [
        starving([0.4, 0.9], [200, 2]),
        starving([0.4, 0.4], [2, 2]),
        starving([0.9, 0.9], [200, 200]),
        starving([0.4, 0.4], [200, 200], on_cpu=False),
    ],
    ids=["one rank has its core", "ranks that sleep", "a busy machine with room", "GPUs"],
)
def test_ranks_with_cores_are_judged(run: Run) -> None:
    assert all_of(run, "starved") == []
    assert look(run).verdict is Verdict.FAIL


def sensed(share: float, *, on_cpu: bool = True, **health: Any) -> Run:
    """A sensor that made so much of its looks in the 6 s of fenced blocks."""
    looks = [6.0 + 6.0 * place / (60 * share) for place in range(round(60 * share))]
    base = {"interval_s": 0.1, "ticks": len(looks), "missed_ticks": 0, "cost_ms_per_tick": 2.0, "lateness_max_ms": 50.0}
    samples = Samples(t_s=looks, health=SensorHealth(**{**base, **health}))
    return twice_slow(on_cpu=on_cpu, samples=samples)


def test_a_sensor_that_hardly_gets_a_turn_leaves_no_verdict_for_ranks_on_the_cpu() -> None:
    assert one(sensed(0.7), "late").message.startswith("the sensor came too late for 28.3 % of its looks")
    assert look(sensed(0.7)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "run",
    [
        sensed(0.8),
        sensed(0.5, cost_ms_per_tick=60.0),
        sensed(0.5, died_with="exit code -11"),
        twice_slow(on_cpu=True, samples=Samples()),
    ],
    ids=["a little late", "slow looks", "a sensor that died", "no sensor"],
)
def test_a_sensor_that_is_late_for_other_reasons_says_nothing_about_steps(run: Run) -> None:
    assert all_of(run, "late") == []
    assert look(run).verdict is Verdict.FAIL


def test_on_gpus_steps_are_judged_without_the_sensor_and_its_silence_is_no_pass() -> None:
    """A slow rank fails; where nobody is slow, what only the sensor could have seen is missing."""
    slow = sensed(0.5, on_cpu=False)
    even = slow.model_copy(update={"ddp": [make_attempt(steady([100.0, 100.0]))]})
    for run, verdict in ((slow, Verdict.FAIL), (even, Verdict.INCONCLUSIVE)):
        assert all_of(run, "late") == []
        assert "may have been missed" in one(run, "unseen").message
        assert look(run).verdict is verdict


def with_fast_clock(factor: float, attempt: int = 0) -> DdpAttempt:
    made = make_attempt(steady([100.0, 100.0]), attempt=attempt)
    fast = [
        block.model_copy(
            update={
                key: [factor * value for value in getattr(block, key)]
                for key in ("compute_ms", "fence_ms", "transfer_ms")
            }
        )
        for block in made.ranks[1].fenced
    ]
    return made.model_copy(update={"ranks": [made.ranks[0], made.ranks[1].model_copy(update={"fenced": fast})]})


def test_a_wrong_clock_is_not_taken_for_a_slow_device() -> None:
    run = make_run([with_fast_clock(1.2), with_fast_clock(1.2, attempt=1)])
    assert one(run, "clocks").message.startswith("clocks disagree by 20 % on how long a step takes")
    assert "not judged: rank 1 is 20 % slower" in one(run, "straggler").message
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_clocks_that_agree_to_half_the_margin_are_good_enough() -> None:
    assert all_of(make_run([with_fast_clock(1.024)]), "clocks") == []
    assert one(make_run([with_fast_clock(1.026)]), "clocks").required


# What leaves no verdict, and lets a failing check fail


def slept(boottime_s: float | None, wall_s: float = 30.0) -> Clocks:
    return Clocks(monotonic_s=30.0, wall_s=wall_s, boottime_s=boottime_s)


def test_a_machine_that_slept_leaves_no_verdict() -> None:
    run = healthy(clocks=slept(42.5))
    assert one(run, "suspended").message.startswith("the machine was suspended for 12.5 s during the run")
    assert look(run).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("clocks", [slept(30.4), slept(None), None])
def test_a_machine_that_stayed_awake_is_judged(clocks: Clocks | None) -> None:
    assert look(healthy(clocks=clocks)).verdict is Verdict.PASS


@pytest.mark.parametrize(("wall_s", "way"), [(93.0, "forward by 63.0 s"), (27.0, "back by 3.0 s")])
def test_a_clock_that_was_set_is_said_and_changes_nothing(wall_s: float, way: str) -> None:
    run = healthy(clocks=slept(30.0, wall_s))
    finding = one(run, "wall_clock")
    assert finding.state is State.INFO
    assert way in finding.message
    assert look(run).verdict is Verdict.PASS


def test_a_clock_that_is_slewed_is_not_mentioned() -> None:
    assert all_of(healthy(clocks=slept(30.0, 30.9)), "wall_clock") == []


def test_all_ranks_growing_slower_by_more_than_the_margin_leave_no_verdict() -> None:
    """18 of 23 parts of 20 % lie between the quarters: 15.3 % more than 2.2."""
    run = rising_together(0.2)
    assert one(run, "drift").message.startswith("all ranks grew slower, by 15.3 % or more")
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_a_small_drift_of_all_is_said_and_changes_nothing() -> None:
    run = rising_together(0.05)
    assert one(run, "drift").state is State.INFO
    assert look(run).verdict is Verdict.PASS


def test_on_the_cpu_a_drift_leaves_no_verdict_above_its_own_margin() -> None:
    assert look(rising_together(0.4, on_cpu=True)).verdict is Verdict.PASS
    assert look(rising_together(0.9, on_cpu=True)).verdict is Verdict.INCONCLUSIVE


def test_blocks_that_resemble_the_ones_before_them_are_said() -> None:
    run = of_blocks([[100.0] * 24, [100.0] * 24, [100.0] * 24, wandering(1)])
    finding = one(run, "alike_blocks")
    assert finding.state is State.INFO
    assert "on rank 3): chance names a rank in more than 1 % of such runs" in finding.message


@pytest.mark.parametrize(("steps", "judged"), [(4, False), (5, True)])
def test_blocks_of_a_few_steps_leave_no_verdict(steps: int, judged: bool) -> None:
    run = make_run([make_attempt(steady([100.0, 100.0], steps=steps))])
    assert (all_of(run, "short_blocks") == []) is judged
    assert (look(run).verdict is Verdict.PASS) is judged


def test_one_device_has_no_peers_and_no_blocks_to_doubt() -> None:
    run = make_run([make_attempt(steady([100.0], steps=2))], solo=[make_solo(0, 90.0)])
    assert all_of(run, "short_blocks") == []


def test_a_run_without_the_window_of_fenced_blocks_has_no_late_sensor() -> None:
    run = sensed(0.5).model_copy(update={"phases": [Phase(name="ddp", attempt=0, begin_s=5.0, end_s=15.0)]})
    assert all_of(run, "late") == []
