"""Throughput, against values worked out by hand."""

from __future__ import annotations

from gpubalance.checks.verdict import judge
from gpubalance.record.run import Run
from gpubalance.reports.workload_lines import throughput_lines
from gpubalance.testing.runs import make_attempt, make_run, make_solo, steady
from tests.reports.helpers import kept, pair, parallel, sampled, without_ddp


def throughput(run: Run) -> list[str]:
    return throughput_lines(run, judge(run).facts)


def test_ddp_is_held_against_one_device_and_against_all_together() -> None:
    # 2 x 4096 samples in 100 + 20 ms; alone 4096 in 100 ms: 68.3 k against 41.0 k and 81.9 k
    assert throughput(pair(100.0, 100.0)) == ["DDP 68 k samples/s = 1.67 x one device alone (83 % of all together)."]


def test_one_device_is_not_compared_with_itself() -> None:
    assert throughput(pair(100.0)) == ["DDP 34 k samples/s."]


def test_without_the_solo_phase_there_is_nothing_to_compare_with() -> None:
    assert throughput(pair(100.0, 100.0, solo=[])) == ["DDP 68 k samples/s."]


def test_without_ddp_the_devices_alone_are_shown() -> None:
    assert throughput(without_ddp()) == ["One device alone: 41 k samples/s."]


def test_without_any_of_them_nothing_is_said() -> None:
    assert throughput(make_run([])) == []


def test_small_rates_keep_their_digits() -> None:
    slow = make_run([], solo=[make_solo(0, None, samples=256, eager_step_ms=100.0)])
    assert throughput(slow) == ["One device alone: 2560 samples/s."]
    just_below = make_run([], solo=[make_solo(0, None, samples=9999, eager_step_ms=1000.0)])
    assert throughput(just_below) == ["One device alone: 9999 samples/s."]


def test_data_parallel_is_held_against_one_device_and_its_skew_is_called_normal() -> None:
    # 8192 samples in 20 ms; the same batch on one device in 22 ms; 8 and 4 GB
    *_, line = throughput(pair(100.0, 100.0, data_parallel=parallel()))
    assert line == (
        "DataParallel 410 k samples/s = 1.10 x one device with the whole batch; "
        "the first device holds 2.0 x the memory of the next: that is how DataParallel works, use DDP."
    )


def test_how_busy_data_parallel_keeps_the_devices_is_said_where_the_sensor_saw_it() -> None:
    run = kept("h200x2-healthy")
    *_, line = throughput(run)
    assert "1.8 x the memory of the next and devices are busy 93 %, 83 % of the time" in line


def test_a_device_that_the_sensor_did_not_see_leaves_the_sentence_out() -> None:
    run = pair(100.0, 100.0, data_parallel=parallel(), samples=sampled({0: {"utilization_percent": [50, 50, 50]}}))
    assert "busy" not in throughput(run)[-1]


def test_devices_that_data_parallel_does_not_feed_are_named_as_cuda_names_them() -> None:
    result = parallel(global_batch=10, shards=[2] * 5 + [0] * 3, peak_memory_bytes=[1] * 8)
    run = pair(*[100.0] * 8, data_parallel=result)
    assert throughput(run)[-1] == (
        "Not fed by DataParallel's arithmetic: cuda:5, cuda:6, cuda:7 (shards [2, 2, 2, 2, 2, 0, 0, 0])."
    )
    devices = [device.model_copy(update={"cuda_ordinal": 7 - place}) for place, device in enumerate(run.plan.devices)]
    turned = run.model_copy(update={"plan": run.plan.model_copy(update={"devices": devices})})
    assert "arithmetic: cuda:2, cuda:1, cuda:0 (" in throughput(turned)[-1]


def test_devices_that_are_all_fed_are_not_mentioned() -> None:
    assert "Not fed" not in " ".join(throughput(pair(100.0, 100.0, data_parallel=parallel())))


def test_memory_that_nobody_holds_is_not_divided_by() -> None:
    run = pair(100.0, 100.0, data_parallel=parallel(peak_memory_bytes=[5, 0]))
    assert throughput(run)[-1].endswith("with the whole batch; use DDP.")


def test_a_slow_rank_in_one_attempt_does_not_change_the_throughput_of_the_first() -> None:
    first = make_attempt(steady([100.0, 100.0]))
    second = make_attempt(steady([200.0, 200.0]), attempt=1)
    run = make_run([first, second], solo=[make_solo(0, 90.0), make_solo(1, 90.0)])
    assert throughput(run) == throughput(run.model_copy(update={"ddp": [first]}))
