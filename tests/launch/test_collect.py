"""From log lines, written by hand, to records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubalance.launch.collect import Measured, collect_measured, collect_passes
from gpubalance.record.job import Job, Slot
from gpubalance.record.rank_log import Event
from gpubalance.record.run import Phase, Skipped
from gpubalance.record.timings import STAGES
from tests.support import make_job

START_S = 1000.0
"""Of the run, on the clock of the log lines."""

VERSIONS = {"torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9"}


def line(event: str, t_s: float = 0.0, **values: Any) -> Event:
    """A log line, so many seconds after the start of the run."""
    return {"event": event, "t_s": START_S + t_s, **values}


def phase(name: str, begin_s: float, end_s: float | None, inside: list[Event] | None = None) -> list[Event]:
    """A phase with the lines in it; without its end when that is None."""
    end = [] if end_s is None else [line("phase_end", end_s, phase=name)]
    return [line("phase_begin", begin_s, phase=name), *(inside or []), *end]


def block(begin_s: float, *compute_ms: float) -> Event:
    return line(
        "block",
        begin_s + 1,
        begin=START_S + begin_s,
        compute_ms=list(compute_ms),
        fence_ms=[0.5] * len(compute_ms),
        transfer_ms=[2.0] * len(compute_ms),
    )


STEADY = line("steady", steps_per_block=22, step_ms=100.0, samples=8, units=1.0)
WARM_UP = line("warm_up", blocks=4, steps=40, settled=True, last_medians_ms=[1.0, 2.0, 3.0, 4.0])


def ddp(blocks: int, *, overlapped: int = 2, ended: bool = True, compute_ms: float = 100.0) -> list[Event]:
    """The lines of one rank's ddp phase."""
    return [
        WARM_UP,
        STEADY,
        *(block(float(index), compute_ms + index, compute_ms) for index in range(blocks)),
        *(line("overlapped", step_ms=120.0 + index) for index in range(overlapped)),
        *([line("ddp_end", loss=0.25)] if ended else []),
    ]


def collect(*ranks: list[Event], **values: Any) -> Measured:
    """What the logs of ranks 0, 1, ... hold."""
    job: Job = make_job(Path("/nowhere"), len(ranks), **values)
    return collect_measured(job, dict(enumerate(ranks)), START_S)


def test_a_rank_is_who_it_said_it_is_on_the_device_that_it_bound() -> None:
    device = line("device", slot=1, name="NVIDIA H200", uuid="GPU-b", versions=VERSIONS)
    (info,) = collect([line("hello", pid=4711), device], attempt=2).ranks
    assert info.model_dump() == {
        "rank": 0,
        "local_rank": 0,
        "attempt": 2,
        "pid": 4711,
        "device": 1,
        "device_name": "NVIDIA H200",
        "device_uuid": "GPU-b",
        "versions": VERSIONS,
    }


@pytest.mark.parametrize(
    "lines", [[], [line("hello", pid=1)], [line("device", slot=0, name="n", uuid=None, versions={})]]
)
def test_a_rank_that_did_not_get_so_far_is_nobody(lines: list[Event]) -> None:
    assert collect(lines).ranks == []


def test_a_phase_lasts_from_the_first_rank_that_begins_to_the_last_that_ends() -> None:
    measured = collect(phase("ddp", 5.25, 15.5), phase("ddp", 5.75, 15.125))
    assert measured.phases == [Phase(name="ddp", attempt=0, begin_s=5.25, end_s=15.5)]


def test_a_phase_that_one_rank_never_ended_has_no_end() -> None:
    (only,) = collect(phase("ddp", 5.0, 15.0), phase("ddp", 6.0, None)).phases
    assert (only.begin_s, only.end_s) == (5.0, None)


def test_a_phase_that_one_rank_never_began_has_no_end() -> None:
    (only,) = collect(phase("ddp", 5.0, 15.0), []).phases
    assert (only.begin_s, only.end_s) == (5.0, None)


def test_phases_stand_in_the_order_in_which_they_began_and_carry_their_attempt() -> None:
    lines = [*phase("join", 1.0, 2.0), *phase("solo", 2.0, 3.0), *phase("ddp", 3.0, None)]
    phases = collect(lines, lines[:4], attempt=1).phases
    assert [(p.name, p.attempt, p.end_s) for p in phases] == [("join", 1, 2.0), ("solo", 1, 3.0), ("ddp", 1, None)]


def window(name: str, edge: str, t_s: float) -> Event:
    return line("window", t_s, name=name, edge=edge)


def test_windows_of_rank_0_stand_behind_the_phases() -> None:
    inside = [window("ddp fenced", "begin", 6.0), window("ddp fenced", "end", 9.0)]
    theirs = [window("ddp fenced", "begin", 7.0), window("ddp fenced", "end", 8.0)]
    phases = collect(phase("ddp", 5.0, 15.0, inside), phase("ddp", 5.0, 15.0, theirs)).phases
    assert [(p.name, p.begin_s, p.end_s) for p in phases] == [("ddp", 5.0, 15.0), ("ddp fenced", 6.0, 9.0)]


def test_windows_may_lie_in_each_other_and_come_again() -> None:
    lines = [
        window("a", "begin", 1.0),
        window("b", "begin", 2.0),
        window("b", "end", 3.0),
        window("a", "end", 4.0),
        window("b", "begin", 5.0),
        window("b", "end", 6.0),
    ]
    found = [(p.name, p.begin_s, p.end_s) for p in collect(lines).phases]
    assert found == [("b", 2.0, 3.0), ("a", 1.0, 4.0), ("b", 5.0, 6.0)]


def test_a_window_with_one_edge_is_none() -> None:
    assert collect([window("a", "begin", 1.0), window("b", "end", 2.0)]).phases == []


def test_blocks_of_all_ranks_become_an_attempt() -> None:
    attempt = collect(ddp(2), ddp(2, compute_ms=110.0)).ddp
    assert attempt is not None
    assert attempt.complete
    assert (attempt.attempt, attempt.steps_per_block) == (0, 22)
    assert attempt.warm_up is not None
    assert attempt.warm_up.last_medians_ms == [1.0, 2.0, 3.0, 4.0]
    assert [rank.rank for rank in attempt.ranks] == [0, 1]
    assert [b.compute_ms for b in attempt.ranks[1].fenced] == [[110.0, 110.0], [111.0, 110.0]]
    assert [b.begin_s for b in attempt.ranks[0].fenced] == [0.0, 1.0]
    assert attempt.ranks[0].fenced[0].fence_ms == [0.5, 0.5]
    assert attempt.ranks[0].fenced[0].transfer_ms == [2.0, 2.0]
    assert attempt.ranks[0].overlapped_step_ms == [120.0, 121.0]
    assert (attempt.ranks[0].samples_per_step, attempt.ranks[0].units_per_step, attempt.ranks[0].loss) == (8, 1.0, 0.25)


def test_a_rank_works_on_the_device_of_its_slot() -> None:
    slots = (Slot(1, 1, "GPU-b", ()), Slot(0, 0, "GPU-a", ()))
    attempt = collect(ddp(1), ddp(1), slots=slots).ddp
    assert attempt is not None
    assert [rank.device for rank in attempt.ranks] == [1, 0]


def test_blocks_that_every_rank_finished_are_kept_when_one_crashes() -> None:
    attempt = collect(ddp(6, overlapped=0, ended=False), ddp(4, overlapped=0, ended=False)).ddp
    assert attempt is not None
    assert not attempt.complete
    assert [len(rank.fenced) for rank in attempt.ranks] == [4, 4]
    assert [rank.overlapped_step_ms for rank in attempt.ranks] == [[], []]
    assert [rank.loss for rank in attempt.ranks] == [None, None]


def test_an_attempt_is_complete_only_when_every_rank_ended_it() -> None:
    attempt = collect(ddp(2), ddp(2, ended=False)).ddp
    assert attempt is not None
    assert not attempt.complete


@pytest.mark.parametrize(
    "lines", [[], [WARM_UP], [WARM_UP, STEADY]], ids=["no ddp", "in the warm-up", "in the first block"]
)
def test_without_a_block_of_every_rank_there_is_no_attempt(lines: list[Event]) -> None:
    assert collect(ddp(5), lines).ddp is None


def test_a_loss_that_is_no_number_stays_null() -> None:
    lines = [*ddp(1, ended=False), line("ddp_end", loss=None)]
    attempt = collect(lines).ddp
    assert attempt is not None
    assert (attempt.complete, attempt.ranks[0].loss) == (True, None)


SOLO = {
    "eager_step_ms": 100.0,
    "graph_step_ms": 90.0,
    "graph_missing": None,
    "output_digest": "d",
    "samples_per_step": 8,
}
PROBE = {
    "gemm_tflops": 700.0,
    "memory_copy_gb_per_s": 4000.0,
    "host_to_device_gb_per_s": 50.0,
    "device_to_host_gb_per_s": 51.0,
}
MEMORY = {"peak_allocated_bytes": 1, "peak_reserved_bytes": 2, "capacity_bytes": 3}


def test_what_each_rank_measured_by_itself_carries_its_rank_and_device() -> None:
    slots = (Slot(1, 1, None, ()), Slot(0, 0, None, ()))
    lines = [line("solo", **SOLO), line("probe", **PROBE), line("memory", **MEMORY)]
    measured = collect(lines, lines, slots=slots)
    for found in (measured.solo, measured.probes, measured.memory):
        assert [(each.rank, each.device) for each in found] == [(0, 1), (1, 0)]
    assert measured.solo[0].eager_step_ms == 100.0
    assert measured.probes[1].device_to_host_gb_per_s == 51.0
    assert measured.memory[1].capacity_bytes == 3


def test_collectives_data_parallel_and_skips_are_told_by_rank_0() -> None:
    collective = {
        "collective": "all_reduce",
        "backend": "nccl",
        "mode": "eager",
        "ranks": 2,
        "size_bytes": 8192,
        "dtype": "float32",
        "iterations": 20,
        "time_us": 10.0,
        "time_max_us": 11.0,
        "algorithm_bandwidth_gb_per_s": 0.8,
        "bus_bandwidth_gb_per_s": 0.8,
        "wrong_elements": 0,
    }
    parallel = {
        "global_batch": 16,
        "shards": [8, 8],
        "step_ms": 20.0,
        "one_device_step_ms": 19.0,
        "peak_memory_bytes": [4, 1],
    }
    lines = [
        line("collective", **collective),
        line("data_parallel", **parallel),
        line("skipped", what="graph of all_reduce", reason="capture failed"),
    ]
    measured = collect(lines, lines)
    assert [row.size_bytes for row in measured.collectives] == [8192]
    assert measured.data_parallel is not None
    assert measured.data_parallel.shards == [8, 8]
    assert measured.skipped == [Skipped(what="graph of all_reduce", reason="capture failed")]


def test_lines_that_nobody_can_read_are_counted_by_rank() -> None:
    cut = line("unreadable", text='{"event": "blo')
    assert collect([line("hello", pid=1)], [cut, cut]).skipped == [
        Skipped(what="log of rank 1", reason="2 lines could not be read")
    ]


def test_a_rank_whose_step_count_could_not_be_read_leaves_no_attempt_instead_of_an_error() -> None:
    assert collect(ddp(2), [event for event in ddp(2) if event["event"] != "steady"]).ddp is None


def test_a_rank_whose_warm_up_could_not_be_read_leaves_it_open() -> None:
    attempt = collect([event for event in ddp(1) if event["event"] != "warm_up"]).ddp
    assert attempt is not None
    assert attempt.warm_up is None


def test_a_rank_that_never_said_bye_counts_like_any_other() -> None:
    without, with_bye = collect(ddp(2), ddp(2)), collect([*ddp(2), line("bye")], [*ddp(2), line("bye")])
    assert without == with_bye


def test_a_crew_that_wrote_nothing_measured_nothing() -> None:
    assert collect([], []) == Measured()


def test_lines_of_no_known_name_are_passed_over() -> None:
    assert collect([line("fence", fence=1), line("of another version", x=1)]) == Measured()


# Stages, host use and the device's own step

USE = {"wall_s": 1.0, "cpu_s": 0.9, "voluntary_switches": 4, "involuntary_switches": 2, "queued_s": 0.05}


def staged(*, first_ms: float = 1.0) -> list[Event]:
    """The lines of a ddp phase with all that a rank tells today."""
    blocks = [
        {**block(float(index), 100.0), "stages_ms": dict.fromkeys(STAGES, first_ms + index), "host": USE}
        for index in range(2)
    ]
    return [
        WARM_UP,
        STEADY,
        *blocks,
        line("collector", collector_ms=101.5),
        line("memory", **MEMORY),
        line("device_step", device_step_ms=95.0, device_step_missing=None),
        line("ddp_end", loss=0.25),
    ]


def test_stages_and_host_use_have_one_value_a_block() -> None:
    attempt = collect(staged(), staged(first_ms=3.0)).ddp
    assert attempt is not None
    first, second = attempt.ranks
    assert first.stages_ms == {stage: [1.0, 2.0] for stage in STAGES}
    assert second.stages_ms == {stage: [3.0, 4.0] for stage in STAGES}
    assert [use.model_dump() for use in first.host] == [USE, USE]
    assert (first.collector_ms, first.device_step_ms, first.device_step_missing) == (101.5, 95.0, None)


def test_a_rank_that_died_after_its_blocks_leaves_the_rest_open() -> None:
    attempt = collect(staged(), staged()[:4]).ddp
    assert attempt is not None
    second = attempt.ranks[1]
    assert (second.collector_ms, second.device_step_ms, second.device_step_missing) == (None, None, None)
    assert [len(values) for values in second.stages_ms.values()] == [2] * len(STAGES)


def test_blocks_without_stages_are_those_of_an_older_rank() -> None:
    attempt = collect(ddp(2)).ddp
    assert attempt is not None
    assert (attempt.ranks[0].stages_ms, attempt.ranks[0].host) == ({}, [])


# Many passes


def one_pass(number: int, begin_s: float, *, compute_ms: float = 100.0, ended: bool = True) -> list[Event]:
    """The lines of one rank's pass."""
    return [
        line("pass_begin", begin_s, number=number),
        WARM_UP,
        STEADY,
        window("ddp fenced", "begin", begin_s + 1),
        block(begin_s + 1, compute_ms, compute_ms),
        window("ddp fenced", "end", begin_s + 3),
        line("overlapped", step_ms=compute_ms + 20),
        line("memory", **MEMORY),
        line("ddp_end", loss=0.25),
        *([line("pass_end", begin_s + 5, number=number)] if ended else []),
    ]


HELLO = [line("hello", pid=7), line("device", slot=0, name="CPU", uuid=None, versions={})]


def passes(*ranks: list[Event], count: int) -> list[Measured]:
    job = make_job(Path("/nowhere"), len(ranks), phases=("passes",), passes=((),) * count)
    return collect_passes(job, dict(enumerate(ranks)), START_S)


def test_each_pass_is_measured_by_its_own_lines() -> None:
    first = [*HELLO, *phase("passes", 0.0, 20.0, [*one_pass(0, 1.0), *one_pass(1, 10.0)])]
    second = [*HELLO, *phase("passes", 0.0, 20.0, [*one_pass(0, 1.5), *one_pass(1, 10.5, compute_ms=200.0)])]
    healthy, slow = passes(first, second, count=2)
    assert healthy.ddp is not None
    assert slow.ddp is not None
    assert [rank.fenced[0].compute_ms[0] for rank in healthy.ddp.ranks] == [100.0, 100.0]
    assert [rank.fenced[0].compute_ms[0] for rank in slow.ddp.ranks] == [100.0, 200.0]
    assert [rank.overlapped_step_ms for rank in slow.ddp.ranks] == [[120.0], [220.0]]
    assert [(p.name, p.begin_s, p.end_s) for p in slow.phases] == [("ddp", 10.0, 15.5), ("ddp fenced", 11.0, 13.0)]
    assert [len(each.memory) for each in (healthy, slow)] == [2, 2]
    assert [len(each.ranks) for each in (healthy, slow)] == [2, 2]
    assert [each.pass_number for each in (healthy, slow)] == [0, 1]
    assert healthy.ddp.complete


def test_a_pass_that_one_rank_did_not_finish_is_none() -> None:
    whole = [*one_pass(0, 1.0), *one_pass(1, 10.0)]
    cut = [*one_pass(0, 1.0), *one_pass(1, 10.0, ended=False)]
    assert [each.pass_number for each in passes(whole, cut, count=2)] == [0]
    assert [each.pass_number for each in passes(whole, one_pass(0, 1.0), count=2)] == [0]


def test_a_pass_in_the_middle_whose_edge_nobody_can_read_is_left_out_and_the_others_keep_their_numbers() -> None:
    lines = [event for number in range(3) for event in one_pass(number, 10.0 * number)]
    torn = [event for event in lines if not (event["event"] == "pass_end" and event["number"] == 1)]
    assert [each.pass_number for each in passes(lines, torn, count=3)] == [0, 2]


def test_passes_of_nobody_are_none() -> None:
    assert passes(count=3) == []
    assert passes([], [], count=3) == []


def test_a_crew_of_passes_has_no_attempt_of_its_own() -> None:
    lines = [*HELLO, *one_pass(0, 1.0), *one_pass(1, 10.0)]
    measured = collect(lines, lines, passes=((), ()))
    assert (measured.ddp, measured.memory) == (None, [])
    assert len(measured.ranks) == 2
