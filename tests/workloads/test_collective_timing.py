"""The clocks around a collective, on one rank: loops, graphs that cannot be captured, and single operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.record.collectives import CollectiveOptions
from gpubalance.record.rank_log import LogTail
from gpubalance.record.timings import Jitter
from gpubalance.workloads import collectives
from gpubalance.workloads.collective_timing import (
    ITERATIONS,
    Times,
    choose_iterations,
    graph_times,
    jitter,
    over_ranks,
    spread_of,
    timed,
)
from gpubalance.workloads.collectives import Work, fitting
from gpubalance.workloads.context import Context
from gpubalance.workloads.operations import Operation, Wrong
from gpubalance.workloads.timed_loop import FenceCounter
from tests.workloads.test_parts import make_context


class Steps:
    """A clock that goes on by so many ns a mark."""

    def __init__(self, step_ns: int = 1000) -> None:
        self.now, self.step, self.waits = 0, step_ns, 0

    def mark(self) -> int:
        self.now += self.step
        return self.now

    def milliseconds(self, begin: int, end: int) -> float:
        return (end - begin) / 1e6

    def wait(self) -> None:
        self.waits += 1

    def reach(self, mark: int) -> None:
        raise AssertionError("nothing waits for a single mark")


def context_of(folder: Path, clock: Any) -> Context:
    made = make_context(folder)
    return Context(made.job, 0, 1, made.slot, made.device, None, clock, made.log)


RIGHT = Wrong(0, None)


def operation(run: Any = lambda turn: turn, wrong: Wrong = RIGHT, name: str = "all_reduce") -> Operation:
    return Operation(name, "in_place", 4096, run, lambda: None, lambda: wrong)


def test_one_operation_that_is_not_timed_comes_first_and_one_wait_last(tmp_path: Path) -> None:
    turns: list[int] = []
    clock = Steps(step_ns=8000)
    context = context_of(tmp_path, clock)
    times = timed(context, FenceCounter(context.log), turns.append, 4)
    assert turns == [0, 0, 1, 2, 3]
    assert clock.waits == 2
    assert times.device_s == pytest.approx(8e-6 / 4)
    assert times.host_s > 0


@pytest.mark.parametrize(("step_ns", "count"), [(300_000_000, 20), (3_000_000, 40), (375_000, 320)])
def test_short_operations_are_repeated_until_the_loop_lasts(tmp_path: Path, step_ns: int, count: int) -> None:
    context = context_of(tmp_path, Steps(step_ns))  # one step is three operations
    assert choose_iterations(context, FenceCounter(context.log), lambda turn: turn) == count


@pytest.mark.parametrize(("once_s", "count"), [(0.05, 20), (0.5, 4), (2.9, 3), (14.0, 3)])
@pytest.mark.parametrize("compat", [False, True])
def test_slow_operations_end_within_the_deadline_of_a_step(
    tmp_path: Path, once_s: float, count: int, compat: bool
) -> None:
    """One fence is followed by the operation that is not timed and by these; four of 14 s are 56 of 60."""
    tried = 1 if compat else 3
    context = context_of(tmp_path, Steps(int(tried * once_s * 1e9)))
    chosen = choose_iterations(context, FenceCounter(context.log), lambda turn: turn, compat=compat)
    assert chosen == count
    assert (1 + max(tried, chosen)) * once_s < 60


def test_with_compat_short_operations_are_repeated_as_nccl_tests_does(tmp_path: Path) -> None:
    context = context_of(tmp_path, Steps(8000))
    assert choose_iterations(context, FenceCounter(context.log), lambda turn: turn, compat=True) == ITERATIONS


def test_an_error_behind_the_meeting_of_ranks_is_still_one_of_the_collective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control traffic inside a collective leaves it no plain work: the victim of a peer that died would be named."""
    context = context_of(tmp_path, Steps())
    two = Context(context.job, 0, 2, context.slot, context.device, None, context.clock, context.log)
    monkeypatch.setattr(torch.distributed, "all_gather_object", lambda _values, _value: None)

    def fail(_turn: int) -> None:
        raise RuntimeError("Read error: Connection reset by peer")

    with pytest.raises(RuntimeError):
        timed(two, FenceCounter(two.log), fail, 1)
    assert two.log.where == "collective"


def test_mean_and_slowest_rank_of_both_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [{"device_s": 1e-6, "host_s": 2e-6}, {"device_s": 3e-6, "host_s": 8e-6}]
    monkeypatch.setattr(Context, "gather", lambda _self, _own: others)
    assert over_ranks(context_of(tmp_path, Steps()), Times(0, 0)) == pytest.approx(
        {"device_time_us": 2, "device_time_max_us": 3, "host_time_us": 5, "host_time_max_us": 8}
    )


def test_of_each_single_operation_the_slowest_rank_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(tmp_path, Steps(step_ns=2000))
    monkeypatch.setattr(Context, "gather", lambda _self, own: [own, [1.0, 9.0, 1.0]] if own else [None])
    found = jitter(context, FenceCounter(context.log), lambda turn: turn, 3)
    assert found["p50_us"] == pytest.approx(2)  # of 2, 9, 2
    assert (found["max_us"], found["operations"]) == (9, 3)
    assert Jitter(**found)  # type: ignore[arg-type]


def test_spread_by_hand() -> None:
    found = spread_of([1.0] * 99 + [101.0])
    assert found == pytest.approx(
        {"operations": 100, "p50_us": 1, "p99_us": 1, "max_us": 101, "cv": 9.9499 / 2}, abs=1e-4
    )
    assert spread_of([2.0])["cv"] == 0


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=300))
def test_percentiles_are_values_in_order(times: list[float]) -> None:
    found = spread_of(times)
    assert found["p50_us"] <= found["p99_us"] * (1 + 1e-12)
    assert found["p99_us"] in times
    assert sum(time <= found["p99_us"] for time in times) >= 0.99 * len(times)


class FakeGraph:
    """What torch.cuda.CUDAGraph is asked for."""

    def __init__(self) -> None:
        self.replays, self.resets = 0, 0
        GRAPHS.append(self)

    def replay(self) -> None:
        self.replays += 1

    def reset(self) -> None:
        self.resets += 1


GRAPHS: list[FakeGraph] = []


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[FakeGraph]:
    """CUDA graphs without CUDA."""
    GRAPHS.clear()

    @contextmanager
    def capture(_graph: FakeGraph) -> Iterator[None]:
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    return GRAPHS


@pytest.mark.parametrize(("eager_s", "captured", "replays"), [(1e-5, 20, 200), (2e-3, 10, 3), (0.5, 4, 3)])
def test_a_graph_holds_few_large_operations_and_is_dropped(
    tmp_path: Path, graphs: list[FakeGraph], eager_s: float, captured: int, replays: int
) -> None:
    """Small ones are replayed until the loop lasts 40 ms: 200 x 20 x 10 us."""
    turns: list[int] = []
    context = context_of(tmp_path, Steps(step_ns=60_000))
    found = graph_times(context, FenceCounter(context.log), operation(turns.append), eager_s)
    assert isinstance(found, tuple)
    iterations, times = found
    assert turns == list(range(captured))
    assert iterations == replays * captured
    assert times.device_s == pytest.approx(60e-6 / iterations)
    assert (graphs[0].replays, graphs[0].resets) == (replays + 1, 1)


def test_an_operation_of_seconds_is_not_captured(tmp_path: Path, graphs: list[FakeGraph]) -> None:
    context = context_of(tmp_path, Steps())
    found = graph_times(context, FenceCounter(context.log), operation(), 1.3)
    assert found == "an operation takes 1.3 s, beside which launching it is nothing"
    assert graphs == []


def test_a_capture_that_fails_says_why_and_replays_nothing(tmp_path: Path, graphs: list[FakeGraph]) -> None:
    def refuse(_turn: int) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nCompile with ...")

    context = context_of(tmp_path, Steps())
    found = graph_times(context, FenceCounter(context.log), operation(refuse), 1e-3)
    assert found == "rank 0: operation not permitted when stream is capturing"
    assert (graphs[0].replays, graphs[0].resets) == (0, 1)


def test_a_rank_that_captured_does_not_replay_when_another_could_not(
    tmp_path: Path, graphs: list[FakeGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "gather", lambda _self, own: [own, "no stream"] if own is None else [own, own])
    context = context_of(tmp_path, Steps())
    assert graph_times(context, FenceCounter(context.log), operation(), 1e-3) == "rank 1: no stream"
    assert (graphs[0].replays, graphs[0].resets) == (0, 1)


def events_of(context: Context, name: str) -> list[dict[str, Any]]:
    return [event for event in LogTail(context.job.log_path(0).parent / "log.jsonl").read() if event["event"] == name]


def test_a_row_has_both_clocks_and_the_wrong_elements(tmp_path: Path) -> None:
    context = context_of(tmp_path, Steps(step_ns=4_000_000))
    assert Work(context, CollectiveOptions()).measure(operation(wrong=Wrong(3, 17)))
    (row,) = events_of(context, "collective")
    assert (row["wrong_elements"], row["first_wrong_rank"], row["first_wrong_index"]) == (3, 0, 17)
    assert (row["clock"], row["time_us"], row["placement"]) == ("device", row["device_time_us"], "in_place")
    assert row["algorithm_bandwidth_gb_per_s"] == pytest.approx(4096 / row["time_us"] / 1e3)
    assert row["bus_bandwidth_gb_per_s"] == 0  # one rank


def test_compat_is_twenty_iterations_and_the_clock_of_the_host(tmp_path: Path) -> None:
    context = context_of(tmp_path, Steps(step_ns=1000))
    Work(context, CollectiveOptions(compat=True)).measure(operation())
    (row,) = events_of(context, "collective")
    assert (row["iterations"], row["clock"], row["time_us"]) == (ITERATIONS, "host", row["host_time_us"])


def refusing(text: str) -> Operation:
    def refuse(_turn: int) -> None:
        raise RuntimeError(text)

    return operation(refuse, name="all_to_all")


def test_what_gloo_does_not_have_is_skipped_with_torchs_words(tmp_path: Path) -> None:
    context = context_of(tmp_path, Steps())
    assert not Work(context, CollectiveOptions()).measure(refusing("Backend gloo does not support it\nmore"))
    (skipped,) = events_of(context, "skipped")
    assert (skipped["what"], skipped["reason"]) == (
        "all_to_all of float32 over gloo",
        "Backend gloo does not support it",
    )
    assert context.log.where == "work"


@pytest.mark.parametrize("text", ["Connection closed by peer [127.0.0.1]", "Timed out waiting 1000ms", "Read error"])
def test_a_peer_that_went_away_is_an_error(tmp_path: Path, text: str) -> None:
    context = context_of(tmp_path, Steps())
    with pytest.raises(RuntimeError, match=text.split(" [", maxsplit=1)[0]):
        Work(context, CollectiveOptions()).measure(refusing(text))


def test_sizes_beyond_the_memory_are_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "_usable_bytes", lambda _context: 1000)
    context = context_of(tmp_path, Steps())
    assert fitting(context, CollectiveOptions(sizes=(8, 1000, 1001))) == [8, 1000]
    assert fitting(context, CollectiveOptions(sizes=(8, 512), names=("send_recv",))) == [8]  # two buffers
    told = [(event["what"], event["reason"]) for event in events_of(context, "skipped")]
    assert told == [
        ("collectives of 1001 bytes and more", "the rank with least free memory has room for 1000 bytes a buffer"),
        ("collectives of 512 bytes and more", "the rank with least free memory has room for 500 bytes a buffer"),
    ]
