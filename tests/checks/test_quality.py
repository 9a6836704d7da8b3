"""Checks on the measurement itself."""

from __future__ import annotations

from typing import Any

import pytest

from gpubalance.checks.finding import State
from gpubalance.checks.verdict import Verdict
from gpubalance.record.run import Run, RunError, Setting
from gpubalance.record.samples import CounterReading, ProcessMemory, Samples, SensorHealth
from gpubalance.record.timings import WarmUp
from gpubalance.testing.runs import make_attempt, make_node, make_run, steady
from tests.checks.helpers import all_of, evidence, healthy, look, one

# Errors


def error(kind: str, rank: int | None, message: str, *, first: bool = False, **values: Any) -> RunError:
    base = {"where": "work" if first else "collective", "phase": "ddp"}
    return RunError(kind=kind, rank=rank, message=message, first_cause=first, **{**base, **values})


def test_a_finished_run_says_so() -> None:
    assert one(healthy(), "complete").state is State.PASS


def test_the_first_cause_leads_and_the_others_follow_from_it() -> None:
    run = healthy(
        4,
        errors=[
            error("exception", 2, "ValueError: bad batch", first=True),
            error("exception", 0, "RuntimeError: connection closed by peer"),
            error("exception", 1, "RuntimeError: connection closed by peer"),
        ],
    )
    finding = one(run, "complete")
    assert finding.state is State.UNKNOWN
    assert finding.message == "rank 2 failed: ValueError: bad batch in phase ddp"
    assert finding.subject is not None
    assert finding.subject.startswith("rank 2 on cuda:2")
    assert evidence(finding) == "2 other errors followed from it"
    judgement = look(run)
    assert (judgement.verdict, judgement.sentence) == (Verdict.INCONCLUSIVE, finding.message)


def test_an_error_that_stands_alone_has_nothing_following_from_it() -> None:
    run = healthy(errors=[error("killed", 1, "killed by SIGKILL", first=True, phase=None)])
    finding = one(run, "complete")
    assert finding.message == "rank 1 killed by SIGKILL"
    assert finding.evidence == ()


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("out_of_memory", "--batch"),
        ("no_cuda", "--device cpu"),
        ("killed", "kernel log"),
        ("stalled", "NCCL_DEBUG=INFO"),
        ("stuck", "reboot"),
        ("exception", "saved record"),
    ],
)
def test_each_kind_of_error_has_its_next_step(kind: str, advice: str) -> None:
    finding = one(healthy(errors=[error(kind, 0, "something", first=True)]), "complete")
    assert finding.next_step is not None
    assert advice in finding.next_step


def test_an_error_of_nobody_in_particular_names_nobody() -> None:
    run = healthy(errors=[error("stalled", None, "all ranks entered the same step", first=True)])
    finding = one(run, "complete")
    assert (finding.message, finding.subject) == ("all ranks entered the same step in phase ddp", None)


def test_the_device_of_a_rank_is_the_one_of_that_attempt() -> None:
    attempts = [
        make_attempt(steady([100.0, 100.0])),
        make_attempt(steady([100.0, 100.0]), attempt=1, devices=[1, 0]),
    ]
    run = make_run(attempts, errors=[error("killed", 0, "killed by SIGBUS", first=True, attempt=1)])
    subject = one(run, "complete").subject
    assert subject is not None
    assert subject.startswith("rank 0 on cuda:1")


def test_a_process_that_cannot_be_killed_is_reported_though_everything_was_measured() -> None:
    stuck = RunError(kind="stuck", where="launch", message="pid 4711 sits in the kernel and cannot be killed")
    run = healthy(errors=[stuck])
    assert one(run, "complete").message == "pid 4711 sits in the kernel and cannot be killed"
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_a_process_that_cannot_be_killed_is_no_consequence_of_something_else() -> None:
    stuck = RunError(kind="stuck", where="launch", message="pid 4711 sits in the kernel and cannot be killed")
    run = healthy(errors=[error("stalled", 1, "made no progress for 60 s", first=True), stuck])
    first, second = all_of(run, "complete")
    assert first.evidence == second.evidence == ()
    assert second.message == stuck.message


def test_an_interrupted_run_has_no_verdict_and_keeps_what_it_measured() -> None:
    run = healthy(interrupted_by=15)
    assert "interrupted by signal 15" in one(run, "complete").message
    assert one(run, "straggler").state is State.PASS
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_a_process_that_cannot_be_killed_is_reported_in_an_interrupted_run_as_well() -> None:
    stuck = RunError(kind="stuck", where="launch", message="pid 4711 sits in the kernel and cannot be killed")
    messages = [finding.message for finding in all_of(healthy(interrupted_by=2, errors=[stuck]), "complete")]
    assert len(messages) == 2
    assert stuck.message in messages


def test_silent_corruption_fails_even_an_interrupted_run() -> None:
    solo = [each.model_copy(update={"output_digest": str(each.rank)}) for each in healthy().solo]
    assert look(healthy(solo=solo, interrupted_by=2)).verdict is Verdict.FAIL


# Host


def on_host(busy: float | None, *, on_cpu: bool) -> Run:
    node = make_node(cpu_busy_before=busy)
    return make_run([make_attempt(steady([20.0, 20.0], noise=0.02))], on_cpu=on_cpu, node=node)


def test_a_host_that_was_busy_before_leaves_no_verdict_on_cpu_ranks() -> None:
    run = on_host(0.31, on_cpu=True)
    finding = one(run, "host_busy")
    assert (finding.state, look(run).verdict) == (State.UNKNOWN, Verdict.INCONCLUSIVE)
    assert "the host was 31 % busy before the run" in finding.message


@pytest.mark.parametrize(("busy", "on_cpu"), [(0.30, True), (None, True), (0.42, False)])
def test_a_quiet_host_or_gpu_ranks_keep_their_verdict(busy: float | None, on_cpu: bool) -> None:
    assert all_of(on_host(busy, on_cpu=on_cpu), "host_busy") == []


def test_a_warm_up_that_ended_by_its_limit_is_information() -> None:
    warm_up = WarmUp(blocks=9, steps=90, settled=False, last_medians_ms=[1.0, 2.0, 3.0, 4.0])
    attempt = make_attempt(steady([100.0, 100.0])).model_copy(update={"warm_up": warm_up})
    run = make_run([attempt])
    assert one(run, "warm_up").state is State.INFO
    assert look(run).verdict is Verdict.PASS


# Sensor


def sensed(**values: Any) -> Run:
    return healthy(samples=Samples(health=SensorHealth(interval_s=0.1, ticks=300, missed_ticks=0, **values)))


def test_a_healthy_sensor_is_not_mentioned() -> None:
    assert all_of(sensed(lateness_max_ms=12.0), "sensor") == []


def test_a_driver_that_stopped_answering_is_a_warning_that_names_the_call() -> None:
    run = sensed(hung_in="nvmlDeviceGetPowerUsage on NVML index 3")
    finding = one(run, "sensor")
    assert finding.state is State.WARN
    assert "nvmlDeviceGetPowerUsage on NVML index 3 did not return" in finding.message
    assert look(run).verdict is Verdict.WARN


def test_a_sensor_that_died_is_a_warning_with_its_last_words() -> None:
    finding = one(sensed(died_with="exit code -11: Segmentation fault"), "sensor")
    assert finding.state is State.WARN
    assert "exit code -11: Segmentation fault" in finding.message


@pytest.mark.parametrize(("number", "told"), [(15, 0), (2, 1), (1, 1)])
def test_a_signal_to_all_processes_of_a_step_is_no_fault_of_the_sensor(number: int, told: int) -> None:
    """As `scancel` sends it. A sensor that another signal ended is still told."""
    health = sensed(died_with="exit code -15, it said nothing").model_copy(update={"interrupted_by": number})
    assert len(all_of(health, "sensor")) == told


@pytest.mark.parametrize("samples", [Samples(), Samples(health=SensorHealth(interval_s=0.1, ticks=0, missed_ticks=0))])
def test_step_times_decide_without_any_sensor(samples: Samples) -> None:
    assert look(healthy(samples=samples)).verdict is Verdict.PASS


def test_a_late_sensor_is_information_about_the_host() -> None:
    finding = one(sensed(lateness_max_ms=501.0), "sensor")
    assert (finding.state, "short of CPU" in finding.message) == (State.INFO, True)


# Processes of others


def with_processes(*processes: tuple[int, int, int | None]) -> Run:
    """Device, pid and rank of each process that was seen."""
    seen = [
        ProcessMemory(device=device, pid=pid, rank=rank, memory_used_bytes=2**30) for device, pid, rank in processes
    ]
    return healthy(samples=Samples(processes=seen))


OURS = ((0, 1000, 0), (1, 1001, 1))


def test_somebody_elses_process_during_the_run_is_a_warning_that_names_it() -> None:
    run = with_processes(*OURS, (1, 4242, None))
    finding = one(run, "foreign_process")
    assert finding.state is State.WARN
    assert "pid 4242 was on GPU 1 during the run" in finding.message
    assert finding.subject is not None
    assert finding.subject.startswith("cuda:1 nvml:1 GPU-00000002-")
    assert look(run).verdict is Verdict.WARN


def test_the_ranks_own_processes_are_not_foreign() -> None:
    assert all_of(with_processes(*OURS), "foreign_process") == []


def test_where_none_of_our_own_pids_is_listed_nobody_can_be_told_from_us() -> None:
    """Inside a container the driver may give the host's pids: that is told, and no pid is."""
    found = one(with_processes((0, 90001, None), (1, 90002, None)), "foreign_process")
    assert (found.state, found.required) == (State.INFO, False)
    assert "cannot be told from ours" in found.message
    assert "9000" not in found.message


def test_where_the_driver_lists_no_process_nothing_is_said() -> None:
    assert all_of(with_processes(), "foreign_process") == []


def test_a_rank_on_another_device_than_planned_leaves_no_verdict() -> None:
    run = healthy()
    moved = run.ranks[1].model_copy(update={"device_uuid": "GPU-99999999"})
    run = run.model_copy(update={"ranks": [run.ranks[0], moved]})
    assert one(run, "identity").message.startswith("rank 1 ran on GPU-99999999, planned was GPU-00000002-")
    assert look(run).verdict is Verdict.INCONCLUSIVE


def test_a_rank_that_cannot_tell_its_device_is_believed() -> None:
    run = healthy()
    silent = run.ranks[1].model_copy(update={"device_uuid": None})
    assert all_of(run.model_copy(update={"ranks": [run.ranks[0], silent]}), "identity") == []


def with_counters(*readings: CounterReading) -> Run:
    return healthy(samples=Samples(counters=list(readings)))


def test_counters_that_could_not_be_read_are_said_and_do_not_decide() -> None:
    run = with_counters(
        CounterReading(t_s=1.0, edge="ddp begin", device=0, values={"ecc_uncorrected": 0}),
        CounterReading(t_s=2.0, edge="ddp end", device=0, values={}, missing={"counters": "it ended with -11"}),
    )
    finding = one(run, "counters")
    assert finding.state is State.UNKNOWN
    assert finding.message == "error counters were not read at 1 phase edge: it ended with -11"
    assert look(run).verdict is Verdict.PASS


def test_counters_that_were_read_are_no_finding() -> None:
    assert (
        all_of(with_counters(CounterReading(t_s=1.0, edge="ddp end", device=0, values={"energy_mj": 1})), "counters")
        == []
    )


@pytest.mark.parametrize(("expected", "state"), [(2, State.PASS), (1, State.PASS), (3, State.FAIL)])
def test_a_node_with_fewer_gpus_than_expected_fails(expected: int, state: State) -> None:
    run = healthy(settings={"expect_gpus": Setting(value=expected, origin="flag")})
    assert one(run, "count").state is state
    assert (look(run).verdict is Verdict.FAIL) == (state is State.FAIL)


def test_a_torch_that_cannot_use_the_gpus_is_said_for_the_node_and_not_for_a_rank() -> None:
    text = "torch 2.13.0+cpu has no CUDA"
    run = healthy(errors=[error("no_cuda", 0, text, first=True), error("no_cuda", 1, text, first=False)])
    assert look(run).sentence == "2 GPUs found, but torch 2.13.0+cpu has no CUDA"
