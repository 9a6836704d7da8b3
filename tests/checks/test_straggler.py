"""Is a rank steadily slower: what is said, of whom, and how sure it must be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from gpubalance.analysis.attribution import CauseKind
from gpubalance.analysis.facts import compute_facts
from gpubalance.checks.cause_words import NAMES, NEXT_STEPS, OF_THE_DEVICE, OF_THE_RANK
from gpubalance.checks.finding import Finding, State
from gpubalance.checks.straggler import needs_confirmation
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import Run
from gpubalance.record.timings import DdpAttempt
from gpubalance.testing.evidence import Traces, run_with
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.analysis.cause_cases import ON_GPU, device_work, host, power_cap, thermal
from tests.checks.helpers import all_of, evidence, healthy, look, one


def attempt(
    compute_ms: Sequence[float], *, number: int = 0, rotated: bool = False, noise: float = 0.01, **values: Any
) -> DdpAttempt:
    """One look; `rotated` puts every rank on the next device."""
    ranks = len(compute_ms)
    devices = [(rank + 1) % ranks for rank in range(ranks)] if rotated else None
    times = steady(compute_ms, noise=noise, seed=number)
    return make_attempt(times, attempt=number, devices=devices, **values)


def straggler(*attempts: DdpAttempt, **values: Any) -> Finding:
    return one(make_run(attempts, **values), "straggler")


def second_look(compute_ms: Sequence[float], *, rotated: bool = True, **values: Any) -> DdpAttempt:
    return attempt(compute_ms, number=1, rotated=rotated, **values)


# Two looks


def test_slowness_that_follows_the_device_fails_it() -> None:
    """Device 3 is slow: rank 3 has it first, rank 2 after the rotation."""
    finding = straggler(attempt([100.0, 100, 100, 120]), second_look([100.0, 100, 120, 100]))
    assert finding.state is State.FAIL
    assert finding.message == "rank 3 is 20 % slower than its peers and costs 14.2 % of the step rate"
    assert finding.subject is not None
    assert finding.subject.startswith("rank 3 on cuda:3 nvml:3 GPU-00000004-")
    assert "it follows the device" in evidence(finding)
    assert finding.next_step is not None
    assert "that device" in finding.next_step


def test_slowness_that_follows_the_rank_fails_it_and_points_at_its_process() -> None:
    finding = straggler(attempt([100.0, 100, 100, 120]), second_look([100.0, 100, 100, 120]))
    assert finding.state is State.FAIL
    assert "it follows the rank" in evidence(finding)
    assert finding.next_step is not None
    assert "this rank's process" in finding.next_step


def test_of_two_ranks_the_slow_device_is_followed_to_the_other_rank() -> None:
    finding = straggler(attempt([100.0, 120], noise=0.0), second_look([120.0, 100]))
    assert finding.state is State.FAIL
    assert "rank 1 is 20 % slower than rank 0" in finding.message
    assert "it follows the device" in evidence(finding)
    assert "which of them is the abnormal one needs a baseline" in evidence(finding)


def test_slowness_seen_once_more_without_rotation_is_seen_again() -> None:
    """On the CPU ranks are not moved."""
    again = second_look([20.0, 40], rotated=False)
    finding = straggler(attempt([20.0, 40]), again, on_cpu=True)
    assert finding.state is State.FAIL
    assert "seen again in a second run" in evidence(finding)


def test_slowness_that_is_gone_is_not_confirmed() -> None:
    run = make_run([attempt([100.0, 100, 100, 120]), second_look([100.0] * 4)])
    finding = one(run, "straggler")
    assert finding.state is State.UNKNOWN
    assert finding.message.startswith("not confirmed: rank 3 was 20 % slower")
    assert "was gone in the second run" in finding.message
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_slowness_that_turns_up_elsewhere_is_not_confirmed() -> None:
    """Rank 3 first, rank 0 on device 1 then: neither the rank nor the device."""
    finding = straggler(attempt([100.0, 100, 100, 120]), second_look([120.0, 100, 100, 100]))
    assert finding.state is State.UNKNOWN


def test_a_second_look_that_never_came_confirms_nothing() -> None:
    finding = straggler(attempt([100.0, 120]))
    assert finding.state is State.UNKNOWN
    assert "could not be looked at again" in finding.message


def test_a_second_look_that_was_cut_short_does_not_say_that_slowness_is_gone() -> None:
    finding = straggler(attempt([100.0, 120]), make_attempt(steady([120.0, 100], blocks=5), attempt=1, devices=[1, 0]))
    assert finding.state is State.UNKNOWN
    assert "gone" not in finding.message
    assert "the second run was too short to tell" in finding.message


def test_a_weaker_second_look_does_not_say_that_slowness_is_gone() -> None:
    """12 % at first, 9 % then: above the warning margin, below the failing one."""
    finding = straggler(attempt([100.0, 100, 100, 112]), second_look([100.0, 100, 109, 100]))
    assert finding.state is State.UNKNOWN
    assert "gone" not in finding.message
    assert "the second run did not show clearly" in finding.message


def failing(run: Run) -> dict[int, str]:
    """Rank -> evidence of each straggler that fails."""
    return {
        int(finding.message.split()[1]): evidence(finding)
        for finding in all_of(run, "straggler")
        if finding.state is State.FAIL
    }


def test_each_slow_device_is_confirmed_by_itself() -> None:
    """Devices 1 and 3 at first; after the rotation only device 3, where rank 2 is now."""
    run = make_run([attempt([100.0, 120, 100, 130, 100, 100]), second_look([100.0, 100, 130, 100, 100, 100])])
    assert list(failing(run)) == [3]
    (other,) = [finding for finding in all_of(run, "straggler") if finding.state is State.UNKNOWN]
    assert "rank 1" in other.message


def test_a_slow_half_of_the_devices_is_followed_to_the_devices() -> None:
    """Devices 4 to 7 are slow, so that after the rotation ranks 3 to 6 are: most of them were slow before as well."""
    run = make_run([attempt([100.0] * 4 + [120.0] * 4), second_look([100.0] * 3 + [120.0] * 4 + [100.0])])
    assert sorted(failing(run)) == [4, 5, 6, 7]
    assert all("follows the device" in text for text in failing(run).values())


def test_ranks_that_share_slow_cores_are_not_taken_for_slow_devices() -> None:
    """Ranks 4 to 7 are slow on whatever device: after the rotation most of the devices that seemed slow still do."""
    slow = [100.0] * 4 + [120.0] * 4
    run = make_run([attempt(slow), second_look(slow)])
    assert sorted(failing(run)) == [4, 5, 6, 7]
    assert all("follows the rank" in text for text in failing(run).values())


def test_beside_a_failing_rank_a_slow_one_is_a_warning() -> None:
    run = make_run([attempt([100.0, 100, 107, 100, 100, 120]), second_look([100.0, 100, 100, 100, 120, 100])])
    assert [finding.state for finding in all_of(run, "straggler")] == [State.FAIL, State.WARN]


@pytest.mark.parametrize(("slow", "needed"), [(100.0, False), (108.0, False), (120.0, True)])
def test_only_what_would_fail_the_node_is_looked_at_again(slow: float, needed: bool) -> None:
    first = compute_facts(make_run([attempt([100.0, slow])]), 0.05, 0.10).first
    assert first is not None
    assert needs_confirmation(first) is needed


def test_transient_loss_that_would_fail_the_node_is_looked_at_again() -> None:
    compute = steady([100.0, 100.0])
    compute[1, :, ::5] *= 2
    first = compute_facts(make_run([make_attempt(compute)]), 0.05, 0.10).first
    assert first is not None
    assert needs_confirmation(first)


# Warnings


def test_eight_percent_warn_at_once() -> None:
    run = make_run([attempt([100.0, 100, 100, 108])])
    finding = one(run, "straggler")
    assert finding.state is State.WARN
    assert "rank 3 is 8 % slower than its peers" in finding.message
    assert "over 5 % in 24 of 24 blocks (20 needed)" in evidence(finding)
    assert finding.expected == "at most 1.05 x (fails above 1.10 x)"
    assert look(run).verdict is Verdict.WARN


def blocks(medians: Sequence[float]) -> Run:
    """Two ranks: rank 1 has these block medians, rank 0 has 100 ms in each."""
    times = np.array([[100.0] * len(medians), list(medians)])
    return make_run([make_attempt(np.repeat(times[:, :, None], 20, axis=2))])


def test_ten_percent_that_are_not_excluded_are_said() -> None:
    assert "10 % not excluded" in evidence(one(blocks([107.0] * 14 + [112.0] * 10), "straggler"))


def test_one_block_above_ten_percent_does_not_make_ten_percent_possible() -> None:
    """23 of 24 blocks lie within it, and 19 are enough to exclude it."""
    assert "not excluded" not in evidence(one(blocks([107.0] * 23 + [112.0]), "straggler"))


@pytest.mark.parametrize(("within", "excluded"), [(19, True), (18, False)])
def test_ten_percent_are_excluded_by_as_many_blocks_as_it_takes_to_name_a_straggler(
    within: int, excluded: bool
) -> None:
    finding = one(blocks([107.0] * within + [112.0] * (24 - within)), "straggler")
    assert ("10 % not excluded" not in evidence(finding)) is excluded


def test_a_rank_that_grows_slower_is_said_to_be_developing() -> None:
    finding = one(blocks([105.5 + 0.15 * block for block in range(24)]), "straggler")
    assert "developing: rank 1 lost 2.5 % of its speed over 18 s" in evidence(finding)


def test_a_steady_straggler_is_not_developing() -> None:
    run = make_run([attempt([100.0, 108])])
    assert "developing" not in evidence(one(run, "straggler"))
    assert all_of(run, "developing") == []


def test_a_rank_that_grows_slower_within_the_margin_is_information() -> None:
    """From +0 to +4.6 %: nothing is wrong yet. The first quarter has the median 0.5, the last 4.1, and 100.5 / 104.1 is
    96.5 %. Blocks begin a second apart.
    """
    run = blocks([100 + 0.2 * block for block in range(24)])
    finding = one(run, "developing")
    assert finding.state is State.INFO
    assert finding.message == "rank 1 lost 3.5 % of its speed over 18 s: 4.1 % slower than its peers at the end"
    assert look(run).verdict is Verdict.PASS


def test_a_rank_that_grows_faster_is_not_mentioned() -> None:
    """Its only peer then grows slower in proportion, and that is what is said."""
    (finding,) = all_of(blocks([104.6 - 0.2 * block for block in range(24)]), "developing")
    assert finding.message == "rank 0 lost 3.5 % of its speed over 18 s: not slower than its peers yet"


def test_a_rank_that_grew_slower_beyond_the_margin_is_not_pooled_with_its_beginning() -> None:
    """From +0 to +23 %: over 10 % in 13 of 24 blocks, which chance does as well, but steadily. The quarters have the
    medians 102.5 and 120.5; 1 - 102.5 / 120.5 is 14.9 %.
    """
    run = blocks([100.0 + block for block in range(24)])
    finding = one(run, "developing")
    assert (finding.state, finding.required) == (State.WARN, True)
    assert finding.message == "rank 1 lost 14.9 % of its speed over 18 s: 20.5 % slower than its peers at the end"
    assert "cause not attributed" in evidence(finding)
    assert all_of(run, "straggler") == []
    assert look(run).verdict is Verdict.WARN
    assert look(run).facts.attempts[0].pattern == "developing"


def test_a_rank_that_is_slow_for_sure_and_grows_slower_is_both() -> None:
    run = make_run([*blocks([112.0 + block for block in range(24)]).ddp, second_look([123.0, 100])])
    finding = one(run, "straggler")
    assert finding.state is State.FAIL
    assert "developing: rank 1 lost 13.6 % of its speed over 18 s" in evidence(finding)


# Causes


def named(slow: Traces, *, ranks: int = 4, **values: Any) -> Finding:
    """What is said of the last rank, seen twice with ranks where they were."""
    run = run_with([*[Traces()] * (ranks - 1), slow], attempts=2)
    return one(run.model_copy(update=values), "straggler")


def test_the_sentence_names_the_cause() -> None:
    """1755 / 1462.5 is 1.2; heat in 91 of 100 samples, and a power cap in all of them."""
    slow = replace(Traces().lower_clock(20.0, 0x20), reasons=(0x24,) * 91 + (0x4,) * 9)
    finding = named(replace(slow, counters={"thermal_violation_ns": 9_100_000_000}))
    assert finding.message == (
        "rank 3 is 20 % slower than its peers and costs 14.3 % of the step rate; "
        "thermal slowdown 91 % of the time, clock 1462 of 1755 MHz explains all of it"
    )
    assert "the driver counts thermal violations for 91 % of the phase" in finding.evidence
    assert finding.next_step is not None
    assert "airflow" in finding.next_step


def test_parts_that_do_not_explain_enough_are_told() -> None:
    """6 of 20 %: 30 %, beside 14 % of more work."""
    finding = named(device_work(Traces().lower_clock(6.0, 0x20), 14.0))
    assert finding.message == "rank 3 is 20 % slower than its peers and costs 14.3 % of the step rate"
    assert (
        "cause not attributed: more work on its device contributes 70 %, clock (heat) contributes 30 %"
        in finding.evidence
    )


def test_an_injected_fault_has_its_cause_and_needs_no_repair() -> None:
    finding = named(device_work(Traces(), 20.0), injected=["compute:rank=3,percent=20"])
    assert "more work on its device (stage forward) explains all of it" in finding.message
    assert finding.next_step == "none: this fault was injected on purpose"


def test_every_cause_has_a_name_and_a_next_step() -> None:
    assert set(NAMES) == set(NEXT_STEPS) == set(get_args(CauseKind))


def test_each_cause_is_said_in_its_own_words_and_leads_to_its_own_step() -> None:
    findings = {name: named(play(Traces(), 20.0)) for name, play in ON_GPU.items()}
    assert [name for name, finding in findings.items() if finding.next_step != NEXT_STEPS[name]] == []
    assert all(finding.message.endswith("explains all of it") for finding in findings.values())


@pytest.mark.parametrize("name", ON_GPU)
def test_a_cause_that_cannot_follow_what_the_slowness_followed_is_taken_back(name: str) -> None:
    """Rotated by one, the slowness is on the next rank (with its device), or on the same one (with its process)."""
    play = ON_GPU[name]
    first = run_with([*[Traces()] * 3, play(Traces(), 20.0)])
    with_device = run_with([Traces(), Traces(), play(Traces(), 20.0), Traces()]).ddp[0]
    with_rank = first.ddp[0]
    told = {}
    for follows, again in (("device", with_device), ("rank", with_rank)):
        moved = [rank.model_copy(update={"device": (rank.rank + 1) % 4}) for rank in again.ranks]
        second = again.model_copy(update={"attempt": 1, "ranks": moved})
        finding = one(first.model_copy(update={"ddp": [*first.ddp, second]}), "straggler")
        assert f"it follows the {follows}" in evidence(finding)
        told[follows] = "explains" in finding.message
    assert told == {"device": name not in OF_THE_RANK, "rank": name not in OF_THE_DEVICE}


# Different devices in one node


def mixed(*compute_ms: float, model: str = "NVIDIA H100", others: int = 2) -> Run:
    """The first ranks have H200s, the last ones another model."""
    run = make_run([make_attempt(steady(compute_ms))])
    count = len(compute_ms)
    devices = [
        device if index < count - others else device.model_copy(update={"name": model})
        for index, device in enumerate(run.plan.devices)
    ]
    return run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})


def test_a_slower_model_is_no_straggler_and_is_said_aloud() -> None:
    run = mixed(100.0, 100.0, 140.0, 140.0)
    assert one(run, "straggler").message == "nothing is slower than its peers of the same kind by 10 %"
    finding = one(run, "kinds")
    assert finding.state is State.INFO
    assert finding.message == (
        "2 x NVIDIA H200 and 2 x NVIDIA H100: each is held against its own kind; the slower kind sets the pace: "
        "140.00 ms against 100.00 ms"
    )
    judgement = look(run)
    assert judgement.verdict is Verdict.PASS
    assert judgement.sentence == (
        "every device keeps up with its own kind, and the slower kind sets the pace: balance 75.0"
    )


def test_the_balance_is_that_of_the_whole_node_whatever_its_kinds() -> None:
    """(100 + 20) / (140 + 20): that much of the rate is really lost."""
    first = compute_facts(mixed(100.0, 100.0, 140.0, 140.0), 0.05, 0.10).first
    assert first is not None
    assert first.balance.score == pytest.approx(75.0)


def test_a_straggler_among_its_own_kind_is_found_beside_a_slower_kind() -> None:
    (finding,) = all_of(mixed(100.0, 108.0, 140.0, 140.0), "straggler")
    assert finding.state is State.WARN
    assert "rank 1 is 8 % slower than rank 0" in finding.message


def test_a_straggler_that_waits_for_a_slower_kind_costs_what_it_adds() -> None:
    """Reference 100, two at 140, one at 115: its share of the stretch from 100 to 107.5 is a third, 2.5 of 160 ms."""
    found = one(mixed(100.0, 100.0, 100.0, 107.5, 140.0, 140.0), "straggler")
    assert "costs 1.6 % of the step rate" in found.message


def test_evidence_of_another_kind_is_not_held_against_a_rank() -> None:
    """Its device alone takes twice as long as one of the faster kind, and as long as its peers'."""
    quick = Traces()
    slow = Traces(stages_ms={stage: 2 * ms for stage, ms in quick.stages_ms.items()}, device_ms=190.0)
    asleep = replace(slow.longer(forward=30.0), blocked_ms=30.0)
    run = run_with([quick, quick, quick, slow, slow, asleep], attempts=2)
    devices = [
        each.model_copy(update={"name": "NVIDIA H100"} if at > 2 else {}) for at, each in enumerate(run.plan.devices)
    ]
    run = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})
    found = one(run, "straggler")
    assert "host time: its device alone, without the host, is as fast as its peers" in found.evidence


def test_each_of_several_slow_ranks_costs_its_own_part() -> None:
    """Ranks at 106.5 and 130 of 8 at 100, 20 ms of transfer: the first 6.5 ms are shared by both, 3.25 of 150."""
    run = make_run([make_attempt(steady([100.0] * 6 + [106.5, 130.0]))])
    first = compute_facts(run, 0.05, 0.10).first
    assert first is not None
    assert first.balance.steady_cost == pytest.approx([0] * 6 + [3.25 / 150, 26.75 / 150])
    assert sum(first.balance.steady_cost) == pytest.approx(1 - first.balance.persistent / 100)


def test_time_in_line_for_a_core_is_told_as_the_least_that_it_explains() -> None:
    """Of 20 ms 12 were measured in line; who waits for a thread in line is not counted."""
    peer = replace(Traces(), queued_ms=0.0)
    slow = replace(peer.longer(forward=20.0), blocked_ms=20.0, queued_ms=12.0)
    found = one(run_with([peer, peer, peer, slow], attempts=2), "straggler")
    assert found.message.endswith("(in line for 12.0 ms a step, peers 0.0 ms) explains at least 60 % of it")


def test_a_device_that_had_recovered_when_its_step_was_replayed_is_not_said_to_lose_host_time() -> None:
    hot = replace(Traces().lower_clock(20.0, 0x20), device_ms=95.0)
    found = named(hot)
    assert "clock (heat)" not in found.message
    assert "thermal slowdown" in found.message
    assert "replayed after these blocks, without the host, its device is as fast as its peers again" in found.evidence


def test_a_device_without_a_peer_of_its_kind_is_held_against_nobody() -> None:
    run = mixed(100.0, 100.0, 140.0, others=1)
    assert one(run, "straggler").state is State.PASS
    assert evidence(one(run, "kinds")) == "rank 2 has no peer of its kind and is held against nobody"


def test_two_devices_of_two_kinds_have_no_peers_at_all() -> None:
    run = mixed(100.0, 140.0, others=1)
    assert one(run, "straggler").state is State.SKIP


def test_a_lowered_power_limit_makes_no_kind_of_its_own() -> None:
    finding = named(power_cap(Traces(), 20.0))
    assert finding.state is State.FAIL
    assert "power limit 500 W against 700 W" in finding.message


def test_a_slow_majority_is_one_of_its_kind() -> None:
    """Five of eight H200s beside two H100s."""
    run = mixed(100.0, 100.0, 100.0, 120.0, 120.0, 120.0, 120.0, 120.0, 150.0, 150.0)
    run = run.model_copy(update={"ddp": [*run.ddp, run.ddp[0].model_copy(update={"attempt": 1})]})
    assert one(run, "straggler").message == "majority slow: 5 of 8 ranks are 20 % slower than the fast ones"


# No verdict


def test_a_machine_too_noisy_to_tell_has_no_verdict() -> None:
    """Half of the blocks 12 % over, half 4 %: neither slow nor fast for sure."""
    run = blocks([112.0, 104.0] * 12)
    finding = one(run, "straggler")
    assert finding.state is State.UNKNOWN
    assert "too noisy to tell a 10 % straggler from chance" in finding.message
    assert "rank 1 was over 10 % in 12 and within it in 12 of 24 blocks, 19 are needed" in evidence(finding)
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_how_busy_the_host_was_stands_beside_a_noisy_run() -> None:
    assert "host CPU 1 % busy before the run" in evidence(one(blocks([112.0, 104.0] * 12), "straggler"))


def test_too_few_blocks_have_no_verdict() -> None:
    finding = straggler(make_attempt(steady([100.0, 200.0], blocks=7)))
    assert finding.state is State.UNKNOWN
    assert "only 7 blocks were finished" in finding.message


def test_an_asked_phase_without_a_block_has_no_verdict() -> None:
    run = make_run()
    finding = one(run, "straggler")
    assert (finding.state, finding.required) == (State.UNKNOWN, True)
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_a_phase_that_was_not_asked_for_is_skipped() -> None:
    run = make_run()
    run = run.model_copy(update={"plan": run.plan.model_copy(update={"workloads": ["solo"]})})
    assert one(run, "straggler").state is State.SKIP


def test_one_device_has_no_peer_to_be_slower_than() -> None:
    assert one(make_run([attempt([100.0])]), "straggler").state is State.SKIP


# Majority


def test_a_slow_majority_seen_twice_fails_without_naming_anybody() -> None:
    slow = [100.0] * 3 + [120.0] * 5
    run = make_run([attempt(slow), second_look([100.0] * 2 + [120.0] * 5 + [100.0])])
    finding = one(run, "straggler")
    assert (finding.state, finding.subject) == (State.FAIL, None)
    assert finding.message == "majority slow: 5 of 8 ranks are 20 % slower than the fast ones"
    assert "no error rate is guaranteed" in evidence(finding)
    assert finding.next_step is not None
    assert finding.next_step.startswith("compare the fast devices with the slow ones")


@pytest.mark.parametrize(
    ("cause", "clause", "step"),
    [
        (thermal, "; clock (heat) explains it on each", "check airflow"),
        (host, "; the host explains it on each", "profile this rank"),
        (lambda seen, ms: host(thermal(seen, ms / 2), ms / 2), "", "compare the fast devices"),
    ],
)
def test_what_a_slow_majority_has_in_common_is_its_cause(
    cause: Callable[[Traces, float], Traces], clause: str, step: str
) -> None:
    run = run_with([Traces()] * 3 + [cause(Traces(), 20.0)] * 5, attempts=2)
    finding = one(run, "straggler")
    assert finding.message == f"majority slow: 5 of 8 ranks are 20 % slower than the fast ones{clause}"
    assert "ranks 3, 4, 5, 6, 7" in evidence(finding)
    assert finding.next_step is not None
    assert finding.next_step.startswith(step)


@pytest.mark.parametrize(
    ("again", "follows", "clause"),
    [
        ([100.0] * 3 + [120.0] * 5, "rank", ""),  # heat does not move with a rank
        ([100.0] * 2 + [120.0] * 5 + [100.0], "device", "; clock (heat) explains it on each"),
    ],
)
def test_the_cause_of_a_slow_majority_is_taken_back_when_it_moved_with_what_it_cannot(
    again: list[float], follows: str, clause: str
) -> None:
    run = run_with([Traces()] * 3 + [thermal(Traces(), 20.0)] * 5)
    finding = one(run.model_copy(update={"ddp": [*run.ddp, second_look(again)]}), "straggler")
    assert finding.state is State.FAIL
    assert finding.message == f"majority slow: 5 of 8 ranks are 20 % slower than the fast ones{clause}"
    assert f"seen again with ranks rotated: it follows the {follows}s" in evidence(finding)


def test_a_slow_majority_of_different_causes_is_told_and_not_explained() -> None:
    slow = [thermal(Traces(), 20.0)] * 3 + [power_cap(Traces(), 40.0)] * 2
    finding = one(run_with([Traces()] * 3 + slow, attempts=2), "straggler")
    assert finding.message == "majority slow: 5 of 8 ranks are 20 % to 40 % slower than the fast ones"
    assert "cause not attributed: clock (heat) on 3, clock (power) on 2" in evidence(finding)


def test_a_slow_majority_that_was_injected_needs_no_repair() -> None:
    finding = straggler(attempt([100.0] * 3 + [120.0] * 5), injected=["compute:rank=3,percent=20"])
    assert finding.next_step == "none: this fault was injected on purpose"


@pytest.mark.parametrize("second", [(), (second_look([100.0] * 8),)])
def test_a_slow_majority_seen_once_is_not_confirmed(second: tuple[DdpAttempt, ...]) -> None:
    finding = straggler(attempt([100.0] * 3 + [120.0] * 5), *second)
    assert finding.state is State.UNKNOWN
    assert "not confirmed" in finding.message


# Who is not named


@pytest.mark.parametrize("ranks", [3, 8])
def test_one_fast_device_makes_no_stragglers(ranks: int) -> None:
    assert look(make_run([attempt([80.0] + [100.0] * (ranks - 1))])).verdict is Verdict.PASS


def test_a_rank_with_more_data_is_no_slow_device() -> None:
    """1.5 times the data in 1.5 times the time."""
    run = make_run([attempt([100.0, 100, 100, 150], units=[1.0, 1.0, 1.0, 1.5])])
    assert one(run, "straggler").state is State.PASS
    assert look(run).verdict is Verdict.WARN
    assert one(run, "data_imbalance").state is State.WARN


def test_a_cpu_rank_twice_as_slow_fails_when_seen_twice_and_40_percent_only_warn() -> None:
    twice, again = attempt([20.0, 40]), second_look([20.0, 40], rotated=False)
    assert look(make_run([twice, again], on_cpu=True)).verdict is Verdict.FAIL
    assert look(make_run([attempt([20.0, 28])], on_cpu=True)).verdict is Verdict.WARN
    assert look(make_run([attempt([20.0, 24])], on_cpu=True)).verdict is Verdict.PASS


def test_an_injected_fault_is_found_and_needs_no_repair() -> None:
    run = make_run([attempt([100.0, 120]), second_look([100.0, 120])], injected=["compute:rank=1,percent=20"])
    finding = one(run, "straggler")
    assert finding.state is State.FAIL
    assert finding.next_step == "none: this fault was injected on purpose"


def test_the_cost_is_that_of_the_persistent_factor() -> None:
    """Everything but 110 ms of compute hidden: 100 / 125 of the rate is left."""
    finding = straggler(
        attempt([100.0, 125], noise=0.0, overlapped_ms=120.0), second_look([125.0, 100], noise=0.0, overlapped_ms=120.0)
    )
    assert "25 % slower" in finding.message
    assert "costs 20 % of the step rate" in finding.message


def test_device_time_stands_in_the_evidence() -> None:
    solo = [make_solo(0, 90.0), make_solo(1, 108.0)]
    run = make_run([attempt([100.0, 120]), second_look([120.0, 100])], solo=solo)
    assert "device time" in evidence(one(run, "straggler"))


def test_a_healthy_node_has_nothing_slower_than_its_margin() -> None:
    finding = one(healthy(), "straggler")
    assert finding.state is State.PASS
    assert "slower than its peers by 10 %" in finding.message


# Many ranks


def many(slow: Sequence[float], ranks: int = 64) -> list[float]:
    return [*slow, *[100.0] * (ranks - len(slow))]


def test_of_many_slow_ranks_the_worst_are_described_and_the_others_counted() -> None:
    """Ranks 0 to 19 are slower by 6.0 to 7.9 %."""
    run = make_run([attempt(many([106 + 0.1 * rank for rank in range(20)]), noise=0.0)])
    found = all_of(run, "straggler")
    assert [finding.state for finding in found] == [State.WARN] * 17
    assert found[0].message.startswith("rank 19 is 7.9 % slower")
    assert found[-1].message == "4 more ranks are slower than their peers, by up to 6.3 %"
    assert found[-1].evidence == ("ranks 3, 2, 1, 0",)


def test_ranks_that_are_only_counted_are_confirmed_like_those_that_are_described() -> None:
    """Ranks 2 to 17 are described; of ranks 0 and 30, device 0 is slow again and device 30 is not."""
    slow = [120.0, 100.0, *[140.0] * 16, *[100.0] * 12, 121.0]
    second = [100.0, *[140.0] * 16, *[100.0] * 46, 120.0]
    run = make_run([attempt(many(slow), noise=0.0), second_look(second, noise=0.0)])
    rest = [finding for finding in all_of(run, "straggler") if "more rank" in finding.message]
    assert [(finding.state, finding.message, finding.evidence) for finding in rest] == [
        (State.FAIL, "1 more rank is slower than its peers, by 20 %", ("rank 0",)),
        (State.UNKNOWN, "1 more rank is slower than its peers, by 21 %, not confirmed", ("rank 30",)),
    ]


def test_of_very_many_slow_ranks_the_causes_of_the_worst_are_looked_for_and_that_is_said() -> None:
    """Ranks 0 to 149 of 400 are slower by 6.00 to 7.49 %: the 128 slowest are ranks 22 to 149."""
    run = make_run([attempt(many([106 + 0.01 * rank for rank in range(150)], ranks=400), noise=0.0)])
    first = look(run).facts.first
    assert first is not None
    assert {each.rank for each in first.attributions} == set(range(22, 150))
    assert first.not_explained == 22
    *_, rest = all_of(run, "straggler")
    assert rest.message.startswith("134 more ranks are slower")
    assert rest.evidence[1:] == ("causes were looked for on the 128 slowest",)


def test_of_many_ranks_that_grow_slower_the_slowest_at_the_end_are_said() -> None:
    compute = attempt(many([100.0] * 20), noise=0.0)
    rising = [
        rank.model_copy(
            update={
                "fenced": [
                    block.model_copy(update={"compute_ms": [100 + (0.2 + 0.002 * rank.rank) * number] * 20})
                    for number, block in enumerate(rank.fenced)
                ]
            }
        )
        for rank in compute.ranks[:20]
    ]
    run = make_run([compute.model_copy(update={"ranks": [*rising, *compute.ranks[20:]]})])
    found = [finding.message for finding in all_of(run, "developing")]
    assert len(found) == 16
    assert found[0].startswith("rank 19 lost 4.1 % of its speed")
    assert found[15].startswith("rank 4 lost")
