"""All facts of a run, put together."""

from __future__ import annotations

import pytest

from gpubalance.analysis.facts import compute_facts
from gpubalance.record.run import Phase
from gpubalance.record.samples import DeviceSamples, Samples
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady


def test_the_facts_of_an_attempt_stand_by_rank() -> None:
    attempt = make_attempt(steady([100.0, 120.0]), devices=[1, 0], units=[1.0, 1.2], overlapped_ms=150.0)
    first = compute_facts(make_run([attempt]), 0.05, 0.10).first
    assert first is not None
    assert (first.device_of_rank, first.units) == ((1, 0), (1.0, 1.2))
    assert first.compute_ms == pytest.approx((100.0, 120.0))
    assert first.wait_ms == pytest.approx((20.0, 0.0))
    assert first.overlapped_ms == pytest.approx(150.0)


def test_the_time_measured_is_the_sum_of_all_kept_steps() -> None:
    """24 blocks of 20 steps of 120 + 20 ms, and the floor of 0.01 ms."""
    first = compute_facts(make_run([make_attempt(steady([100.0, 120.0]))]), 0.05, 0.10).first
    assert first is not None
    assert first.measured_s == pytest.approx(24 * 20 * 0.14001)


def test_the_first_attempt_is_the_one_that_is_judged() -> None:
    attempts = [make_attempt(steady([100.0, ms]), attempt=number) for number, ms in enumerate([120.0, 100.0])]
    facts = compute_facts(make_run(attempts), 0.05, 0.10)
    assert [attempt.stragglers.state for attempt in facts.attempts] == ["fail", "ok"]
    assert facts.first is facts.attempts[0]


def test_margins_decide_what_is_a_straggler() -> None:
    run = make_run([make_attempt(steady([100.0, 120.0]))])
    states = [compute_facts(run, *margins).attempts[0].stragglers.state for margins in ((0.05, 0.1), (0.1, 0.3))]
    assert states == ["fail", "warn"]


def test_transient_gates_are_wider_on_the_cpu() -> None:
    compute = steady([100.0, 100.0])
    compute[1, :, ::10] *= 2
    states = [
        compute_facts(make_run([make_attempt(compute)], on_cpu=on_cpu), 0.25, 0.5).attempts[0].transient.state
        for on_cpu in (False, True)
    ]
    assert states == ["warn", "ok"]


def test_samples_follow_the_rank_to_its_device() -> None:
    samples = Samples(
        t_s=[1.0], devices=[DeviceSamples(device=device, columns={"power_w": [300.0 + device]}) for device in (0, 1)]
    )
    run = make_run(
        [make_attempt(steady([100.0, 100.0]), devices=[1, 0])],
        samples=samples,
        phases=[Phase(name="ddp overlapped", attempt=0, begin_s=0.0, end_s=2.0)],
    )
    facts = compute_facts(run, 0.05, 0.10)
    assert [seen.power_w for seen in facts.sampled if seen] == [301.0, 300.0]
    assert facts.data_parallel_sampled == (None, None)


def test_useful_utilization_is_held_against_the_overlapped_step() -> None:
    run = make_run(
        [make_attempt(steady([100.0, 100.0]), overlapped_ms=125.0)], solo=[make_solo(0, 100.0), make_solo(1, 100.0)]
    )
    assert compute_facts(run, 0.05, 0.10).utilization.useful == pytest.approx((0.8, 0.8))


def test_a_run_without_the_ddp_phase_has_no_attempt_and_devices_all_the_same() -> None:
    facts = compute_facts(make_run(ranks=2), 0.05, 0.10)
    assert facts.first is None
    assert len(facts.sampled) == len(facts.data_parallel_sampled) == 2


def test_the_same_run_gives_the_same_facts() -> None:
    run = make_run([make_attempt(steady([100.0, 104.0, 99.0], noise=0.02))])
    assert compute_facts(run, 0.05, 0.10) == compute_facts(run.model_copy(deep=True), 0.05, 0.10)
