"""Checks on the steps as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.analysis.steps import Array
from gpubalance.checks.finding import State
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import Run
from gpubalance.record.samples import QuotaReading
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.checks.helpers import all_of, evidence, healthy, look, one, with_setting

# Slowness now and then


def spikes(extra_ms: float, ranks: int = 8) -> Array:
    """Every tenth step of rank 3, or of the last rank, takes longer by so much."""
    compute = steady([100.0] * ranks)
    compute[min(3, ranks - 1), :, ::10] += extra_ms
    return compute


def looked_at(*computes: Array, **values: Any) -> Run:
    return make_run([make_attempt(compute, attempt=number) for number, compute in enumerate(computes)], **values)


def test_no_transient_loss_passes_and_is_required() -> None:
    finding = one(healthy(), "transient")
    assert (finding.state, finding.required) == (State.PASS, True)


def test_transient_loss_over_three_percent_warns_and_names_the_rank() -> None:
    """10 of 130 ms."""
    run = looked_at(spikes(100.0))
    finding = one(run, "transient")
    assert finding.state is State.WARN
    assert "cost 7.7 % of the step rate (intermittent, mostly rank 3)" in finding.message
    assert finding.subject is not None
    assert finding.subject.startswith("rank 3 on cuda:3")
    assert look(run).verdict is Verdict.WARN


def test_transient_loss_over_ten_percent_seen_twice_fails() -> None:
    """20 of 140 ms."""
    run = looked_at(spikes(200.0), spikes(200.0))
    finding = one(run, "transient")
    assert finding.state is State.FAIL
    assert "seen again in a second run" in evidence(finding)
    assert look(run).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("rank", "rotated", "subject", "told"),
    [
        (3, True, "rank 3 on cuda:3", "it follows the rank"),
        (2, True, "rank 3 on cuda:3", "it follows the device"),  # rank 2 is on device 3 then
        (3, False, "rank 3 on cuda:3", "seen again in a second run"),
        (5, True, None, "seen again in a second run, mostly on rank 5 instead of rank 3"),
    ],
)
def test_a_transient_loss_is_the_ranks_only_if_it_keeps_to_it(
    rank: int, rotated: bool, subject: str | None, told: str
) -> None:
    first, second = spikes(200.0), steady([100.0] * 8)
    second[rank, :, ::10] += 200.0
    devices = [(each + 1) % 8 for each in range(8)] if rotated else None
    run = make_run([make_attempt(first), make_attempt(second, attempt=1, devices=devices)])
    finding = one(run, "transient")
    assert finding.state is State.FAIL
    assert (finding.subject or "").startswith(subject or "")
    assert (finding.subject is None) == (subject is None) == ("no single rank" in finding.message)
    assert told in evidence(finding)


@pytest.mark.parametrize("second", [(), (steady([100.0] * 8),), (spikes(100.0),)], ids=["none", "healthy", "warning"])
def test_transient_loss_over_ten_percent_seen_once_is_not_confirmed(second: tuple[Array, ...]) -> None:
    run = looked_at(spikes(200.0), *second)
    finding = one(run, "transient")
    assert finding.state is State.UNKNOWN
    assert "not confirmed by a second run" in evidence(finding)
    assert look(run).verdict is Verdict.INCONCLUSIVE


def going_round() -> Array:
    compute = steady([100.0] * 8)
    for step in range(0, 20, 2):
        compute[step % 7, :, step] += 20
    return compute


def test_transient_loss_that_goes_round_names_nobody() -> None:
    finding = one(looked_at(going_round()), "transient")
    assert finding.subject is None
    assert "no single rank" in finding.message
    assert finding.evidence == ()


def test_beside_what_goes_round_stands_how_often_the_quota_stopped_everybody() -> None:
    run = looked_at(going_round())
    quota = [QuotaReading(t_s=5.0, periods=100, throttled=10), QuotaReading(t_s=15.0, periods=200, throttled=50)]
    run = run.model_copy(update={"samples": run.samples.model_copy(update={"quota": quota})})
    told = "the control group's CPU quota stopped its processes in 40 % of periods"
    assert told in evidence(one(run, "transient"))


def test_transient_loss_within_twice_of_what_jitter_costs_passes() -> None:
    assert one(looked_at(steady([100.0] * 8, steps=60, noise=0.05)), "transient").state is State.PASS


def test_a_gain_is_no_negative_loss() -> None:
    """Rank 3 is slow in 12 of 20 steps, so that its mean is below its median."""
    compute = steady([100.0] * 8)
    compute[3, :, :12] = 103.0
    assert one(looked_at(compute), "transient").message == "slowness now and then costs 0 %"


def test_one_rank_has_no_transient_loss() -> None:
    assert all_of(looked_at(spikes(200.0, ranks=1)), "transient") == []


def test_injected_transient_loss_needs_no_repair() -> None:
    run = looked_at(spikes(100.0), injected=["transient:rank=3,percent=100,every=10"])
    assert one(run, "transient").next_step == "none: this fault was injected on purpose"


# Uneven work


def with_samples(*samples: int) -> Run:
    """Ranks with so many samples a step; 4096 are planned, and time grows by less than the samples do."""
    units = [0.1 + 0.9 * each / 4096 for each in samples]
    attempt = make_attempt(steady([100.0 * each for each in units]), units=units)
    ranks = [
        rank.model_copy(update={"samples_per_step": each}) for rank, each in zip(attempt.ranks, samples, strict=True)
    ]
    return make_run([attempt.model_copy(update={"ranks": ranks})])


def test_more_data_on_one_rank_warns_and_names_it() -> None:
    run = with_samples(4096, 6144, 4096)
    finding = one(run, "data_imbalance")
    assert finding.state is State.WARN
    assert finding.message.startswith("rank 1 has 1.50 x the data of a rank")
    assert finding.subject is not None
    assert finding.subject.startswith("rank 1 on cuda:1")
    assert one(run, "straggler").state is State.PASS


@pytest.mark.parametrize(("samples", "warns"), [(4280, False), (4320, True)])
def test_a_few_percent_more_data_are_none(samples: int, warns: bool) -> None:
    """4.5 and 5.5 %."""
    assert bool(all_of(with_samples(4096, samples), "data_imbalance")) is warns


# Level


def at_level(*graph_ms: float, step_ms: float = 100.0, eager_ms: float = 50.0) -> Run:
    """Devices that compute so long in a step of 100 ms."""
    solo = [make_solo(rank, ms, eager_step_ms=eager_ms) for rank, ms in enumerate(graph_ms)]
    return make_run([make_attempt(steady([50.0] * len(graph_ms)), overlapped_ms=step_ms)], solo=solo)


def test_devices_that_compute_most_of_a_step_pass() -> None:
    assert one(at_level(80.0, 70.0), "level").message == "devices compute 70 % of a step or more"


def test_all_devices_at_28_percent_are_even_but_starved() -> None:
    run = at_level(28.0, 27.0)
    finding = one(run, "level")
    assert finding.state is State.WARN
    assert "even but starved: no device computes more than 28 %" in finding.message
    assert look(run).verdict is Verdict.WARN


@pytest.mark.parametrize(("highest", "state"), [(29.9, State.WARN), (30.0, State.PASS)])
def test_starved_begins_below_30_percent_of_the_busiest_device(highest: float, state: State) -> None:
    assert one(at_level(26.0, highest), "level").state is state


def test_a_step_that_is_mostly_launch_is_too_small_to_judge() -> None:
    """50 ms of host for 20 ms of device."""
    run = at_level(20.0, 20.0)
    finding = one(run, "too_small")
    assert (finding.state, finding.required) == (State.UNKNOWN, True)
    assert finding.next_step is not None
    assert "--batch" in finding.next_step
    assert look(run).verdict is Verdict.INCONCLUSIVE
    assert all_of(run, "level") == []


def test_without_replayed_graphs_there_is_no_level() -> None:
    run = make_run([make_attempt(steady([100.0, 100.0]))], solo=[make_solo(0, None), make_solo(1, 90.0)])
    assert all_of(run, "level") + all_of(run, "too_small") == []


# Communication


def test_a_communication_bound_node_is_told_that_the_score_is_a_lower_bound() -> None:
    run = make_run([make_attempt(steady([100.0, 100.0]), transfer_ms=140.0)])
    finding = one(run, "communication_bound")
    assert finding.state is State.INFO
    assert "moving gradients takes 1.40 x the compute, so the score is a lower bound" in finding.message
    assert look(run).verdict is Verdict.PASS


def test_a_node_that_computes_more_than_it_moves_is_not_communication_bound() -> None:
    assert all_of(make_run([make_attempt(steady([100.0, 100.0]), transfer_ms=49.0)]), "communication_bound") == []


# Score


def scored(wanted: Any) -> Run:
    """Rank 1 takes 4 % longer: B is 120 / 124."""
    return with_setting(make_run([make_attempt(steady([100.0, 104.0]))]), "min_score", wanted)


def test_a_score_below_the_wanted_one_fails() -> None:
    run = scored(97.0)
    finding = one(run, "min_score")
    assert (finding.state, finding.message) == (State.FAIL, "balance 96.8, --min-score asks for 97")
    assert look(run).verdict is Verdict.FAIL


def test_a_score_that_is_as_wanted_passes() -> None:
    assert one(scored(96.7), "min_score").state is State.PASS
    assert look(scored(96.7)).verdict is Verdict.PASS


def test_a_score_of_100_is_enough_when_100_is_wanted() -> None:
    run = with_setting(make_run([make_attempt(steady([100.0, 100.0]))]), "min_score", 100)
    assert one(run, "min_score").state is State.PASS


def test_by_default_no_score_is_wanted() -> None:
    assert all_of(scored(None), "min_score") + all_of(healthy(), "min_score") == []


def test_a_wanted_score_that_was_not_measured_leaves_no_verdict() -> None:
    run = with_setting(make_run(), "min_score", 90.0)
    assert one(run, "min_score").state is State.UNKNOWN
    assert look(run).verdict is Verdict.INCONCLUSIVE
